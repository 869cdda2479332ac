"""The lateness of a target's last first tokens: how much later than expected they came.

A mean and a spread hide a target that is quick five times and stalls the sixth. So the last first
tokens are kept, each as a multiple of what was expected of it.
"""

from __future__ import annotations

from collections import deque
from math import exp
from typing import Final

from lightgate.route.form.prior import Z80
from lightgate.route.form.size import SlowEnd

KEPT: Final = 64
WORST: Final = 0.2  # the part of first tokens that the tail is the mean of
MOST: Final = 0.8  # the part of first tokens that come within `most`
CHANCE_MEAN: Final = 1.15  # times what the spread explains, by chance
CHANCE_TAIL: Final = 1.25  # the same for the slowest fifth
PRIOR: Final = 8.0  # samples for which the lognormal prior counts
EVERY: Final = 4  # samples after which they are ranked anew
BAND: Final = 0.1  # the part of first tokens below the band, and above it
ENOUGH: Final = 20  # samples that a band needs
RESCUE: Final = 2.0  # times the time alone, and
RESCUE_S: Final = 2.0  # seconds: a longer stall counts as this much, because a hedge ends it


class Lateness:
    """The last first tokens of one target, as multiples of what was expected.

    `mean` and `tail` say how many times larger the mean of all of them, and of the slowest fifth,
    is than the spread alone explains; 1: as explained. Within `most` times what was expected came
    80 % of them; None while none was seen. It is a quantile and not a multiple of the spread: the
    few first tokens that show that the weather has changed make a spread wide for a long time.
    Between the multiples of `band` lie 80 % of them, and what was expected; `ranked` has them in
    rising order, with one stall more than was seen. Both are None while they are too few.
    """

    __slots__ = ("_until", "band", "last", "mean", "most", "ranked", "tail")

    def __init__(self) -> None:
        self.last: deque[float] = deque(maxlen=KEPT)
        self.mean = self.tail = 1.0
        self.most: float | None = None
        self.band: tuple[float, float] | None = None
        self.ranked: SlowEnd | None = None
        self._until = EVERY

    def saw(self, times: float, alone_s: float, sigma: float) -> None:
        """Take in a first token that took so many times as long as expected."""
        most = RESCUE + RESCUE_S / alone_s
        self.last.append(min(most, times))
        self._until -= 1
        if self._until <= 0:
            self._until = EVERY
            self._rank(sigma, RESCUE_S / alone_s)

    def _rank(self, sigma: float, stall: float) -> None:
        last = sorted(self.last)
        n = len(last)
        if n >= ENOUGH:
            below = int(BAND * n)
            self.band = min(1.0, last[below]), max(1.0, last[n - 1 - below])
            self.ranked = SlowEnd.of([*last, last[-1] + stall])
        self.most = (n * last[int(MOST * n)] + PRIOR * exp(Z80 * sigma)) / (n + PRIOR)
        usual = exp(0.5 * sigma * sigma)
        late = (sum(last) + PRIOR * usual) / (n + PRIOR) / usual - CHANCE_MEAN
        self.mean = 1.0 + late if late > 0.0 else 1.0
        usual = exp(1.4 * sigma + 0.1 * sigma * sigma)
        worst, prior = int(WORST * n), WORST * PRIOR
        top = sum(last[n - worst :]) if worst else 0.0
        late = (top + prior * usual) / (worst + prior) / usual - CHANCE_TAIL
        self.tail = 1.0 + late if late > 0.0 else 1.0
