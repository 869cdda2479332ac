"""Say why a request is not admitted: the sentence for the client, and when to ask again."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from lightgate.ledger.store.keys import KeyRecord, Period

_SECOND_NS: Final = 1_000_000_000
_DAY_NS: Final = 86_400 * _SECOND_NS
_MINUTE_S: Final = 60.0
RECOUNT_S: Final = 2.0  # in which every worker writes what it knows into a new file
_NO_REFILL_S: Final = 86_400.0  # a total budget does not begin again; somebody may raise it


class Denied(msgspec.Struct, frozen=True, kw_only=True):
    """The limit that a request does not fit into, and when it may."""

    reason: Literal["rpm", "tpm", "budget", "share", "counters"]
    retry_after_s: float
    message: str


def too_often(wait_s: float, rpm: int) -> Denied:
    """Deny a request: the key has made its requests of this minute."""
    wait_s = min(wait_s, _MINUTE_S)  # official SDKs pass over longer waits
    said = f"This key may make {rpm} requests in a minute; try again in {math.ceil(wait_s)} s."
    return Denied(reason="rpm", retry_after_s=wait_s, message=said)


def too_many(wait_s: float, tpm: int, tokens: int) -> Denied:
    """Deny a request: the tokens of this minute, with running requests, leave no room."""
    wait_s = min(wait_s, _MINUTE_S)
    said = f"This key may use {tpm} tokens in a minute and this request may take {tokens}"
    said += (
        "; ask for fewer with max_tokens."
        if tokens > tpm
        else f"; try again in {math.ceil(wait_s)} s, or ask for fewer with max_tokens."
    )
    return Denied(reason="tpm", retry_after_s=wait_s, message=said)


def too_dear(key: KeyRecord, wall_ns: int, left_nano: int, nano_usd: int) -> Denied:
    """Deny a request: what is left of the budget does not cover its worst case."""
    words = {"total": "", "day": " for today", "month": " for this month"}[key.budget_period]
    wait_s, again = _refill(key.budget_period, wall_ns)
    said = (
        f"This key has {_dollars(max(left_nano, 0))} left of its budget of ${key.budget_usd:f}"
        f"{words}, and this request may cost {_dollars(nano_usd)}{again}."
    )
    return Denied(reason="budget", retry_after_s=wait_s, message=said)


def beyond_share(wait_s: float) -> Denied:
    """Deny a request: the limits may cover it, but not the part that this worker can be sure of."""
    said = (
        "The machines that share this key's limits cannot ask each other at the moment, and this"
        f" one's share is used up; try again in {math.ceil(wait_s)} s."
    )
    return Denied(reason="share", retry_after_s=wait_s, message=said)


def recounting() -> Denied:
    """Deny a request: what its key has spent is read from the ledger at the moment."""
    said = (
        "What this key has spent is being read from the ledger again, since the counters of budgets"
        " were damaged; try again in a few seconds."
    )
    return Denied(reason="counters", retry_after_s=RECOUNT_S, message=said)


def _refill(period: Period, wall_ns: int) -> tuple[float, str]:
    """Seconds until the period ends, and the part of a sentence that says so."""
    if period == "total":
        return _NO_REFILL_S, ""
    now = datetime.fromtimestamp(wall_ns // _SECOND_NS, UTC)
    if period == "day":
        ends_ns = (wall_ns // _DAY_NS + 1) * _DAY_NS
    else:
        year, month = divmod(now.year * 12 + now.month, 12)
        ends_ns = int(datetime(year, month + 1, 1, tzinfo=UTC).timestamp()) * _SECOND_NS
    ends = datetime.fromtimestamp(ends_ns // _SECOND_NS, UTC)
    return (ends_ns - wall_ns) / _SECOND_NS, f"; the budget is full again on {ends:%Y-%m-%d} (UTC)"


def _dollars(nano_usd: int) -> str:
    whole, part = divmod(nano_usd, _SECOND_NS)
    digits = f"{part:09d}".rstrip("0").ljust(2, "0")
    return f"${whole}.{digits}"
