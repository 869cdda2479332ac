"""One attempt of an exchange: a call of one target, its verdict and its bill."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import msgspec

from lightgate.clock.outcome import Outcome
from lightgate.dialect.neutral.omit import listed
from lightgate.dialect.translate import translator
from lightgate.errors import (
    AttemptError,
    Cancelled,
    DeadlineMissed,
    GatewayBehind,
    HttpRefused,
    LightgateError,
    Malformed,
    StreamError,
    TooLarge,
)
from lightgate.gateway.exchange.large import read_large_answer
from lightgate.gateway.request.weight import LIGHT_BYTES, is_heavy
from lightgate.gateway.served.price import NO_BILL, Bill, BillFacts, believed, billed, dollars
from lightgate.provider.call import Call
from lightgate.route.health.failure import (
    CANCELLED,
    CLIENT,
    FIELD,
    FINE,
    Failure,
    named_status,
    what,
)
from lightgate.route.health.field import refused_field

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.clock.marks import Marks
    from lightgate.dialect.translate import Translator
    from lightgate.gateway.exchange.caller import Caller
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.request.around import ClientReply
    from lightgate.gateway.request.body import ClientRequest
    from lightgate.gateway.request.refusal import Refusal
    from lightgate.gateway.served.price import Ceiling
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.provider.call import Called
    from lightgate.provider.prepare import Prepared
    from lightgate.route.plan.alias import Alias
    from lightgate.route.plan.plan import Plan, Step
    from lightgate.wire.door.inbound import Inbound

logger = logging.getLogger(__name__)
NS: Final = 1_000_000_000
SSE: Final = (
    b"content-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache, no-transform\r\n"
    b"x-accel-buffering: no\r\n"
)
JSON: Final = b"content-type: application/json\r\n"
_WRONG: Final = frozenset((400, 404, 422))  # what providers say of a field that they do not take


class Driver(Protocol):
    """What is told that an attempt is over, to go on from there."""

    def over(self, attempt: Attempt) -> None:
        """The attempt has ended and has been judged."""


class AttemptOwner(Protocol):
    """What decides about the attempts of an exchange: the exchange itself, or its cascade."""

    def pointless(self, step: Step) -> bool:
        """Whether a second try of a step's target is of no use."""
        ...

    def make_attempt(self, step: Step) -> Attempt | None:
        """Make the attempt of a step; None where it cannot be made."""
        ...

    def may_go_on(self, attempt: Attempt) -> bool:
        """Whether another attempt is allowed."""
        ...

    def carry_out(self, attempt: Attempt, limit_ns: int | None) -> None:
        """Start one attempt, with a deadline for its first token."""

    def commit(self, attempt: Attempt) -> bool:
        """Choose the winner at the first useful token of an attempt; whether it is this one."""
        ...

    def deliver(self, attempt: Attempt, data: bytes, *, ended: bool) -> None:
        """Take bytes for the client."""

    def ended(self, attempt: Attempt) -> None:
        """Go on after the deciding attempt."""

    def give_up(self) -> None:
        """Go on when no step is left."""

    def interrupt(self) -> None:
        """End the exchange because the worker stops."""


class CascadeOwner(AttemptOwner, Protocol):
    """What an exchange asks of its cascade."""

    doubtful: bool  # the client got an answer that failed its checks

    def header(self, attempt: Attempt | None) -> bytes:
        """What became of a tier that was started ahead, as a header line."""
        ...

    def close(self) -> None:
        """Let go of the attempts: the exchange is over."""


class ExchangeFacts(AttemptOwner, Protocol):
    """What attempts and the settlement read of their exchange; `Exchange` is one."""

    state: State
    inbound: Inbound
    reply: ClientReply
    caller: Caller
    request: ClientRequest
    alias: Alias
    plan: Plan
    attempts: list[Attempt]
    skipped: tuple[tuple[str, str], ...]
    winner: Attempt | None
    refusal: Refusal | None
    failures: list[tuple[str, AttemptError]]
    beside: list[Step]
    id: str
    request_id: bytes
    wall_ns: int
    cap: int | None
    cache: str
    size: int
    assembles: bool
    reserved: int
    reserved_tokens: int
    ceilings: dict[str, Ceiling] | None
    routed_ns: int | None
    first_in_ns: int | None
    first_out_ns: int | None
    last_out_ns: int | None
    closed_ns: int | None
    answered: bool

    @property
    def cascade(self) -> AttemptOwner | None:
        """What decides about the attempts in the exchange's place."""
        ...

    @property
    def decisive(self) -> Attempt | None:
        """The attempt that says how it went."""
        ...

    def headers(self, attempt: Attempt | None) -> bytes:
        """What happened so far, for the client: whole header lines."""
        ...

    def over(self, attempt: Attempt) -> None:
        """Go on after an attempt."""

    def broke(self, defect: BaseException) -> None:
        """End the exchange because of a defect."""

    def wait(self, attempt: Attempt) -> None:
        """Read no more of an answer until the client has caught up."""


class Attempt(Call):
    """An attempt that is asked for a whole answer: about to be made, under way or over (`called`).

    The two others are in `stream` and `whole`.
    """

    __slots__ = (
        "_answer",
        "_came_ns",
        "_overdue",
        "_translator",
        "_unread",
        "_whole",
        "began_ns",
        "bill",
        "called",
        "driver",
        "exchange",
        "failure",
        "final",
        "heard",
        "held_ns",
        "lost",
        "rejected",
        "step",
        "target",
        "timed",
        "unstreamable",
    )

    driver: Driver
    reads: ClassVar[int] = LIGHT_BYTES
    media: ClassVar[bytes] = JSON  # the header lines of the answer's type

    def __init__(
        self,
        exchange: ExchangeFacts,
        step: Step,
        target: ServedTarget,
        prepared: Prepared,
        marks: Marks,
    ) -> None:
        Call.__init__(self, prepared, marks)
        self.exchange = exchange
        self.driver = exchange
        self.step = step
        self.target = target
        self.began_ns = 0
        self.timed = False  # the first token has a deadline
        self.called: Called | None = None
        self.failure: Failure = CANCELLED
        self.bill: Bill = NO_BILL
        self.lost = False  # closed because another attempt has the client
        self.heard = False  # its first useful token has come
        self.held_ns = 0  # until when it is held back for a better one
        self.rejected = False  # it answered, and another tier is asked all the same
        self.unstreamable = False  # it would not stream what the client does not want streamed
        self.final: bytes | None = None  # the last bytes for the client, not yet sent
        self._overdue = False
        self._answer: bytes | None = None  # the answer as one body, once it was asked for
        self._whole: bytes | None = None  # and that in the client's dialect
        self._unread: AttemptError | None = None  # why it cannot be said so
        self._came_ns = 0  # the instant at which a large whole answer was complete
        asked = exchange.request.endpoint.dialect
        self._translator: Translator | None = None
        if asked != prepared.dialect.name:
            self._translator = translator(
                prepared.dialect.name,
                asked,
                model=exchange.request.model,
                id=exchange.id,
                created=exchange.wall_ns // NS,
                include_usage=exchange.request.include_usage,
            )
            if not exchange.request.endpoint.tokens:
                self._translator.hear(exchange.request.fields)
            if prepared.forms:
                self._translator.know(prepared.forms)

    @property
    def ok(self) -> bool:
        """Whether the attempt is over and has an answer."""
        return self.called is not None and self.called.error is None

    # Of a large whole answer

    def read_later(self, stamp: int) -> bool:
        """Whether an answer is too much for one turn of the loop."""
        self._came_ns = stamp
        self._body = [self.body]  # put together once
        return is_heavy(self._body[0])

    def read_aside(self) -> None:
        """Read the answer beside the loop, and translate it; then judge it."""
        state = self.exchange.state
        state.keep(state.loop.create_task(self._read_aside()))

    async def _read_aside(self) -> None:
        failure: BaseException | None = None
        try:
            facts, self._unread, told = await read_large_answer(
                self.exchange, self.prepared, self._body[0]
            )
            self._scanner.adopt(facts)
            if self._has_answer:
                self.marks.last = self._came_ns
            if self._translator is not None and self._unread is None:
                self._whole = told
        except LightgateError as error:
            failure = TooLarge(f"{self.prepared.origin.authority}: {error.message}")
        if self.called is None:  # else it was closed meanwhile
            self._over(failure)

    # Of an answer that is handed on while it comes; this one is not

    def release(self) -> None:
        """Let go of what was held back: no better attempt came."""
        self.held_ns = 0

    def conveys(self, send: Callable[[bytes], bool]) -> Callable[[bytes], bool] | None:  # noqa: ARG002 - for those that do
        """What plain token events may be handed to directly; None: each goes through `took`."""
        return None

    def _misshapen(self, called: Called) -> AttemptError | None:
        """What is wrong with an answer that its own dialect's scanner took for one."""
        if self._translator is not None and self._translator.failed is not None:
            fault = self._translator.failed
            return self.misread(fault)
        if called.streamed or self.prepared.dialect.name != self.exchange.request.endpoint.dialect:
            try:
                self.whole_body()
            except AttemptError as error:
                return error
        return None

    # Endings

    def give_up(self) -> None:
        """End the attempt because the time for its first token is over."""
        if not self.heard:  # else it has spoken, and is held back for a better one
            self._overdue = True
            self.cancel()

    def lose(self) -> None:
        """Close the socket in this turn: another attempt has the client."""
        if self.called is None:
            self.lost = True
            self.cancel()

    def on_limits(self) -> None:
        """Tell the router what the target says is left of its limits."""
        state, tokens = self.exchange.state, self.exchange.request.tokens_in
        state.limits_stated(self.step.target, self.began_ns, self.limits, tokens, self.status)

    def over(self, called: Called) -> None:
        """Judge the end of the call, tell the router, and let the exchange go on."""
        if self.called is not None:  # abandoned
            return
        exchange = self.exchange
        state = exchange.state
        if self.timed:
            state.timers.end(self)
        plain = called.error is None and self._translator is None
        if plain and not called.streamed and not self.prepared.streamed:
            called = self._plausible(called)
        else:
            called = self._judged(called)
        self.called = called
        error = called.error
        now, target, began = state.now_ns(), self.step.target, self.began_ns
        size, observer = exchange.size, state.learned.observer
        if error is None:
            self.failure = FINE
            decoded = self._decoded(called) if called.streamed else (0, 0)
            observer.succeeded(target, now, began, decoded)
        elif self.lost and isinstance(error, Cancelled):
            self.failure = CANCELLED
            observer.lost(target, size, now, began, spoke=self.heard)
        else:
            status = called.status
            if isinstance(error, StreamError):
                status = named_status(error.word, error.code, error.words.kind) or status
            self.unstreamable = exchange.assembles and _will_not_stream(status, error)
            self.failure = self._meaning(called.outcome, status, error)
            wait_s = error.retry_after_s if isinstance(error, HttpRefused) else None
            observer.failed(target, size, now, began, (self.failure, wait_s))
        self.bill = self._billed(called)
        if error is not None:
            if not self.lost:
                exchange.failures.append((target, error))
        elif called.streamed and not self.heard:  # complete, and without a token
            self.release()
        self.driver.over(self)

    def _meaning(self, outcome: Outcome, status: int | None, error: AttemptError) -> Failure:
        """Say what a failure means.

        A field that a second target refuses is the client's error; that the answer was to be
        streamed is ours, and the same target is asked for the whole.
        """
        exchange = self.exchange
        failure = what(outcome, status, error, hurried=exchange.caller.overrides.hurried)
        if failure is FIELD and (
            self.unstreamable or _refused_before(exchange.failures, status, error)
        ):
            return CLIENT
        return failure

    def broke(self, defect: BaseException) -> None:
        """End the exchange: our own code has a defect."""
        self.exchange.broke(defect)

    def crowded(self) -> None:
        """Wait for the client, which is slower than the provider."""
        self.exchange.wait(self)

    def abandon(self) -> None:
        """Close the attempt because the client left or the worker stops; keep what had come."""
        exchange = self.exchange
        state = exchange.state
        state.timers.end(self)
        called = self.ended_as(Cancelled("The client left."))
        self.called = called = self._plausible(called)
        self.bill = self._billed(called)
        self.cancel()
        if self.began_ns:
            target, size, now = self.step.target, exchange.size, state.now_ns()
            state.learned.observer.lost(target, size, now, self.began_ns, spoke=self.heard)

    def _judged(self, called: Called) -> Called:
        """The end of the call with the outcome that it has for the exchange."""
        error: AttemptError | None = None
        exchange, outcome = self.exchange, Outcome.STREAM_ERROR
        state = exchange.state
        if called.error is None:
            error = self._misshapen(called)
            if error is not None:
                outcome = Outcome(error.outcome)
        elif self._overdue and isinstance(called.error, Cancelled):
            where = self.prepared.origin.authority
            error = DeadlineMissed(f"{where} sent no token in time.", phase="first_byte")
            outcome = Outcome.TIMEOUT
            if not (exchange.request.streamed or exchange.assembles):
                waited_ns = state.now_ns() - self.began_ns
                state.learned.whole_times.cut(self.step.target, waited_ns)
        if isinstance(error or called.error, DeadlineMissed):
            load = state.load
            if load.stood_since(self.began_ns):
                where = self.prepared.origin.authority
                error = GatewayBehind(f"This gateway was too busy to hear {where} in time.")
                outcome = Outcome.TIMEOUT
        if error is not None:
            called = msgspec.structs.replace(called, outcome=outcome, error=error)
        return self._plausible(called)

    def _decoded(self, called: Called) -> tuple[int, int]:
        """Tokens after the first burst and the time that they took; nothing of a whole answer."""
        marks, tokens = self.marks, called.tokens
        if marks.first is None or marks.last is None:
            return 0, 0
        return (tokens.streamed or 0) - round(tokens.first_burst or 0), marks.last - marks.first

    def _billed(self, called: Called) -> Bill:
        """What the provider will charge for the attempt, as far as it can be known.

        No more than was reserved for it can have been asked for.
        """
        exchange, prices, bill = self.exchange, self.target.prices, NO_BILL
        if called.error is None and exchange.request.endpoint.tokens:  # what nearly all come to
            if not prices.known:
                return prices.unpriced
            if prices.plain:
                bill = prices.bill(called.tokens)
        if bill.nano_usd is None:
            bill = billed(_bill_facts(self, called))
        ceilings = exchange.ceilings
        if ceilings is not None and bill.nano_usd is not None:
            ceiling = ceilings.get(self.step.target)
            if ceiling is not None and bill.nano_usd > ceiling.most:
                return _cut(self, bill, ceiling.most)
        return bill

    def _plausible(self, called: Called) -> Called:
        """The call with token counts that can be true."""
        request = self.exchange.request
        limit = self.exchange.cap or request.max_tokens
        if limit is not None:
            limit *= request.answers
        tokens = believed(called.tokens, limit, called.bytes_in, called.bytes_out)
        if tokens is called.tokens:
            return called
        return msgspec.structs.replace(called, tokens=tokens)

    # For the client

    @property
    def answer_body(self) -> bytes:
        """The answer as one body, in the provider's dialect; of a stream, as it was assembled."""
        if self._answer is None:
            self._answer = self.body or self._assembled()
        return self._answer

    def _assembled(self) -> bytes:
        return b""

    def whole_body(self) -> bytes:
        """The answer as one body, in the client's dialect; AttemptError if it is none."""
        if self._unread is not None:
            self._unread.message = self.prepared.without_key(self._unread.message)
            raise self._unread
        if self._whole is None:
            if self._translator is None and not self.prepared.streamed:
                return b"".join(self._body)
            try:
                body, translated = self.answer_body, self._translator
                self._whole = body if translated is None else translated.whole(body)
            except (Malformed, StreamError) as error:
                error.message = self.prepared.without_key(error.message)
                raise
        return self._whole

    def reckon(self) -> None:
        """Price an answer that is whole before its call is over."""
        self.bill = self._billed(self._plausible(self.ended_as(None)))

    def closing(self) -> bytes:
        """What a translated stream still needs when the provider's ended without a marker."""
        return b"" if self._translator is None else self._translator.finish()

    def error_event(self, refusal: Refusal) -> bytes:
        """An error inside the stream; empty where the client has been told already."""
        translated = self._translator
        if translated is None:
            return refusal.event(self.exchange.request.endpoint.dialect)
        if translated.failed is not None or translated.closed:
            return b""
        return translated.fail(refusal.fault)

    def dropped_header(self) -> bytes:
        """The fields that the target was not told, as a header line."""
        return b"x-lightgate-dropped: %b\r\n" % listed(self.prepared.dropped)

    def cost_header(self) -> bytes:
        """The price of the answer as a header line."""
        return b"x-lightgate-cost-usd: %b\r\n" % dollars(self.bill.nano_usd or 0).encode()


def _bill_facts(attempt: Attempt, called: Called) -> BillFacts:
    exchange, target, prepared = attempt.exchange, attempt.target, attempt.prepared
    return BillFacts(
        target.prices,
        exchange.request,
        called,
        prepared.dialect.name,
        sent=attempt.marks.send is not None,
        # Closing does not stop the bill of an answer that is not streamed.
        stops=target.abort_stops_billing and prepared.streamed,
        limit=exchange.cap or exchange.request.max_tokens,
        ceiling=None if exchange.ceilings is None else _left_at(attempt, called.outcome),
        carries_out=target.carries_out,
    )


def _cut(attempt: Attempt, bill: Bill, most: int) -> Bill:
    """The bill of an attempt, cut to what was reserved for it; the log says so once per target."""
    known, target = attempt.exchange.state.learned.overbilled, attempt.step.target
    if target not in known:
        known.add(target)
        logger.warning(
            "%s counts tokens for $%s where $%s is the most that the request can cost. Such"
            " bills are cut to that; compare the provider's own.",
            target,
            dollars(bill.nano_usd or 0),
            dollars(most),
        )
    return Bill(most, "estimated", bill.as_of)


def _left_at(attempt: Attempt, outcome: Outcome) -> Ceiling | None:
    """What was reserved for an attempt that its client broke off, or gave too little time."""
    exchange = attempt.exchange
    hurried = outcome is Outcome.TIMEOUT and exchange.caller.overrides.hurried
    left = outcome is Outcome.CANCELLED and not attempt.lost
    return (exchange.ceilings or {}).get(attempt.step.target) if left or hurried else None


def _refused_before(
    failures: list[tuple[str, AttemptError]], status: int | None, error: AttemptError
) -> bool:
    """Whether another target has refused the same field: then it is the client's error."""
    field = refused_field(status, error.message, error.words)
    return any(
        refused_field(getattr(other, "code", None), other.message, other.words) == field
        for _, other in failures
    )


def _will_not_stream(status: int | None, error: AttemptError | None) -> bool:
    """Whether a provider refused a request because it was to be streamed."""
    return status in _WRONG and error is not None and "stream" in error.message.lower()


class Held:
    """An attempt that spoke and waits for a better one; its time is kept like a deadline."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def give_up(self) -> None:
        """Let the attempt go on: the better one did not come."""
        self._attempt.release()
