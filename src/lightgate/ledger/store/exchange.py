"""The record of one exchange: what one client asked for and what came of it.

One exchange is one row of the ledger's `exchanges`; its attempts at providers are rows of their
own. The fields and their order are a contract with every reader: add at the end, never rename.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

NANO: Final = Decimal("1e-9")  # dollars in one nano-dollar
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ExchangeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange; instants in nanoseconds of the gateway's monotonic clock, None where absent.

    `ttft_ms` and `e2e_ms` are as the client saw them, from the whole request received; `cost_usd`
    is of the winner, `loser_cost_usd` of everybody else who was paid. `predicted_ttft_ms` is of the
    plan's first target alone, from the start of its attempt; 80 % of such first tokens were
    expected between `predicted_low_ms` and `predicted_high_ms`, with `in_flight` requests there.
    Equal `fingerprint`s are equal requests of one key.
    """

    id: str
    request_id: str
    key_id: str | None
    model_asked: str
    policy: str
    plan: str
    winner: str | None
    attempts: int
    cache: str
    status: int
    outcome: str
    error: str | None
    dialect: str
    streamed: bool
    wall_time: str
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
    overhead_ms: float | None
    ttft_ms: float | None
    e2e_ms: float | None
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: Decimal | None
    cost_source: str | None
    loser_cost_usd: Decimal | None
    tags: str | None
    worker: int
    traceparent: str | None = None
    predicted_ttft_ms: float | None = None
    predicted_low_ms: float | None = None
    predicted_high_ms: float | None = None
    in_flight: int | None = None
    fingerprint: int | None = None


def exchange_of(row: Sequence[Any]) -> ExchangeRecord:
    """Make the record of a row of `exchanges`; columns behind the record's are ignored."""
    return ExchangeRecord(**dict(zip(ExchangeRecord.__struct_fields__, row, strict=False)))


def dollars(nano_usd: int | None) -> Decimal | None:
    """Convert a whole number of nano-dollars to dollars, exactly; None stays None."""
    return None if nano_usd is None else nano_usd * NANO


def wall_ns_of(wall_time: str) -> int:
    """Return the nanoseconds since the epoch of a record's wall time, to the microsecond."""
    since = datetime.fromisoformat(wall_time) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
