"""Two runs against each other: what has become worse, and how sure that is.

The runs were made at different times, so nothing is paired: the blocks of each run are drawn anew
on their own. The interval holds what varies inside the runs; weather between two days is not in it
(see `drift` for many runs). "Worse" is a ratio above 1 for every metric: the new duration over the
old, the old rate over the new.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
import numpy as np

from lightgate.clock.compare import ALPHA, FEWEST_BLOCKS, bootstrap_medians, holm
from lightgate.clock.load import counting
from lightgate.clock.quantile import CONFIDENCE, Interval, quantile, quantiles, smallest_n
from lightgate.ledger.runs.doubt import doubt
from lightgate.ledger.runs.samples import UNTOLD, Samples, load_of, untold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.recording import Recording
    from lightgate.ledger.runs.run import Run

HEADLINES: Final = ("ttft_ms", "speed_tps", "e2e_ms")  # closed loop
OPEN_HEADLINES: Final = ("ttft_plan_ms", "speed_tps", "e2e_ms")  # rates and traces
METRICS: Final = (
    "ttft_ms", "ttft_plan_ms", "ttfa_ms", "tte_ms", "tth_ms", "e2e_ms", "stall_ms", "speed_tps",
    "speed_total_tps",
)  # fmt: skip
FAILED: Final = "failed"  # the share of requests that failed; its change is in points, not a ratio
TOLERANCE: Final = 0.05
BLOCK: Final = 10  # requests in a row, where a run has no blocks of its own
_Z: Final = 1.959963984540054  # of a two-sided 95 % interval

Call = Literal["regression", "worse", "tie", "better", "n too small"]


class Side(NamedTuple):
    """A run as it is compared: its record, attempts and bursts."""

    run: Run
    attempts: Sequence[AttemptRecord]
    recordings: Mapping[str, Recording]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one cell in two runs.

    `worse` is the ratio of medians, above 1 for worse; of `failed` it is the difference of shares,
    above 0 for worse. `p_value` is Holm's, for "no worse than the tolerance".
    """

    target: str
    load: str
    metric: str
    n_old: int
    n_new: int
    old: float | None
    new: float | None
    worse: float | None = None
    interval: Interval | None = None
    p_value: float | None = None
    call: Call = "n too small"


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """All changes between two runs, and what weakens the comparison."""

    old: str
    new: str
    tolerance: float
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]

    @property
    def regressions(self) -> list[Change]:
        """The changes that are surely worse than the tolerance."""
        return [change for change in self.changes if change.call == "regression"]


def compare_runs(
    old: Side,
    new: Side,
    *,
    rng: np.random.Generator,
    tolerance: float = TOLERANCE,
    metrics: Sequence[str] = (),
) -> Compared:
    """Compare every target and load that both runs have; a tie is called a tie.

    Without `metrics` the headlines of each load: under a rate the time from the planned instant.
    """
    before, after = _cells(old), _cells(new)
    shared = [cell for cell in before if cell in after]
    changes = []
    for cell in shared:
        pair = (before[cell], after[cell])
        changes += [
            _change(cell, metric, pair, (rng, tolerance))
            for metric in metrics or headlines(cell[1])
        ]
        changes.append(_failures(cell, pair, tolerance))
    known = [c for c in changes if c.n_old or c.n_new]
    return Compared(
        old=old.run.id,
        new=new.run.id,
        tolerance=tolerance,
        changes=tuple(_called(known, tolerance)),
        warnings=tuple(_warnings(old, new, set(before) ^ set(after), shared)),
    )


def headlines(load: str) -> tuple[str, ...]:
    """Name the metrics that a load is judged by."""
    return HEADLINES if not load or load.startswith("c=") else OPEN_HEADLINES


Cell = tuple[str, str]
Rows = list[tuple["AttemptRecord", int]]  # with the block


def _cells(side: Side) -> dict[Cell, Rows]:
    """The attempts that each cell counts, in time order with their blocks; twins are left out."""
    samples = Samples(side.run)
    twins = {target.name for target in side.run.targets if target.twin_of is not None}
    cells: dict[Cell, list[tuple[AttemptRecord, int | None]]] = {}
    for attempt in sorted(side.attempts, key=lambda row: row.t_send_ns or 0):
        recording = side.recordings.get(attempt.id)
        if attempt.target in twins or not samples.counts(attempt, recording):
            continue
        key = (attempt.target, load_of(attempt, recording))
        cells.setdefault(key, []).append((attempt, recording.block if recording else None))
    return {cell: _blocked(rows) for cell, rows in cells.items()}


def _blocked(rows: Sequence[tuple[AttemptRecord, int | None]]) -> Rows:
    """Use the run's own blocks, or requests in a row: neighbours share their weather."""
    if all(block is not None for _, block in rows):
        return [(attempt, block or 0) for attempt, block in rows]
    size = max(1, min(BLOCK, len(rows) // FEWEST_BLOCKS))
    return [(attempt, at // size) for at, (attempt, _) in enumerate(rows)]


def _change(
    cell: Cell, metric: str, pair: tuple[Rows, Rows], setting: tuple[np.random.Generator, float]
) -> Change:
    rng, tolerance = setting
    before, after = (_values(rows, metric) for rows in pair)
    plain = Change(
        target=cell[0],
        load=cell[1],
        metric=metric,
        n_old=len(before[0]),
        n_new=len(after[0]),
        old=_median(before[0]),
        new=_median(after[0]),
    )
    if plain.old is None or plain.new is None:
        return plain
    top, bottom = (before, after) if metric.endswith("_tps") else (after, before)
    worse = plain.old / plain.new if metric.endswith("_tps") else plain.new / plain.old
    if min(len(set(before[1])), len(set(after[1]))) < FEWEST_BLOCKS:
        return msgspec.structs.replace(plain, worse=worse)
    drawn = bootstrap_medians(*top, rng=rng) / bootstrap_medians(*bottom, rng=rng)
    low, high = quantiles(drawn.tolist(), (ALPHA / 2, 1 - ALPHA / 2))
    if low is None or high is None:
        return plain
    not_worse = int(np.count_nonzero(drawn <= 1.0 + tolerance))
    return msgspec.structs.replace(
        plain,
        worse=worse,
        interval=Interval(low, high),
        p_value=(1 + not_worse) / (1 + len(drawn)),
    )


def _failures(cell: Cell, pair: tuple[Rows, Rows], tolerance: float) -> Change:
    """Compare the shares of failed requests by Newcombe's interval of their difference."""
    counts = []
    for rows in pair:
        offered = [a.outcome for a, _ in rows if a.outcome.is_failure or a.outcome == "ok"]
        counts.append((sum(outcome.is_failure for outcome in offered), len(offered)))
    (bad_old, n_old), (bad_new, n_new) = counts
    plain = Change(
        target=cell[0], load=cell[1], metric=FAILED, n_old=n_old, n_new=n_new, old=None, new=None
    )
    if not n_old or not n_new:
        return plain
    old, new = bad_old / n_old, bad_new / n_new
    low_old, high_old = _wilson(bad_old, n_old)
    low_new, high_new = _wilson(bad_new, n_new)
    gap = new - old
    interval = Interval(
        gap - math.hypot(new - low_new, high_old - old),
        gap + math.hypot(high_new - new, old - low_old),
    )
    error = math.sqrt(old * (1 - old) / n_old + new * (1 - new) / n_new)
    p_value = 0.5 * math.erfc((gap - tolerance) / error / math.sqrt(2)) if error else None
    if p_value is None:  # all or none failed on both sides: the interval alone decides
        p_value = 0.0 if interval.low > tolerance else 1.0
    return msgspec.structs.replace(
        plain, old=old, new=new, worse=gap, interval=interval, p_value=p_value
    )


def _called(changes: Sequence[Change], tolerance: float) -> list[Change]:
    """Name every change; having looked many times makes a regression harder to claim."""
    tested = [at for at, change in enumerate(changes) if change.p_value is not None]
    adjusted = holm([changes[at].p_value or 0.0 for at in tested])
    called = list(changes)
    for at, p_value in zip(tested, adjusted, strict=True):
        change = changes[at]
        called[at] = msgspec.structs.replace(
            change, p_value=p_value, call=_name(change, p_value, tolerance)
        )
    return called


def _name(change: Change, p_value: float, tolerance: float) -> Call:
    nothing = 0.0 if change.metric == FAILED else 1.0
    if change.interval is None:
        return "n too small"
    if change.interval.spans(nothing):
        return "tie"
    if change.interval.high < nothing:
        return "better"
    sure = change.interval.low > nothing + tolerance and p_value <= ALPHA / 2
    return "regression" if sure else "worse"


def _values(rows: Rows, metric: str) -> tuple[list[float], list[int]]:
    """The defined, positive values of a metric, and their blocks."""
    counted = {attempt.id for attempt in counting(attempt for attempt, _ in rows)}
    seen = [(getattr(a, metric), block) for a, block in rows if a.id in counted]
    kept = [(float(value), block) for value, block in seen if value is not None and value > 0]
    return [value for value, _ in kept], [block for _, block in kept]


def _median(values: Sequence[float]) -> float | None:
    return quantile(values, 0.5) if len(values) >= smallest_n(0.5, CONFIDENCE) else None


def _wilson(bad: int, n: int) -> tuple[float, float]:
    share, square = bad / n, _Z * _Z
    middle = share + square / (2 * n)
    reach = _Z * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    scale = 1 + square / n
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def _warnings(old: Side, new: Side, alone: set[Cell], shared: Sequence[Cell]) -> list[str]:
    said = []
    if old.run.definitions != new.run.definitions:
        said.append(
            f"The runs use different definitions ({old.run.definitions}, {new.run.definitions})."
        )
    names = sorted(set(old.run.workload) | set(new.run.workload))
    differ = [name for name in names if old.run.workload.get(name) != new.run.workload.get(name)]
    if differ:
        said.append(f"The runs sent different workloads: {', '.join(differ)}.")
    if not shared:
        said.append("The runs have no target and load in common: nothing was compared.")
    elif alone:
        cells = ", ".join(f"{target} {load}".strip() for target, load in sorted(alone))
        said.append(f"Only one of the runs has: {cells}.")
    for side in (old, new):
        said += _doubts(side)
    return said


def _doubts(side: Side) -> list[str]:
    """List what the run itself says against its numbers."""
    said = []
    if side.run.finished is None:
        said.append(f"The run {side.run.id} was interrupted.")
    said += [
        f"The run {side.run.id} is void: an A/A pair differs at {board.load}."
        for board in side.run.boards
        if board.void
    ]
    said += [
        f"{cell.target} at {cell.load} is doubtful in {side.run.id}: {doubt(metric, found)}."
        for cell in side.run.cells
        for metric, found in cell.doubts()
    ]
    if untold(side.run, side.attempts, side.recordings):
        said.append(f"The run {side.run.id} {UNTOLD}.")
    return said
