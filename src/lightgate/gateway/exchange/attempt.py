"""One attempt of a flight: its call, its courier, its verdict and its bill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.clock.outcome import Outcome
from lightgate.dialect.assemble import assembler
from lightgate.dialect.translate import translator
from lightgate.errors import (
    AttemptError,
    Cancelled,
    DeadlineMissed,
    HttpRefused,
    Malformed,
    StreamError,
)
from lightgate.gateway.exchange.stream import Courier
from lightgate.gateway.exchange.whole import Collector
from lightgate.gateway.spend.price import NO_BILL, USUAL_ANSWER, Bill, believed, dollars
from lightgate.provider.call import Call
from lightgate.route.health.failure import CANCELLED, FINE, Failure, named_status, what
from lightgate.wire.client.roundtrip import Deadlines

if TYPE_CHECKING:
    from lightgate.clock.marks import Marks
    from lightgate.dialect.translate import Translator
    from lightgate.gateway.exchange.exchange import Flight
    from lightgate.gateway.process.state import State
    from lightgate.gateway.request.refusal import Refusal
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.provider.call import Called
    from lightgate.provider.prepare import Prepared
    from lightgate.route.plan.plan import Step

NS: Final = 1_000_000_000
CONNECT_S: Final = 3.0
_WRONG: Final = frozenset((400, 404, 422))  # what providers say of a field that they do not take
_COUNTING: Final = frozenset(("openai-chat", "openai-completions"))


class Leg:
    """An attempt, about to be made, under way or over (`called`)."""

    __slots__ = (
        "_body",
        "_collector",
        "_courier",
        "_flight",
        "_overdue",
        "_translator",
        "_whole",
        "began_ns",
        "bill",
        "call",
        "called",
        "failure",
        "heard",
        "held_ns",
        "lost",
        "marks",
        "prepared",
        "rejected",
        "step",
        "target",
        "unstreamable",
    )

    def __init__(
        self, flight: Flight, step: Step, target: ServedTarget, prepared: Prepared, marks: Marks
    ) -> None:
        self._flight = flight
        self._overdue = False
        self.step = step
        self.target = target
        self.prepared = prepared
        self.marks = marks
        self.began_ns = 0
        self.called: Called | None = None
        self.failure: Failure = CANCELLED
        self.bill: Bill = NO_BILL
        self.lost = False
        self.heard = False  # its first useful token has come
        self.held_ns = 0  # until when it is held back for a better one
        self.rejected = False  # it answered, and another tier is asked all the same
        self.unstreamable = False  # it would not stream what the client does not want streamed
        self._body: bytes | None = None  # the answer as one body, once it was asked for
        self._whole: bytes | None = None  # and that in the client's dialect
        self._translator = self._make_translator()
        self._courier: Courier | None = None
        self._collector: Collector | None = None
        wanted = flight.wanted
        if prepared.streamed and wanted.streamed:
            hides = wanted.path.dialect in _COUNTING and not wanted.include_usage
            self._courier = Courier(self, self._translator, hides_usage=hides)
        elif prepared.streamed:
            self._collector = Collector(self, assembler(prepared.dialect.name))
        self.call = Call(prepared, marks, self._courier or self._collector)

    def deadlines(self, remaining_ns: int, idle_ns: int) -> Deadlines:
        """What the wire itself enforces; the first token's deadline is the flight's."""
        total_s = remaining_ns / NS
        return Deadlines(min(CONNECT_S, total_s), None, idle_ns / NS, total_s)

    # The courier's voyage

    def commit(self) -> bool:
        """Ask for the client."""
        return self._flight.commit(self)

    def deliver(self, data: bytes) -> None:
        """Pass bytes on."""
        self._flight.deliver(self, data, ended=self.call.ended)

    @property
    def ended(self) -> bool:
        """Whether the terminal marker has come."""
        return self.call.ended

    def release(self) -> None:
        """Nobody better came: let go of what was held back."""
        self.held_ns = 0
        if self._courier is not None:
            self._courier.release()
        if self._collector is not None and not self._collector.release() and self.call.body:
            self.heard = True  # it answered whole at once, though it was asked to stream
            self._flight.commit(self)

    def let_go(self) -> None:
        """It is settled: nothing may hold it any more."""
        self._courier = self._collector = None

    # Endings

    def give_up(self) -> None:
        """The time for the first token is over."""
        if not self.heard:  # else it has spoken, and is held back for a better one
            self._overdue = True
            self.call.cancel()

    def lose(self) -> None:
        """Another attempt has the client: close the socket in this turn."""
        if self.called is None:
            self.lost = True
            self.call.cancel()

    def judge(self, called: Called, state: State, *, hurried: bool) -> Called:
        """Say what the end of the call means, to the breaker and to the flight."""
        error = called.error
        if self._overdue and isinstance(error, Cancelled):
            where = self.prepared.origin.authority
            error = DeadlineMissed(f"{where} sent no token in time.", phase="first_byte")
            called = msgspec.structs.replace(called, outcome=Outcome.TIMEOUT, error=error)
        elif error is None and self._courier is not None and not called.streamed:
            where = self.prepared.origin.authority
            error = Malformed(f"{where} did not stream although it was asked to.")
            called = msgspec.structs.replace(called, outcome=Outcome.STREAM_ERROR, error=error)
        elif error is None and self._translator is not None and self._translator.failed is not None:
            fault = self._translator.failed
            error = StreamError(self.prepared.without_key(fault.message), word=fault.code)
            called = msgspec.structs.replace(called, outcome=Outcome.STREAM_ERROR, error=error)
        elif error is None and self._courier is None:
            error = self._no_answer()
            if error is not None:
                outcome = Outcome(error.outcome)
                called = msgspec.structs.replace(called, outcome=outcome, error=error)
        self.called = called = self._plausible(called)
        now, target, began = state.now_ns(), self.step.target, self.began_ns
        size = self._flight.size
        if error is None:
            self.failure = FINE
            state.observer.succeeded(target, size, now, began, self._decoded(called))
        elif self.lost and isinstance(error, Cancelled):
            self.failure = CANCELLED
            state.observer.lost(target, size, now, began, spoke=self.heard)
        else:
            status = called.status
            if isinstance(error, StreamError):
                status = named_status(error.word, error.code) or status
            self.failure = what(called.outcome, status, error, hurried=hurried)
            self.unstreamable = self._flight.gathers and _will_not_stream(status, error)
            wait_s = error.retry_after_s if isinstance(error, HttpRefused) else None
            state.observer.failed(target, size, now, began, (self.failure, wait_s))
        self.bill = self.billed(called)
        return called

    def _decoded(self, called: Called) -> tuple[int, int]:
        """Tokens after the first burst and the time that they took; nothing of a whole answer."""
        marks, tokens = self.marks, called.tokens
        if not called.streamed or marks.first is None or marks.last is None:
            return 0, 0
        return (tokens.streamed or 0) - round(tokens.first_burst or 0), marks.last - marks.first

    def abandon(self, state: State) -> None:
        """The client left, or the worker stops: keep what had come until then."""
        self.called = self._plausible(self.call.ended_as(Cancelled("The client left.")))
        self.bill = self.billed(self.called)
        if self.began_ns:
            target, size = self.step.target, self._flight.size
            state.observer.lost(target, size, state.now_ns(), self.began_ns, spoke=self.heard)

    def billed(self, called: Called) -> Bill:
        """What the provider will charge, as far as it can be known.

        An answer that broke off has no usage: closed by us it is billed by the provider's abort
        policy, broken by the provider by what came of it.
        """
        prices = self.target.prices
        if called.error is None:
            bill = prices.bill(called.tokens)
            if bill.nano_usd is not None or prices.hourly:
                return bill
            return prices.estimate(self._flight.wanted.tokens_in, called.tokens.out or 0)
        if self.marks.send is None or (called.status is not None and called.status != 200):
            return NO_BILL
        seen = called.tokens.out or 0
        by_us = called.outcome in {Outcome.CANCELLED, Outcome.TIMEOUT}
        # Nobody stops the bill of an answer that is not streamed.
        if by_us and not (self.target.abort_stops_billing and self.prepared.streamed):
            wanted = self._flight.wanted
            seen = max(seen, self._limit() or USUAL_ANSWER * wanted.answers)
        return prices.estimate(self._flight.wanted.tokens_in, seen)

    def _plausible(self, called: Called) -> Called:
        """The call with token counts that can be true."""
        tokens = believed(called.tokens, self._limit(), called.bytes_in, called.bytes_out)
        if tokens is called.tokens:
            return called
        return msgspec.structs.replace(called, tokens=tokens)

    def _limit(self) -> int | None:
        """The most tokens that all answers together may have; None where nobody set a limit."""
        wanted = self._flight.wanted
        each = self._flight.cap or wanted.max_tokens
        return None if each is None else each * wanted.answers

    # For the client

    @property
    def body(self) -> bytes:
        """The answer as one body, in the provider's dialect; of a stream, as it was gathered."""
        if self._body is None:
            body, collector = self.call.body, self._collector
            self._body = body if collector is None or body else collector.whole()
        return self._body

    def whole_body(self) -> bytes:
        """The answer as one body, in the client's dialect; AttemptError if it is none."""
        if self._whole is None:
            try:
                body = self.body
                self._whole = body if self._translator is None else self._translator.whole(body)
            except (Malformed, StreamError) as error:
                error.message = self.prepared.without_key(error.message)
                raise
        return self._whole

    def reckon(self) -> None:
        """Price an answer that is whole before its call is over."""
        self.bill = self.billed(self._plausible(self.call.ended_as(None)))

    def _no_answer(self) -> AttemptError | None:
        """What is wrong with a whole answer that its own dialect's scanner took for one."""
        try:
            self.whole_body()
        except AttemptError as error:
            return error
        return None

    def closing(self) -> bytes:
        """What a translated stream still needs when the provider's ended without a marker."""
        return b"" if self._translator is None else self._translator.finish()

    def error_event(self, refusal: Refusal) -> bytes:
        """An error inside the stream; empty where the client has been told already."""
        if self._translator is None:
            return refusal.event(self._flight.wanted.path.dialect)
        if self._translator.failed is not None or self._translator.closed:
            return b""
        return self._translator.fail(refusal.status, message=refusal.message, code=refusal.code)

    def cost_header(self) -> bytes:
        """The price of the answer as a header line, where it is known."""
        nano = self.bill.nano_usd
        return b"" if nano is None else b"x-lightgate-cost-usd: %b\r\n" % dollars(nano).encode()

    def _make_translator(self) -> Translator | None:
        flight = self._flight
        asked, given = flight.wanted.path.dialect, self.prepared.dialect.name
        if asked == given:
            return None
        entry = flight.entry
        return translator(
            given,
            asked,
            model=flight.wanted.model,
            id=entry.id,
            created=entry.wall_ns // NS,
            include_usage=flight.wanted.include_usage,
        )


def _will_not_stream(status: int | None, error: AttemptError | None) -> bool:
    """Whether a provider refused a request because it was to be streamed."""
    return status in _WRONG and error is not None and "stream" in error.message.lower()


class Held:
    """A leg that spoke and waits for a better one; its time is kept like a deadline."""

    __slots__ = ("_leg",)

    def __init__(self, leg: Leg) -> None:
        self._leg = leg

    def give_up(self) -> None:
        """The better one did not come."""
        self._leg.release()
