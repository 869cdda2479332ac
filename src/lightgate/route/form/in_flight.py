"""The limit of requests that a target may have in flight: none until the target complains.

A complaint is a 429, or a tail of first tokens that grows while the median stays, which is the
first sign of a queue. The limit is halved then, and grows by one for each round of answers, as
TCP's does. After a 429 the limit is firm: a target at its limit comes behind those below theirs. A
tail is only a guess: a target above such a limit counts as that many times slower.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

PAUSE_NS: Final = 5_000_000_000  # in which all complaints are one
LEAST: Final = 1.0
LEAST_QUEUED: Final = 4.0  # a tail alone: with fewer in flight the queue is not ours
MOST: Final = 1024.0  # a limit that has grown so far is none
SAMPLES: Final = 40  # first tokens of which the tail is taken
EVERY: Final = 10  # samples after which it is taken anew
DOUBLED: Final = math.log(2.0)  # of p95/p50 against its own usual: the least that is a sign
# The log of p95/p50 of 40 lognormal times varies by 0.24 of itself (1.645 sigma; 0.39 sigma): what
# a heavy tail does by chance, one look in thousands, is no queue.
CHANCE: Final = 4 * 0.24
USUAL_ALPHA: Final = 0.05
UNLIMITED: Final = math.inf


class InFlightLimit:
    """The limit of one target; `most` requests may be in flight."""

    __slots__ = ("_cut_ns", "_tail", "_until", "firm", "most", "usual")

    def __init__(self, usual: float) -> None:
        self.most = UNLIMITED
        self.firm = False  # the target itself has said so
        self.usual = usual  # log of p95/p50
        self._cut_ns = -(1 << 62)
        self._tail: deque[float] = deque(maxlen=SAMPLES)
        self._until = EVERY

    def refused(self, in_flight: int, now_ns: int) -> None:
        """Take in a 429: the target has too many requests."""
        self.firm = True
        self._cut(in_flight, now_ns, LEAST)

    def answered(self, in_flight: int) -> None:
        """Grow by one for as many whole answers as the limit allows, while half of it is used."""
        if in_flight * 2.0 >= self.most:
            self.most += 1.0 / self.most
            if self.most > MOST:
                self.most, self.firm = UNLIMITED, False

    def first(self, log: float, in_flight: int, now_ns: int) -> None:
        """Take in a first token; `log` is that of its time against the long run's."""
        tail = self._tail
        tail.append(log)
        self._until -= 1
        if self._until > 0 or len(tail) < SAMPLES:
            return
        self._until = EVERY
        ranked = sorted(tail)
        ratio = ranked[SAMPLES * 95 // 100] - ranked[SAMPLES // 2]
        if ratio < self.usual + max(DOUBLED, CHANCE * self.usual):
            self.usual += USUAL_ALPHA * (ratio - self.usual)
        elif in_flight >= LEAST_QUEUED:
            self._cut(in_flight, now_ns, LEAST_QUEUED)
            tail.clear()

    def _cut(self, in_flight: int, now_ns: int, least: float) -> None:
        if now_ns - self._cut_ns >= PAUSE_NS:
            self.most = max(least, min(self.most, in_flight) / 2.0)
            self._cut_ns = now_ns
