"""Quantiles: the nearest rank everywhere, linear interpolation for parity with other tools.

The nearest rank is a value that was observed and takes +inf (a failure) in its stride. For rates
the bad tail is the low one: ask for 0.05, not 0.95.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

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
