"""Speed grades: bands on the median of `speed_total`, without gaps between them."""

from __future__ import annotations

from typing import Final

import msgspec

BANDS: Final = ((1, 100.0), (2, 70.0), (3, 50.0), (4, 30.0), (5, 0.0))  # grade, tok/s at least


class Grade(msgspec.Struct, frozen=True):
    """The best and the worst grade that the interval of the median allows; usually the same."""

    best: int
    worst: int

    def __str__(self) -> str:
        if self.best == self.worst:
            return str(self.best)
        return f"{self.best}\N{EN DASH}{self.worst}"


def band(tokens_per_second: float) -> int:
    """Grade of one speed, from 1 (fastest) to 5."""
    if not tokens_per_second >= 0.0:
        raise ValueError(f"a speed is not negative: {tokens_per_second}")
    return next(grade for grade, floor in BANDS if tokens_per_second >= floor)


def grade(low: float, high: float) -> Grade:
    """Grade of a median that lies between `low` and `high` tok/s: "1-2" when they straddle."""
    if low > high:
        raise ValueError(f"an interval has its ends in order, not {low} above {high}")
    return Grade(best=band(high), worst=band(low))
