"""One client's request on its way: attempts by the plan, one winner, one settlement.

Until the first useful token is handed to the client (the commit) every failure is followed by the
next step of the plan, and the client sees nothing of it. After the commit there is no other try: a
stream that breaks ends with an error event.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from lightgate.clock.marks import Marks
from lightgate.errors import AttemptError, DeadlineMissed, UsageError
from lightgate.gateway.errors_out import Refusal, of_attempts, of_error, status_of
from lightgate.gateway.leg import Leg
from lightgate.gateway.settle import settle

if TYPE_CHECKING:
    from lightgate.gateway.entry import Entry
    from lightgate.gateway.joint import Joint
    from lightgate.gateway.state import State
    from lightgate.gateway.wanted import Wanted
    from lightgate.provider.call import Called
    from lightgate.route.alias import Alias
    from lightgate.route.plan import Plan, Step
    from lightgate.wire.inbound import Inbound
    from lightgate.wire.reply import Reply

NS: Final = 1_000_000_000
MS: Final = 1_000_000
AUTO_TTFT_NS: Final = 20 * NS  # for a candidate that is not the last, where nothing is configured
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
_LAST_WORDS_S: Final = 0.5


class Flight:
    """The state of one request from its plan to its settlement."""

    __slots__ = (
        "_due_ns",
        "_failures",
        "_house",
        "_loop",
        "_state",
        "alias",
        "cap",
        "closed_ns",
        "entry",
        "extra",
        "first_in_ns",
        "first_out_ns",
        "inbound",
        "last_out_ns",
        "legs",
        "plan",
        "quiet_ticks",
        "refusal",
        "reply",
        "reserved",
        "routed_ns",
        "wanted",
        "winner",
    )

    def __init__(
        self, state: State, inbound: Inbound, reply: Reply | Joint, entry: Entry, wanted: Wanted
    ) -> None:
        self._state = state
        self._house = state.house  # the one that the plan was made under, whatever is loaded next
        self._loop = state.loop
        self.inbound = inbound
        self.reply = reply
        self.entry = entry
        self.wanted = wanted
        self.alias: Alias = entry.alias
        self.plan: Plan = entry.plan
        self.cap = entry.cap
        self.extra = entry.extra
        self.reserved = entry.reserved
        self.routed_ns = entry.routed_ns
        self.legs: list[Leg] = []
        self.winner: Leg | None = None
        self.refusal: Refusal | None = None
        self.quiet_ticks = 0  # of the worker's ticker, since something was written
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
            if len(self.plan.steps) > 1 and self.plan.steps[1].start_ns is not None:
                await self._race()
            else:
                await self._serial()
        finally:
            state.flights.discard(self)
            self.closed_ns = time.monotonic_ns()
            settle(state, self)
            # The legs hold the flight: without this both would wait for the collector.
            self.legs = []
            self.winner = None

    # One after the other

    async def _serial(self) -> None:
        steps = self.plan.steps
        count = len(steps)
        for place, step in enumerate(steps):
            if self._pointless(step):
                continue
            leg = self._leg(step)
            if leg is None:
                continue
            if place and not self._may_go_on(leg):
                break
            called = await self._attempt(leg, left=count - place)
            if called.error is None or self.winner is not None:
                self._end(leg, called)
                return
            if not leg.failure.fails_over:
                break
        self._give_up()

    def _pointless(self, step: Step) -> bool:
        """Whether this target has just failed in a way that a second try does not change."""
        before = self.legs[-1] if self.legs else None
        return before is not None and before.step.target == step.target and not before.failure.again

    def _leg(self, step: Step) -> Leg | None:
        """An attempt that is ready to go; None where the target cannot be told the request."""
        outlet = self._house.outlet(step.target)
        marks = Marks(self.inbound.received_ns)
        try:
            prepared = outlet.prepare(self.wanted, self.cap, self.extra)
        except UsageError as error:
            if self.refusal is None:
                self.refusal = of_error(error, param=getattr(error, "field", None))
            return None
        leg = Leg(self, step, outlet, prepared, marks)
        self.legs.append(leg)
        return leg

    def _may_go_on(self, leg: Leg) -> bool:
        """Whether the deadline and the retry budget allow another attempt."""
        now = time.monotonic_ns()
        if now >= self._due_ns:
            self.legs.pop()
            return False
        before = self.legs[-2].failure if len(self.legs) > 1 else None
        if before is None or before.free or self._state.retries.may(now):
            return True
        self.legs.remove(leg)
        return False

    async def _attempt(self, leg: Leg, *, left: int) -> Called:
        """Carry one attempt out; unless it is the last, the first token has a deadline."""
        state = self._state
        now = time.monotonic_ns()
        remaining = self._due_ns - now
        limit = None
        if self.wanted.streamed:
            limit = leg.step.ttft_ns or (AUTO_TTFT_NS if left > 1 else None)
        if left > 1:  # a whole answer shows nothing until it is there: it has its share of the time
            limit = min(limit or remaining, remaining // left)
        if limit is not None:
            state.patience.wait(leg, now + limit)
        leg.began_ns = now
        state.breakers.started(leg.step.target, now)
        try:
            called = await leg.call.run(
                state.client, leg.deadlines(remaining, self.alias.idle_timeout_ns)
            )
        finally:
            state.patience.end(leg)
        called = leg.judge(called, state, hurried=self.entry.hurried)
        if called.error is not None:
            self._failures.append((leg.step.target, called.error))
        return called

    # All at once, or one after a delay

    async def _race(self) -> None:
        """Start steps at their offsets, and the next one at once whenever one fails."""
        waiting = list(self.plan.steps)
        running: dict[asyncio.Task[Called], Leg] = {}
        origin = time.monotonic_ns()
        try:
            while True:
                self._start_due(waiting, running, origin)
                if not running:
                    break
                done, _ = await asyncio.wait(
                    running,
                    timeout=self._until_next(waiting, origin),
                    return_when="FIRST_COMPLETED",
                )
                for task in done:
                    leg = running.pop(task)
                    called = task.result()
                    if called.error is None or leg is self.winner:
                        self._end(leg, called)
                        return
                    self._follow(leg, waiting, running)
                if self.winner is not None:
                    waiting.clear()
            self._give_up()
        finally:
            for leg in running.values():
                leg.call.cancel()
            if running:  # their sockets are closed already; they only say so
                await asyncio.wait(running, timeout=_LAST_WORDS_S)

    def _start_due(
        self, waiting: list[Step], running: dict[asyncio.Task[Called], Leg], origin: int
    ) -> None:
        now = time.monotonic_ns()
        while waiting and self.winner is None:
            offset = waiting[0].start_ns
            if running and (offset is None or origin + offset > now):
                return
            self._launch(waiting.pop(0), waiting, running)

    def _follow(
        self, leg: Leg, waiting: list[Step], running: dict[asyncio.Task[Called], Leg]
    ) -> None:
        """One has failed: the next one begins at once, or nobody else is asked."""
        if waiting and self.winner is None and leg.failure.fails_over and self._may_spend(leg):
            self._launch(waiting.pop(0), waiting, running)
        else:
            waiting.clear()

    def _launch(
        self, step: Step, waiting: list[Step], running: dict[asyncio.Task[Called], Leg]
    ) -> None:
        leg = self._leg(step)
        if leg is not None:
            alone = len(waiting) + 1 if step.start_ns is None else 1
            running[self._loop.create_task(self._attempt(leg, left=alone))] = leg

    def _until_next(self, waiting: list[Step], origin: int) -> float | None:
        offset = waiting[0].start_ns if waiting and self.winner is None else None
        return None if offset is None else max(0, origin + offset - time.monotonic_ns()) / NS

    def _may_spend(self, leg: Leg) -> bool:
        now = time.monotonic_ns()
        return now < self._due_ns and (leg.failure.free or self._state.retries.may(now))

    # From the legs

    def commit(self, leg: Leg) -> bool:
        """The first useful token of an attempt is here: the first one to come has the client."""
        if self.winner is not None:
            return self.winner is leg
        self.winner = leg
        self.first_in_ns = leg.marks.first
        state = self._state
        state.breakers.spoke(leg.step.target, state.now_ns(), leg.began_ns)
        for other in self.legs:
            if other is not leg:
                other.lose()
        return True

    def deliver(self, leg: Leg, data: bytes, *, ended: bool) -> None:
        """Hand the winner's bytes to the client, in the turn in which they came."""
        reply = self.reply
        if reply.finished:
            return
        self.quiet_ticks = 0
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
            leg.call.pause()
            self._state.keep(self._loop.create_task(self._resume(leg)))

    async def _resume(self, leg: Leg) -> None:
        await self.reply.drain()
        leg.call.resume()

    def comment(self) -> None:
        """Nothing for the client yet: say so, in a way that no client takes for an event."""
        if self.reply.finished:
            return
        sign = _BLANK if self.wanted.path.dialect == "gemini" else _COMMENT
        if not self.reply.started:
            self.reply.start(200, SSE + self.headers(None), first=sign)
        else:
            self.reply.send(sign)

    def interrupt(self) -> None:
        """The worker stops and its budget is over: say so, in the stream if it has begun."""
        reply, dialect = self.reply, self.wanted.path.dialect
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

    def _end(self, leg: Leg, called: Called) -> None:
        """The winner's call is over: answer whole, or close the stream."""
        reply = self.reply
        if called.error is not None:
            self._break(leg, called.error)
        elif not self.wanted.streamed:
            self.winner = leg
            body = leg.whole_body()
            self.first_in_ns = leg.marks.last
            reply.whole(200, JSON + self.headers(leg), body)
            self.first_out_ns = self.last_out_ns = time.monotonic_ns()
        elif not reply.finished:
            # A provider whose stream ends with its body, not with a marker.
            reply.finish(last=leg.closing())
            self.last_out_ns = time.monotonic_ns()

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

    def _give_up(self) -> None:
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
            self.refusal.send(
                self.reply, dialect, self.headers(self.legs[-1] if self.legs else None)
            )
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
        if leg is None:
            return common
        marks = leg.marks
        named = b"%bx-lightgate-target: %b\r\n" % (common, leg.outlet.name_bytes)
        sent, seen = self.legs[0].marks.send, marks.first or marks.last
        if sent is None or seen is None:
            return named
        now = time.monotonic_ns()
        added = (sent - inbound.received_ns + now - seen) / MS
        timed = _TIMED % (named, added, added, (seen - sent) / MS)
        if self.wanted.streamed:
            return b"%bx-lightgate-ttft-ms: %.3f\r\n" % (timed, (now - inbound.received_ns) / MS)
        return timed + leg.cost_header()
