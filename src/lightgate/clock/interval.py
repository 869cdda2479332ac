"""Confidence intervals for quantiles from order statistics alone.

The true quantile lies between two observed values; which two follows from the binomial
distribution, whatever the values are distributed like. Below a number of samples no such pair
exists: then there is no interval, and a table says "n too small".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

CONFIDENCE: Final = 0.95
TOO_SMALL: Final = "n too small"
_REACH: Final = 12  # standard deviations beyond which a binomial tail is below 1e-30


class Interval(msgspec.Struct, frozen=True):
    """Two values that hold the true one between them with `confidence`."""

    low: float
    high: float
    confidence: float = CONFIDENCE

    def spans(self, value: float) -> bool:
        """Whether `value` lies inside, ends included."""
        return self.low <= value <= self.high


def ranks(n: int, q: float, confidence: float = CONFIDENCE) -> tuple[int, int] | None:
    """Ranks (from 1) of the two order statistics that hold the q-quantile, or None: n too small.

    Two-sided, at most half of the remaining probability on either side.
    """
    if not 0.0 < q < 1.0 or not 0.0 < confidence < 1.0:
        raise ValueError("a quantile and a confidence lie strictly between 0 and 1")
    tail = (1.0 - confidence) / 2.0
    low = _covered(n, q, tail)
    # The upper end is the lower end of the mirrored problem: the (1 - q)-quantile from the top.
    high = n + 1 - _covered(n, 1.0 - q, tail)
    return (low, high) if low >= 1 and high <= n else None


def interval(values: Iterable[float], q: float, confidence: float = CONFIDENCE) -> Interval | None:
    """Interval of the q-quantile of what `values` were drawn from, or None: n too small."""
    ordered = sorted(values)
    pair = ranks(len(ordered), q, confidence)
    if pair is None:
        return None
    return Interval(ordered[pair[0] - 1], ordered[pair[1] - 1], confidence)


def smallest_n(q: float, confidence: float = CONFIDENCE) -> int:
    """Fewest samples for which `ranks` finds a pair."""
    tail = (1.0 - confidence) / 2.0
    rarer = max(q, 1.0 - q)
    guess = max(1, math.ceil(math.log(tail) / math.log(rarer)) - 1)
    while ranks(guess, q, confidence) is None:
        guess += 1
    return guess


def _covered(n: int, q: float, tail: float) -> int:
    """Count the ranks from the bottom that may be given up: the largest l with P(B < l) <= tail."""
    mean = n * q
    start = max(0, math.floor(mean - _REACH * math.sqrt(mean * (1.0 - q)) - _REACH))
    log_pmf = (
        math.lgamma(n + 1)
        - math.lgamma(start + 1)
        - math.lgamma(n - start + 1)
        + start * math.log(q)
        + (n - start) * math.log1p(-q)
    )
    pmf = math.exp(log_pmf)
    below, at, odds = 0.0, start, q / (1.0 - q)
    while at <= n and below + pmf <= tail:
        below += pmf
        pmf *= (n - at) / (at + 1) * odds
        at += 1
    return at
