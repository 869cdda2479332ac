"""How fast each target was lately, for workers that have not called it themselves.

From the sums of the gateway's own traffic, or from the benchmark runs that schedules keep. The
newest numbers count: whole hours are taken, from the last one backwards, until there are enough.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from lightgate.clock.sketch import DDSketch, merge_all
from lightgate.ledger.store.rollup import HOUR_S
from lightgate.ledger.store.schema import rollups

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lightgate.ledger.runs.history import History
    from lightgate.ledger.runs.run import CellSummary, Run
    from lightgate.ledger.store.store import Ledger

LONGEST: Final = timedelta(days=30)
ENOUGH: Final = 200  # answers after which no older hour is looked at
FEWEST: Final = 3  # answers below which nothing is said


class ObservedSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """First tokens (median, 95 %) and decode speeds (median, slow 5 %) of one target.

    `n` is the number of answers, `age_s` the seconds since the last hour or run with one.
    """

    ttft_ms: float
    ttft_p95_ms: float
    speed_tps: float
    speed_slow_tps: float
    n: int
    age_s: float


def seen_in_traffic(ledger: Ledger, now: datetime) -> dict[str, ObservedSpeed]:
    """Return every target that answered in the last 30 days, by the sums of the traffic."""
    table = rollups.c
    since = int((now - LONGEST).timestamp()) // HOUR_S * HOUR_S
    counted = (
        sa.select(table.target, table.bucket_s, table.measured)
        .where(table.width_s == HOUR_S, table.bucket_s >= since, table.measured > 0)
        .order_by(table.target, table.bucket_s.desc())
    )
    found: dict[str, ObservedSpeed] = {}
    with ledger.reading() as connection:
        for target, hours in _newest(connection.execute(counted)).items():
            here = sa.and_(
                table.width_s == HOUR_S, table.target == target, table.bucket_s >= min(hours)
            )
            blobs = sa.select(table.ttft_ms_sketch, table.speed_tps_sketch).where(here)
            age_s = max(0.0, now.timestamp() - max(hours) - HOUR_S)
            seen = _of_sketches(connection.execute(blobs).all(), age_s)
            if seen is not None:
                found[target] = seen
    return found


def seen_in_runs(history: History, now: datetime) -> dict[str, ObservedSpeed]:
    """Return every target in the kept runs of the last 30 days: its last run, at its least load."""
    found: dict[str, ObservedSpeed] = {}
    since = (now - LONGEST).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    for run in reversed(history.runs(since=since)):
        age_s = max(0.0, (now - datetime.fromisoformat(run.started)).total_seconds())
        for cell in _least_loaded(run):
            seen = _of_cell(cell, age_s)
            if seen is not None:
                found.setdefault(cell.target, seen)
    return found


def _newest(rows: Iterable[Any]) -> dict[str, list[int]]:
    """The hours of each target that are looked at, newest first."""
    hours: dict[str, list[int]] = {}
    answers: dict[str, int] = {}
    for target, hour, measured in rows:
        if answers.get(target, 0) < ENOUGH:
            hours.setdefault(target, []).append(hour)
            answers[target] = answers.get(target, 0) + measured
    return hours


def _of_sketches(rows: Sequence[Any], age_s: float) -> ObservedSpeed | None:
    ttft = merge_all(DDSketch.from_bytes(row[0]) for row in rows if row[0] is not None)
    speed = merge_all(DDSketch.from_bytes(row[1]) for row in rows if row[1] is not None)
    quantiles = (ttft.quantile(0.5), ttft.quantile(0.95), speed.quantile(0.5), speed.quantile(0.05))
    return _seen(quantiles, min(ttft.count, speed.count), age_s)


def _least_loaded(run: Run) -> list[CellSummary]:
    """The cells of a run whose figures are not doubtful, those with the least load first."""
    sure = [cell for cell in run.cells if not cell.doubts()]
    return sorted(sure, key=lambda cell: cell.concurrency or 1 << 30)


def _of_cell(cell: CellSummary, age_s: float) -> ObservedSpeed | None:
    known = {(metric.name, one.q): one for metric in cell.metrics for one in metric.quantiles}
    ttft, speed = known.get(("ttft_ms", 0.5)), known.get(("speed_tps", 0.5))
    if ttft is None or speed is None:
        return None
    late, slow = known.get(("ttft_ms", 0.95)), known.get(("speed_tps", 0.05))
    quantiles = (
        ttft.value,
        None if late is None else late.value,
        speed.value,
        None if slow is None else slow.value,
    )
    return _seen(quantiles, min(ttft.n, speed.n), age_s)


def _seen(quantiles: Sequence[float | None], n: int, age_s: float) -> ObservedSpeed | None:
    """Make the record; an unknown tail is the median, and without a median there is no record."""
    ttft, late, speed, slow = quantiles
    if n < FEWEST or not ttft or not speed:
        return None
    return ObservedSpeed(
        ttft_ms=ttft,
        ttft_p95_ms=max(late or ttft, ttft),
        speed_tps=speed,
        speed_slow_tps=min(slow or speed, speed),
        n=n,
        age_s=age_s,
    )
