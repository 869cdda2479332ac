"""How many requests make the interval of a median as narrow as was wished.

In two stages: the first stretch says how much a target scatters, and from that the size of the
second follows once and for all. Looking again and again until an interval happens to be narrow
would make intervals that hold less often than they say.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightgate.ledger.runs.run import CellSummary, Estimate

HEADLINES: Final = ("ttft_ms", "speed_tps")
MARGIN: Final = 1.15  # the width of an interval is itself only an estimate
MOST: Final = 16  # times the first stretch


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
