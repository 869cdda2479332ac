"""One simulated provider: plans the answer of every request when the request has been received."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from lightgate.clock.source import SYSTEM, Clock
from lightgate.sim.answer.plan import AnswerPlan, ErrorAnswer, PlannedRequest
from lightgate.sim.answer.request import SOUND, WHOLE_KINDS
from lightgate.sim.answer.script import (
    HANG,
    WHOLE,
    Counts,
    Pace,
    Script,
    divide,
    stream_script,
    whole_script,
)
from lightgate.sim.answer.turns import Scripted, script_turn
from lightgate.sim.capacity import Bucket, PromptCache, Slots
from lightgate.sim.dialects.registry import tail_of
from lightgate.sim.faults import FaultCall, parse_fault
from lightgate.sim.weather import NS, Dice, Luck, Sky, SpeedCurve

if TYPE_CHECKING:
    from lightgate.sim.answer.request import SimRequest
    from lightgate.sim.world import AnswerShape, Stall, World, WorldModel, WorldProvider

DEFAULT_TOKENS = 100
# The largest limit of a request that its answer is as long as. A larger one is no wish: Anthropic
# demands a limit, and clients and gateways name the most that a model can do, such as 32,000.
MOST_TOKENS = 16_384


class SimProvider:
    """A provider with its weather, queue, rate limit, prompt cache and request numbers."""

    def __init__(
        self, name: str, world: World, *, seed: int, born_ns: int, clock: Clock = SYSTEM
    ) -> None:
        self.name = name
        self.spec: WorldProvider = world.providers[name]
        self._clock = clock
        self._seed = seed
        self._born_ns = born_ns
        self._sky = Sky(self.spec.weather or world.weather, seed, name)
        self._curves = {
            title: SpeedCurve(model.curve)
            for title, model in self.spec.models.items()
            if model.curve
        }
        self._slots = Slots(self.spec.slots) if self.spec.slots else None
        self._bucket = Bucket(self.spec.rate) if self.spec.rate else None
        self._cache = PromptCache(self.spec.cache) if self.spec.cache else None
        self._number = 0
        self.in_flight = 0

    def plan(
        self,
        request: SimRequest,
        received_ns: int,
        fault: FaultCall | None,
        *,
        batched: bool = False,
    ) -> PlannedRequest:
        """Decide everything about a request; the model must be one of this provider's.

        A line of a batch job (`batched`) waits in no queue and counts towards no rate limit.
        """
        number, self._number = self._number, self._number + 1
        self.in_flight += 1
        model = self.spec.models[request.model_name]
        dice = Dice(self._seed, self.name, number)
        load = self.spec.load or self.in_flight
        fault = fault or self._rule(model, number, dice)
        if fault is not None and fault.fault.streams_only and not request.stream:
            fault = None
        scripted = script_turn(model.turns, request)
        counts, reason = _length(request, model.shape, scripted)
        plan = AnswerPlan(
            shape=model.shape,
            script=Script(streamed=request.stream),
            wall_s=self._clock.wall_ns() / NS,
        )
        tokens = request.tokens_in + counts.total * request.answers
        wait_s = None if batched else self._limit(plan, tokens, received_ns)
        if fault is not None and fault.fault.early is not None:
            fault.fault.early(plan, fault.argument)
        luck = self._luck(request.model_name, dice, load, received_ns)
        pace = _pace(model, dice, luck, counts, number)
        outcome = fault.outcome(streamed=request.stream) if fault is not None else "ok"
        if wait_s is not None:
            plan.error = _busy(wait_s)
            outcome, fault = "rate_limited", None
        elif fault is None and luck is not None and (luck.fails or luck.hangs):
            outcome = self._misfortune(plan, luck)
        cached = 0
        if len(plan.script) == 0 and plan.error is None and self._cache is not None:
            cached = self._cache.read(request.model_name, request.prompt, received_ns)
            ttft_ns = self._cache.faster(pace.ttft_ns, cached, request.tokens_in)
            pace = pace._replace(ttft_ns=ttft_ns)
        if len(plan.script) == 0:
            _write_script(plan, request, counts, pace)
            if fault is not None and fault.fault.late is not None:
                fault.fault.late(plan, fault.argument)
                if plan.error is not None:
                    _write_error(plan, plan.script.end_ns)
        start_ns, slot = (received_ns, None) if batched else self._admit(plan, received_ns)
        return PlannedRequest(
            number=number,
            id=blake2b(f"{self._seed}/{self.name}/{number}".encode(), digest_size=12).hexdigest(),
            start_ns=start_ns,
            plan=plan,
            counts=_counted(plan, counts),
            reason="stop" if plan.empty else "length" if plan.hidden else reason,
            scripted=scripted,
            load=load,
            outcome=outcome,
            fault=fault.text if fault is not None else None,
            weather=_named(luck),
            cached=cached,
            answers=request.answers,
            slot=slot,
        )

    def over(self, planned: PlannedRequest, now_ns: int, *, gone: bool) -> None:
        """End a request; an abandoned one gives its slot back."""
        self.in_flight -= 1
        if gone and planned.slot is not None and self._slots is not None:
            slot, held_until_ns = planned.slot
            self._slots.release(slot, held_until_ns, now_ns)

    def _limit(self, plan: AnswerPlan, tokens: int, received_ns: int) -> float | None:
        """Count a request towards the limits; the seconds that it is refused for, None if not."""
        bucket, rate = self._bucket, self.spec.rate
        if bucket is None or rate is None:
            return None
        wait_s = bucket.take(received_ns, tokens)
        if rate.headers:
            plan.limits = bucket.stated(refused=wait_s is not None)
        return wait_s

    def _rule(self, model: WorldModel, number: int, dice: Dice) -> FaultCall | None:
        """The first rule that fits; shares stack, so that each has its own part of the dice."""
        floor = 0.0
        for rule in (*model.faults, *self.spec.faults):
            hit = rule.every > 0 and number % rule.every == rule.phase % rule.every
            hit = hit or floor <= dice.fault < floor + rule.share
            floor += rule.share
            if hit:
                return parse_fault(f"{rule.name}:{rule.arg}" if rule.arg else rule.name)
        return None

    def _luck(self, model: str, dice: Dice, load: int, received_ns: int) -> Luck | None:
        curve = self._curves.get(model)
        if curve is None:
            return None
        return self._sky.luck(curve.at(load), dice, (received_ns - self._born_ns) / NS)

    def _misfortune(self, plan: AnswerPlan, luck: Luck) -> str:
        weather = self._sky.weather
        if luck.fails and weather is not None:
            plan.error = ErrorAnswer(503, "The simulated provider failed.")
            _write_error(plan, round(weather.fail_s * NS))
            return "http_error"
        plan.script.add(0, HANG)
        return "timeout"

    def _admit(self, plan: AnswerPlan, received_ns: int) -> tuple[int, tuple[int, int] | None]:
        if self._slots is None or plan.error is not None:
            return received_ns, None
        slot, start_ns = self._slots.start(received_ns)
        until_ns = start_ns + plan.script.end_ns
        self._slots.hold(slot, until_ns)
        return start_ns, (slot, until_ns)


def _counted(plan: AnswerPlan, counts: Counts) -> Counts:
    """The tokens that the usage counts, once the plan is made."""
    if plan.empty:
        return Counts(0, 0, 0, 0)
    return Counts(0, counts.total, 0, 0) if plan.hidden else counts


def _length(
    request: SimRequest, shape: AnswerShape, scripted: Scripted | None
) -> tuple[Counts, str]:
    """The tokens of the answer by kind, and why it ends."""
    if request.kind in WHOLE_KINDS:
        return Counts(0, 0, 0, 0), "stop"
    if scripted is not None:
        return scripted.length(request.cap, shape.reasoning)
    wished = request.cap if request.cap is not None and request.cap <= MOST_TOKENS else None
    natural = max(shape.tokens or wished or DEFAULT_TOKENS, request.least)
    total, cut = natural, shape.tokens is None and natural == wished and shape.ends == "length"
    if request.cap is not None and (request.fill or request.cap < natural):
        total, cut = request.cap, True
    elif cut and (request.tool or shape.answer != "text") and not request.no_tool:
        cut = False  # a call that is whole
    if request.kind == "completions" or request.kind in SOUND:
        hidden = min(round(total * shape.hidden), total - 1)
        return Counts(0, hidden, total - hidden, 0), "length" if cut else "stop"
    if request.no_tool:
        shape = msgspec.structs.replace(shape, answer="text")
    counts = divide(total, shape, tool=request.tool and request.tool_name is not None)
    return counts, "length" if cut else "tool" if counts.tool else "stop"


def _pace(model: WorldModel, dice: Dice, luck: Luck | None, counts: Counts, number: int) -> Pace:
    exact = model.exact
    if exact is None:
        if luck is None:
            raise ValueError("a model without an exact script has a curve")
        after = max(round(luck.mid_stall_at * counts.streamed), 1)
        return Pace(luck.ttft_ns, round(NS / luck.tps), luck.mid_stall_ns, after)
    gap = exact.gap_ms
    gaps: int | list[int]
    if isinstance(gap, tuple):
        gaps = dice.gaps_ns(gap[0], gap[1], counts.streamed)
    else:
        gaps = round(gap * 1e6)
    ttft_ns, stall = round(exact.ttft_ms * 1e6), model.shape.stall
    if stall is None or not _stalls(stall, number, dice):
        return Pace(ttft_ns, gaps)
    return Pace(ttft_ns, gaps, round(stall.ms * 1e6), max(round(stall.at * counts.streamed), 1))


def _stalls(stall: Stall, number: int, dice: Dice) -> bool:
    if stall.every:
        return number % stall.every == stall.phase % stall.every
    return dice.mid < stall.share


def _write_script(plan: AnswerPlan, request: SimRequest, counts: Counts, pace: Pace) -> None:
    if plan.error is not None:
        _write_error(plan, 0)
    elif request.stream and request.kind not in WHOLE_KINDS:
        plan.script = stream_script(counts, pace, plan.shape, tail_of(request, plan.shape))
    else:
        plan.script = whole_script(counts, pace)


def _write_error(plan: AnswerPlan, at_ns: int) -> None:
    plan.script = Script(streamed=False)
    plan.script.add(at_ns, WHOLE)


def _busy(wait_s: float) -> ErrorAnswer:
    # Rounded up, so that a client that waits that long passes.
    whole = int(wait_s) + 1
    return ErrorAnswer(429, "Rate limit reached.", ((b"retry-after", b"%d" % whole),))


def _named(luck: Luck | None) -> str | None:
    """The weather of one request in words; None under a clear sky."""
    if luck is None:
        return None
    flags = (
        ("bad", luck.bad),
        ("shock", luck.shock),
        ("fail", luck.fails),
        ("hang", luck.hangs),
        ("stall", luck.stalls),
        ("mid-stall", luck.mid_stall_ns > 0),
    )
    return ",".join(name for name, flag in flags if flag) or None
