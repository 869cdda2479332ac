"""Choosing the next load by what the last ones came to: saturation, the highest rate, precision.

Precision goes in two stages: the first stretch says how much a target scatters, and from that the
size of the second follows once and for all. Looking again and again until an interval happens to be
narrow would make intervals that hold less often than they say.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.bench.judge.slo import (
    Check,
    Search,
    Sweep,
    Tried,
    missed,
    next_concurrency,
    next_rate,
)
from lightgate.bench.load.shape import NS_PER_S, Poisson, Rate
from lightgate.bench.run.order import MOST, Loading, announced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lightgate.bench.run.order import RunOrder
    from lightgate.ledger.runs.run import CellSummary, Estimate


ROUNDS: Final = 8  # requests of each worker, at least: fewer say nothing about throughput


class ToSaturation:
    """An explorer that doubles the concurrency of one target until more gains no throughput."""

    def __init__(self, requests: Callable[[int], int], sweep: Sweep) -> None:
        self._requests = requests
        self._sweep = sweep
        self.said = ""

    def next(self, cells: Sequence[CellSummary]) -> Loading | None:
        """The next load, or None at saturation."""
        step = next_concurrency(cells, self._sweep)
        if step.next is None:
            best = "none" if step.best is None else f"c={step.best:g}"
            self.said = f"Sweep: {step.reason}; the smallest load with all but 5 % of it: {best}."
            return None
        return self._load(int(step.next))

    def most(self, order: RunOrder) -> int:
        """Requests of every load up to the highest that is allowed."""
        total, workers = 0, self._sweep.start
        while True:
            total += announced(self._load(workers), order) or 0
            if workers >= self._sweep.most:
                return total
            workers = min(2 * workers, self._sweep.most)

    def _load(self, workers: int) -> Loading:
        requests = max(self._requests(workers), ROUNDS * workers)
        return Loading(label=f"c={workers}", concurrency=workers, requests=requests)


class Trial(NamedTuple):
    """The length of the trial of one rate: a number of requests, or a duration."""

    requests: int | None
    duration_ns: int | None
    seed: int


class HighestRate:
    """An explorer that searches the highest Poisson rate at which one target keeps every limit."""

    def __init__(self, checks: Sequence[Check], search: Search, trial: Trial) -> None:
        self._checks = checks
        self._search = search
        self._trial = trial
        self._asked: str | None = None
        self.said = ""

    def next(self, cells: Sequence[CellSummary]) -> Loading | None:
        """The next rate, or None when the answer is near enough."""
        limits = ", ".join(check.text for check in self._checks)
        tried = [
            Tried(cell.rate, not missed(self._checks, [cell]))
            for cell in cells
            if cell.rate is not None and not _doubted(cell)
        ]
        step = next_rate(tried, self._search)
        stopped = self._stopped(cells)
        if step.next is None or stopped:
            best = "none was found" if step.best is None else f"{step.best:.3g}/s"
            why = stopped or step.reason
            self.said = f"Highest rate without {limits}: {best} ({why})."
            return None
        load = self._load(step.next)
        self._asked = load.label
        return load

    def most(self, order: RunOrder) -> int:
        """Requests of as many trials as there may be, each at the highest rate."""
        return self._search.tries * (announced(self._load(self._search.most), order) or 0)

    def _load(self, per_s: float) -> Loading:
        # Three digits are enough, and a label that a reader can say.
        rate = Rate(Fraction(f"{per_s:.3g}"), NS_PER_S)
        pacer = Poisson(rate, self._trial.seed)
        return Loading(
            label=pacer.label,
            pacer=pacer,
            requests=self._trial.requests,
            duration_ns=self._trial.duration_ns,
        )

    def _stopped(self, cells: Sequence[CellSummary]) -> str:
        """Say why the last rate says nothing about the target; empty where it does."""
        last = next((cell for cell in cells if cell.load == self._asked), None)
        if last is None:
            return "" if self._asked is None else f"no request was counted at {self._asked}"
        return f"this client was late at {last.load}, so it is the limit" if _doubted(last) else ""


def _doubted(cell: CellSummary) -> bool:
    """Whether this client was too late to know the headline figures of a cell."""
    return any(metric in HEADLINES for metric, _ in cell.doubts())


HEADLINES: Final = ("ttft_ms", "speed_tps")
MARGIN: Final = 1.15  # the width of an interval is itself only an estimate


def half_width(estimate: Estimate) -> float | None:
    """Half of a quantile's interval, as a share of the quantile; None where there is none."""
    if not estimate.value or estimate.interval is None:
        return None
    return (estimate.interval.high - estimate.interval.low) / 2 / estimate.value


def widest(cells: Iterable[CellSummary]) -> float | None:
    """The largest half width of any headline's median."""
    widths = [
        half_width(estimate)
        for cell in cells
        for metric in cell.metrics
        if metric.name in HEADLINES
        for estimate in metric.quantiles
        if estimate.q == 0.5
    ]
    return max((width for width in widths if width is not None), default=None)


def requests_for(wish: float, cells: Iterable[CellSummary], done: int) -> int:
    """Requests in all, of which `done` are made, for half widths of at most `wish`."""
    width = widest(cells)
    if width is None or width <= wish:
        return done
    return min(math.ceil(done * MARGIN * (width / wish) ** 2), MOST * done)
