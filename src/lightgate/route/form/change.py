"""Whether something has changed for good: CUSUM in both directions."""

from __future__ import annotations

from typing import Final

SLACK: Final = 0.7  # sigmas that a sample must be off to add up
ALARM: Final = 4.0  # sigmas in sum that are a change
MOST: Final = 3.4  # sigmas that one sample counts for: no alarm without a second one


class Change:
    """Change detection for one series, and what to believe after a change."""

    __slots__ = ("_fall", "_rise", "_three")

    def __init__(self) -> None:
        self._rise = self._fall = 0.0
        self._three: list[float] = []  # deviations from the long run

    def seen(self, z: float, deviation: float) -> float | None:
        """Take a residual in, in sigmas; the new deviation if it has changed.

        That is the median of the last three, so that no single sample can be a change.
        """
        three = self._three
        three.append(deviation)
        if len(three) > 3:
            del three[0]
        z = max(-MOST, min(MOST, z))
        self._rise = max(0.0, self._rise + z - SLACK)
        self._fall = max(0.0, self._fall - z - SLACK)
        if self._rise <= ALARM and self._fall <= ALARM:
            return None
        self._rise = self._fall = 0.0
        return sorted(three)[len(three) // 2]
