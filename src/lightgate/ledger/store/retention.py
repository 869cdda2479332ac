"""How long the ledger keeps what: rows of single requests for weeks, sums for more than a year.

The daily sums of keys are never deleted: a budget without a period counts from the key's beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from lightgate.clock.source import SYSTEM
from lightgate.ledger.store.rollup import DAY_S, FINE_S, HOUR_S
from lightgate.ledger.store.schema import attempt_notes, exchange_notes, key_rollups, rollups

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.ledger.store.store import Ledger

BATCH: Final = 2000  # rows in one transaction: others wait for it
FEW_DAYS: Final = 3  # a day more is a third more
_NS_PER_S: Final = 1_000_000_000


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """Days that rows are kept: single requests, sums over 5 minutes, longer sums."""

    raw_days: float = 30
    fine_days: float = 90
    rollup_days: float = 400


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that were deleted; `more` when the pass ended at its limit."""

    exchanges: int = 0
    attempts: int = 0
    rollups: int = 0
    more: bool = False


def prune(
    ledger: Ledger,
    keep: Keep | None = None,
    *,
    now: Callable[[], int] = SYSTEM.wall_ns,
    limit: int = 50_000,
) -> Pruned:
    """Delete what is too old, at most `limit` rows of a kind, a batch in each transaction."""
    rules = keep or Keep()
    oldest = old_ns(now(), rules.raw_days)
    sums = (
        (rollups, FINE_S, rules.fine_days),
        (rollups, HOUR_S, rules.rollup_days),
        (rollups, DAY_S, rules.rollup_days),
        (key_rollups, FINE_S, rules.fine_days),
    )
    tries = _delete_raw(ledger, attempt_notes, oldest, rules, limit)
    asked = _delete_raw(ledger, exchange_notes, oldest, rules, limit)
    summed = [
        _delete(
            ledger,
            table,
            sa.and_(table.c.width_s == width, table.c.bucket_s < _ago(now(), days) - width),
            limit,
        )
        for table, width, days in sums
    ]
    return Pruned(
        exchanges=asked,
        attempts=tries,
        rollups=sum(summed),
        more=max(tries, asked, *summed) >= limit,
    )


def old_ns(now_ns: int, days: float) -> int:
    """The instant before which rows of single requests are too old."""
    return _ago(now_ns, days) * _NS_PER_S


def _ago(now_ns: int, days: float) -> int:
    return now_ns // _NS_PER_S - int(days * DAY_S)


def _delete_raw(ledger: Ledger, table: sa.Table, oldest: int, rules: Keep, limit: int) -> int:
    """Delete rows of single requests: whole days where they are kept apart, else row by row.

    A day goes when all of it is too old. Where so little is kept that a day more would be much,
    rows are deleted as well.
    """
    dropped = ledger.drop_days(table, oldest)
    if dropped is not None and rules.raw_days >= FEW_DAYS:
        return dropped
    return (dropped or 0) + _delete(ledger, table, table.c.wall_ns < oldest, limit)


def _delete(ledger: Ledger, table: sa.Table, where: sa.ColumnElement[bool], limit: int) -> int:
    identity = sa.tuple_(*table.primary_key.columns)
    gone = 0
    while gone < limit:
        some = sa.select(*table.primary_key.columns).where(where).limit(min(BATCH, limit - gone))
        with ledger.writing() as connection:
            result: sa.CursorResult[Any] = connection.execute(
                table.delete().where(identity.in_(some))
            )
        gone += result.rowcount
        if result.rowcount == 0:
            break
    return gone
