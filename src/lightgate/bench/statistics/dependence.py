"""How many independent samples the requests of one cell are worth.

Requests that are under way together share the engine's mood: a server that batches gives all of
them one speed, and a slow minute is slow for everyone in it. A quantile of 96 requests that came in
3 such waves rests on 3 observations. Two looks find this. Waves: requests that start together,
while the ones before have ended. And the order in time: neighbours that are more alike than others,
found by joining them into ever larger blocks until the blocks no longer resemble their neighbours.
The effective n is n divided by how much more the mean of the samples varies than that of as many
independent ones would.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lightgate.clock.quantile import rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from lightgate.clock.attempt import AttemptRecord

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]

# The starts of a wave lie close together, and a pause follows: both as parts of a request's time.
# Random starts have such pauses too, but not around most of the requests.
CLOSE: Final = 0.25
PAUSE: Final = 0.5
IN_WAVES: Final = 0.8  # share of the requests that have to be in waves
LEAST_WAVE: Final = 3  # requests; two workers are in step by chance
FEWEST_WAVES: Final = 8  # fewer may all have met the same mood: then each counts as one sample
# Standard errors by which neighbours have to be alike: 1 of 100 independent series shows as much.
ALIKE: Final = 2.33
STILL_ALIKE: Final = 1.64  # of blocks, once their requests are known to be alike
FEWEST_BLOCKS: Final = 8  # fewer say too little about their likeness
MOST_ALIKE: Final = 0.9  # correlation of neighbours; a higher one would divide by next to nothing
WINSOR: Final = 0.05  # share of the values at either end that count as the value next to them
NEGLIGIBLE: Final = 0.01  # values this close to each other differ in nothing that matters


class Moods(NamedTuple):
    """The requests of one cell as they hang together in time.

    `order` sorts them by their start; `unit` numbers the wave of each request in that order, or is
    None where the load does not come in waves.
    """

    order: Labels
    unit: Labels | None = None

    @property
    def waves(self) -> int | None:
        """How many waves there are; None where there are none."""
        return None if self.unit is None else int(self.unit[-1]) + 1

    def of(self, kept: ArrayLike) -> Moods:
        """The same for some of the requests; `kept` says of each, as they were given, if it is."""
        mask = np.asarray(kept, dtype=np.bool_)
        place = np.cumsum(mask) - 1
        chosen = mask[self.order]
        unit = self.unit
        if unit is not None and chosen.any():
            unit = np.unique(unit[chosen], return_inverse=True)[1].astype(np.int64)
        return Moods(place[self.order[chosen]].astype(np.int64), unit if chosen.any() else None)


def moods_of(attempts: Sequence[AttemptRecord]) -> Moods:
    """Find the waves in attempts; one that was never sent stands where it was planned."""
    sent = [(a.t_plan_ns or 0) if a.t_send_ns is None else a.t_send_ns for a in attempts]
    ended = [
        (a.t_last_ns or at) if a.t_end_ns is None else a.t_end_ns
        for a, at in zip(attempts, sent, strict=True)
    ]
    return moods(sent, ended)


def moods(starts: Sequence[float], ends: Sequence[float]) -> Moods:
    """Find the waves in the starts and ends of requests, in any unit and order."""
    start, end = np.asarray(starts, dtype=np.float64), np.asarray(ends, dtype=np.float64)
    order = np.argsort(start, kind="stable").astype(np.int64)
    start, lasted = start[order], (end - start)[order]
    if len(start) < 2:
        return Moods(order)
    unit = np.concatenate(([0], np.cumsum(np.diff(start) > PAUSE * lasted[:-1]))).astype(np.int64)
    sizes = np.bincount(unit)
    firsts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    span = start[firsts + sizes - 1] - start[firsts]
    typical = np.bincount(unit, weights=lasted) / sizes
    least = max(LEAST_WAVE, _under_way(start, lasted) / 2.0)
    whole = (sizes >= least) & (span <= CLOSE * typical)
    return Moods(order, unit if sizes[whole].sum() >= IN_WAVES * len(start) else None)


def _under_way(start: Floats, lasted: Floats) -> float:
    """Requests in flight, as a typical request sees them in its middle."""
    middle, ends = start + lasted / 2.0, np.sort(start + lasted)
    begun = np.searchsorted(start, middle, side="right")
    return float(np.median(begun - np.searchsorted(ends, middle, side="right")))


def effective_n(values: Sequence[float], q: float, moods: Moods) -> int:
    """Independent samples that the q-quantile of the values rests on; at most their number.

    The likeness of the values counts, and that of their lying below the quantile, which alone sees
    slow requests that come in clusters. A value may be infinite.
    """
    n = len(values)
    if n < 2:
        return n
    ordered = np.asarray(values, dtype=np.float64)[moods.order]
    at = np.sort(ordered)
    low, high = at[rank(n, WINSOR) - 1], at[rank(n, 1.0 - WINSOR) - 1]
    finite = at[np.isfinite(at)]
    if not len(finite):
        return n if moods.waves is None else min(n, moods.waves)
    beyond = 2.0 * finite[-1] - finite[0]  # a failure is worse than the worst answer
    tame = np.clip(ordered, min(low, beyond), min(high, beyond))
    if moods.unit is None and tame.max() - tame.min() <= NEGLIGIBLE * abs(tame.max()):
        return n
    below = (ordered <= at[rank(n, q) - 1]).astype(np.float64)
    count = math.floor(n / max(inflation(tame, moods.unit), inflation(below, moods.unit)) + 1e-9)
    if moods.waves is not None and moods.waves < FEWEST_WAVES:
        return min(count, moods.waves)
    return count


def inflation(series: Floats, unit: Labels | None = None) -> float:
    """How many times more the mean of a series in time order varies than if it were independent."""
    away = series - series.mean()
    alone = float(away @ away)
    if alone <= 0.0:
        return 1.0
    blocks = away if unit is None else np.bincount(unit, weights=away).astype(np.float64)
    alike, least = 0.0, ALIKE
    while len(blocks) >= FEWEST_BLOCKS:
        square, count = float(blocks @ blocks), len(blocks)
        # The mean was taken from the same series, which makes neighbours look less alike by 1/n.
        alike = float(blocks[1:] @ blocks[:-1]) / square + 1.0 / count if square > 0.0 else 0.0
        if alike * math.sqrt(count) < least:
            alike = 0.0 if least == ALIKE else max(alike, 0.0)
            break
        if count < 2 * FEWEST_BLOCKS:
            break
        blocks, least = _in_pairs(blocks), STILL_ALIKE
    # What the last blocks still share with their neighbours goes on as in a Markov chain.
    rest = min(alike, MOST_ALIKE)
    return max(1.0, float(blocks @ blocks) / alone * (1.0 + rest) / (1.0 - rest))


def _in_pairs(blocks: Floats) -> Floats:
    """Add neighbours up; of an odd number the last block takes three."""
    starts = np.arange(0, len(blocks) - 1, 2)
    pairs: Floats = np.add.reduceat(blocks, starts)
    return pairs
