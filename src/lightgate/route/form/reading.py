"""The reading of prompts: how much later first tokens come at a target, the longer the prompt is.

A small engine of one's own reads a few hundred tokens a second, so a probe of 16 tokens is answered
many times sooner than a request of 600. One prompt size therefore has steps, each for prompts
up to twice as long as those of the step before. Two first tokens of different steps, one after the
other at the same target, are compared: what is left of the differences beyond doubt is what
the longer step costs. One difference may be a stall, two may be a change of the weather, three are
believed, and forgotten again where no more of them come. Prompts that are longer than all that were
seen are taken to go on as those did; shorter ones gain nothing before they were seen.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

STEPS: Final = 6  # of one prompt size, each for prompts up to twice as long as those before it
NEAR_NS: Final = 60_000_000_000  # two first tokens so near to each other met the same weather
NARROWEST: Final = 0.3  # sigma of a first token's log that is assumed at least
DOUBT: Final = 9.0  # squared errors of a difference by which it is made smaller
FEWEST: Final = 3  # differences before a step is taken to cost anything
FULL: Final = 50  # differences of which a step is the plain mean; then one that forgets
CLIP: Final = 1.0  # log: one stall moves a step by no more
HALF_NS: Final = 1_800_000_000_000  # after which a step without another difference counts half
STEEPEST: Final = log(2.0)  # log for each step: reading is all that a first token waits for
TRIED: Final = 5  # first tokens of prompts this long, or longer, after which they are known
_NEVER: Final = -(1 << 62)


class ReadingCurve:
    """The steps of one prompt size at one target: what is added to the log of a first token.

    `costs` has a number for every step, `flat` says that all of them are 0, `slope` is what each
    step beyond the longest that was seen is taken to cost.
    """

    __slots__ = (
        "_counts",
        "_differed_ns",
        "_last",
        "_means",
        "_young",
        "costs",
        "flat",
        "longest",
        "seen",
        "slope",
    )

    def __init__(self) -> None:
        self.costs = [0.0] * STEPS
        self.flat = True
        self.slope = 0.0
        self.longest = -1  # step of the longest prompts that were seen; -1: none was
        self.seen = [0] * STEPS  # first tokens
        self._counts = [0] * STEPS  # differences, and their means
        self._means = [0.0] * STEPS
        self._young: list[list[float]] = [[] for _ in range(STEPS)]  # the first differences
        self._differed_ns = [_NEVER] * STEPS  # the last one
        self._last = -1, 0.0, _NEVER  # step, log and instant of the last that was not compared

    def tried(self, step: int) -> bool:
        """Return whether prompts as long as those of a step, or longer, are known."""
        return sum(self.seen[step:]) >= TRIED

    def guess(self, slope: float) -> None:
        """Take every step to cost as much, until one of them is seen."""
        if self.longest < 0:
            self.slope, self.flat = slope, not slope
            self.costs = [slope * step for step in range(STEPS)]

    def saw(self, step: int, ttft_log: float, sigma: float, now_ns: int) -> float:
        """Take in the log of a first token that waited for nobody.

        Return by how much costs have risen at the mean of the prompts that are usual here: the log
        of a first token without them is to fall by as much.
        """
        (at, before, when), self._last = self._last, (step, ttft_log, now_ns)
        self.seen[step] += 1
        if step > self.longest:  # noqa: PLR1730 - max() would cost 0.1 us for every first token
            self.longest = step
        if at == step or at < 0 or now_ns - when >= NEAR_NS:
            return 0.0 if self.flat else self._weigh(sigma, now_ns)
        self._last = -1, 0.0, _NEVER  # each is compared once: a stall is in one difference
        if at < step:
            self._differs(step, ttft_log - before + self.costs[at], now_ns)
        else:
            self._differs(at, before - ttft_log + self.costs[step], now_ns)
        return self._weigh(sigma, now_ns)

    def known(self) -> tuple[tuple[int, int, float], ...]:
        """Return, of every step, how often it was seen and compared, and the mean of that.

        Other workers take it over, and this one after a restart.
        """
        return tuple(zip(self.seen, self._counts, self._means, strict=True))

    def take(self, known: Iterable[tuple[int, int, float]], sigma: float, now_ns: int) -> float:
        """Take over the steps of which another worker has seen more; return as `saw` does."""
        for step, (seen, count, mean) in enumerate(known):
            self.seen[step] = max(self.seen[step], seen)
            if seen:
                self.longest = max(self.longest, step)
            if count > self._counts[step]:
                self._counts[step], self._means[step] = count, mean
                self._differed_ns[step] = now_ns
        return self._weigh(sigma, now_ns)

    def _differs(self, step: int, off: float, now_ns: int) -> None:
        """Take in by how much a step is later than a shorter one, and what that one costs."""
        self._differed_ns[step] = now_ns
        count = self._counts[step] = self._counts[step] + 1
        if count <= FEWEST:
            young = self._young[step]
            young.append(off)
            self._means[step] = sorted(young)[len(young) // 2]
        else:
            moved = min(CLIP, max(-CLIP, off - self._means[step]))
            self._means[step] += moved / min(count, FULL)

    def _weigh(self, sigma: float, now_ns: int) -> float:
        """Work out what every step costs: those that were seen, those between, those beyond."""
        doubt = DOUBT * 2.0 * max(sigma, NARROWEST) ** 2  # both of a difference scatter
        sure: list[tuple[int, float]] = []
        for step, count in enumerate(self._counts):
            if count >= FEWEST:
                mean, age_ns = self._means[step], now_ns - self._differed_ns[step]
                weight = count * 2.0 ** (-age_ns / HALF_NS) * mean * mean
                sure.append((step, mean * (1.0 - doubt / weight) if weight > doubt else 0.0))
            elif self.seen[step] and not sure:
                sure.append((step, 0.0))  # the shortest: others are compared with it
        before, self.slope = self.costs, 0.0
        self.flat = not any(cost for _, cost in sure)
        if self.flat:
            self.costs = [0.0] * STEPS
        else:
            if len(sure) > 1:
                (below, low), (top, high) = sure[-2:]
                self.slope = min(STEEPEST, max(0.0, (high - low) / (top - below)))
            self.costs = [self._at(step, sure) for step in range(STEPS)]
        rises = zip(self.seen, self.costs, before, strict=True)
        usual = sum([seen * (after - cost) for seen, after, cost in rises])
        return usual / (sum(self.seen) or 1.0)

    def _at(self, step: int, sure: list[tuple[int, float]]) -> float:
        before, cost = sure[0]
        if step <= before:
            return cost
        for at, other in sure[1:]:
            if step <= at:
                return cost + (other - cost) * (step - before) / (at - before)
            before, cost = at, other
        return cost + self.slope * (step - before)
