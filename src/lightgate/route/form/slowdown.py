"""How much slower a target decodes while its first tokens are late: learned, before that assumed.

Of a late first token one hears at once, of a slow answer only at its end; and where a hedge rescues
the request, never. Both have one cause as a rule, so the one is taken for a sign of the other.
"""

from __future__ import annotations

from typing import Final

USUAL: Final = 0.4  # log of speed for each log of first token; by load tables 0.4 to 0.9
MOST: Final = 1.0
WEIGHT: Final = 8.0  # of that assumption, as squared deviations: three answers in a bad spell
FAR: Final = 0.35  # log: a deviation from which on something can be learned
MEMORY: Final = 64.0  # squared deviations: about 25 answers in bad spells


class Along:
    """The slope of one target, as a regression through the origin."""

    __slots__ = ("moved", "squares")

    def __init__(self) -> None:
        self.moved = 0.0
        self.squares = 0.0

    @property
    def slope(self) -> float:
        """The logarithm of speed that goes with the logarithm of a time to first token."""
        found = (USUAL * WEIGHT + self.moved) / (WEIGHT + self.squares)
        return max(0.0, min(MOST, found))

    def saw(self, late: float, slow: float) -> None:
        """An answer came `slow` below the usual speed, first tokens being `late`: both logs."""
        if late < FAR:
            return
        if self.squares > MEMORY:
            self.moved /= 2.0
            self.squares /= 2.0
        self.moved += late * slow
        self.squares += late * late

    def guess(self, speed: float, late: float, jump: float) -> float:
        """The deviation of the speed after that of first tokens has jumped to `late`.

        Who got late is at least as slow as the slope says. Who recovered has one cause less: its
        speed comes back with its first tokens, as far as the one ever went along with the other.
        """
        slope = self.slope
        if jump > 0.0:
            return min(speed, -slope * late)
        before = late - jump
        if speed >= 0.0 or before <= 0.0:
            return speed
        back = min(1.0, -jump / before)
        return speed * (1.0 - back * min(1.0, slope / USUAL))
