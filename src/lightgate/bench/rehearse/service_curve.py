"""What one more request in flight cost at a target, by the target's own attempts of the past.

Below a number of requests in flight (the hinge) a target answers as fast as it can; each request
above it adds the same time. The number is taken when an attempt starts, not when it ends: a slow
answer gathers requests beside it, and would look like their work.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

HINGES: Final = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28),
    *(32, 40, 48, 56, 64, 80, 96, 128, 160, 200, 256),
)
FEWEST_ABOVE: Final = 20  # attempts above a hinge, below which no slope is believed
SURE: Final = 4.0  # standard errors that a slope is above zero
BETTER: Final = 0.02  # of the squared error by which a larger hinge has to be better
WORTH: Final = 0.1  # of the usual time that the slope has to add where most were in flight
CAP: Final = 10.0  # times the median: one stall must not bend the line
LEAST: Final = 0.3  # of its own time that a sample keeps when its wait is taken off


class ServiceCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that requests in flight add; `seen` were in flight at most, of `samples` attempts.

    No slope: more requests in flight made nothing slower as far as was seen.
    """

    seen: int
    samples: int
    hinge: int = 0
    slope_s: float = 0.0

    def added_s(self, in_flight: int) -> float:
        """Return the seconds that this many other requests in flight add for one more."""
        return self.slope_s * max(0, in_flight + 1 - self.hinge)

    def moved_s(self, seconds: float, then: int, now: int) -> float:
        """Return the time that a sample of `then` others in flight would take beside `now`."""
        alone = max(seconds - self.added_s(then), LEAST * seconds)
        return alone + self.added_s(now)


def fit(in_flight: Sequence[int], seconds: Sequence[float]) -> ServiceCurve:
    """Fit the curve of a target; `in_flight` are the others in flight at the start of each."""
    n = len(seconds)
    plain = ServiceCurve(seen=max(in_flight, default=0), samples=n)
    if n < 2 * FEWEST_ABOVE:
        return plain
    y = np.asarray(seconds, dtype=np.float64)
    y = np.minimum(y, CAP * float(np.median(y)))
    others = np.asarray(in_flight, dtype=np.float64)
    best, least = None, math.inf
    for hinge in HINGES:
        line = _line(np.maximum(others + 1.0 - hinge, 0.0), y)
        if line is None:
            break
        if line.error < least * (1.0 - BETTER):
            best, least = (hinge, line), line.error
    if best is None:
        return plain
    hinge, line = best
    most = line.slope * (plain.seen + 1 - hinge)
    if line.slope < SURE * line.spread or most < WORTH * max(line.base, 1e-9):
        return plain
    return msgspec.structs.replace(plain, hinge=hinge, slope_s=line.slope)


class _Line(NamedTuple):
    base: float
    slope: float
    spread: float  # standard error of the slope
    error: float  # sum of squares


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> _Line | None:
    """Fit a line by least squares; None where too few lie above the hinge."""
    if int(np.count_nonzero(x)) < FEWEST_ABOVE or float(np.ptp(x)) == 0.0:
        return None
    dx = x - x.mean()
    wide = float(dx @ dx)
    slope = float(dx @ y) / wide
    base = float(y.mean()) - slope * float(x.mean())
    error = float(np.sum((y - base - slope * x) ** 2))
    return _Line(base, slope, math.sqrt(error / (len(y) - 2) / wide), error)


class Presence:
    """How many attempts were under way at any instant, by the start and the end of each."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._starts = sorted(start for start, _ in spans)
        self._ends = sorted(end for _, end in spans)

    def at(self, instant_ns: int) -> int:
        """Return the attempts that have started by an instant and not ended by it."""
        return bisect_right(self._starts, instant_ns) - bisect_right(self._ends, instant_ns)
