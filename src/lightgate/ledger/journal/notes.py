"""What the hot path writes down: facts and raw instants, no formulas.

A note is encoded as a plain msgpack array: fields are added at the end, with a default. The numbers
are worked out when the notes are read again, by the same code as those of a benchmark run.
"""

from __future__ import annotations

from array import array
from operator import itemgetter, sub
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec.structs import astuple

from lightgate.clock.attempt import AttemptFacts, AttemptRecord, Role, Source, wall_time
from lightgate.clock.marks import Marks, StampSource
from lightgate.clock.outcome import End, Outcome
from lightgate.clock.timing import NS_PER_MS, NS_PER_S, ms, overhead
from lightgate.clock.tokens import Tokens, TokensSource
from lightgate.ledger.store.exchange import ExchangeRecord, dollars

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.errors import AttemptError

VERSION: Final = 1  # of the notes; a reader refuses a journal of a newer one
STAMP_BYTES: Final = 8
_Values = tuple[Any, ...]
_ERROR_CHARS: Final = 500  # of a provider's own words; the rest says nothing more


class EndedCall(Protocol):
    """How a call ended, as far as a note needs it; `provider.call.Called` is one."""

    @property
    def outcome(self) -> Outcome: ...  # noqa: D102
    @property
    def error(self) -> AttemptError | None: ...  # noqa: D102
    @property
    def status(self) -> int | None: ...  # noqa: D102
    @property
    def streamed(self) -> bool: ...  # noqa: D102
    @property
    def tokens(self) -> Tokens: ...  # noqa: D102
    @property
    def finish_reason(self) -> str | None: ...  # noqa: D102
    @property
    def bytes_in(self) -> int: ...  # noqa: D102
    @property
    def bytes_out(self) -> int: ...  # noqa: D102
    @property
    def end(self) -> End | None: ...  # noqa: D102
    @property
    def provider_request_id(self) -> str | None: ...  # noqa: D102


class NoteFacts(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What an attempt was, as known before it began, and what it cost in nano-dollars."""

    id: str
    exchange_id: str
    target: str
    provider: str
    model: str
    dialect: str
    seq: int
    role: Role
    won: bool | None
    wall_ns: int
    cost_nano: int | None = None
    cost_source: str | None = None
    price_as_of: str | None = None
    source: Source = "gateway"


class AttemptNote(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One attempt: its facts, how it ended, its instants, its tokens and the stamps of its bursts.

    `bursts` are the bytes of an array of 64-bit integers in this machine's order; `ended_by` is the
    record's `end`, and `end` the instant.
    """

    facts: NoteFacts
    outcome: Outcome
    status: int | None
    error: str | None
    streamed: bool
    finish_reason: str | None
    bytes_in: int
    bytes_out: int
    plan: int | None
    send: int | None
    headers: int | None
    event: int | None
    first: int | None
    answer: int | None
    last: int | None
    end: int | None
    pool_wait_ns: int | None
    dns_ns: int | None
    tcp_ns: int | None
    tls_ns: int | None
    stamp_source: StampSource
    first_since: int | None
    last_since: int | None
    dispatch_lag_ns: int
    resent: bool
    void: bool
    tokens_out: int | None
    tokens_streamed: int | None
    tokens_reasoning: int | None
    tokens_cached: int | None
    tokens_in: int | None
    tokens_source: TokensSource | None
    hidden_reasoning: bool
    first_burst: float | None
    bursts: bytes
    ended_by: End | None = None
    provider_request_id: str | None = None

    @classmethod
    def of(cls, facts: NoteFacts, marks: Marks, called: EndedCall) -> AttemptNote:
        """Take down one attempt that has ended."""
        tokens, error = called.tokens, called.error
        return cls(
            facts,
            called.outcome,
            called.status,
            None if error is None else error.message[:_ERROR_CHARS],
            called.streamed,
            called.finish_reason,
            called.bytes_in,
            called.bytes_out,
            marks.plan,
            marks.send,
            marks.headers,
            marks.event,
            marks.first,
            marks.answer,
            marks.last,
            marks.end,
            marks.pool_wait_ns,
            marks.dns_ns,
            marks.tcp_ns,
            marks.tls_ns,
            marks.stamp_source,
            marks.first_since,
            marks.last_since,
            marks.dispatch_lag_ns,
            marks.resent,
            marks.void,
            tokens.out,
            tokens.streamed,
            tokens.reasoning,
            tokens.cached,
            tokens.tokens_in,
            tokens.source,
            tokens.hidden_reasoning,
            tokens.first_burst,
            marks.burst_ns.tobytes(),
            called.end,
            called.provider_request_id,
        )

    def longest_gap(self) -> int | None:
        """The longest time between two bursts; None where there are no two.

        Raises ValueError where the bursts are no whole numbers.
        """
        stamps = array("q", self.bursts)
        return max(map(sub, stamps[1:], stamps)) if len(stamps) > 1 else None

    def row(self) -> tuple[Any, ...]:
        """The values of ATTEMPT_COLUMNS; ValueError where the bursts are no whole numbers."""
        return self.row_with(self.longest_gap() if self.bursts else None)

    def row_with(self, stall_ns: int | None) -> tuple[Any, ...]:
        """The same where the longest gap between bursts is known already."""
        raw = astuple(self)
        first_since, last_since = raw[21], raw[22]
        flags = (
            raw[4] * STREAMED
            | raw[24] * RESENT
            | raw[25] * VOID
            | raw[32] * HIDDEN_REASONING
            | _END_FLAGS[raw[35]]
        )
        return _attempt_row((
            *raw, *astuple(raw[0]), flags, len(raw[34]) // STAMP_BYTES, stall_ns,
            between(first_since, raw[12]) if first_since else None,
            between(last_since, raw[14]) if last_since else None,
            raw[1]._value_,
        ))  # fmt: skip

    def measured(self) -> bool:
        """Whether the numbers of this attempt say how fast its provider is."""
        facts = self.facts
        return (
            self.outcome is Outcome.OK
            and facts.source == "gateway"
            and facts.won is not False
            and not self.void
        )

    def metrics(self) -> tuple[float | None, ...]:
        """The numbers of a complete answer that are kept in sketches, as the clock defines them.

        ttft_ms, ttfa_ms, speed_tps, speed_total_tps, e2e_ms; the first three are of streams only.
        """
        # Called for every answer that is shipped: no functions inside, they would take the most.
        send, first, last, answer = self.send, self.first, self.last, self.answer
        total = e2e_ms = ttft_ms = ttfa_ms = speed = None
        if send is not None and last is not None:
            e2e_ns = last - send
            e2e_ms = e2e_ns / NS_PER_MS
            span_ns = (
                e2e_ns + (self.pool_wait_ns or 0) + (self.dns_ns or 0)
                + (self.tcp_ns or 0) + (self.tls_ns or 0)
            )  # fmt: skip
            if self.tokens_out and span_ns > 0:
                total = self.tokens_out * NS_PER_S / span_ns
        if not self.streamed:
            return None, None, None, total, e2e_ms
        if send is not None:
            ttft_ms = None if first is None else (first - send) / NS_PER_MS
            ttfa_ms = None if answer is None else (answer - send) / NS_PER_MS
        if first is not None and last is not None and last > first:
            streamed, before = self.tokens_streamed, self.first_burst
            if streamed is not None and before is not None and streamed > before:
                speed = (streamed - before) * NS_PER_S / (last - first)
        return ttft_ms, ttfa_ms, speed, total, e2e_ms

    def attempt(self) -> AttemptRecord:
        """Work out the record, by the formulas of the clock."""
        facts = self.facts
        about = AttemptFacts(
            id=facts.id,
            exchange_id=facts.exchange_id,
            source=facts.source,
            target=facts.target,
            provider=facts.provider,
            model=facts.model,
            dialect=facts.dialect,
            seq=facts.seq,
            role=facts.role,
            won=facts.won,
            outcome=self.outcome,
            status=self.status,
            error=self.error,
            streamed=self.streamed,
            wall_ns=facts.wall_ns,
            cost_usd=dollars(facts.cost_nano),
            cost_source=facts.cost_source,
            price_as_of=facts.price_as_of,
            finish_reason=self.finish_reason,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            end=self.ended_by,
            provider_request_id=self.provider_request_id,
        )
        return AttemptRecord.of(about, self._marks(), self._tokens())

    def _marks(self) -> Marks:
        marks = Marks(self.plan, self.stamp_source)
        marks.send, marks.headers, marks.event = self.send, self.headers, self.event
        marks.first, marks.answer, marks.last, marks.end = (
            self.first, self.answer, self.last, self.end,
        )  # fmt: skip
        marks.pool_wait_ns, marks.dns_ns = self.pool_wait_ns, self.dns_ns
        marks.tcp_ns, marks.tls_ns = self.tcp_ns, self.tls_ns
        marks.first_since, marks.last_since = self.first_since, self.last_since
        marks.dispatch_lag_ns = self.dispatch_lag_ns
        marks.resent, marks.void = self.resent, self.void
        marks.burst_ns = array("q", self.bursts)
        return marks

    def _tokens(self) -> Tokens:
        return Tokens(
            out=self.tokens_out,
            streamed=self.tokens_streamed,
            reasoning=self.tokens_reasoning,
            cached=self.tokens_cached,
            tokens_in=self.tokens_in,
            source=self.tokens_source,
            hidden_reasoning=self.hidden_reasoning,
            first_burst=self.first_burst,
        )


class ExchangeNote(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One exchange, without the numbers that follow from its instants; money in nano-dollars.

    `sent_ns` is when the first attempt's bytes were written, `first_in_ns` when the winner's first
    useful token came and `first_out_ns` when it was handed on. `traceparent` is the client's.
    What was predicted is the first token of the plan's first target, from the start of its attempt,
    with the ends of the band that holds 80 % of them; `in_flight` is how many requests that target
    had then. `fingerprint` is that of the client's request; see `gateway.request.prints`.
    """

    id: str
    request_id: str
    key_id: str | None
    model_asked: str
    policy: str
    plan: str
    winner: str | None
    cache: str
    status: int
    outcome: str
    error: str | None
    dialect: str
    streamed: bool
    wall_ns: int
    accepted_ns: int | None
    first_byte_ns: int | None
    received_ns: int | None
    routed_ns: int | None
    sent_ns: int | None
    first_in_ns: int | None
    first_out_ns: int | None
    last_in_ns: int | None
    last_out_ns: int | None
    closed_ns: int | None
    tokens_in: int | None
    tokens_out: int | None
    cost_nano: int | None
    cost_source: str | None
    loser_cost_nano: int | None
    tags: str | None
    worker: int
    traceparent: str | None = None
    predicted_ttft_ns: int | None = None
    predicted_low_ns: int | None = None
    predicted_high_ns: int | None = None
    in_flight: int | None = None
    fingerprint: int | None = None

    def row(self, attempts: int) -> tuple[Any, ...]:
        """The values of EXCHANGE_COLUMNS."""
        return _exchange_row((*astuple(self), attempts))

    def record(self, attempts: int) -> ExchangeRecord:
        """Work out the record; a time to the first token exists for streamed answers only."""
        ttft_ns = between(self.received_ns, self.first_out_ns) if self.streamed else None
        return ExchangeRecord(
            id=self.id,
            request_id=self.request_id,
            key_id=self.key_id,
            model_asked=self.model_asked,
            policy=self.policy,
            plan=self.plan,
            winner=self.winner,
            attempts=attempts,
            cache=self.cache,
            status=self.status,
            outcome=self.outcome,
            error=self.error,
            dialect=self.dialect,
            streamed=self.streamed,
            wall_time=wall_time(self.wall_ns),
            accepted_ns=self.accepted_ns,
            first_byte_ns=self.first_byte_ns,
            received_ns=self.received_ns,
            routed_ns=self.routed_ns,
            sent_ns=self.sent_ns,
            first_in_ns=self.first_in_ns,
            first_out_ns=self.first_out_ns,
            last_in_ns=self.last_in_ns,
            last_out_ns=self.last_out_ns,
            closed_ns=self.closed_ns,
            overhead_ms=self.overhead_ms(),
            ttft_ms=ms(ttft_ns),
            e2e_ms=ms(between(self.received_ns, self.last_out_ns)),
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            cost_usd=dollars(self.cost_nano),
            cost_source=self.cost_source,
            loser_cost_usd=dollars(self.loser_cost_nano),
            tags=self.tags,
            worker=self.worker,
            traceparent=self.traceparent,
            predicted_ttft_ms=ms(self.predicted_ttft_ns),
            predicted_low_ms=ms(self.predicted_low_ns),
            predicted_high_ms=ms(self.predicted_high_ns),
            in_flight=self.in_flight,
            fingerprint=self.fingerprint,
        )

    def overhead_ms(self) -> float | None:
        """What the gateway added; None where no answer was sent, or its end did not go out."""
        received, sent, last_in, last_out = (
            self.received_ns, self.sent_ns, self.last_in_ns, self.last_out_ns,
        )  # fmt: skip
        if received is None or sent is None or last_in is None or last_out is None:
            return None
        if last_out < last_in:
            return None
        return ms(overhead(received, sent, last_in, last_out))


# The columns of the ledger's `attempt_notes` and `exchange_notes`, in the order of the notes' rows.
# Those that are seldom filled come last, and all flags are one number: for a null or a bool the
# driver takes eight times as long as for a number, and nulls at the end are left out.
STREAMED, RESENT, VOID, HIDDEN_REASONING, BY_MARKER, BY_FINISH = 1, 2, 4, 8, 32, 64
_END_FLAGS: Final = {None: 0, "marker": BY_MARKER, "finish": BY_FINISH}
ATTEMPT_COLUMNS: Final = (
    "id", "exchange_id", "target", "provider", "model", "dialect", "seq", "role", "wall_ns",
    "cost_nano", "cost_source", "price_as_of", "source", "outcome", "status", "finish_reason",
    "bytes_in", "bytes_out", "t_plan_ns", "t_send_ns", "t_headers_ns", "t_event_ns", "t_first_ns",
    "t_answer_ns", "t_last_ns", "t_end_ns", "stamp_source", "tokens_out", "tokens_streamed",
    "tokens_in", "tokens_source", "flags", "bursts", "first_burst", "stall_ns",
    "tokens_reasoning", "tokens_cached", "provider_request_id", "won", "pool_wait_ns", "dns_ns",
    "tcp_ns", "tls_ns", "error", "first_bound_ns", "last_bound_ns",
)  # fmt: skip
EXCHANGE_COLUMNS: Final = (
    "id", "request_id", "key_id", "model_asked", "policy", "plan", "winner", "cache", "status",
    "outcome", "dialect", "streamed", "wall_ns", "accepted_ns", "first_byte_ns", "received_ns",
    "routed_ns", "sent_ns", "first_in_ns", "first_out_ns", "last_in_ns", "last_out_ns",
    "closed_ns", "tokens_in", "tokens_out", "cost_nano", "cost_source", "worker", "attempts",
    "tags", "loser_cost_nano", "error", "traceparent", "predicted_ttft_ns", "predicted_low_ns",
    "predicted_high_ns", "in_flight", "fingerprint",
)  # fmt: skip


def _getter(columns: tuple[str, ...], names: tuple[str, ...]) -> Callable[[_Values], _Values]:
    """Picks the values of columns, by their names, out of a tuple."""
    return itemgetter(*(len(names) - 1 - names[::-1].index(column) for column in columns))


_renamed: Final = {"end": "t_end_ns", **{name: f"t_{name}_ns" for name in (
    "plan", "send", "headers", "event", "first", "answer", "last")}}  # fmt: skip
_attempt_row: Final = _getter(
    ATTEMPT_COLUMNS,
    (
        *(_renamed.get(name, f"note_{name}" if name == "bursts" else name)
          for name in AttemptNote.__struct_fields__),
        *NoteFacts.__struct_fields__,
        "flags", "bursts", "stall_ns", "first_bound_ns", "last_bound_ns", "outcome",
    ),
)  # fmt: skip
_exchange_row: Final = _getter(EXCHANGE_COLUMNS, (*ExchangeNote.__struct_fields__, "attempts"))


class Opened(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="o"):
    """The first note of every journal file."""

    version: int
    worker: int
    pid: int
    wall_ns: int


class Reserved(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="r"):
    """Money set aside before a paid dispatch."""

    exchange_id: str
    key_id: str | None
    wall_ns: int
    nano_usd: int
    targets: tuple[str, ...]
    request_id: str = ""
    model_asked: str = ""
    dialect: str = ""


class Announced(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="i"):
    """An id that a client is about to see, where nothing was reserved."""

    exchange_id: str
    wall_ns: int
    request_id: str = ""
    key_id: str | None = None
    model_asked: str = ""
    dialect: str = ""


class Settled(msgspec.Struct, array_like=True, frozen=True, gc=False, tag="s"):
    """One exchange that is over, with all of its attempts."""

    exchange: ExchangeNote
    attempts: tuple[AttemptNote, ...]


Note = Opened | Reserved | Announced | Settled


def between(start: int | None, stop: int | None) -> int | None:
    """Nanoseconds from one instant to another; None where one of them did not come."""
    return None if start is None or stop is None else stop - start
