"""Targets over time: percentile bands of one metric with marks, and the hours of a week."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import msgspec
import sqlalchemy as sa

from lightgate.clock.quantile import smallest_n
from lightgate.clock.sketch import DDSketch, merge_all
from lightgate.console.api.figures import Figure, of_sketch, short
from lightgate.console.api.question import BadQuestion, rfc3339
from lightgate.console.api.sums import named, spans
from lightgate.console.charts.marks import ChartMark, drift_marks, outage_marks
from lightgate.ledger.runs.history import HISTORY, scheduled_runs
from lightgate.ledger.store.rollup import DAY_S, FINE_S, HOUR_S
from lightgate.ledger.store.schema import rollups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from lightgate.console.api.question import Question
    from lightgate.ledger.store.store import Ledger

MEASURES: Final = {
    "ttft": "ttft_ms", "ttfa": "ttfa_ms", "speed": "speed_tps", "speed_total": "speed_total_tps",
    "e2e": "e2e_ms", "overhead": "overhead_ms",
}  # fmt: skip
BUCKETS: Final = {"5m": FINE_S, "1h": HOUR_S, "6h": 6 * HOUR_S, "1d": DAY_S}
MOST_POINTS: Final = 1500  # of one target
MOST_TARGETS: Final = 12
FEWEST_POINTS: Final = 14  # a chart that was made coarser for its p95 has more
MOST_RUNS: Final = 400  # scheduled benchmarks, the newest
_HEAT_S: Final = 92 * DAY_S
_BAND: Final = {q: smallest_n(q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}


class Point(msgspec.Struct, frozen=True):
    """One bucket of a target: quantiles are null where its samples are too few for them."""

    t: str
    p05: float | None
    p25: float | None
    p50: float | None
    p75: float | None
    p95: float | None
    n: int
    ok: float | None


class TargetSeries(msgspec.Struct, frozen=True):
    """The buckets of one target in which it was asked, in their order."""

    target: str
    points: tuple[Point, ...]


class RunPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduled benchmark measured of a target under one load."""

    t: str
    target: str
    schedule: str
    run_id: str
    load: str
    p50: float
    p95: float | None
    n: int


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One metric over time, for each target; `bucket_s` is the seconds of a point.

    `marks` are days on which a target differed and its outages, `runs` scheduled benchmarks.
    """

    as_of: str
    since: str
    until: str
    metric: str
    bucket_s: int
    rows: tuple[TargetSeries, ...]
    marks: tuple[ChartMark, ...]
    runs: tuple[RunPoint, ...]
    left_out: int
    try_line: str
    ignored: tuple[str, ...]


class HeatCell(msgspec.Struct, frozen=True):
    """One hour of the week (0 is Monday) with the median of its samples."""

    dow: int
    hour: int
    p50: Figure


class Heat(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of the chosen targets by hour of the week, in a time zone."""

    as_of: str
    since: str
    until: str
    metric: str
    tz: str
    rows: tuple[HeatCell, ...]
    ignored: tuple[str, ...]


def series(
    ledger: Ledger, question: Question, now_ns: int, data: Path | None = None, try_line: str = ""
) -> Series:
    """Return the series of the targets with most attempts among those that are asked for.

    Scheduled benchmarks are read from the history in `data`.
    """
    period, metric = question.period, question.text("metric")
    with ledger.reading() as connection:
        asked = _attempts(connection, question)
        shown = sorted(sorted(asked, key=lambda name: (-asked[name], name))[:MOST_TARGETS])
        width, buckets = _chosen(connection, question, shown)
        marks = [
            *drift_marks(connection, shown, MEASURES[metric], period),
            *outage_marks(connection, shown, period),
        ]
    since, until = period.texts()
    return Series(
        as_of=rfc3339(now_ns // 1_000_000_000),
        since=since,
        until=until,
        metric=metric,
        bucket_s=width,
        rows=tuple(
            TargetSeries(name, tuple(one.point() for one in buckets[name])) for name in shown
        ),
        marks=tuple(marks),
        runs=tuple(_run_points(data, shown, question)) if data is not None else (),
        left_out=len(asked) - len(shown),
        try_line=try_line,
        ignored=question.ignored,
    )


def heat(ledger: Ledger, question: Question, now_ns: int) -> Heat:
    """Return the hours of the week; those without a sample are left out."""
    if question.period.stop_s - question.period.start_s > _HEAT_S:
        raise BadQuestion(f"A heat map has at most {_HEAT_S // DAY_S} days.")
    try:
        zone = ZoneInfo(question.text("tz"))
    except (ValueError, OSError, KeyError):  # no name of a file, no file, an unknown zone
        raise BadQuestion("tz is the name of a time zone, like Europe/Berlin.") from None
    hours: dict[tuple[int, int], DDSketch] = defaultdict(DDSketch)
    with ledger.reading() as connection:
        for row in _rows(connection, question, HOUR_S):
            if row.sketch is not None:
                at = datetime.fromtimestamp(row.bucket_s, UTC).astimezone(zone)
                hours[at.weekday(), at.hour].merge(DDSketch.from_bytes(row.sketch))
    since, until = question.period.texts()
    return Heat(
        as_of=rfc3339(now_ns // 1_000_000_000),
        since=since,
        until=until,
        metric=question.text("metric"),
        tz=question.text("tz"),
        rows=tuple(HeatCell(*at, of_sketch(hours[at], 0.5)) for at in sorted(hours)),
        ignored=question.ignored,
    )


def _run_points(data: Path, targets: Sequence[str], question: Question) -> Iterator[RunPoint]:
    """The medians of scheduled benchmarks at these targets, oldest first."""
    since, until = question.period.texts()
    metric = MEASURES[question.text("metric")]
    kept = scheduled_runs(data / HISTORY, since=since, until=until, most=MOST_RUNS)
    for schedule, run in kept:
        for cell in run.cells:
            found = cell.estimate(metric, 0.5) if cell.target in targets else None
            if found is None or found.value is None:
                continue
            tail = cell.estimate(metric, 0.05 if metric.endswith("_tps") else 0.95)
            yield RunPoint(
                t=run.started,
                target=cell.target,
                schedule=schedule,
                run_id=run.id,
                load=cell.load,
                p50=round(found.value, 3),
                p95=None if tail is None or tail.value is None else round(tail.value, 3),
                n=found.n,
            )


class _Bucket:
    """The sums of one target over one point, which may be several rows of the ledger."""

    __slots__ = ("attempts", "bucket_s", "judged", "measured", "ok", "packed")

    def __init__(self, bucket_s: int) -> None:
        self.bucket_s = bucket_s
        self.attempts = self.judged = self.ok = self.measured = 0
        self.packed: list[bytes] = []

    def take(self, row: Any) -> None:
        self.attempts += row.attempts
        self.judged += row.attempts - row.cancelled - row.cut
        self.ok += row.ok
        self.measured += row.measured
        if row.sketch is not None:
            self.packed.append(row.sketch)

    def point(self) -> Point:
        parts = [DDSketch.from_bytes(one) for one in self.packed]
        sketch = parts[0] if len(parts) == 1 else merge_all(parts)
        n = sketch.count
        found = dict(zip(_BAND, sketch.quantiles(_BAND), strict=True))
        # A quantile is told where enough samples would give it an interval.
        told = [short(found[q]) if n >= needed else None for q, needed in _BAND.items()]
        p05, p25, p50, p75, p95 = told
        ok = round(self.ok / self.judged, 6) if self.judged else None
        return Point(rfc3339(self.bucket_s), p05, p25, p50, p75, p95, self.attempts, ok)


def _attempts(connection: sa.Connection, question: Question) -> dict[str, int]:
    """How often every target was asked in the period."""
    table = rollups.c
    found: dict[str, int] = defaultdict(int)
    for width, first, stop in spans(question.period):
        query = (
            sa.select(table.target, sa.func.sum(table.attempts))
            .where(table.width_s == width, table.bucket_s >= first, table.bucket_s < stop)
            .where(*named(question, table))
            .group_by(table.target)
        )
        for target, count in connection.execute(query):
            found[target] += int(count)
    return found


def _chosen(
    connection: sa.Connection, question: Question, shown: Sequence[str]
) -> tuple[int, dict[str, list[_Bucket]]]:
    """The width of a point and the points of every target.

    Unless a width is asked for: the finest at which half of the points have a p95 and the chart
    still has enough points; else the finest at which three of four have a median.
    """
    seconds = question.period.stop_s - question.period.start_s
    asked = question.text("bucket")
    if asked != "auto":
        if seconds > BUCKETS[asked] * MOST_POINTS:
            raise BadQuestion(f"That is more than {MOST_POINTS:,} points: ask for wider buckets.")
        return BUCKETS[asked], _buckets(connection, question, BUCKETS[asked], shown)
    fitting = [width for width in BUCKETS.values() if seconds <= width * 600] or [DAY_S]
    tried: list[tuple[int, dict[str, list[_Bucket]]]] = []
    for width in fitting:
        if tried and seconds < width * FEWEST_POINTS:
            break
        found = _buckets(connection, question, width, shown)
        tried.append((width, found))
        if _samples(found, 0.5) >= _BAND[0.95]:
            return width, found
    return next((one for one in tried if _samples(one[1], 0.25) >= _BAND[0.5]), tried[-1])


def _samples(buckets: Mapping[str, Sequence[_Bucket]], share: float) -> int:
    """The samples of a point, of which a share of all points has fewer."""
    counts = sorted(one.measured for some in buckets.values() for one in some)
    return counts[int(share * len(counts))] if counts else 0


def _buckets(
    connection: sa.Connection, question: Question, width: int, shown: Sequence[str]
) -> dict[str, list[_Bucket]]:
    """The points of every target, in their order; six hours are added up from single ones."""
    kept = width if width in {FINE_S, HOUR_S, DAY_S} else HOUR_S
    found: dict[str, dict[int, _Bucket]] = defaultdict(dict)
    for row in _rows(connection, question, kept, shown):
        mine, at = found[row.target], row.bucket_s // width * width
        if at not in mine:
            mine[at] = _Bucket(at)
        mine[at].take(row)
    return {target: list(points.values()) for target, points in found.items()}


def _of(question: Question, shown: Sequence[str] | None) -> list[sa.ColumnElement[bool]]:
    return named(question, rollups.c) if shown is None else [rollups.c.target.in_(shown)]


def _rows(
    connection: sa.Connection, question: Question, width: int, shown: Sequence[str] | None = None
) -> Iterator[Any]:
    table, period = rollups.c, question.period
    packed = table[f"{MEASURES[question.text('metric')]}_sketch"].label("sketch")
    query = (
        sa.select(table.target, table.bucket_s, table.attempts, table.ok, table.cancelled,
                  table.cut, table.measured, packed)
        .where(table.width_s == width, table.bucket_s >= period.start_s // width * width,
               table.bucket_s < period.end_s, *_of(question, shown))
        .order_by(table.bucket_s)
    )  # fmt: skip
    yield from connection.execute(query)
