"""The form of one prompt size of a target: the long run, and the last first tokens.

A prompt's size is one number for two: its prompt size (0, 1 or 2: `size % SIZES`), and its step
within that (`size // SIZES`), each step for prompts up to twice as long as those before.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import accumulate
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.route.form.reading import STEPS, ReadingCurve

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKETS: Final = (1024, 8192)  # prompt tokens at which the next size begins: 0-1k, 1-8k, 8k+
OFFSETS: Final = (0.0, 0.25, 0.9)  # log of what a longer prompt usually costs, until it is known
SIZES: Final = len(OFFSETS)
FIRST_BITS: Final = (5, 11, 14)  # of the number of tokens: what longer ones have is their step
RECENT: Final = 100  # first tokens of which quantiles are taken
ENOUGH: Final = 20  # of those, below which the long run speaks for them
Z90: Final = 1.2816  # of the standard normal distribution
RERANK: Final = 5  # samples after which the quantiles are taken anew
STALL_S: Final = 2.0  # beyond the slowest that was seen: one more such first token is assumed
POINTS: Final = 6  # of the long run's slow end, where the last samples are too few
_NORMAL: Final = NormalDist()


class SlowEnd(NamedTuple):
    """The slowest first tokens of a target in rising order, and the sums of the last ones."""

    seconds: Sequence[float]
    sums: Sequence[float]  # of those from a place on

    @classmethod
    def of(cls, seconds: Sequence[float]) -> SlowEnd:
        """Add the sums up."""
        return cls(seconds, [*accumulate(reversed(seconds), initial=0.0)][::-1])


def bucket(tokens_in: int) -> int:
    """Return the size of a prompt: 0, 1 or 2."""
    return 0 if tokens_in < BUCKETS[0] else 1 if tokens_in < BUCKETS[1] else 2


def size_of(tokens_in: int) -> int:
    """Return the size of a prompt and its step, as one number."""
    size = 0 if tokens_in < BUCKETS[0] else 1 if tokens_in < BUCKETS[1] else 2
    step = tokens_in.bit_length() - FIRST_BITS[size]
    return size + SIZES * (0 if step < 0 else step if step < STEPS else STEPS - 1)


class PromptSize:
    """One prompt size: logarithms of seconds in the long run, seconds of the last samples.

    Both are those of its steps that cost nothing; `reading` says what the others cost.
    """

    __slots__ = (
        "_ranked",
        "_until_rank",
        "delays",
        "late",
        "long",
        "reading",
        "recent",
        "seen",
        "variance",
    )

    def __init__(self, long: float, sigma: float) -> None:
        self.long = long
        self.variance = sigma * sigma
        self.seen = 0
        self.reading = ReadingCurve()
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.delays: dict[float, int] = {}  # hedge delays by quantile, until they are taken anew
        self.late: dict[float, SlowEnd] = {}  # slowest first tokens by quantile, likewise
        self._ranked: list[float] = []
        self._until_rank = 0

    def add(self, ttft_s: float) -> None:
        """Keep a first token for the quantiles."""
        self.recent.append(ttft_s)
        self._until_rank -= 1
        if self._until_rank <= 0:
            self.delays.clear()
            self.late.clear()

    def fill(self, ttfts_s: tuple[float, ...]) -> None:
        """Take over the last samples of another worker."""
        self.recent = deque(ttfts_s, maxlen=RECENT)
        self._until_rank = 0
        self.delays.clear()
        self.late.clear()

    def lower(self, by: float) -> None:
        """Lower the logarithm of all first tokens: steps that are usual cost so much more now."""
        if by:
            self.long -= by
            self.fill(tuple([ttft_s * math.exp(-by) for ttft_s in self.recent]))

    def own(self, q: float) -> float | None:
        """Return a quantile of the last first tokens, seconds; None while they are too few."""
        if len(self.recent) < ENOUGH:
            return None
        if self._until_rank <= 0:
            self._ranked = sorted(self.recent)
            self._until_rank = RERANK
        ranked = self._ranked
        return ranked[min(len(ranked) - 1, int(q * len(ranked)))]

    def slowest(self, q: float) -> SlowEnd:
        """Return the first tokens above a quantile, and one stall more than was seen."""
        known = self.late.get(q)
        if known is None:
            if self.own(q) is None:
                far = [q + (1.0 - q) * (n + 0.5) / POINTS for n in range(POINTS)]
                seen = [self.usual(_NORMAL.inv_cdf(one)) for one in far]
            else:
                seen = self._ranked[int(q * len(self._ranked)) :]
            known = self.late[q] = SlowEnd.of([*seen, seen[-1] + STALL_S])
        return known

    def band(self) -> tuple[float, float]:
        """Return the factors around the expected first token between which 80 % of them lie."""
        far = math.exp(Z90 * math.sqrt(self.variance))
        return 1.0 / far, far

    def usual(self, z: float) -> float:
        """Return a quantile of the long run, seconds; `z` is that of the standard normal."""
        return math.exp(self.long + z * math.sqrt(self.variance))
