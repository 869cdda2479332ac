"""Has a target changed: the newest run against those before it, by the spread between runs.

Two looks, both on logarithms of run medians. The step: the newest run lies outside the interval in
which a run like the earlier ones would lie (a prediction interval, so the weather between runs is
in it). The creep: the cumulative sum of the deviations from the mean wanders further than it does
when the same runs are shuffled, which sees a slow change that no single run shows. Lower is better;
give reciprocals of rates.
"""

from __future__ import annotations

import math
import statistics
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import numpy as np

from lightgate.clock.compare import student
from lightgate.clock.quantile import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST: Final = 6  # earlier runs; fewer know too little of their own spread
LAST: Final = 20  # earlier runs that count
FALSE_ALARMS: Final = 0.01  # of the runs of a steady target, over all that is looked at together
SPREAD_FLOOR: Final = 0.01  # no target is steadier than 1 % from run to run
TOLERANCE: Final = 0.05  # smaller changes are not worth an alert
ROUNDS: Final = 20_000  # shuffles
_student: Final = lru_cache(256)(student)  # found by bisection, and asked for each day of a chart

Call = Literal["slower", "faster", "creeping slower", "creeping faster", "steady", "n too small"]


class Creep(msgspec.Struct, frozen=True, kw_only=True):
    """A change within the runs: the last `since` of them over the ones before, as a ratio."""

    since: int
    ratio: float
    p_value: float


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """The newest run against `runs` earlier ones; `ratio` is newest over typical."""

    runs: int
    newest: float
    typical: float | None = None
    ratio: float | None = None
    interval: Interval | None = None
    creep: Creep | None = None
    call: Call = "n too small"

    @property
    def alarming(self) -> bool:
        """Whether somebody should be told."""
        return self.call not in {"steady", "n too small"}


def drift(
    medians: Sequence[float],
    *,
    rng: np.random.Generator,
    tolerance: float = TOLERANCE,
    looks: int = 1,
) -> Drift:
    """Judge the last of the medians by the ones before it, oldest first; positive values only.

    `looks` is how many series of the same run are judged: each gets its part of `FALSE_ALARMS`.
    """
    if not medians or any(not (math.isfinite(m) and m > 0) for m in medians):
        raise ValueError("drift needs positive, finite medians")
    alpha = FALSE_ALARMS / (2 * looks)  # half for the step, half for the creep
    found = step(medians, alpha=alpha, tolerance=tolerance)
    if found.ratio is None:
        return found
    logs = [math.log(median) for median in medians[-(LAST + 1) :]]
    found = msgspec.structs.replace(found, creep=creep(logs, rng))
    return msgspec.structs.replace(found, call=_call(found, alpha, tolerance))


def step(
    medians: Sequence[float], *, alpha: float, tolerance: float = TOLERANCE, doubt: float = 0.0
) -> Drift:
    """Judge the last of the medians by the interval in which one like those before would lie.

    `alpha` is the error rate of this one look. `doubt` is the standard error of the newest
    median's logarithm, where it rests on fewer samples than those before.
    """
    *earlier, newest = [math.log(median) for median in medians[-(LAST + 1) :]]
    plain = Drift(runs=len(earlier), newest=medians[-1])
    if len(earlier) < FEWEST:
        return plain
    typical = statistics.fmean(earlier)
    squares = math.fsum([(one - typical) ** 2 for one in earlier])
    spread = max(math.sqrt(squares / (len(earlier) - 1)), SPREAD_FLOOR)
    widened = math.hypot(spread * math.sqrt(1.0 + 1.0 / len(earlier)), doubt)
    reach = _student(len(earlier) - 1, 1.0 - alpha) * widened
    away = newest - typical
    found = msgspec.structs.replace(
        plain,
        typical=math.exp(typical),
        ratio=math.exp(away),
        interval=Interval(math.exp(away - reach), math.exp(away + reach), 1.0 - alpha),
    )
    return msgspec.structs.replace(found, call=_call(found, alpha, tolerance))


def creep(logs: Sequence[float], rng: np.random.Generator) -> Creep | None:
    """Find the likeliest place of a change, and how often chance alone looks as changed.

    None with fewer runs than two halves of `FEWEST`.
    """
    if len(logs) < 2 * FEWEST:
        return None
    away = np.asarray(logs) - statistics.fmean(logs)
    sums = np.abs(np.cumsum(away)[:-1])
    seen = float(sums.max()) * (1.0 - 1e-9)  # the same sum in another order is as extreme
    shuffled = rng.permuted(np.tile(away, (ROUNDS, 1)), axis=1)
    wandered = np.abs(np.cumsum(shuffled, axis=1)[:, :-1]).max(axis=1)
    at = int(sums.argmax()) + 1
    shift = statistics.fmean(logs[at:]) - statistics.fmean(logs[:at])
    return Creep(
        since=len(logs) - at,
        ratio=math.exp(shift),
        p_value=(1 + int(np.count_nonzero(wandered >= seen))) / (1 + ROUNDS),
    )


def _call(found: Drift, alpha: float, tolerance: float) -> Call:
    least = math.log1p(tolerance)
    ratio, interval, change = found.ratio or 1.0, found.interval, found.creep
    if interval is not None and not interval.spans(1.0) and abs(math.log(ratio)) > least:
        return "slower" if ratio > 1.0 else "faster"
    if change is not None and change.p_value <= alpha and abs(math.log(change.ratio)) > least:
        return "creeping slower" if change.ratio > 1.0 else "creeping faster"
    return "steady"
