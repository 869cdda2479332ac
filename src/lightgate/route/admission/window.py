"""The window gate: how many requests a target may have in flight after it refused or failed some.

There is no window until then. An unexplained 429 sets the limit that the gateway's own targets have
(`in_flight`), and cuts the window below it; a run of failures cuts it harder. Cuts come once per
round trip, since the answers to what was sent before say nothing about the cut. A window grows
again with the answers that come while it is full. A 429 that names a wait is about a rate instead
(`learnt`), and one that states a limit about that limit (`rate`).
"""

from __future__ import annotations

import math
from typing import Final

from lightgate.route.admission.in_flight import MOST, InFlightLimit

REFUSED: Final = 0.8  # times what was in flight, after an unexplained 429
FAILED: Final = 0.5  # after a run of failures
GROWTH: Final = 0.05  # of the window, for each window of answers; at least one request
FULL: Final = 0.8  # of the window: with fewer in flight an answer says nothing about more
FEW: Final = 3  # failures that make a run
SHARE: Final = 0.2  # of the requests that ended in the last window that must have failed for that
TRIP_ALPHA: Final = 0.1  # weight of the newest answer in the round trip
LEAST_TRIP_NS: Final = 100_000_000


class WindowGate:
    """The window of one target."""

    __slots__ = ("_deaf_ns", "_done", "_ended", "_failed", "_level", "_trip_ns", "limit")

    def __init__(self) -> None:
        self.limit = InFlightLimit()
        self._level = math.inf
        self._done = 0  # answers towards the next step of growth
        self._ended = self._failed = 0.0  # in the last window, older ones fading
        self._deaf_ns = 0  # no cut before this instant
        self._trip_ns = float(LEAST_TRIP_NS)

    @property
    def most(self) -> float:
        """Requests that may be in flight."""
        return min(self._level, self.limit.most)

    def answered(self, in_flight: int, took_ns: int, now_ns: int) -> None:
        """Take in an answer with which so many, itself included, were in flight at its end."""
        self._trip_ns += TRIP_ALPHA * (took_ns - self._trip_ns)
        self._fade(in_flight, failed=False)
        if self.limit.firm:
            self.limit.answered(in_flight - 1, now_ns)
        if self._level == math.inf or in_flight < FULL * int(self._level):
            return
        self._done += 1
        if self._done >= self._level:
            self._done = 0
            self._level += max(1.0, GROWTH * self._level)
            if self._level > MOST:
                self._level = math.inf

    def refused(self, flying: int, now_ns: int) -> None:
        """Take in a 429 that no stated limit explains, to a request sent with so many in flight."""
        self.limit.refused(flying, now_ns)
        self._cut(REFUSED, flying, now_ns)

    def failed(self, flying: int, now_ns: int) -> None:
        """Take in a failure of the target: one alone means nothing."""
        self._fade(flying, failed=True)
        if self._failed >= max(FEW, SHARE * self._ended):
            self._ended = self._failed = 0.0
            self._cut(FAILED, flying, now_ns)

    def _fade(self, in_flight: int, *, failed: bool) -> None:
        keep = 1.0 - 1.0 / max(10.0, 2.0 * in_flight)
        self._ended = keep * self._ended + 1.0
        self._failed = keep * self._failed + failed

    def _cut(self, share: float, flying: int, now_ns: int) -> None:
        if now_ns < self._deaf_ns:
            return
        self._deaf_ns = now_ns + max(LEAST_TRIP_NS, round(self._trip_ns))
        self._level = max(1.0, share * min(self._level, float(flying)))
        self._done = 0
