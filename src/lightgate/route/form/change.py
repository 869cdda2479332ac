"""Changes of a target for good: how one is noticed, and what late first tokens say of its speed.

A late first token is known at once, a slow answer only at its end, and never where a hedge rescues
the request. As a rule both have one cause, so lateness is taken for a sign of slowness.
"""

from __future__ import annotations

from typing import Final

SLACK: Final = 0.7  # sigmas that a sample must be off to add up
ALARM: Final = 4.0  # sigmas in sum that are a change
MOST: Final = 3.4  # sigmas that one sample counts for: no alarm without a second one

USUAL_SLOPE: Final = 0.4  # log of speed for each log of first token; by load tables 0.4 to 0.9
STEEPEST: Final = 1.0
SLOPE_WEIGHT: Final = 8.0  # of the usual slope, as squared deviations: three answers in a bad spell
FAR: Final = 0.35  # log: a deviation from which on something can be learned
SLOPE_MEMORY: Final = 64.0  # squared deviations: about 25 answers in bad spells


class ChangeDetector:
    """Detect a change of one series by CUSUM in both directions, and say what to believe then."""

    __slots__ = ("_before", "_fall", "_last", "_rise")

    def __init__(self) -> None:
        self._rise = self._fall = 0.0
        # The last two deviations from the long run, the younger one first; None: not yet seen.
        self._last: float | None = None
        self._before: float | None = None

    def seen(self, z: float, deviation: float) -> float | None:
        """Take a residual in, in sigmas; return the new deviation if the series has changed.

        The new deviation is the median of the last three: no single sample can be a change.
        """
        if z > MOST:
            z = MOST
        elif z < -MOST:
            z = -MOST
        rise = self._rise + z - SLACK
        fall = self._fall - z - SLACK
        if rise <= ALARM and fall <= ALARM:
            self._rise = rise if rise > 0.0 else 0.0
            self._fall = fall if fall > 0.0 else 0.0
            self._before, self._last = self._last, deviation
            return None
        self._rise = self._fall = 0.0
        three = [one for one in (self._before, self._last, deviation) if one is not None]
        self._before, self._last = self._last, deviation
        return sorted(three)[len(three) // 2]


class Slowdown:
    """The log of speed that one target loses for each log of its first tokens' lateness.

    A regression through the origin, which begins with the usual slope.
    """

    __slots__ = ("moved", "squares")

    def __init__(self) -> None:
        self.moved = 0.0
        self.squares = 0.0

    @property
    def slope(self) -> float:
        """The logarithm of speed that goes with the logarithm of a time to first token."""
        found = (USUAL_SLOPE * SLOPE_WEIGHT + self.moved) / (SLOPE_WEIGHT + self.squares)
        return max(0.0, min(STEEPEST, found))

    def saw(self, late: float, slow: float) -> None:
        """Take in an answer `slow` below the usual speed, first tokens being `late`: both logs."""
        if late < FAR:
            return
        if self.squares > SLOPE_MEMORY:
            self.moved /= 2.0
            self.squares /= 2.0
        self.moved += late * slow
        self.squares += late * late

    def guess(self, speed: float, late: float, jump: float) -> float:
        """Guess the deviation of the speed after that of first tokens has jumped to `late`.

        A target that got late is at least as slow as the slope says. One that recovered has one
        cause less: its speed comes back with its first tokens, as far as it ever went with them.
        """
        slope = self.slope
        if jump > 0.0:
            return min(speed, -slope * late)
        before = late - jump
        if speed >= 0.0 or before <= 0.0:
            return speed
        back = min(1.0, -jump / before)
        return speed * (1.0 - back * min(1.0, slope / USUAL_SLOPE))
