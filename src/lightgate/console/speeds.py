"""The live speeds of every target over the last minutes, from the ledger's rollups."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from lightgate.clock.load import grade
from lightgate.clock.quantile import ranks
from lightgate.clock.sketch import DDSketch, merge_all
from lightgate.ledger.store.hourly import HourlyRow, hourly_rows
from lightgate.ledger.store.rollup import FINE_S
from lightgate.ledger.store.schema import attempts, rollups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.ledger.store.store import Ledger

WINDOW_S: Final = 900
SHOWN: Final = 60  # targets on the page; clients can name any number of them
ERROR_LENGTH: Final = 160
_NS_PER_S: Final = 1_000_000_000


class LiveSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """One target in the window; a number with too few samples behind it is None."""

    target: str
    requests: int
    ok: int
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    speed_p50_tps: float | None
    speed_total_p50_tps: float | None
    e2e_p50_ms: float | None
    grade: str | None
    tokens_out: int
    cost_usd: Decimal | None
    last_error: str | None


class Speeds(msgspec.Struct, frozen=True, kw_only=True):
    """All targets in the window, the fastest first token first; totals are of all of them."""

    window_s: int
    requests: int
    ok: int
    tokens_out: int
    overhead_p50_ms: float | None
    cost_usd: Decimal | None
    rows: tuple[LiveSpeed, ...]
    left_out: int  # targets with fewer requests than those in `rows`
    hourly: tuple[HourlyRow, ...]  # self-hosted providers, which cost by the hour


def live_speeds(
    ledger: Ledger, wall_ns: int, hourly_prices: Mapping[str, Decimal], window_s: int = WINDOW_S
) -> Speeds:
    """Read the window that ends now; it begins with a whole bucket of five minutes.

    The distributions are read of the targets that are shown alone: clients can name any number.
    """
    now_s = wall_ns // _NS_PER_S
    since_s = (now_s - window_s) // FINE_S * FINE_S
    table, here = rollups.c, sa.and_(rollups.c.width_s == FINE_S, rollups.c.bucket_s >= since_s)
    with ledger.reading() as connection:
        plain = (table.target, table.attempts, table.ok, table.tokens_out, table.cost_usd)
        counted: Sequence[Any] = connection.execute(sa.select(*plain).where(here)).all()
        asked: Counter[str] = Counter()
        for row in counted:
            asked[row.target] += row.attempts
        shown = [target for target, count in asked.most_common(SHOWN) if count]
        by_target: dict[str, list[Any]] = {target: [] for target in shown}
        for row in connection.execute(rollups.select().where(here, table.target.in_(shown))):
            by_target[row.target].append(row)
        errors = {
            target: _last_error(connection, target, since_s)
            for target in shown
            if _sum(by_target[target], "ok") < _sum(by_target[target], "attempts")
        }
    now = datetime.fromtimestamp(now_s, UTC)
    hourly = hourly_rows(ledger, timedelta(seconds=now_s - since_s), now, hourly_prices)
    paid = {row.provider: row for row in hourly}
    rows = [_row(target, by_target[target], errors.get(target), paid) for target in shown]
    rows.sort(key=lambda row: (row.ttft_p50_ms is None, row.ttft_p50_ms or 0.0, row.target))
    buckets = [bucket for target in shown for bucket in by_target[target]]
    hours = sum((row.cost_usd for row in hourly), Decimal(0))
    priced = _cost(counted)
    return Speeds(
        window_s=window_s,
        requests=_sum(counted, "attempts"),
        ok=_sum(counted, "ok"),
        tokens_out=_sum(counted, "tokens_out"),
        overhead_p50_ms=middle(_merged(buckets, "overhead_ms"), 0.5),
        cost_usd=(priced or 0) + hours if hourly else priced,
        rows=tuple(rows),
        left_out=max(0, len(asked) - SHOWN),
        hourly=tuple(hourly),
    )


def middle(sketch: DDSketch, q: float) -> float | None:
    """A quantile, once there are enough samples for its interval to exist."""
    return sketch.quantile(q) if ranks(sketch.count, q) is not None else None


def _row(
    target: str,
    buckets: Sequence[Any],
    error: str | None,
    hourly: Mapping[str, HourlyRow],
) -> LiveSpeed:
    owner = hourly.get(target.partition("/")[0])
    cost = _cost(buckets)
    if owner is not None and owner.tokens_out:  # targets share the hours by their tokens
        cost = owner.cost_usd * _sum(buckets, "tokens_out") / owner.tokens_out
    ttft, total = _merged(buckets, "ttft_ms"), _merged(buckets, "speed_total_tps")
    return LiveSpeed(
        target=target,
        requests=_sum(buckets, "attempts"),
        ok=_sum(buckets, "ok"),
        ttft_p50_ms=middle(ttft, 0.5),
        ttft_p95_ms=middle(ttft, 0.95),
        speed_p50_tps=middle(_merged(buckets, "speed_tps"), 0.5),
        speed_total_p50_tps=middle(total, 0.5),
        e2e_p50_ms=middle(_merged(buckets, "e2e_ms"), 0.5),
        grade=_grade(total),
        tokens_out=_sum(buckets, "tokens_out"),
        cost_usd=cost,
        last_error=error,
    )


def _grade(total: DDSketch) -> str | None:
    """The grades that the interval of the median allows."""
    n = total.count
    pair = ranks(n, 0.5)
    if pair is None:
        return None
    low, high = (total.quantile(rank / n) for rank in pair)
    return None if low is None or high is None else str(grade(low, high))


def _merged(buckets: Sequence[Any], metric: str) -> DDSketch:
    packed = (getattr(bucket, f"{metric}_sketch") for bucket in buckets)
    return merge_all(DDSketch.from_bytes(data) for data in packed if data is not None)


def _sum(buckets: Sequence[Any], column: str) -> int:
    return sum(getattr(bucket, column) for bucket in buckets)


def _cost(buckets: Sequence[Any]) -> Decimal | None:
    """Dollars; None where tokens came and no price is known for any of them."""
    total = sum((bucket.cost_usd for bucket in buckets), Decimal(0))
    return total if total or not _sum(buckets, "tokens_out") else None


def _last_error(connection: sa.Connection, target: str, since_s: int) -> str | None:
    """The newest failure's sentence; errors are ours, short, and hold no prompt."""
    query = (
        sa.select(attempts.c.outcome, attempts.c.status, attempts.c.error)
        .where(attempts.c.wall_ns >= since_s * _NS_PER_S, attempts.c.target == target)
        .where(attempts.c.outcome.not_in(("ok", "cancelled")))
        .order_by(attempts.c.wall_ns.desc())
        .limit(1)
    )
    found = connection.execute(query).first()
    if found is None:
        return None
    status = f" {found.status}" if found.status else ""
    said = f": {found.error}" if found.error else ""
    return f"{found.outcome}{status}{said}"[:ERROR_LENGTH]
