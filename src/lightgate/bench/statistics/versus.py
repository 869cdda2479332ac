"""Which of several targets is faster at one load, and whether the run can say so at all.

Targets are compared by pairs of requests with the same place in the same block of an interleaved
run. Every A/A pair (a target under two names) is looked at first: a board on which it "differs" is
void. Ratios and medians are in the metric's own unit: for `speed_tps` a ratio above 1 is better.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from lightgate.clock.compare import ROUNDS, Comparison, adjusted, compare_all, standings
from lightgate.clock.load import in_statistics
from lightgate.clock.quantile import Interval
from lightgate.ledger.runs.run import Board, Versus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.clock.compare import BoardRow
    from lightgate.ledger.runs.recording import Recording
    from lightgate.ledger.runs.run import TargetFacts

    Place = tuple[int, int]  # the block, and which of its requests
    Samples = dict[str, dict[Place, float]]  # by target; only where the request succeeded

CLOSED_METRICS: Final = ("ttft_ms", "speed_tps", "e2e_ms")
OPEN_METRICS: Final = ("ttft_plan_ms", "speed_tps", "e2e_ms")


class Field(NamedTuple):
    """All targets at one load: their attempts, and whether the load was open.

    The ids in `cut` are requests of the ramp: they have their places, and no table counts them.
    """

    load: str
    attempts: Sequence[AttemptRecord]
    open_loop: bool = False
    cut: AbstractSet[str] = frozenset()


class Contest(NamedTuple):
    """The findings of a run about which target is faster."""

    boards: tuple[Board, ...]
    versus: tuple[Versus, ...]


def contest(
    fields: Iterable[Field],
    recordings: Mapping[str, Recording],
    targets: Sequence[TargetFacts],
    *,
    rng: np.random.Generator,
    rounds: int = ROUNDS,
) -> Contest:
    """Compare all pairs of targets at every load, by every metric that ranks them.

    Without blocks there are no pairs, and nothing is claimed. Holm's method goes over all pairs of
    one load and metric, and over all A/A pairs of the run.
    """
    twins = {one.name: one.twin_of for one in targets if one.twin_of is not None}
    names = [one.name for one in targets if one.name not in twins]
    tables = [
        _Table(field.load, metric, _samples(field, recordings, metric), (rng, rounds))
        for field in fields
        for metric in (OPEN_METRICS if field.open_loop else CLOSED_METRICS)
    ]
    alike = _alike(tables, twins)
    void = {(row.load, row.metric) for row in alike if row.verdict == "void"}
    versus, boards = list(alike), []
    for table in tables:
        voided = (table.load, table.metric) in void
        versus += _pairs(table, names, void=voided)
        standing = _standings(table, names)
        if standing:
            board = Board(
                load=table.load, metric=table.metric, standings=tuple(standing), void=voided
            )
            boards.append(board)
    return Contest(tuple(boards), tuple(versus))


def said(comparison: Comparison, *, larger_is_better: bool) -> str:
    """Name the result of a comparison: "a faster", "b faster", or why neither can be called so."""
    if not comparison.differs:
        return comparison.verdict
    return "a faster" if (comparison.ratio > 1.0) == larger_is_better else "b faster"


class _Table(NamedTuple):
    load: str
    metric: str
    samples: Samples
    drawing: tuple[np.random.Generator, int]  # and the rounds

    @property
    def is_rate(self) -> bool:
        return self.metric.endswith("_tps")

    def columns(self, names: Iterable[str]) -> tuple[dict[str, NDArray[np.float64]], list[int]]:
        """Samples by place, as times (a rate as its reciprocal), NaN where there is none; blocks.

        A target without any sample is left out.
        """
        present = {name: self.samples[name] for name in names if self.samples.get(name)}
        places = sorted(set().union(*present.values()))
        columns = {
            name: np.array([own.get(place, np.nan) for place in places])
            for name, own in present.items()
        }
        if self.is_rate:
            columns = {name: 1.0 / column for name, column in columns.items()}
        return columns, [block for block, _ in places]


def _samples(field: Field, recordings: Mapping[str, Recording], metric: str) -> Samples:
    """One metric by target and place; a place in a block is the same prompt for every target.

    Prompts are handed out in the order of sending, not of ending, which `seq` has.
    """
    number = attrgetter(metric)
    found: Samples = {}
    seen: dict[tuple[str, int], int] = {}
    for attempt in sorted(field.attempts, key=_when):
        recording = recordings.get(attempt.id)
        if recording is None or recording.block is None or recording.warmup:
            continue
        key = (attempt.target, recording.block)
        place = seen[key] = seen.get(key, -1) + 1
        value = number(attempt)
        if attempt.id in field.cut:
            continue
        if in_statistics(attempt) and value is not None and value > 0.0:
            found.setdefault(attempt.target, {})[recording.block, place] = value
    return found


def _when(attempt: AttemptRecord) -> tuple[int, int]:
    return attempt.t_plan_ns or attempt.t_send_ns or 0, attempt.seq


def _alike(tables: Iterable[_Table], twins: Mapping[str, str]) -> list[Versus]:
    """Compare every target with its twin, over all boards of the run."""
    rows = [
        row
        for table in tables
        for twin, first in twins.items()
        for row in _rows(table, (first, twin))
    ]
    return [
        _held(row, held, "void" if held.differs else held.verdict)
        for row, held in zip(rows, adjusted([row.comparison for row in rows]), strict=True)
    ]


def _pairs(table: _Table, names: Sequence[str], *, void: bool) -> list[Versus]:
    rows = _rows(table, names)
    return [
        _held(row, held, "void" if void else said(held, larger_is_better=table.is_rate))
        for row, held in zip(rows, adjusted([row.comparison for row in rows]), strict=True)
    ]


def _rows(table: _Table, names: Sequence[str]) -> list[Versus]:
    """Compare all pairs over the places where both succeeded; none where there are none."""
    columns, blocks = table.columns(names)
    if len(columns) < 2:
        return []
    found = compare_all(columns, rng=table.drawing[0], blocks=blocks)
    return [
        Versus(
            load=table.load,
            metric=table.metric,
            a=a,
            b=b,
            comparison=_of_rates(comparison) if table.is_rate else comparison,
            p_adjusted=comparison.p_value,
            verdict=comparison.verdict,
        )
        for (a, b), comparison in found.items()
        if comparison is not None
    ]


def _held(row: Versus, held: Comparison, verdict: str) -> Versus:
    """The row beside all that are read with it; its comparison keeps the plain p-value."""
    plain = msgspec.structs.replace(row.comparison, among=held.among)
    return msgspec.structs.replace(row, comparison=plain, p_adjusted=held.p_value, verdict=verdict)


def _standings(table: _Table, names: Sequence[str]) -> list[BoardRow]:
    """Rank the targets over the places where all of them succeeded.

    One that failed more than half of the time is left out: it would take the others' samples away.
    """
    sizes = {name: len(table.samples.get(name, ())) for name in names}
    present = [name for name, size in sizes.items() if size > 0 and size * 2 >= max(sizes.values())]
    if len(present) < 2:
        return []
    columns, blocks = table.columns(present)
    rng, rounds = table.drawing
    rows = standings(columns, rng=rng, blocks=blocks, rounds=rounds)
    if not table.is_rate:
        return rows
    return [msgspec.structs.replace(row, median=1.0 / row.median) for row in rows]


def _of_rates(times: Comparison) -> Comparison:
    """The same comparison in terms of the rates whose reciprocals were compared."""
    turned = times.interval
    if turned is not None:
        turned = Interval(1.0 / turned.high, 1.0 / turned.low, turned.confidence)
    return msgspec.structs.replace(
        times, ratio=1.0 / times.ratio, interval=turned, p_less=1.0 - times.p_less
    )
