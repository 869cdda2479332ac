"""Where an axis gets its marks, and how labels keep out of each other's way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_STEPS: Final = (
    (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0),
    (1.0, 2.0, 3.0, 5.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
    (1.0,),
)


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Return round numbers between two positive ends: as many as fit, `most` at the most."""
    if not 0 < low <= high:
        raise ValueError(f"a logarithmic axis needs 0 < low <= high, not {low} and {high}")
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for steps in _STEPS:
        found = [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high]
        if len(found) <= most:
            break
    if len(found) < 2:
        found = linear_ticks(low, high, most)
    every = math.ceil(len(found) / most)
    return found[::every]


def linear_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers between two ends at even steps of 1, 2 or 5, `most` at the most."""
    if not low <= high:
        raise ValueError(f"an axis has its ends in order, not {low} above {high}")
    if low == high:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(
        s * power
        for s in (1.0, 2.0, 5.0, 10.0, 20.0)
        if math.floor(high / (s * power)) - math.ceil(low / (s * power)) < most
    )
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    # Ends that are nearly equal give one number twice.
    return list(dict.fromkeys(at * step for at in range(first, last + 1)))[:most]


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions as little as possible so that none is nearer to the next than `gap`.

    Results are in the order of `wanted` and between `low` and `high`; where there is no room for
    all at that distance, they share what there is.
    """
    count = len(wanted)
    if count < 2:
        return [min(max(at, low), high) for at in wanted]
    gap = min(gap, (high - low) / (count - 1))
    order = sorted(range(count), key=wanted.__getitem__)
    # Without the gaps the positions need only be in order: pool neighbours that are not.
    pools: list[tuple[float, int]] = []
    for place, index in enumerate(order):
        mean, size = wanted[index] - place * gap, 1
        while pools and pools[-1][0] > mean:
            other, members = pools.pop()
            mean = (mean * size + other * members) / (size + members)
            size += members
        pools.append((mean, size))
    top = high - (count - 1) * gap
    flat = [min(max(mean, low), top) for mean, size in pools for _ in range(size)]
    found = [0.0] * count
    for place, index in enumerate(order):
        found[index] = flat[place] + place * gap
    return found
