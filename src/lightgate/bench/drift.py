"""Has a target changed? The newest run against those before it, by the spread between runs.

Two looks, both on logarithms of run medians. The step: does the newest run lie outside the interval
in which a run like the earlier ones would lie (a prediction interval, so the weather between runs
is in it)? The creep: a cumulative sum of how far each run lay from the reference, which sees a slow
change that no single run shows. Lower is better; give reciprocals of rates.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.clock.interval import CONFIDENCE, Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST: Final = 6  # earlier runs; fewer know too little of their own spread
LAST: Final = 20  # earlier runs that count
SLACK: Final = 0.5  # of a deviation: what the cumulative sum forgives each run
LIMIT: Final = 5.0  # deviations; with this slack a false alarm comes about once in 460 steady runs
SPREAD_FLOOR: Final = 0.01  # no target is steadier than 1 % from run to run
TOLERANCE: Final = 0.05  # smaller steps are not worth an alert

Call = Literal["slower", "faster", "creeping slower", "creeping faster", "steady", "n too small"]


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """The newest run against `runs` earlier ones; `ratio` is newest over typical.

    `creep` is the cumulative sum in deviations, positive for slower.
    """

    runs: int
    newest: float
    typical: float | None = None
    ratio: float | None = None
    interval: Interval | None = None
    creep: float | None = None
    call: Call = "n too small"

    @property
    def alarming(self) -> bool:
        """Whether somebody should be told."""
        return self.call not in {"steady", "n too small"}


def drift(medians: Sequence[float], *, tolerance: float = TOLERANCE) -> Drift:
    """Judge the last of the medians by the ones before it, oldest first; positive values only."""
    if not medians or any(not (math.isfinite(m) and m > 0) for m in medians):
        raise ValueError("drift needs positive, finite medians")
    *earlier, newest = [math.log(median) for median in medians[-(LAST + 1) :]]
    plain = Drift(runs=len(earlier), newest=medians[-1])
    if len(earlier) < FEWEST:
        return plain
    typical, spread = statistics.fmean(earlier), max(statistics.stdev(earlier), SPREAD_FLOOR)
    reach = student(len(earlier) - 1) * spread * math.sqrt(1.0 + 1.0 / len(earlier))
    step = newest - typical
    interval = Interval(math.exp(step - reach), math.exp(step + reach))
    creep = cusum([*earlier, newest])
    return msgspec.structs.replace(
        plain,
        typical=math.exp(typical),
        ratio=math.exp(step),
        interval=interval,
        creep=creep,
        call=_call(math.exp(step), interval, creep, tolerance),
    )


def cusum(logs: Sequence[float]) -> float | None:
    """Cumulative sum of the deviations from the first runs; the larger of both directions.

    The first half of the runs (at least `FEWEST`) is the reference; None without a run after it.
    """
    reference = max(FEWEST, len(logs) // 2)
    if len(logs) <= reference:
        return None
    known = logs[:reference]
    middle, spread = statistics.fmean(known), max(statistics.stdev(known), SPREAD_FLOOR)
    # The reference is itself a guess from few runs: its own error widens what counts as one step.
    scale = spread * math.sqrt(1.0 + 1.0 / reference) * student(reference - 1) / student(10**6)
    up = down = 0.0
    for value in logs[reference:]:
        deviation = (value - middle) / scale
        up = max(0.0, up + deviation - SLACK)
        down = max(0.0, down - deviation - SLACK)
    return up if up >= down else -down


def student(freedom: int) -> float:
    """Two-sided 95 % point of Student's t, by its expansion about the normal one.

    Off by less than 0.003 from 5 degrees of freedom on, which `FEWEST` grants.
    """
    z = statistics.NormalDist().inv_cdf((1.0 + CONFIDENCE) / 2.0)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _call(ratio: float, interval: Interval, creep: float | None, tolerance: float) -> Call:
    if not interval.spans(1.0) and abs(math.log(ratio)) > math.log1p(tolerance):
        return "slower" if ratio > 1.0 else "faster"
    if creep is not None and abs(creep) > LIMIT:
        return "creeping slower" if creep > 0 else "creeping faster"
    return "steady"
