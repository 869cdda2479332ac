"""The cells of a target at both ends of what a late client leaves open.

A client that read late knows a figure only between two ends. A verdict that is the same at every
end does not depend on where between them the truth lies.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.clock.quantile import Interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lightgate.ledger.runs.run import CellSummary, Estimate, Metric

_TOLD_BY: Final = frozenset({"ttft_ms", "speed_tps"})  # the metrics that rules of verdicts read


def at_ends(ordered: Sequence[CellSummary]) -> Iterator[tuple[CellSummary, ...]]:
    """Yield the cells with every doubtful figure at an end; the heaviest cell's end is its own.

    A growth from light to heavy is largest and least where the two are at opposite ends.
    """
    *lighter, heaviest = ordered
    for first, last in product((False, True), repeat=2):
        yield (*(_moved(cell, up=first) for cell in lighter), _moved(heaviest, up=last))


def has_ends(cells: Sequence[CellSummary]) -> bool:
    """Whether every doubtful figure has an upper end, too."""
    return all(
        found.high is not None
        for cell in cells
        for metric, found in cell.doubts()
        if metric in _TOLD_BY
    )


def _moved(cell: CellSummary, *, up: bool) -> CellSummary:
    metrics = tuple(
        _at_end(metric, up=up) if metric.name in _TOLD_BY else metric for metric in cell.metrics
    )
    return msgspec.structs.replace(cell, metrics=metrics)


def _at_end(metric: Metric, *, up: bool) -> Metric:
    quantiles = tuple(
        _estimate(found, up=up) if found.doubtful else found for found in metric.quantiles
    )
    return msgspec.structs.replace(metric, quantiles=quantiles)


def _estimate(found: Estimate, *, up: bool) -> Estimate:
    """The estimate at one end; its interval holds both, so that no growth is real by lateness."""
    if found.low is None or found.high is None:
        return found
    interval = found.interval
    if interval is not None:
        interval = Interval(min(interval.low, found.low), max(interval.high, found.high))
    return msgspec.structs.replace(
        found, value=found.high if up else found.low, interval=interval, doubtful=False
    )
