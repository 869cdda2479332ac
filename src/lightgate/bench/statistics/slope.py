"""What a longer prompt costs: how much later the first token comes per 1,000 prompt tokens.

The slope is Theil and Sen's: the median of the slopes between pairs of requests. A few requests
that waited in a queue do not move it, as they would move a least-squares line. Its interval is a
bootstrap's over the requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lightgate.clock.load import counting
from lightgate.clock.quantile import Interval
from lightgate.ledger.runs.run import PromptSlope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from lightgate.clock.attempt import AttemptRecord

LEAST: Final = 20  # requests with a length and a first token
LEAST_RANGE: Final = 1.5  # longest over shortest tenth of the prompts; below it there is no slope
MOST: Final = 300  # requests that are looked at, evenly spread: their pairs grow with the square
ROUNDS: Final = 200  # of the bootstrap
CONFIDENCE: Final = 0.95


def prompt_slope(attempts: Iterable[AttemptRecord], seed: int = 0) -> PromptSlope | None:
    """Milliseconds of TTFT per 1,000 prompt tokens; None where the prompts are all alike."""
    known = [
        (float(attempt.tokens_in), attempt.ttft_ms)
        for attempt in counting(attempts)
        if attempt.tokens_in and attempt.ttft_ms is not None and not attempt.tokens_cached
    ]
    if len(known) < LEAST:
        return None
    points = np.array(known)
    points = points[np.linspace(0, len(points) - 1, min(len(points), MOST)).astype(int)]
    shortest, longest = np.quantile(points[:, 0], (0.1, 0.9))
    if longest < LEAST_RANGE * shortest:
        return None
    rng = np.random.default_rng(seed)
    drawn = [theil_sen(points[rng.integers(0, len(points), len(points))]) for _ in range(ROUNDS)]
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile([slope for slope in drawn if slope is not None], (tail, 1.0 - tail))
    slope = theil_sen(points)
    if slope is None:
        return None
    return PromptSlope(
        ms_per_1k=slope,
        interval=Interval(float(low), float(high), CONFIDENCE),
        shortest=int(points[:, 0].min()),
        longest=int(points[:, 0].max()),
        n=len(known),
    )


def theil_sen(points: NDArray[np.float64]) -> float | None:
    """The median slope over all pairs of different length, per 1,000 tokens."""
    first, second = np.triu_indices(len(points), k=1)
    apart = points[second] - points[first]
    steep = apart[apart[:, 0] != 0.0]
    return float(np.median(steep[:, 1] / steep[:, 0])) * 1000.0 if len(steep) else None
