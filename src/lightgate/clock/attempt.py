"""The record of one attempt at a provider; the same for runs and for production.

One attempt is one JSON object on one line. The fields and their order are a contract with every
reader: add at the end, never rename. (`resent` was `replayed` once; a line with that name is read.)
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Final, Literal, Self

import msgspec

from lightgate.clock.marks import Marks, StampSource
from lightgate.clock.outcome import End, Outcome
from lightgate.clock.timing import NS_PER_MS, Timing, bound_ms
from lightgate.clock.tokens import Tokens, TokensSource

Source = Literal["bench", "gateway", "probe", "batch"]
Role = Literal["only", "primary", "hedge", "racer", "fallback", "probe"]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AttemptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of an attempt and its end: all of its record that is not measured.

    `wall_ns` is the wall clock when the attempt began, for display and joins; `won` is None where
    nobody competed or the race is not decided.
    """

    id: str
    exchange_id: str
    run_id: str | None = None
    source: Source
    target: str
    provider: str
    model: str
    dialect: str
    seq: int = 0
    concurrency: int | None = None
    role: Role = "only"
    won: bool | None = None
    outcome: Outcome
    status: int | None = None
    error: str | None = None
    streamed: bool = True
    wall_ns: int
    cost_usd: Decimal | None = None
    cost_source: str | None = None
    price_as_of: str | None = None
    finish_reason: str | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    end: End | None = None
    provider_request_id: str | None = None


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt; instants in nanoseconds of the monotonic clock, None where absent."""

    id: str
    exchange_id: str
    run_id: str | None
    source: Source
    target: str
    provider: str
    model: str
    dialect: str
    seq: int
    concurrency: int | None
    role: Role
    won: bool | None
    outcome: Outcome
    status: int | None
    error: str | None
    streamed: bool
    wall_time: str
    t_plan_ns: int | None
    t_send_ns: int | None
    t_headers_ns: int | None
    t_event_ns: int | None
    t_first_ns: int | None
    t_answer_ns: int | None
    t_last_ns: int | None
    t_end_ns: int | None
    pool_wait_ms: float | None
    dns_ms: float | None
    tcp_ms: float | None
    tls_ms: float | None
    ttft_ms: float | None
    ttft_plan_ms: float | None
    ttfa_ms: float | None
    tte_ms: float | None
    tth_ms: float | None
    e2e_ms: float | None
    speed_tps: float | None
    speed_total_tps: float | None
    stall_ms: float | None
    bursts: int
    tokens_in: int | None
    tokens_out: int | None
    tokens_streamed: int | None
    tokens_reasoning: int | None
    tokens_cached: int | None
    tokens_source: TokensSource | None
    cost_usd: Decimal | None
    cost_source: str | None
    price_as_of: str | None
    finish_reason: str | None
    stamp_source: StampSource
    bytes_in: int
    bytes_out: int
    hidden_reasoning: bool = False
    void: bool = False  # the wall clock stepped: kernel stamps of this attempt mean nothing
    resent: bool = False  # sent a second time: the kept connection was closed; instants are of that
    end: End | None = None  # what said that the answer was complete; None where it was not
    provider_request_id: str | None = None
    # How much earlier than its stamp the first (last) token may have come; None: nobody watched.
    first_bound_ms: float | None = None
    last_bound_ms: float | None = None

    @classmethod
    def of(cls, facts: AttemptFacts, marks: Marks, tokens: Tokens) -> Self:
        """Put the facts, the instants and every number together.

        `e2e` and `speed_total` exist for complete answers only: where one broke off, its last token
        is not the last.
        """
        timing = Timing.of(marks, tokens, streamed=facts.streamed)
        complete = facts.outcome is Outcome.OK
        waited = marks.pool_wait_ns
        same = msgspec.structs.asdict(facts)
        return cls(
            wall_time=wall_time(same.pop("wall_ns")),
            **same,
            t_plan_ns=marks.plan,
            t_send_ns=marks.send,
            t_headers_ns=marks.headers,
            t_event_ns=marks.event,
            t_first_ns=marks.first,
            t_answer_ns=marks.answer,
            t_last_ns=marks.last,
            t_end_ns=marks.end,
            pool_wait_ms=None if waited is None else waited / NS_PER_MS,
            dns_ms=None if marks.dns_ns is None else marks.dns_ns / NS_PER_MS,
            tcp_ms=None if marks.tcp_ns is None else marks.tcp_ns / NS_PER_MS,
            tls_ms=None if marks.tls_ns is None else marks.tls_ns / NS_PER_MS,
            ttft_ms=timing.ttft_ms,
            ttft_plan_ms=timing.ttft_plan_ms,
            ttfa_ms=timing.ttfa_ms,
            tte_ms=timing.tte_ms,
            tth_ms=timing.tth_ms,
            e2e_ms=timing.e2e_ms if complete else None,
            speed_tps=timing.speed_tps,
            speed_total_tps=timing.speed_total_tps if complete else None,
            stall_ms=timing.stall_ms,
            bursts=len(marks.burst_ns),
            tokens_in=tokens.tokens_in,
            tokens_out=tokens.out,
            tokens_streamed=tokens.streamed,
            tokens_reasoning=tokens.reasoning,
            tokens_cached=tokens.cached,
            tokens_source=tokens.source,
            stamp_source=marks.stamp_source,
            hidden_reasoning=tokens.hidden_reasoning,
            void=marks.void,
            resent=marks.resent,
            first_bound_ms=bound_ms(marks.first_since, marks.first),
            last_bound_ms=bound_ms(marks.last_since, marks.last),
        )

    def to_line(self) -> bytes:
        """Encode as one line of JSON, with its newline."""
        return _ENCODER.encode(self) + b"\n"

    @staticmethod
    def from_line(line: bytes) -> "AttemptRecord":
        """Decode one line; fields that this version does not know are passed over.

        Raises ValueError on anything that is not an attempt.
        """
        if _OLD_RESENT in line:
            line = line.replace(_OLD_RESENT, b'"resent":')
        return _DECODER.decode(line)


def wall_time(wall_ns: int) -> str:
    """Wall clock as RFC 3339 in UTC, cut to whole microseconds."""
    second, micros = divmod(wall_ns // 1000, 1_000_000)
    return f"{_second(second)}.{micros:06d}Z"


@lru_cache(maxsize=1024)  # many attempts begin in the same second
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).replace(tzinfo=None).isoformat()


_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_DECODER: Final = msgspec.json.Decoder(AttemptRecord)
_OLD_RESENT: Final = b'"replayed":'  # inside a text the quotes would be escaped
