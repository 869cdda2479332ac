"""Shares of yes and no: their intervals, and two shares of the same cases against each other."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from lightgate.clock.quantile import Interval

Z: Final = 1.959963984540054  # of a two-sided 95 % interval


def wilson(share: float, n: int) -> Interval:
    """Wilson's 95 % interval of a share that was seen in `n` independent cases."""
    square = Z * Z
    middle = share + square / (2 * n)
    reach = Z * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    scale = 1 + square / n
    return Interval(max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale))


class Paired(NamedTuple):
    """Cases that two sides had in common, by which of them said yes."""

    both: int
    only_a: int
    only_b: int
    neither: int

    @property
    def n(self) -> int:
        """How many cases there are."""
        return sum(self)

    @property
    def difference(self) -> float | None:
        """The share of a minus that of b; None of no cases."""
        return (self.only_a - self.only_b) / self.n if self.n else None

    @property
    def p_value(self) -> float:
        """McNemar's exact test: how likely so lopsided a disagreement is if the sides are equal.

        Two-sided. Cases in which both sides agree say nothing about it.
        """
        differ, fewer = self.only_a + self.only_b, min(self.only_a, self.only_b)
        below = sum(math.comb(differ, k) for k in range(fewer + 1))
        return min(1.0, float(2 * below / 2**differ))

    @property
    def interval(self) -> Interval | None:
        """Newcombe's 95 % interval of the difference of paired shares; None of no cases."""
        if not self.n:
            return None
        a, b = (self.both + self.only_a) / self.n, (self.both + self.only_b) / self.n
        of_a, of_b = wilson(a, self.n), wilson(b, self.n)
        together = self._correlation()
        down = _apart(a - of_a.low, of_b.high - b, together)
        up = _apart(of_a.high - a, b - of_b.low, together)
        gap = a - b
        return Interval(max(-1.0, gap - down), min(1.0, gap + up))

    def _correlation(self) -> float:
        """The correlation of the two sides, with a correction for continuity."""
        both, only_a, only_b, neither = self
        product = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
        if not product:
            return 0.0
        cross = float(both * neither - only_a * only_b)
        if cross > 0:
            cross = max(0.0, cross - self.n / 2)
        return cross / math.sqrt(product)


def _apart(one: float, other: float, together: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * together * one * other + other * other))


def unpaired(old: tuple[float, int], new: tuple[float, int]) -> Interval:
    """Newcombe's 95 % interval of `new` minus `old`: shares, and the cases they are of."""
    of_old, of_new = wilson(*old), wilson(*new)
    gap = new[0] - old[0]
    return Interval(
        gap - math.hypot(new[0] - of_new.low, of_old.high - old[0]),
        gap + math.hypot(of_new.high - new[0], old[0] - of_old.low),
    )
