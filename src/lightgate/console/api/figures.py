"""Numbers as the API tells them: a value, its interval and the samples behind it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.clock.load import grade
from lightgate.clock.quantile import ranks
from lightgate.clock.share import Z, wilson

if TYPE_CHECKING:
    from lightgate.clock.sketch import DDSketch

_DIGITS: Final = 4  # more than a sketch with 1 % error knows
_EXACT: Final = 2000  # samples up to which the binomial distribution is added up


class Figure(msgspec.Struct, frozen=True):
    """A number with its 95 % interval; the three are null where `n` samples are too few."""

    v: float | None
    lo: float | None
    hi: float | None
    n: int


def of_sketch(sketch: DDSketch, q: float) -> Figure:
    """A quantile of what a sketch has seen; the interval is as wide as the sketch's error more."""
    n = sketch.count
    pair = _pair(n, q)
    if pair is None:
        return Figure(None, None, None, n)
    middle, low, high = sketch.quantiles((q, pair[0] / n, pair[1] / n))
    if middle is None or low is None or high is None:
        return Figure(None, None, None, n)
    error = sketch.relative_error
    return Figure(short(middle), short(low * (1 - error)), short(high * (1 + error)), n)


def _pair(n: int, q: float) -> tuple[int, int] | None:
    """The ranks of an interval; of many samples by the normal approximation, a rank wider."""
    if n <= _EXACT:
        return ranks(n, q) if n else None
    reach = Z * math.sqrt(n * q * (1.0 - q))
    return max(1, math.floor(n * q - reach)), min(n, math.ceil(n * q + reach) + 1)


def of_share(part: int, n: int) -> Figure:
    """A share of `n` cases with Wilson's interval."""
    if n <= 0:
        return Figure(None, None, None, 0)
    held = wilson(part / n, n)
    return Figure(round(part / n, 6), round(held.low, 6), round(held.high, 6), n)


def grade_of(speed_total: Figure) -> str | None:
    """The grades that the interval of a median speed allows; None where there is no interval."""
    if speed_total.lo is None or speed_total.hi is None:
        return None
    return str(grade(speed_total.lo, speed_total.hi))


def short(value: float | None) -> float | None:
    """A number with as many digits as a sketch knows."""
    return None if value is None else float(f"{value:.{_DIGITS}g}")
