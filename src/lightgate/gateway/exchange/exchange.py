"""One exchange: a client's request, the attempts of its plan, one winner, one settlement.

Until the first useful token is handed to the client (the commit) every failure is followed by the
next step of the plan, and the client sees nothing of it. After the commit there is no other try: a
stream that breaks ends with an error event.

A whole answer whose attempts may overlap is streamed inside and assembled: the commit chooses the
winner and closes the others, but the client has nothing before the end, so a winner that breaks off
is followed by another attempt all the same.

Everything runs in callbacks of attempts and timers. The steps of a plan are tried one after the
other here; a plan whose steps overlap is followed by a `Race`, and answers that must pass checks
are held by an `Escalation`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from lightgate.clock.marks import Marks
from lightgate.dialect.assemble import can_assemble
from lightgate.errors import DeadlineMissed, UsageError
from lightgate.gateway.exchange.attempt import SSE, Attempt, AttemptOwner
from lightgate.gateway.exchange.large import when_written
from lightgate.gateway.exchange.settle import (
    send_stream_end,
    settle,
    stream_end,
    waits_for_another,
)
from lightgate.gateway.exchange.sound import SoundAttempt, WholeSoundAttempt
from lightgate.gateway.exchange.stream import StreamAttempt
from lightgate.gateway.exchange.told import dropped_so_far, passed_lines, skipped_line
from lightgate.gateway.exchange.whole import AssembledAttempt
from lightgate.gateway.request.refusal import Refusal, broken_off, of_attempts, of_error
from lightgate.route.form.size import size_of
from lightgate.route.plan.course import AUTO_TTFT_NS
from lightgate.wire.client.roundtrip import Deadlines

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.errors import AttemptError
    from lightgate.gateway.exchange.attempt import CascadeOwner
    from lightgate.gateway.exchange.caller import Caller
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.exchange.told import Skipped
    from lightgate.gateway.request.around import ClientReply
    from lightgate.gateway.request.body import ClientRequest
    from lightgate.gateway.served.price import Ceiling
    from lightgate.ledger.journal.notes import Settled
    from lightgate.route.plan.alias import Alias
    from lightgate.route.plan.plan import Plan, Step
    from lightgate.wire.door.inbound import Inbound

NS: Final = 1_000_000_000
MS: Final = 1_000_000
CONNECT_S: Final = 3.0  # for DNS, TCP and TLS of one attempt
_COMMON: Final = (
    b"x-request-id: %b\r\nx-lightgate-id: %b\r\nx-lightgate-attempts: %d\r\n"
    b"x-lightgate-policy: %b\r\nx-lightgate-cache: %b\r\n"
)
_TIMED: Final = (
    b"%bx-lightgate-target: %b\r\nx-lightgate-overhead-ms: %b\r\n"
    b"server-timing: gate;dur=%b, provider;dur=%.3f\r\n"
)
_COMMENT: Final = b": keep-alive\n"
_BLANK: Final = b"\n"  # Google's own SDKs take a comment for an answer; an empty line means nothing


class Exchange:
    """The record of one client request from its admission to its row in the ledger.

    `plan`, `cap` and the reservation are set by the admission; an exchange that is answered from
    the cache or along with another one has neither a plan nor attempts. A `cascade`, where there is
    one, decides about the attempts in the exchange's place.
    """

    __slots__ = (
        "_comment_ns",
        "_past",
        "_place",
        "_shy",
        "alias",
        "answered",
        "assembles",
        "attempts",
        "beside",
        "cache",
        "caller",
        "cap",
        "cascade",
        "ceilings",
        "closed_ns",
        "due_ns",
        "failures",
        "first_in_ns",
        "first_out_ns",
        "id",
        "id_bytes",
        "inbound",
        "last_out_ns",
        "on_over",
        "plan",
        "refusal",
        "reply",
        "request",
        "request_id",
        "reserved",
        "reserved_tokens",
        "routed_ns",
        "served",
        "size",
        "skipped",
        "sound",
        "state",
        "wall_ns",
        "winner",
    )

    plan: Plan

    def __init__(
        self,
        state: State,
        inbound: Inbound,
        reply: ClientReply,
        caller: Caller,
        request: ClientRequest,
        alias: Alias,
    ) -> None:
        self.state = state
        self.served = caller.served  # that the plan is made under, whatever is loaded next
        self.inbound = inbound
        self.reply = reply
        self.caller = caller
        self.request = request
        self.alias = alias
        self.id = state.ids.new()
        self.id_bytes = self.id.encode()
        self.request_id = caller.request_id or self.id_bytes  # the client's own name for it
        self.wall_ns = state.wall_ns()
        self.cap: int | None = None  # the limit on answer tokens that is written into the request
        self.cache = "off"  # or how the answer is shared: hit, miss, join
        self.reserved = 0  # nano-dollars
        self.ceilings: dict[str, Ceiling] | None = None  # of these, the most at each target
        self.reserved_tokens = 0
        self.routed_ns: int | None = None
        self.assembles = False  # the client wants a whole answer, and the targets are to stream
        self.size = size_of(request.tokens_in)  # of the prompt, for the form
        self.beside: list[Step] = []  # attempts that were let start beside another
        self.attempts: list[Attempt] = []
        self.skipped: Skipped = ()  # targets that cannot be told the request
        self.winner: Attempt | None = None
        self.refusal: Refusal | None = None
        self.failures: list[tuple[str, AttemptError]] = []
        self.cascade: CascadeOwner | None = None
        self.first_in_ns: int | None = None
        self.first_out_ns: int | None = None
        self.last_out_ns: int | None = None
        self.closed_ns: int | None = None
        self.answered = False  # all that is left is to send the end of the answer
        self.sound = True  # the answer may be given to others: no check of a cascade has failed
        self.on_over: Callable[[Settled], None] | None = None
        self._comment_ns = inbound.received_ns  # when the client was last told that it waits
        self._shy: set[str] = set()  # targets that would not stream a whole answer

    @property
    def heard_ns(self) -> int:
        """The instant at which the client last got something, or asked."""
        winner = self.winner
        last = None if winner is None or self.first_out_ns is None else winner.marks.last
        return max(self._comment_ns, self.last_out_ns or 0, last or 0)

    @property
    def decisive(self) -> Attempt | None:
        """The attempt that says how it went: the winner, else the last that was not closed."""
        if self.winner is not None:
            return self.winner
        ended = [attempt for attempt in self.attempts if not attempt.lost]
        return ended[-1] if ended else None

    # The way of the plan

    def open(self) -> None:
        """Note that the exchange is under way, until it is closed."""
        state, request = self.state, self.request
        state.exchanges.add(self)
        if state.load.per_key:
            state.load.began(self.caller.key)
        timeout_ns = self.alias.timeout_ns
        overrides = self.caller.overrides
        if overrides.timeout_ns is not None:
            timeout_ns = min(timeout_ns, overrides.timeout_ns)
        self.due_ns = self.inbound.received_ns + timeout_ns
        if not request.streamed and self.plan.overlaps:
            self.assembles = can_assemble(request.endpoint.dialect, request.fields)
        self.reply.on_lost = self.client_left
        self._place, self._past = 0, len(self.plan.steps)

    def serial(self, first: int, past: int) -> None:
        """Try these steps of the plan one after the other."""
        self._place, self._past = first, past
        self.go_on()

    def go_on(self) -> None:
        """Start the next step that can be tried."""
        steps = self.plan.steps
        owner: AttemptOwner = self.cascade or self
        while self._place < self._past:
            place = self._place
            self._place += 1
            step = steps[place]
            if self.attempts and owner.pointless(step):
                continue
            attempt = owner.make_attempt(step)
            if attempt is None:
                continue
            if place and not owner.may_go_on(attempt):
                break
            left = len(steps) - place
            limit = None if left == 1 and step.ttft_ns is None else self.limit_ns(step, left)
            owner.carry_out(attempt, limit)
            return
        owner.give_up()

    def pointless(self, step: Step) -> bool:
        """Whether this target has just failed in a way that a second try does not change."""
        before = self.attempts[-1] if self.attempts else None
        if before is None or before.step.target != step.target or before.unstreamable:
            return False
        return not before.failure.again

    def make_attempt(self, step: Step) -> Attempt | None:
        """An attempt that is ready to go; None where the target cannot be told the request."""
        request, target = self.request, self.served.targets[step.target]
        try:
            extra = passed_lines(self, target) if self.caller.passed else b""
            untold = self.alias.untranslatable
            prepared = target.prepare(
                request, self.cap, extra, assembled=self.assembles, untranslatable=untold
            )
        except UsageError as error:
            field = getattr(error, "field", None)
            self.refusal = self.refusal or of_error(error, param=field)
            self.skipped += ((step.target, field or "its endpoint"),)
            return None
        kind = Attempt
        if prepared.streamed:
            kind = StreamAttempt if request.streamed else AssembledAttempt
        if request.endpoint.sound:
            kind = SoundAttempt if prepared.streamed else WholeSoundAttempt
        attempt = kind(self, step, target, prepared, Marks(self.inbound.received_ns))
        self.attempts.append(attempt)
        return attempt

    def may_go_on(self, attempt: Attempt) -> bool:
        """Whether the deadline and the retry budget allow another attempt."""
        now = self.state.now_ns()
        if now < self.due_ns:
            before = self.attempts[-2] if len(self.attempts) > 1 else None
            if before is None or before.rejected or before.failure.free:
                return True
            if self.state.learned.retries.may(now):
                return True
        self.attempts.remove(attempt)
        return False

    def limit_ns(self, step: Step, left: int) -> int | None:
        """How long a step has for its first token; the last one has all the time there is."""
        remaining = self.due_ns - self.state.now_ns()
        limit = None
        if self.request.streamed or self.assembles:
            limit = step.ttft_ns or (AUTO_TTFT_NS if left > 1 else None)
        if left > 1:  # a whole answer shows nothing until it is there: it has its share of the time
            times, most = self.state.learned.whole_times, self.cap or self.request.max_tokens
            limit = limit or times.limit_ns(step.target, most) or remaining
            share = remaining // left
            if limit > share:  # noqa: PLR1730 - a call less, for every request
                limit = share
        return limit

    def carry_out(self, attempt: Attempt, limit_ns: int | None) -> None:
        """Start one attempt, with a deadline for its first token."""
        state = self.state
        attempt.began_ns = now = state.now_ns()
        if limit_ns is not None:
            attempt.timed = True
            state.timers.wait(attempt, now + limit_ns)
        state.learned.observer.began(attempt.step.target, now)
        total_s = (self.due_ns - now) / NS
        connect_s = CONNECT_S if total_s > CONNECT_S else total_s  # noqa: FURB136 - cheaper
        idle_s = self.alias.idle_timeout_ns / NS
        attempt.start(state.client, Deadlines(connect_s, None, idle_s, total_s))

    def over(self, attempt: Attempt) -> None:
        """Go on after an attempt of the serial way: to its end, to the next step, or give up."""
        if self.closed_ns is not None or attempt.lost:
            return
        called = attempt.called
        if (called is not None and called.error is None) or not self.takes_back():
            (self.cascade or self).ended(attempt)
        elif attempt.failure.fails_over:
            self.go_on()
        else:
            (self.cascade or self).give_up()

    # From the attempts

    def commit(self, attempt: Attempt) -> bool:
        """Choose the winner at the first useful token of an attempt; whether it is this one."""
        if self.winner is not None or self.closed_ns is not None:
            return self.winner is attempt
        state, now = self.state, self.state.now_ns()
        if not attempt.heard:
            attempt.heard = True
            if attempt.marks.first is not None:
                state.learned.observer.spoke(attempt.step.target, self.size, now, attempt.began_ns)
        if now < attempt.held_ns:
            return False
        if len(self.attempts) > 1:
            whole = self.assembles or self.plan.finish == "whole"
            if whole and attempt.called is None and waits_for_another(self, attempt, now):
                return False
        self.winner = attempt
        self.first_in_ns = attempt.marks.first
        for other in self.attempts:
            if other is not attempt:
                other.lose()
        return True

    def takes_back(self) -> bool:
        """Take the client back from a winner that has said nothing to it; whether it was so."""
        if self.winner is None:
            return True
        if not self.assembles or self.reply.finished:
            return False
        self.winner = None
        self.first_in_ns = None
        return True

    def ask_whole(self) -> bool:
        """Ask for the whole, as the client did, where a target would not stream; whether one did.

        The target is known for that once it has answered: a request that is wrong either way says
        nothing.
        """
        shy = {attempt.step.target for attempt in self.attempts if attempt.unstreamable}
        if not shy or not self.assembles:
            return False
        self.assembles = False
        self._shy = shy
        again = partial(self.serial, 0, len(self.plan.steps))
        again() if self.request.found is None else when_written(self, again)
        return True

    def deliver(self, attempt: Attempt, data: bytes, *, ended: bool) -> None:
        """Hand the winner's bytes to the client, in the turn in which they came."""
        reply = self.reply
        if reply.finished:
            return
        if ended and self.cascade is None and attempt.called is None:
            # It is over, though the provider's body may not be: settled first, then sent.
            attempt.final = data
            attempt.over(attempt.ended_as(None))
            return
        if not self.request.streamed:
            if ended:
                reply.whole(200, *self.answer(attempt, attempt.marks.end))
            return
        now_ns = self.state.now_ns
        if not reply.started:
            reply.start(200, attempt.media + self.headers(attempt), first=data)
            data = b""
        elif not ended:
            reply.send(data)
        if self.first_out_ns is None and self.first_in_ns is not None:
            self.first_out_ns = now_ns()
        if ended:
            self.last_out_ns = now_ns()
            reply.finish(last=data)
        else:
            self.last_out_ns = now_ns()
            attempt.pass_on = attempt.conveys(reply.send)
            if reply.crowded:
                self.wait(attempt)

    def wait(self, attempt: Attempt) -> None:
        """Read no more of an answer until the client, which is slower, has caught up."""
        attempt.pause()
        self.state.keep(self.state.loop.create_task(self._resume(attempt)))

    async def _resume(self, attempt: Attempt) -> None:
        await self.reply.drain()
        attempt.resume()

    def comment(self) -> None:
        """Tell a client that waits so, in a way that no client takes for an event."""
        if self.reply.finished or self.request.endpoint.sound:
            return
        self._comment_ns = self.state.now_ns()
        sign = _BLANK if self.request.endpoint.dialect == "gemini" else _COMMENT
        if not self.reply.started:
            self.reply.start(200, SSE + self.headers(None), first=sign)
        else:
            self.reply.send(sign)

    # The end

    def client_left(self) -> None:
        """Close every attempt and settle: there is nobody to answer any more."""
        if self.winner is not None and self.first_out_ns is not None and self.request.streamed:
            self.last_out_ns = self.winner.marks.last
        self.close()

    def stop(self) -> None:
        """End the exchange because the worker stops; a cascade may have an answer in hand."""
        (self.cascade or self).interrupt()

    def interrupt(self) -> None:
        """End the exchange because the worker stops: say so, in the stream if it has begun."""
        reply, dialect = self.reply, self.request.endpoint.dialect
        self.takes_back()  # nothing of an assembled answer has reached the client
        if not reply.finished:
            self.refusal = Refusal(
                status=503,
                message="The gateway is stopping; ask again.",
                code="draining",
                retry_after_s=1.0,
            )
            last = None if self.winner is None else self.winner.error_event(self.refusal)
            self.last_out_ns = self.state.now_ns()
            if not reply.started:
                self.refusal.send(reply, dialect, self.headers(None))
            else:
                self._end_badly(self.refusal.event(dialect) if last is None else last)
        self.close()

    def ended(self, attempt: Attempt) -> None:
        """Answer the client after the deciding attempt: whole, or by closing the stream."""
        reply, called, last = self.reply, attempt.called, None
        if called is not None and called.error is not None:
            self._break(attempt, called.error)
        elif not reply.finished:
            self.refusal = None  # of a target that could not be told the request
            marks = attempt.marks
            self.answered = True
            if not self.request.streamed:
                last = self.answer(
                    attempt, marks.end if self.assembles else marks.last or marks.end
                )
            else:
                last = stream_end(self, attempt)
        else:
            self.refusal = None
        if attempt.step.target in self._shy and self.winner is attempt:
            self.state.learned.unstreamable.add(attempt.step.target)
        self.close(last)

    def answer(self, attempt: Attempt, came_ns: int | None) -> tuple[bytes, bytes]:
        """The header lines and the body of a whole answer, which was there at `came_ns`."""
        body = attempt.whole_body()
        if attempt.called is None:
            attempt.reckon()
        self.refusal = None  # of a target that could not be told the request
        self.winner = attempt
        self.first_in_ns = came_ns
        lines = attempt.media + self.headers(attempt)
        self.first_out_ns = self.last_out_ns = self.state.now_ns()
        return lines, body

    def _break(self, attempt: Attempt, error: AttemptError) -> None:
        """End an answer that broke off after the commit: one error event, then the end."""
        name = attempt.step.target
        self.refusal = broken_off(name, error, self.served.targets[name].origin)
        if self.reply.finished:
            return
        self.last_out_ns = self.state.now_ns()
        self._end_badly(attempt.error_event(self.refusal))

    def _end_badly(self, last: bytes) -> None:
        """End a begun stream with an error event; sound, which has none, is cut off."""
        if self.request.endpoint.sound:
            self.reply.abort()
        else:
            self.reply.finish(last=last)

    def give_up(self) -> None:
        """Tell the client that no attempt came through."""
        if not self.reply.finished:  # else interrupted, and told so
            self._refuse()
        self.close()

    def _refuse(self) -> None:
        now = self.state.now_ns()
        if self.failures:
            targets = [step.target for step in self.plan.steps]
            soonest = self.state.learned.breakers.soonest_ns(targets, now)
            wait_s = None if soonest is None else max(0.0, (soonest - now) / NS)
            origins = {name: self.served.targets[name].origin for name, _ in self.failures}
            self.refusal = of_attempts(self.failures, wait_s, self.served.key_names, origins)
        elif self.refusal is None:
            late = DeadlineMissed("The request's time was over before it began.", phase="total")
            self.refusal = of_error(late)
        dialect = self.request.endpoint.dialect
        self.last_out_ns = now
        if self.reply.started:
            self.reply.finish(last=self.refusal.event(dialect))
        else:
            self.refusal.send(self.reply, dialect, self.headers(self.decisive))

    def broke(self, defect: BaseException) -> None:
        """End the exchange because of a defect of our own code in one of its attempts."""
        if not self.reply.finished and isinstance(defect, Exception):
            self.reply.fail(defect)
        self.close()

    def close(self, last: tuple[bytes, bytes] | None = None) -> None:
        """Settle the exchange, once; attempts that still run are closed in this turn.

        `last`, the end of a good answer, is sent once it is settled: whatever a client has in full
        is in the books, also if this process is killed now.
        """
        if self.closed_ns is not None:
            return
        state = self.state
        self.closed_ns = state.now_ns()
        state.exchanges.discard(self)
        if state.load.keys:
            state.load.ended(self.caller.key)
        if self.cascade is not None:
            self.sound = not self.cascade.doubtful
            self.cascade.close()
        for attempt in self.attempts:
            if attempt.called is None:
                attempt.abandon()
        settled = settle(state, self)
        if last is not None:
            if self.request.streamed:
                send_stream_end(self.reply, *last)
            else:
                self.reply.whole(200, *last)
        # Attempts hold the exchange: without this both would wait for the collector.
        self.attempts = []
        self.winner = self.cascade = None
        self.reply.on_lost = None
        if self.on_over is not None:
            self.on_over(settled)

    def _plan_lines(self, attempt: Attempt | None) -> bytes:
        """What the router expected, and how hard it took the request to be."""
        plan, lines = self.plan, b""
        if plan.predicted_ttft_ns is not None:
            lines += b"x-lightgate-predicted-ttft-ms: %.3f\r\n" % (plan.predicted_ttft_ns / MS)
        if plan.runner_up is not None:
            lines += b"x-lightgate-runner-up: %b\r\n" % plan.runner_up.encode("ascii", "replace")
        if plan.level is not None:
            lines += b"x-lightgate-complexity: %b\r\n" % plan.level.encode()
        return lines if self.cascade is None else lines + self.cascade.header(attempt)

    def headers(self, attempt: Attempt | None) -> bytes:  # noqa: C901 - for every answer: a call for each line would cost more than the line
        """What happened so far, for the client: whole header lines.

        Every value is a number, a name of the configuration or checked when it came in.
        """
        request, plan, request_id = self.request, self.plan, self.request_id
        policy, cache = plan.policy.encode(), self.cache.encode()
        common = _COMMON % (request_id, self.id_bytes, len(self.attempts), policy, cache)
        if request.endpoint.dialect == "anthropic-messages":
            common += b"request-id: %b\r\n" % request_id  # what their SDK looks for
        if request.trimmed:
            common += b"x-lightgate-trimmed-bytes: %d\r\n" % request.trimmed
        if plan is not self.alias.in_order:
            common += self._plan_lines(attempt)
        if self.skipped:
            common += skipped_line(self.skipped)
        if attempt is None:
            return common + dropped_so_far(self.attempts)
        if attempt.prepared.dropped:
            common += attempt.dropped_header()
        if attempt.said_id:
            common += b"x-lightgate-provider-request-id: %b\r\n" % attempt.said_id
        for limit in attempt.limits:
            common += b"%b: %b\r\n" % limit
        marks, target = attempt.marks, attempt.target.name_bytes
        sent = self.attempts[0].marks.send
        # Vectors have no token.
        seen = self.first_in_ns or marks.first or marks.last or (marks.end if attempt.ok else None)
        if sent is None or seen is None:
            return b"%bx-lightgate-target: %b\r\n" % (common, target)
        now, received = self.state.now_ns(), self.inbound.received_ns
        added = b"%.3f" % ((sent - received + now - seen) / MS)
        timed = _TIMED % (common, target, added, added, (seen - sent) / MS)
        if request.streamed:
            return b"%bx-lightgate-ttft-ms: %.3f\r\n" % (timed, (now - received) / MS)
        if attempt.bill.nano_usd is None:
            return timed
        return timed + attempt.cost_header()
