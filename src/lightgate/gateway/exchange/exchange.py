"""One client's request on its way: attempts by the plan, one winner, one settlement.

Until the first useful token is handed to the client (the commit) every failure is followed by the
next step of the plan, and the client sees nothing of it. After the commit there is no other try: a
stream that breaks ends with an error event.

A whole answer whose attempts may overlap is streamed inside and gathered: the commit chooses the
winner and closes the others, but the client has nothing before the end, so a winner that breaks off
is followed by another attempt all the same.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from lightgate.clock.marks import Marks
from lightgate.dialect.assemble import can_assemble
from lightgate.errors import AttemptError, DeadlineMissed, UsageError
from lightgate.gateway.exchange.attempt import Held, Leg
from lightgate.gateway.exchange.race import Race
from lightgate.gateway.exchange.settle import settle
from lightgate.gateway.request.refusal import Refusal, of_attempts, of_error, status_of
from lightgate.route.form.size import bucket
from lightgate.route.plan.course import AUTO_TTFT_NS
from lightgate.route.plan.finish import WORTH, ExpectedAnswer, Rival, waits_ns

if TYPE_CHECKING:
    from lightgate.gateway.admit.admit import Entry
    from lightgate.gateway.cache.single_flight import SharedAnswer
    from lightgate.gateway.process.state import State
    from lightgate.gateway.request.body import Wanted
    from lightgate.provider.call import Called
    from lightgate.route.plan.alias import Alias
    from lightgate.route.plan.plan import Plan, Role, Step
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply

NS: Final = 1_000_000_000
MS: Final = 1_000_000
USUAL_TOKENS: Final = 512  # of an answer, where nothing is known
SSE: Final = (
    b"content-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache, no-transform\r\n"
    b"x-accel-buffering: no\r\n"
)
JSON: Final = b"content-type: application/json\r\n"
_COMMON: Final = (
    b"x-request-id: %b\r\nx-lightgate-id: %b\r\nx-lightgate-attempts: %d\r\n"
    b"x-lightgate-policy: %b\r\nx-lightgate-cache: %b\r\n"
)
_TIMED: Final = (
    b"%bx-lightgate-overhead-ms: %.3f\r\nserver-timing: gate;dur=%.3f, provider;dur=%.3f\r\n"
)
_COMMENT: Final = b": keep-alive\n"
_BLANK: Final = b"\n"  # Google's own SDKs take a comment for an answer; an empty line means nothing


class Flight:
    """The state of one request from its plan to its settlement."""

    __slots__ = (
        "_comment_ns",
        "_due_ns",
        "_failures",
        "_loop",
        "_served",
        "_state",
        "alias",
        "beside",
        "cap",
        "closed_ns",
        "entry",
        "extra",
        "first_in_ns",
        "first_out_ns",
        "gathers",
        "inbound",
        "last_out_ns",
        "legs",
        "plan",
        "refusal",
        "reply",
        "reserved",
        "routed_ns",
        "size",
        "wanted",
        "winner",
    )

    def __init__(
        self,
        state: State,
        inbound: Inbound,
        reply: Reply | SharedAnswer,
        entry: Entry,
        wanted: Wanted,
    ) -> None:
        self._state = state
        self._served = state.served  # the one that the plan was made under, whatever is loaded next
        self._loop = state.loop
        self.inbound = inbound
        self.reply = reply
        self.entry = entry
        self.wanted = wanted
        self.alias: Alias = entry.alias
        self.plan: Plan = entry.plan
        self.gathers = (  # the client wants a whole answer, and the targets are asked to stream
            not wanted.streamed
            and self.plan.overlaps
            and can_assemble(wanted.path.dialect, wanted.fields)
        )
        self.cap = entry.cap
        self.extra = entry.extra
        self.reserved = entry.reserved
        self.routed_ns = entry.routed_ns
        self.size = bucket(wanted.tokens_in)  # of the prompt, for the form
        self.beside: list[Role] = []  # attempts that were let start beside another
        self.legs: list[Leg] = []
        self.winner: Leg | None = None
        self.refusal: Refusal | None = None
        self._comment_ns = inbound.received_ns  # when the client last heard that it waits
        self.first_in_ns: int | None = None
        self.first_out_ns: int | None = None
        self.last_out_ns: int | None = None
        self.closed_ns: int | None = None
        self._failures: list[tuple[str, AttemptError]] = []
        self._due_ns = inbound.received_ns + entry.timeout_ns

    async def run(self) -> None:
        """Fly; whatever happens, the settlement is written."""
        state = self._state
        state.flights.add(self)
        try:
            await self.follow()
        finally:
            state.flights.discard(self)
            self.closed_ns = time.monotonic_ns()
            settle(state, self)
            # The legs hold the flight: without this both would wait for the collector.
            self.legs = []
            self.winner = None

    @property
    def heard_ns(self) -> int:
        """When the client last heard something, or asked."""
        return max(self._comment_ns, self.last_out_ns or 0)

    @property
    def sound(self) -> bool:
        """Whether the answer may be given to others."""
        return True

    @property
    def decisive(self) -> Leg | None:
        """The attempt that says how it went: the winner, else the last that nobody closed."""
        if self.winner is not None:
            return self.winner
        ended = [leg for leg in self.legs if not leg.lost]
        return ended[-1] if ended else None

    async def follow(self) -> None:
        """Follow the plan to its end."""
        steps = self.plan.steps
        beside = len(steps) > 1 and steps[1].start_ns is not None
        if beside and (self.wanted.streamed or self.gathers):
            await Race(self, self._state, self._due_ns).run()
        else:
            await self.serial(0, len(steps))

    # One after the other

    async def serial(self, first: int, past: int) -> None:
        """Try these steps of the plan one after the other."""
        steps = self.plan.steps
        count = len(steps)
        for place in range(first, past):
            step = steps[place]
            if self._pointless(step):
                continue
            leg = self.make_leg(step)
            if leg is None:
                continue
            if place and not self._may_go_on(leg):
                break
            called = await self.attempt(leg, self._limit_ns(step, count - place))
            if called.error is None or not self.takes_back():
                self.end(leg, called)
                return
            if not leg.failure.fails_over:
                break
        self.give_up()

    def _pointless(self, step: Step) -> bool:
        """Whether this target has just failed in a way that a second try does not change."""
        before = self.legs[-1] if self.legs else None
        if before is None or before.step.target != step.target or before.unstreamable:
            return False
        return not before.failure.again

    def make_leg(self, step: Step) -> Leg | None:
        """An attempt that is ready to go; None where the target cannot be told the request."""
        target = self._served.target(step.target)
        marks = Marks(self.inbound.received_ns)
        try:
            prepared = target.prepare(self.wanted, self.cap, self.extra, gathered=self.gathers)
        except UsageError as error:
            if self.refusal is None:
                self.refusal = of_error(error, param=getattr(error, "field", None))
            return None
        leg = Leg(self, step, target, prepared, marks)
        self.legs.append(leg)
        return leg

    def _may_go_on(self, leg: Leg) -> bool:
        """Whether the deadline and the retry budget allow another attempt."""
        now = time.monotonic_ns()
        if now >= self._due_ns:
            self.legs.pop()
            return False
        before = self.legs[-2] if len(self.legs) > 1 else None
        if before is None or before.rejected or before.failure.free:
            return True
        if self._state.retries.may(now):
            return True
        self.legs.remove(leg)
        return False

    def _limit_ns(self, step: Step, left: int) -> int | None:
        """How long a step has for its first token; the last one has all the time there is."""
        remaining = self._due_ns - time.monotonic_ns()
        limit = None
        if self.wanted.streamed or self.gathers:
            limit = step.ttft_ns or (AUTO_TTFT_NS if left > 1 else None)
        if left > 1:  # a whole answer shows nothing until it is there: it has its share of the time
            limit = min(limit or remaining, remaining // left)
        return limit

    async def attempt(self, leg: Leg, limit_ns: int | None) -> Called:
        """Carry one attempt out, with a deadline for its first token."""
        state = self._state
        now = time.monotonic_ns()
        if limit_ns is not None:
            state.patience.wait(leg, now + limit_ns)
        leg.began_ns = now
        state.observer.began(leg.step.target, self.size, now)
        try:
            called = await leg.call.run(
                state.client, leg.deadlines(self._due_ns - now, self.alias.idle_timeout_ns)
            )
        finally:
            state.patience.end(leg)
        called = leg.judge(called, state, hurried=self.entry.hurried)
        if called.error is not None and not leg.lost:
            self._failures.append((leg.step.target, called.error))
        return called

    # From the legs

    def commit(self, leg: Leg) -> bool:
        """The first useful token of an attempt is here: the first one to come has the client."""
        if self.winner is not None:
            return self.winner is leg
        state = self._state
        now = state.now_ns()
        if not leg.heard:
            leg.heard = True
            state.observer.spoke(leg.step.target, self.size, now, leg.began_ns)
        if now < leg.held_ns:
            return False
        whole = self.gathers or self.plan.finish == "whole"
        if whole and leg.called is None and self._waits_for_another(leg, now):
            return False
        self.winner = leg
        self.first_in_ns = leg.marks.first
        for other in self.legs:
            if other is not leg:
                other.lose()
        return True

    def takes_back(self) -> bool:
        """Nobody has the client any more, if nobody has said anything to it; whether that is so."""
        if self.winner is None:
            return True
        if not self.gathers or self.reply.finished:
            return False
        self.winner = None
        self.first_in_ns = None
        return True

    async def ask_whole(self) -> bool:
        """Ask for the whole, as the client did, where a target would not stream; whether one did.

        It is known for that once it has answered: a request that is wrong either way says nothing.
        """
        shy = {leg.step.target for leg in self.legs if leg.unstreamable}
        if not shy or not self.gathers:
            return False
        self.gathers = False
        await self.serial(0, len(self.plan.steps))
        if self.winner is not None and self.winner.step.target in shy:
            self._state.unstreamable.add(self.winner.step.target)
        return True

    def _waits_for_another(self, leg: Leg, now: int) -> bool:
        """Hold the first to speak back where a silent one will very likely end sooner."""
        rivals = [
            Rival(other.step.target, other.began_ns)
            for other in self.legs
            if other is not leg and other.called is None and not other.heard
        ]
        if not rivals:
            return False
        state = self._state
        tokens = state.expected_tokens(self.alias.name) or self.wanted.max_tokens or USUAL_TOKENS
        # A client that wants the whole has no use for an early first token.
        answer = ExpectedAnswer(self.size, tokens, 0.0 if self.gathers else WORTH)
        spoke = Rival(leg.step.target, leg.marks.first or now)
        until = waits_ns(spoke, rivals, state.forms, answer, now)
        if until is None:
            return False
        leg.held_ns = until
        state.patience.wait(Held(leg), until)
        return True

    def deliver(self, leg: Leg, data: bytes, *, ended: bool) -> None:
        """Hand the winner's bytes to the client, in the turn in which they came."""
        reply = self.reply
        if reply.finished:
            return
        if self.first_out_ns is not None and not ended:  # what nearly every token is
            crowded = reply.send(data)
            self.last_out_ns = time.monotonic_ns()
            if crowded:
                self._wait(leg)
            return
        if not self.gathers:
            self._deliver_edge(leg, data, ended=ended)
        elif ended:
            self.answer(leg, leg.marks.end)

    def _deliver_edge(self, leg: Leg, data: bytes, *, ended: bool) -> None:
        """The first bytes of a stream, or its last."""
        reply = self.reply
        if not reply.started:
            reply.start(200, SSE + self.headers(leg), first=data)
            data = b""
        elif not ended:
            reply.send(data)
        if self.first_out_ns is None:
            self.first_out_ns = time.monotonic_ns()
        if ended:
            reply.finish(last=data)
        self.last_out_ns = time.monotonic_ns()
        if reply.crowded and not ended:
            self._wait(leg)

    def _wait(self, leg: Leg) -> None:
        """The client is slower than the provider: read no more until it has caught up."""
        leg.call.pause()
        self._state.keep(self._loop.create_task(self._resume(leg)))

    async def _resume(self, leg: Leg) -> None:
        await self.reply.drain()
        leg.call.resume()

    def comment(self) -> None:
        """Nothing for the client yet: say so, in a way that no client takes for an event."""
        if self.reply.finished:
            return
        self._comment_ns = self._state.now_ns()
        sign = _BLANK if self.wanted.path.dialect == "gemini" else _COMMENT
        if not self.reply.started:
            self.reply.start(200, SSE + self.headers(None), first=sign)
        else:
            self.reply.send(sign)

    def interrupt(self) -> None:
        """The worker stops and its budget is over: say so, in the stream if it has begun."""
        reply, dialect = self.reply, self.wanted.path.dialect
        self.takes_back()  # nothing of a gathered answer has reached the client
        if not reply.finished:
            self.refusal = Refusal(
                status=503, message="The gateway is stopping; ask again.", code="draining"
            )
            last = None if self.winner is None else self.winner.error_event(self.refusal)
            if not reply.started:
                self.refusal.send(reply, dialect, self.headers(None))
            else:
                reply.finish(last=self.refusal.event(dialect) if last is None else last)
            self.last_out_ns = time.monotonic_ns()
        for leg in self.legs:
            leg.call.cancel()

    # The end

    def end(self, leg: Leg, called: Called) -> None:
        """The winner's call is over: answer whole, or close the stream."""
        reply = self.reply
        if called.error is not None:
            self._break(leg, called.error)
            return
        self.refusal = None  # of a target that could not be told the request
        if not self.wanted.streamed:
            if not reply.finished:
                self.answer(leg, leg.marks.end if self.gathers else leg.marks.last)
        elif not reply.finished:
            # A provider whose stream ends with its body, not with a marker.
            reply.finish(last=leg.closing())
            self.last_out_ns = time.monotonic_ns()

    def answer(self, leg: Leg, came_ns: int | None) -> None:
        """Give the client a whole answer, which was there at `came_ns`."""
        body = leg.whole_body()
        if leg.called is None:
            leg.reckon()
        self.refusal = None  # of a target that could not be told the request
        self.winner = leg
        self.first_in_ns = came_ns
        self.reply.whole(200, JSON + self.headers(leg), body)
        self.first_out_ns = self.last_out_ns = time.monotonic_ns()

    def _break(self, leg: Leg, error: AttemptError) -> None:
        """The answer broke off after the commit: one error event, then the end."""
        self.refusal = Refusal(
            status=status_of(error),
            message=f"The answer broke off. {leg.step.target}: {error.message}",
            code=error.label,
        )
        if self.reply.finished:
            return
        self.reply.keep_alive = False
        self.reply.finish(last=leg.error_event(self.refusal))
        self.last_out_ns = time.monotonic_ns()

    def give_up(self) -> None:
        """No attempt came through."""
        if self.reply.finished:  # interrupted, and told so
            return
        if self._failures:
            now = time.monotonic_ns()
            targets = [step.target for step in self.plan.steps]
            soonest = self._state.breakers.soonest_ns(targets, now)
            wait_s = None if soonest is None else max(0.0, (soonest - now) / NS)
            self.refusal = of_attempts(self._failures, wait_s)
        elif self.refusal is None:
            late = DeadlineMissed("The request's time was over before it began.", phase="total")
            self.refusal = of_error(late)
        dialect = self.wanted.path.dialect
        if self.reply.started:
            self.reply.finish(last=self.refusal.event(dialect))
        else:
            self.refusal.send(self.reply, dialect, self.headers(self.decisive))
        self.last_out_ns = time.monotonic_ns()

    def headers(self, leg: Leg | None) -> bytes:
        """What happened so far, for the client: whole header lines.

        Every value is a number, a name of the configuration or checked when it came in.
        """
        entry, inbound = self.entry, self.inbound
        common = _COMMON % (
            entry.request_id,
            entry.id_bytes,
            len(self.legs),
            self.plan.policy.encode(),
            entry.cache.encode(),
        )
        if self.wanted.path.dialect == "anthropic-messages":
            common += b"request-id: %b\r\n" % entry.request_id  # what their SDK looks for
        plan = self.plan
        if self.wanted.trimmed:
            common += b"x-lightgate-trimmed-bytes: %d\r\n" % self.wanted.trimmed
        if plan.predicted_ttft_ns is not None:
            common += b"x-lightgate-predicted-ttft-ms: %.3f\r\n" % (plan.predicted_ttft_ns / MS)
        if plan.runner_up is not None:
            common += b"x-lightgate-runner-up: %b\r\n" % plan.runner_up.encode("ascii", "replace")
        if plan.level is not None:
            common += b"x-lightgate-complexity: %b\r\n" % plan.level.encode()
        if leg is None:
            return common
        marks = leg.marks
        named = b"%bx-lightgate-target: %b\r\n" % (common, leg.target.name_bytes)
        sent, seen = self.legs[0].marks.send, self.first_in_ns or marks.first or marks.last
        if sent is None or seen is None:
            return named
        now = time.monotonic_ns()
        added = (sent - inbound.received_ns + now - seen) / MS
        timed = _TIMED % (named, added, added, (seen - sent) / MS)
        if self.wanted.streamed:
            return b"%bx-lightgate-ttft-ms: %.3f\r\n" % (timed, (now - inbound.received_ns) / MS)
        return timed + leg.cost_header()
