"""The limit of requests that a target may have in flight: none until the target refuses one.

A refusal is a 429 that names no long wait: the target has as many requests as it takes. The number
that it had before is the limit then. After a while one more is tried; if that is refused as well,
the next try comes twice as late. A 429 with a long wait is about a rate and not about a number: the
target is held for that long instead (`lightgate.route.health.breaker`). Slowness sets no limit: it
has a price (`lightgate.route.form.wait`).
"""

from __future__ import annotations

import math
from typing import Final

LEAST: Final = 1.0
HOLD_NS: Final = 30_000_000_000  # for which a refused number is not tried again
LONGEST_NS: Final = 300_000_000_000
RATE_S: Final = 2.0  # a refusal that asks for a longer wait is about a rate
MOST: Final = 1024.0  # a limit that has grown so far is none
UNLIMITED: Final = math.inf


class InFlightLimit:
    """The limit of one target; `most` requests may be in flight.

    `firm` says whether the target has said that there is a limit.
    """

    __slots__ = ("_hold_ns", "_until_ns", "firm", "most")

    def __init__(self) -> None:
        self.most = UNLIMITED
        self.firm = False
        self._hold_ns = HOLD_NS
        self._until_ns = 0

    def refused(self, flying: int, now_ns: int) -> None:
        """Take in a 429 to a request with which so many were in flight."""
        level = max(LEAST, flying - 1.0)
        if level > self.most:
            return  # of a burst that was refused together
        if level == self.most - 1.0:  # the one more that was tried
            self._hold_ns = min(2 * self._hold_ns, LONGEST_NS)
        elif level < self.most:
            self._hold_ns = HOLD_NS
        self.most, self.firm = level, True
        self._until_ns = now_ns + self._hold_ns

    def answered(self, in_flight: int, now_ns: int) -> None:
        """Try one more than before, once the limit is used and the hold is over."""
        if now_ns >= self._until_ns and in_flight + 1.0 >= self.most:
            self.most += 1.0
            self._until_ns = now_ns + self._hold_ns
            if self.most > MOST:
                self.most, self.firm = UNLIMITED, False

    def take(self, most: float | None) -> None:
        """Take over the limit of another worker; None: it has none."""
        self.most = UNLIMITED if most is None else most
        self.firm = most is not None
