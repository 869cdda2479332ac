"""Marks on a chart over time: days on which a target had changed, and stretches of failures.

A day is judged as `lightgate schedule` judges a run: its median against the interval in which a day
like the earlier ones would lie, widened by what the day's own samples leave open. All targets of a
chart share one error rate for each day. Days that differ are no measure for the day behind them, so
that a change that lasts is told as one; when it has lasted as long as makes a baseline, it is the
new usual.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
import sqlalchemy as sa

from lightgate.bench.statistics.drift import FALSE_ALARMS, FEWEST, LAST, Drift, step
from lightgate.clock.share import Z, wilson
from lightgate.clock.sketch import DDSketch
from lightgate.console.api.figures import of_sketch
from lightgate.console.api.question import rfc3339
from lightgate.ledger.store.rollup import DAY_S, FINE_S, HOUR_S
from lightgate.ledger.store.schema import ATTEMPT_FAILED, OUTCOMES, attempt_notes, rollups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lightgate.console.api.figures import Figure
    from lightgate.console.api.question import Period

DOWN: Final = 0.5  # share of failures that a bucket must surely have
FEWEST_FAILED: Final = 4  # with fewer, no share of failures is surely above DOWN
APART_S: Final = 900  # stretches of failures that are closer are one outage
MOST_OUTAGES: Final = 40  # of one target, the newest
_NS_PER_S: Final = 1_000_000_000
_WELL: Final = frozenset({"ok", "cancelled", "cut"})

MarkKind = Literal["slower", "faster", "outage"]


class ChartMark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a target from `t` up to `until`; `text` says what.

    `change` is how much longer it took, as a share (0.38 is 38 % longer), null for an outage.
    """

    kind: MarkKind
    target: str
    t: str
    until: str
    change: float | None
    text: str


class DayMedian(NamedTuple):
    """A day's median time, and the standard error of its logarithm."""

    day_s: int
    median: float
    doubt: float


class _Spell(NamedTuple):
    """Days in a row that differ in one direction, each with its verdict."""

    days: tuple[DayMedian, ...]
    verdicts: tuple[Drift, ...]

    @property
    def call(self) -> str:
        return self.verdicts[0].call

    def reaches(self, day: DayMedian) -> bool:
        return day.day_s - self.days[-1].day_s == DAY_S


def day_median(day_s: int, figure: Figure, *, is_rate: bool) -> DayMedian | None:
    """Make one of a figure; a rate becomes a time. None where the samples are too few."""
    if not figure.v or not figure.lo or not figure.hi:
        return None
    doubt = (math.log(figure.hi) - math.log(figure.lo)) / (2.0 * Z)
    return DayMedian(day_s, 1.0 / figure.v if is_rate else figure.v, doubt)


def spells(days: Sequence[DayMedian], *, first_s: int = 0, looks: int = 1) -> Iterator[_Spell]:
    """Find the days from `first_s` on that differ from those before; days in a row are one spell.

    The days are whole ones, oldest first. A spell that ends before it is the new usual is counted
    among the usual days from then on: leaving every odd day out would make the rest look steadier
    than it is.
    """
    usual = [day.median for day in days if day.day_s < first_s]
    open_ = _Spell((), ())
    for day in days[len(usual) :]:
        verdict = step([*usual, day.median], alpha=FALSE_ALARMS / looks, doubt=day.doubt)
        if open_.days and not (verdict.call == open_.call and open_.reaches(day)):
            yield open_
            usual += [one.median for one in open_.days]
            open_ = _Spell((), ())
        if not verdict.alarming:
            usual.append(day.median)
            continue
        open_ = _Spell((*open_.days, day), (*open_.verdicts, verdict))
        if len(open_.days) == FEWEST:
            usual = [one.median for one in open_.days]
            yield open_
            open_ = _Spell((), ())
    if open_.days:
        yield open_


def drift_marks(
    connection: sa.Connection, targets: Sequence[str], metric: str, period: Period
) -> list[ChartMark]:
    """Mark the whole days of a period (UTC) on which a metric of a target differed."""
    table, is_rate = rollups.c, metric.endswith("_tps")
    first = period.start_s // DAY_S * DAY_S
    query = (
        sa.select(table.target, table.bucket_s, table[f"{metric}_sketch"].label("sketch"))
        .where(table.width_s == DAY_S, table.bucket_s >= first - (LAST + FEWEST) * DAY_S)
        .where(table.bucket_s <= period.stop_s - DAY_S, table.target.in_(targets))
        .where(table[f"{metric}_sketch"].is_not(None))
        .order_by(table.bucket_s)
    )
    days: dict[str, list[DayMedian]] = defaultdict(list)
    for row in connection.execute(query):
        figure = of_sketch(DDSketch.from_bytes(row.sketch), 0.5)
        day = day_median(row.bucket_s, figure, is_rate=is_rate)
        if day is not None:
            days[row.target].append(day)
    return [
        _drift_mark(target, spell, is_rate=is_rate)
        for target in targets
        for spell in spells(
            days[target], first_s=first - FEWEST * DAY_S, looks=max(len(targets), 1)
        )
        if spell.days[-1].day_s >= first
    ]


def _drift_mark(target: str, spell: _Spell, *, is_rate: bool) -> ChartMark:
    strongest = max(spell.verdicts, key=lambda one: abs(math.log(one.ratio or 1.0)))
    ratio, interval = strongest.ratio or 1.0, strongest.interval
    slower = ratio > 1.0
    ends = () if interval is None else (interval.low, interval.high)
    # A speed is told as a speed: what took 1.25 times as long had 0.8 times the speed.
    told = [1.0 / one if is_rate else one for one in (ratio, *ends)]
    word = ("lower" if slower else "higher") if is_rate else "longer" if slower else "shorter"
    amounts = [abs(one - 1.0) for one in told]
    between = f" ({_percent(min(amounts[1:]))} to {_percent(max(amounts[1:]))})" if ends else ""
    lasted = "" if len(spell.days) == 1 else f" at most, for {len(spell.days)} days"
    stayed = "; since then this is the usual" if len(spell.days) == FEWEST else ""
    return ChartMark(
        kind="slower" if slower else "faster",
        target=target,
        t=rfc3339(spell.days[0].day_s),
        until=rfc3339(spell.days[-1].day_s + DAY_S),
        change=round(ratio - 1.0, 4),
        text=(
            f"median {_percent(amounts[0])} {word} than on the {strongest.runs} days before"
            f"{between}{lasted}{stayed}"
        ),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def is_down(failed: int, judged: int) -> bool:
    """Whether surely more than half of the attempts of a span failed."""
    return failed >= FEWEST_FAILED and wilson(failed / judged, judged).low > DOWN


def outage_marks(
    connection: sa.Connection, targets: Sequence[str], period: Period
) -> list[ChartMark]:
    """Mark the stretches of a period in which most attempts at a target failed.

    By spans of five minutes, and by an hour where a target is asked so rarely that those miss most
    of its failures. The index of failures finds them, so for as long as single requests are kept.
    """
    down: dict[str, list[Any]] = defaultdict(list)
    for width in (FINE_S, HOUR_S):
        for row in connection.execute(_failing(targets, period, width)):
            if not is_down(_lost(row), _lost(row) + row.ok):
                continue
            known = [
                one for one in down[row.target] if one.bucket_s // width == row.bucket_s // width
            ]
            if 2 * sum(map(_lost, known)) < _lost(row):
                down[row.target] = [one for one in down[row.target] if one not in known] + [row]
    return [
        _outage(target, rows)
        for target in targets
        for rows in _stretches(down[target])[-MOST_OUTAGES:]
    ]


def _lost(row: Any) -> int:
    """The attempts of a span that failed."""
    return int(row.attempts - row.cancelled - row.cut - row.ok)


def _stretches(down: Iterable[Any]) -> list[list[Any]]:
    """Spans of time that are close to each other, in groups."""
    found: list[list[Any]] = []
    for row in sorted(down, key=lambda row: row.bucket_s):
        if found and row.bucket_s - found[-1][-1].bucket_s - found[-1][-1].width_s <= APART_S:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def _failing(targets: Sequence[str], period: Period, width: int) -> sa.Select[Any]:
    """The sums of those spans in which enough attempts failed to look closer."""
    note, table = attempt_notes.c, rollups.c
    bucket = (note.wall_ns // (width * _NS_PER_S) * width).label("bucket_s")
    failed = (
        sa.select(note.target, bucket)
        .where(note.target.in_(targets), ATTEMPT_FAILED)
        .where(note.wall_ns >= period.start_s * _NS_PER_S)
        .where(note.wall_ns < period.end_s * _NS_PER_S)
        .group_by(note.target, bucket)
        .having(sa.func.count() >= FEWEST_FAILED)
        .subquery()
    )
    here = sa.and_(table.bucket_s == failed.c.bucket_s, table.target == failed.c.target)
    plain = (table.target, table.width_s, table.bucket_s, table.attempts)
    return (
        sa.select(*plain, *(table[name] for name in OUTCOMES))
        .join_from(failed, rollups, sa.and_(table.width_s == width, here))
        .where(2 * table.ok < table.attempts - table.cancelled - table.cut)
    )


def _outage(target: str, rows: Sequence[Any]) -> ChartMark:
    counts = {name: sum(getattr(row, name) for row in rows) for name in OUTCOMES}
    failed = {name: count for name, count in counts.items() if count and name not in _WELL}
    worst = max(failed, key=lambda name: failed[name])
    total, lost = sum(failed.values()) + counts["ok"], sum(failed.values())
    return ChartMark(
        kind="outage",
        target=target,
        t=rfc3339(rows[0].bucket_s),
        until=rfc3339(rows[-1].bucket_s + rows[-1].width_s),
        change=None,
        text=f"{lost:,} of {total:,} attempts failed, most of them with {worst}",
    )
