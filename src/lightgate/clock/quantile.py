"""Quantiles, and their confidence intervals from order statistics alone.

The nearest rank is a value that was observed and takes +inf (a failure) in its stride. For rates
the bad tail is the low one: ask for 0.05, not 0.95. Linear interpolation is for parity with other
tools. The true quantile lies between two observed values; which two follows from the binomial
distribution, whatever the values are distributed like. Below a number of samples no such pair
exists: then there is no interval, and a table says "n too small".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_ROUNDING: Final = 1e-12  # 0.07 x 100 is 7.000000000000001 in binary, and yet the 7th of 100


def rank(n: int, q: float) -> int:
    """Nearest rank, from 1: the first at which at least a share `q` of `n` values is covered."""
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"a quantile lies between 0 and 1, not at {q}")
    return min(n, max(1, math.ceil(q * n * (1.0 - _ROUNDING))))


def quantile(values: Iterable[float], q: float) -> float | None:
    """Nearest-rank quantile; None of nothing."""
    return quantiles(values, (q,))[0]


def quantiles(values: Iterable[float], wanted: Iterable[float]) -> list[float | None]:
    """Several nearest-rank quantiles of the same values, sorted once."""
    ordered = _ordered(values)
    n = len(ordered)
    ranks = [rank(n, q) for q in wanted]
    return [ordered[at - 1] if n else None for at in ranks]


def compat(values: Iterable[float], q: float) -> float | None:
    """Linear interpolation between ranks (Hyndman and Fan's type 7); None of nothing.

    What numpy, pandas, LLMPerf, vLLM and SGLang print; it may be a value that nobody observed.
    """
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"a quantile lies between 0 and 1, not at {q}")
    ordered = _ordered(values)
    if not ordered:
        return None
    place = (len(ordered) - 1) * q
    below = math.floor(place)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return low if low == high else _between(low, high, place - below)


def _between(low: float, high: float, share: float) -> float:
    if share == 0.0:
        return low
    # Measured from the nearer end, as numpy does, so that both agree to the last bit.
    if share < 0.5:
        return low + (high - low) * share
    return high - (high - low) * (1.0 - share) if math.isfinite(high) else high


def _ordered(values: Iterable[float]) -> Sequence[float]:
    ordered = sorted(values)
    if any(math.isnan(value) for value in ordered):
        raise ValueError("NaN has no rank")
    return ordered


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


def at_least(values: Iterable[float], q: float, confidence: float = CONFIDENCE) -> float:
    """One-sided lower bound of the q-quantile of what `values` were drawn from; -inf of too few.

    With so much confidence the true quantile is not below it, whatever the distribution: a limit
    under it has surely been missed, and one above it may have been kept.
    """
    ordered = sorted(values)
    place = _covered(len(ordered), q, 1.0 - confidence) if ordered else 0
    return ordered[place - 1] if place >= 1 else -math.inf


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
