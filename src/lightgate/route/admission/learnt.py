"""A rate that was learnt from refusals: of a target that refuses by a rate and does not state it.

A 429 that names a wait and no limit is about requests a second. What the target took in the last
seconds is its rate then; requests go a little slower from there, and a little faster again when
nothing was refused for a while.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

NS: Final = 1_000_000_000
SPAN_NS: Final = 10 * NS  # in which requests are counted, and after which a faster rate is tried
SLOWER: Final = 0.95  # times the rate that was taken
FASTER: Final = 1.04
FIRST: Final = 2.0  # times the rate: the first one was learnt from a burst perhaps
LEAST: Final = 0.05  # requests a second
HOLD_S: Final = 0.5  # of refill that the bucket holds


class LearntRate:
    """The rate of one target, in requests a second; infinite until one was refused."""

    __slots__ = (
        "_bound", "_changed_ns", "_growth", "_level", "_refused", "_seen_ns", "_sent", "rate",
    )  # fmt: skip

    def __init__(self) -> None:
        self.rate = math.inf
        self._sent: deque[int] = deque()
        self._refused: deque[int] = deque()
        self._level = 0.0
        self._seen_ns = self._changed_ns = 0
        self._growth = FIRST
        self._bound = False  # whether a request had to wait since the last change

    def wait_ns(self, now_ns: int) -> int:
        """Return how long a request has to wait; 0 lets it pass."""
        if self.rate == math.inf:
            return 0
        holds = max(1.0, HOLD_S * self.rate)
        self._level = min(holds, self._level + (now_ns - self._seen_ns) / NS * self.rate)
        self._seen_ns = now_ns
        if self._level >= 1.0:
            return 0
        self._bound = True
        return max(1, math.ceil((1.0 - self._level) / self.rate * NS))

    def sent(self, now_ns: int) -> None:
        """Count a request that goes now."""
        self._sent.append(now_ns)
        self._drop(now_ns)
        self._level -= 1.0

    def answered(self, now_ns: int) -> None:
        """Take in an answer: a faster rate is tried after a while without refusals."""
        if self._bound and now_ns - self._changed_ns >= SPAN_NS:
            self.rate *= self._growth
            self._changed_ns, self._bound = now_ns, False

    def refused(self, sent_ns: int, now_ns: int) -> None:
        """Take in a refusal of a request that went at this instant."""
        self._refused.append(sent_ns)
        self._drop(now_ns)
        if sent_ns < self._changed_ns:
            return  # it says nothing about the rate since
        span_ns = max(NS, min(SPAN_NS, now_ns - self._sent[0])) if self._sent else SPAN_NS
        taken = max(0, len(self._sent) - len(self._refused)) / (span_ns / NS)
        self._growth = FIRST if self.rate == math.inf else FASTER
        self.rate = max(LEAST, SLOWER * min(self.rate, taken))
        self._level, self._seen_ns = 0.0, now_ns
        self._changed_ns, self._bound = now_ns, False

    def _drop(self, now_ns: int) -> None:
        for seen in (self._sent, self._refused):
            while seen and seen[0] < now_ns - SPAN_NS:
                seen.popleft()
