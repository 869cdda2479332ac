"""Cold starts: how long the first request after a pause waits for a target to wake up.

A target that was asked nothing for a while may have to load its model first. That is no weather: it
happens again after every such pause, and never without one. So it is learned as a function of the
pause, and kept out of what is believed of the target awake.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

# Shorter ones are none: a target that is probed has them all the time, and shows its weather then.
PAUSES_S: Final = (15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
NS: Final = 1e9
SHORTEST_NS: Final = int(PAUSES_S[0] * 1e9)
TIMES: Final = 5.0  # the expected first token: a later one after a pause is a cold start
LEAST_S: Final = 2.0  # and one that is sooner never is
KEEP: Final = 0.98  # of older ones, with each new one
ALPHA: Final = 0.3  # weight of the newest start in how long they take


class ColdStarts:
    """The pauses after which one target was cold, and after which it was not.

    A target that is cold after a pause is so after each longer one, and one that is warm after a
    pause is so after each shorter one.
    """

    __slots__ = ("_active_ns", "_cold", "_since_ns", "_until_ns", "_warm", "pauses", "seconds")

    def __init__(self) -> None:
        self._active_ns = 0  # when the target last had a request; 0: never
        self.pauses: dict[int, float] = {}  # start of an attempt after a pause: seconds of that
        self._since_ns = self._until_ns = 0  # of the last cold start
        self._cold = [0.0] * len(PAUSES_S)
        self._warm = [0.0] * len(PAUSES_S)
        self.seconds = 0.0  # that a cold start takes; 0: none was seen

    # Attempts. Instants in nanoseconds.

    def began(self, now_ns: int, *, alone: bool) -> None:
        """Take in an attempt that begins; `alone`: the target has no other."""
        active_ns = self._active_ns
        if alone and active_ns and now_ns - active_ns > SHORTEST_NS:
            self.pauses[now_ns] = (now_ns - active_ns) / NS
        if now_ns > active_ns:
            self._active_ns = now_ns

    def over(self, began_ns: int) -> None:
        """Forget an attempt; of use only where there are `pauses`."""
        self.pauses.pop(began_ns, None)

    def explains(self, began_ns: int, now_ns: int, first_s: float, usual_s: float) -> bool:
        """Return whether a first token was late because the target had to start.

        All that was sent while it started waits for the same start.
        """
        self._active_ns = max(self._active_ns, now_ns)
        if self._since_ns <= began_ns < self._until_ns:
            return True
        pause_s = self.pauses.pop(began_ns, 0.0) if self.pauses else 0.0
        if not pause_s or not self.saw(pause_s, first_s, usual_s):
            return False
        self._since_ns, self._until_ns = began_ns, now_ns
        return True

    def next_s(self, now_ns: int) -> float:
        """Return how much longer a request that is sent now is expected to take, alone there."""
        return self.wait_s((now_ns - self._active_ns) / NS) if self._active_ns else 0.0

    # What they say

    def saw(self, pause_s: float, first_s: float, usual_s: float) -> bool:
        """Take in the first token after a pause; return whether the target was cold."""
        place = bisect_right(PAUSES_S, pause_s) - 1
        if place < 0:
            return False
        cold = first_s > max(LEAST_S, TIMES * usual_s)
        if not cold and not self.seconds:
            return False  # one that is never cold: nothing has to be remembered
        self._cold = [KEEP * one for one in self._cold]
        self._warm = [KEEP * one for one in self._warm]
        (self._cold if cold else self._warm)[place] += 1.0
        if cold:
            self.seconds += (ALPHA if self.seconds else 1.0) * (first_s - self.seconds)
        return cold

    def wait_s(self, pause_s: float) -> float:
        """Return how much longer a first token is expected to take after a pause."""
        place = bisect_right(PAUSES_S, pause_s) - 1
        if place < 0:
            return 0.0
        cold = sum(self._cold[: place + 1])
        return self.seconds * cold / (cold + sum(self._warm[place:]) + 1.0)
