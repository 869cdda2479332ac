"""A played day: attempts at four targets, what is learned of them, and the plans made meanwhile.

The same day is played each time: its numbers come from a generator with a seed, its time from the
list of its events. Every few events a line says what is believed of a target, or what is planned.
`fixtures/played` has the lines as they were last looked at; `python -m route.played` (from tests/)
writes them anew: read what differs.
"""

from __future__ import annotations

import heapq
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lightgate.route.admission.admission import Admission, AnswerFacts
from lightgate.route.admission.headers import RateFact
from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Prior
from lightgate.route.form.slo import ServiceLevels
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import FORBIDDEN, RATE_LIMITED, SERVER
from lightgate.route.observe import Observer
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide
from lightgate.route.plan.hedge import HedgeBudgets, TargetPrice
from lightgate.route.plan.policy import ASKABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.route.plan.plan import Plan

FILE: Final = Path(__file__).parents[1] / "fixtures" / "played" / "route.json"
S: Final = 1_000_000_000
NAMES: Final = ("a/m", "b/m", "c/m", "d/m")
# Seconds to a first token alone, tokens per second, and from how many in flight on requests wait.
NATURE: Final = {"a/m": (0.2, 90.0, 4), "b/m": (0.4, 200.0, 8), "c/m": (0.6, 60.0, 2),
                 "d/m": (0.3, 120.0, 20)}  # fmt: skip
PRIORS: Final = {
    "a/m": Prior(220.0, 600.0, 80.0, 50.0), "b/m": Prior(300.0, 900.0, 150.0, 90.0, 20.0),
    "c/m": Prior(500.0, 900.0, 70.0, 40.0, 2.0),
}  # fmt: skip
PRICES: Final = {
    "a/m": TargetPrice(300.0, 1500.0, 30.0), "b/m": TargetPrice(250.0, 2000.0, abort_stops=False),
    "c/m": TargetPrice(100.0, 400.0), "d/m": TargetPrice(500.0, 1400.0, 50.0),
}  # fmt: skip
LEVELS: Final = ServiceLevels(ttft_p50=400_000_000, ttft_p95=900_000_000, speed_p50=70.0)
REQUESTS, EVERY = 600, 9


def number(value: float | None) -> str:
    """A number with as many digits as every library of mathematics agrees upon."""
    return "-" if value is None else f"{round(value, 12):.7g}"


def aliases() -> list[Alias]:
    """Models with each policy, and with each way to start a second attempt."""
    found = []
    for place, policy in enumerate(ASKABLE):
        hedge = ("auto", "p90", "800ms", "off")[place % 4]
        targets = NAMES[place % 2 : 4 - (place % 3 == 2)]
        weights = tuple(float(n) for n in range(len(targets))) if place % 5 == 1 else ()
        found.append(
            Alias(name=f"m{place}", targets=targets, policy=policy, hedge=hedge, weights=weights)
        )
    found += [
        Alias(name="race", targets=NAMES, policy="fastest", race=3, retries=1),
        Alias(name="slo", targets=NAMES, policy="cheapest", slo=LEVELS, hedge="auto"),
        Alias(name="late", targets=NAMES, policy="latency", ttft_timeout_ns=3 * S, hedge="p95"),
        Alias(name="self", targets=("a/m",), policy="fastest", self_hedge=True, hedge="auto"),
    ]
    return found


class Day:
    """Attempts at the targets, in the order of their ends, and what is learned of them."""

    def __init__(self, seed: int, per_second: float, *, reading: bool = False) -> None:
        self._per_second = per_second
        self._reading = reading  # nearly all at one target, and longer prompts take longer
        self.chance = random.Random(seed)  # noqa: S311 - a game
        self.forms = Forms(PRIORS)
        self.other = Forms(PRIORS)  # of another worker
        self.breakers = Breakers(Rules(), self.chance.random)
        self.budgets = HedgeBudgets()
        self.observer = Observer(self.breakers, self.forms, self.budgets)
        self.aliases = aliases()
        self.lines: list[str] = []
        self.now = 1000 * S
        self._ends: list[tuple[int, int, Callable[[], None]]] = []
        self._begun = 0
        self._flying = dict.fromkeys(NAMES, 0)

    def play(self) -> list[str]:
        """Play all of the day; its lines."""
        for place in range(REQUESTS):
            pause_s = 90.0 if place % 190 == 189 else self.chance.expovariate(self._per_second)
            self._pass_to(self.now + int(pause_s * S))
            self._begin(place)
            if place % EVERY == 0:
                self._write(place)
            if place % 100 == 50 and not self._reading:
                self._exchange_with_another()
        self._pass_to(self.now + 600 * S)
        for name in NAMES:
            self._believe(name, 4)
        return self.lines

    def _pass_to(self, now: int) -> None:
        while self._ends and self._ends[0][0] <= now:
            self.now, _, end = heapq.heappop(self._ends)
            end()
        self.now = now

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._begun += 1
        heapq.heappush(self._ends, (self.now + int(seconds * S), self._begun, call))

    def _begin(self, place: int) -> None:
        """Start an attempt; how it goes is drawn now."""
        chance, now = self.chance, self.now
        target = NAMES[int(chance.random() ** (8 if self._reading else 2) * 4)]
        size = 1 + 3 * int(6 * chance.random()) if self._reading else int(chance.random() ** 2 * 18)
        first_s, speed, room = NATURE[target]
        bad = target == "a/m" and 300 <= place < 420
        waits = max(0, self._flying[target] + 1 - room) * 0.15
        length = 1.3 ** (size // 3)
        ttft_s = first_s * length * (0.7 + 0.6 * chance.random()) * (4.0 if bad else 1.0) + waits
        if chance.random() < 0.02:
            ttft_s *= 20.0
        tokens = int(20 + 400 * chance.random())
        speed *= (0.8 + 0.4 * chance.random()) * (0.5 if bad else 1.0)
        self._flying[target] += 1
        self.observer.arrived("k")
        self.observer.began(target, now)
        kind = chance.random()
        if kind < 0.04 + 0.3 * bad:
            self._later(0.3, lambda: self._failed(target, size, now, kind))
        elif ttft_s > 6.0 or kind > 0.97:
            self._later(min(2.0, 0.8 * ttft_s), lambda: self._lost(target, size, now))
        else:
            self._later(ttft_s, lambda: self.observer.spoke(target, size, self.now, now))
            decode_s = tokens / speed
            self._later(
                ttft_s + decode_s, lambda: self._ended(target, now, tokens, int(decode_s * S))
            )

    def _ended(self, target: str, began: int, tokens: int, decode_ns: int) -> None:
        self._flying[target] -= 1
        self.observer.succeeded(target, self.now, began, (tokens, decode_ns))
        ttft_ns = self.now - decode_ns - began
        self.observer.answered("slo", ttft_ns, (tokens, decode_ns))

    def _failed(self, target: str, size: int, began: int, kind: float) -> None:
        self._flying[target] -= 1
        failure = (SERVER, RATE_LIMITED, FORBIDDEN)[int(kind * 1000) % 3]
        wait_s = (None, 0.5, 3.0, 70.0)[int(kind * 10_000) % 4]
        self.observer.failed(target, size, self.now, began, (failure, wait_s))
        if kind < 0.01:
            self.observer.unanswered("slo")

    def _lost(self, target: str, size: int, began: int) -> None:
        self._flying[target] -= 1
        self.observer.lost(target, size, self.now, began, spoke=False)

    def _exchange_with_another(self) -> None:
        """Let another worker learn from this one, and this one from that."""
        self.other.adopt(self.forms.export(), self.now)
        for n in range(6):
            self.other.started("b/m", self.now + n)
        for n in range(6):
            self.other.first("b/m", n, self.now + S + n, int((0.5 + 0.1 * n) * S))
        self.forms.beside({"other": (self.now, {"b/m": 3, "d/m": 1})}, self.now)
        self.forms.adopt(self.other.export(), self.now)
        self.forms.engine("d/m", 5, self.now)
        fact = RateFact("requests", 60.0, 2.0, 4.0, 60.0)
        self.observer.stated("c/m", self.now, self.now, [fact], tokens=9, refused=False)

    # What is written down

    def _write(self, place: int) -> None:
        size = place // EVERY % 18
        self._believe(NAMES[place // EVERY % 4], size)
        alias = self.aliases[place // EVERY % len(self.aliases)]
        ask = PlanAsk(
            alias=alias,
            tokens_in=(40, 900, 3000, 30_000)[place // 7 % 4],
            max_tokens=(None, 200, 4000)[place // 3 % 3],
            expected_tokens=(None, 150)[place // 11 % 2],
            prices=PRICES if place // 13 % 3 else None,
            slo=alias.slo,
            key="k",
            session=None if place % 4 else "s",
        )
        draw = self.chance.random()
        plan = decide(ask, self.breakers, self.now, draw, self.forms, self.budgets)
        self.lines.append(f"{alias.name} ({alias.policy}): {planned(plan)}")
        if place % 4 == 0:
            self.forms.stick("s", plan.steps[0].target, self.now)
        for step in plan.steps[1:]:
            if step.start_ns is not None and self.observer.may_start("k", step, plan):
                self.observer.settled("k", plan, [step], 4e5, 2e5, 1e4)
                return
        self.observer.settled("k", plan, [], 4e5, 0.0)

    def _believe(self, target: str, size: int) -> None:
        form, now = self.forms.form(target), self.now
        seen = self.forms.predict(target, size, now)
        curve, pace = form.curve, form.pace
        reading = form.sizes[size % 3].reading
        facts = (
            seen.ttft_ns, seen.sigma, seen.speed_tps, seen.p_error, seen.fresh,
            form.wait_s(now), form.longer(now), form.due_ns(size), form.answered_s(size, now),
            curve.seconds(3.0), curve.seconds(30.0), curve.hidden(7), curve.room, curve.slope,
            pace.more(3.0), reading.slope, sum(reading.costs), form.noise, form.variance,
            form.deviation, form.penalty, form.speed_deviation, form.speed_variance,
            form.slowdown.slope, form.tail, form.mean, form.flying(now), form.limit.most,
            form.sizes[size % 3].long, form.cold.next_s(now), form.load, form.slowness,
        )  # fmt: skip
        told = f"{target} {size}: {' '.join(map(number, facts))}"
        closed = ",".join(sorted(self.forms.closed(now)))
        stale = ",".join(self.forms.stale(now, 60 * S))
        self.lines.append(f"{told} closed {closed} stale {stale} {self.forms.incident(now)}")


def planned(plan: Plan) -> str:
    """A plan, with what it predicts and what it may cost."""
    facts = (
        plan.predicted_ttft_ns, plan.predicted_low_ns, plan.predicted_high_ns, plan.hedge_ns,
        plan.silence, plan.reserve_nano, plan.own_nano, plan.premium, plan.extra_nano,
    )  # fmt: skip
    steps = " ".join(
        f"{s.target} {number(s.start_ns)} {number(s.ttft_ns)} {s.role};" for s in plan.steps
    )
    again = None if plan.again is None else plan.again()
    stands_in = "" if again is None else (
        f" again {number(again.delay_ns)} {number(again.reserve_nano)} {number(again.premium)}"
    )  # fmt: skip
    others = " | ".join(candidate(one) for one in plan.candidates)
    told = f"{plan.text} ({plan.reason}) next {plan.runner_up} {plan.finish} {plan.in_flight}"
    return f"{told} {' '.join(map(number, facts))} {steps}{stands_in} {others}"


def candidate(one: Any) -> str:
    """A candidate of a plan, with its numbers."""
    values = [getattr(one, name) for name in one.__struct_fields__]
    return " ".join(number(v) if isinstance(v, float) else str(v) for v in values)


def admitted(seed: int) -> list[str]:
    """A target behind a gate: requests of a batch, as many as the gate lets through."""
    chance = random.Random(seed)  # noqa: S311 - a game
    gate, now, lines = Admission(), 1000 * S, []
    flying: list[tuple[int, int, Any]] = []
    for place in range(900):
        wait_ns = gate.wait_ns(400, 100, now)
        if wait_ns == 0:
            let = gate.sent(300 + place % 7 * 50, 100 if place % 3 else None, now)
            took_s = 0.4 * (1.0 + max(0, len(flying) - 8) * 0.2) * (0.8 + 0.4 * chance.random())
            heapq.heappush(flying, (now + int(took_s * S), place, let))
        now = min(now + wait_ns, flying[0][0]) if wait_ns and flying else now + max(wait_ns, 1)
        while flying and flying[0][0] <= now:
            at, number_of, let = heapq.heappop(flying)
            gate.ended(let, _end(chance.random(), number_of, stated=450 <= place < 700), at)
        if place % 9 == 0:
            facts = (
                gate.most, gate.knee.most, gate.window.most, gate.in_flight, gate.learnt.rate,
                gate.held_ns / S, wait_ns / S, now / S,
            )  # fmt: skip
            lines.append(" ".join(map(number, facts)))
    return lines


def _end(chance: float, place: int, *, stated: bool) -> AnswerFacts:
    rates = (RateFact("requests", 600.0, float(600 - place % 500), 30.0, 60.0),
             RateFact("tokens", 90_000.0, 60_000.0 - 90 * (place % 500), 25.0, None))  # fmt: skip
    known = rates if stated else ()
    if chance < 0.03:
        return AnswerFacts(end="refused", wait_s=(None, 0.3, 2.5)[place % 3], rates=known)
    if chance < 0.05:
        return AnswerFacts(end="failed")
    if chance < 0.06:
        return AnswerFacts(end="wrong")
    return AnswerFacts(end="ok", tokens_in=100 + place % 40, tokens_out=60, rates=known)


PLAYED: Final[dict[str, Callable[[], list[str]]]] = {
    "a quiet day": lambda: Day(1, 0.4).play(),
    "a usual day": lambda: Day(2, 1.5).play(),
    "a busy day": lambda: Day(3, 6.0).play(),
    "a day of long prompts": lambda: Day(4, 0.15, reading=True).play(),
    "a gate": lambda: admitted(1),
}


def kept() -> dict[str, list[str]]:
    """The lines as they were last looked at."""
    found: dict[str, list[str]] = json.loads(FILE.read_text("utf-8"))
    return found


def main() -> None:
    FILE.parent.mkdir(parents=True, exist_ok=True)
    played = {name: play() for name, play in PLAYED.items()}
    FILE.write_text(json.dumps(played, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
