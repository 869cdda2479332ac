"""The knee gate: how many requests in flight a target's throughput is worth.

With N requests in flight a target answers N by the time of one of them, each second. Answers are of
different lengths: the time is that of one of the usual length, as the times and lengths of a round
of answers say it. While twice as many in flight do notably more, the
level is doubled; then the smallest level that does nearly all of the most work is searched for.
There the gate holds, tries a little more from time to time, and a little less where requests have
become slow. Only requests that began with the level nearly full say something about it.
"""

from __future__ import annotations

import math
from typing import Final, Literal

START: Final = 4
MOST: Final = 512.0  # no level is tried above
DOUBLE: Final = 2.0  # times the level, while it pays
LEAP: Final = 4.0  # same, while requests are as fast with more of them
LINEAR: Final = 0.85  # of the growth in flight that throughput has then grown by
SURE: Final = 0.6  # same: a few answers are enough to go on
GAIN: Final = 0.3  # of the growth in flight that throughput must grow by: 10 % more for 3 %
NEARLY: Final = 0.95  # of the most throughput is enough
CLOSE: Final = 0.13  # of the level: a gap between too few and enough that is not searched further
FULL: Final = 0.8  # of the level, in flight when a request began
FINE_FULL: Final = 0.95  # same, where levels are close to each other
MORE: Final = 1.25  # times the level that is tried in between
LESS: Final = 0.8
SLOW: Final = 1.3  # times as long as with few in flight: fewer are tried
CLIMB_ROUND: Final = 8  # answers that may be enough to double the level
FINE_ROUND: Final = 24  # answers that judge a level, at least
PROBE_NS: Final = 60_000_000_000
LONGEST_NS: Final = 960_000_000_000
ALPHA: Final = 0.3  # weight of the newest round at the held level

USUAL: Final = 500  # answers over which the usual length is the mean
FEW: Final = 4  # answers that say as little about times by length as there is to say

Phase = Literal["climb", "narrow", "hold", "more", "less"]


class _Round:
    """The answers to requests that began at one level."""

    __slots__ = ("_cross", "_flying", "_seconds", "_square", "_work", "n")

    def __init__(self) -> None:
        self.n = 0
        self._flying = self._seconds = self._work = self._square = self._cross = 0.0

    def add(self, flying: int, work: float, seconds: float) -> None:
        self.n += 1
        self._flying += flying
        self._seconds += seconds
        self._work += work
        self._square += work * work
        self._cross += work * seconds

    @property
    def level(self) -> float:
        """Requests in flight, on average."""
        return self._flying / self.n

    def each_s(self, usual: float) -> float:
        """Return the seconds of an answer of the usual length: a line through lengths and times."""
        n = self.n
        seconds, work = self._seconds / n, self._work / n
        spread, slope = self._square / n - work * work, 0.0
        if spread > 1e-9 * self._square / n:
            slope = max(0.0, (self._cross / n - work * seconds) / spread) * n / (n + FEW)
        return max(0.1 * seconds, seconds - slope * (work - usual))


class Knee:
    """The level of one target; `most` requests may be in flight."""

    __slots__ = (
        "_best", "_epoch", "_found", "_goal", "_held", "_high", "_less_ns", "_less_wait_ns", "_low",
        "_more_ns", "_more_wait_ns", "_phase", "_points", "_round", "_seen", "_usual", "most",
        "promised",
    )  # fmt: skip

    def __init__(self, start: float = START) -> None:
        self.most = start
        self.promised = 0.0  # per second: requests that the target has said to take
        self._phase: Phase = "climb"
        self._points: list[tuple[float, float]] = []  # of the climb: level and throughput
        self._best = 0.0  # answers a second of one request with few in flight
        self._usual, self._seen = 0.0, 0  # length of an answer
        self._goal = self._low = self._high = self._held = 0.0
        self._more_ns = self._less_ns = 0  # the instants of the next tries
        self._more_wait_ns = self._less_wait_ns = PROBE_NS
        self._found = False  # whether less than the held level is known to be too little
        self._epoch = 0
        self._begin()

    @property
    def epoch(self) -> int:
        """The number of the level that holds now; a request is counted for its own."""
        return self._epoch

    @property
    def settled(self) -> bool:
        """Whether the level has been found."""
        return self._phase not in {"climb", "narrow"}

    def ended(self, epoch: int, flying: int, work: float, seconds: float, now_ns: int) -> None:
        """Take in an answer to a request that began in this epoch with so many in flight."""
        self._seen = min(USUAL, self._seen + 1)
        self._usual += (work - self._usual) / self._seen
        coarse = self._phase == "climb"
        full = FULL if coarse else FINE_FULL
        if epoch != self._epoch or flying < full * self.most or seconds <= 0.0:
            return
        found = self._round
        found.add(flying, work, seconds)
        if found.n < max(FINE_ROUND, self.most):
            # To go on a few answers are enough, where they are clear; to stop they are not.
            enough = coarse and found.n >= max(CLIMB_ROUND, self.most / 2)
            if not enough or self._gain() < SURE:
                return
        speed = 1.0 / found.each_s(self._usual)
        self._best = max(self._best, speed)
        self._judge(found.level, found.level * speed, speed, now_ns)

    def _judge(self, level: float, done: float, speed: float, now_ns: int) -> None:
        phase = self._phase
        if phase == "climb":
            self._climbed(level, done, now_ns)
        elif phase == "narrow":
            if done >= self._goal:
                self._high = self.most
            else:
                self._low = self.most
            self._narrow(now_ns)
        elif phase == "hold":
            self._held = done if not self._held else self._held + ALPHA * (done - self._held)
            self._hold(speed, now_ns)
        elif phase == "more":
            self._tried_more(level, done, now_ns)
        else:
            self._tried_less(level, done, now_ns)

    def _gain(self) -> float:
        """Return how much throughput has grown since the last level, by the growth in flight."""
        found = self._round
        if not self._points:
            return 1.0
        before, less = self._points[-1]
        if found.level <= before:
            return 0.0
        done = found.level / found.each_s(self._usual)
        return math.log(done / less) / math.log(found.level / before)

    def _climbed(self, level: float, done: float, now_ns: int) -> None:
        gain = self._gain()
        self._points.append((level, done))
        if gain < GAIN or self.most >= MOST:
            self._bracket(now_ns)
            return
        # What a target has said to take is in flight by Little's law: its rate by one's time.
        wanted = self.promised * self._round.each_s(self._usual)
        leap = LEAP if gain >= LINEAR and len(self._points) > 1 else DOUBLE
        self._go("climb", min(MOST, max(leap * self.most, wanted)))

    def _bracket(self, now_ns: int) -> None:
        """Begin the search between the last level that did too little and the first that did."""
        self._goal = NEARLY * max(done for _, done in self._points)
        self._low, self._high = self._points[0][0] / DOUBLE, MOST
        for level, done in sorted(self._points):
            if done >= self._goal:
                self._high = level
                break
            self._low = level
        self._points.clear()
        self._narrow(now_ns)

    def _narrow(self, now_ns: int) -> None:
        if self._high - self._low <= max(1.0, CLOSE * self._high):
            self._held, self._found = 0.0, False
            self._more_ns = now_ns + self._more_wait_ns
            self._go("hold", self._high)
        else:
            self._go("narrow", math.sqrt(self._low * self._high))

    def _hold(self, speed: float, now_ns: int) -> None:
        slow = now_ns >= self._less_ns and speed * SLOW < self._best
        if (slow or not self._found) and self.most > 1.0:
            self._go("less", max(1.0, min(self.most - 1.0, LESS * self.most)))
        elif now_ns >= self._more_ns and self.most < MOST:
            self._go("more", min(MOST, max(self.most + 1.0, MORE * self.most)))
        else:
            self._begin()

    def _tried_more(self, level: float, done: float, now_ns: int) -> None:
        before = self._low
        if math.log(done / self._held) >= GAIN * math.log(level / before):
            self._more_wait_ns = PROBE_NS
            self._points = [(before, self._held), (level, done)]
            self._go("climb", min(MOST, DOUBLE * self.most))
            return
        self._more_wait_ns = min(LONGEST_NS, 2 * self._more_wait_ns)
        self._more_ns = now_ns + self._more_wait_ns
        self._go("hold", before)

    def _tried_less(self, level: float, done: float, now_ns: int) -> None:
        before = self._high
        if math.log(self._held / done) < GAIN * math.log(before / level):
            self._less_wait_ns = PROBE_NS
            self._held, self._found = done, False  # even less may do
            self._go("hold", self.most)
            return
        self._found = True
        self._less_wait_ns = min(LONGEST_NS, 2 * self._less_wait_ns)
        self._less_ns = now_ns + self._less_wait_ns
        self._go("hold", before)

    def _go(self, phase: Phase, level: float) -> None:
        if phase == "more":
            self._low = self.most
        elif phase == "less":
            self._high = self.most
        self._phase = phase
        self.most = max(1.0, float(round(level)))
        self._begin()

    def _begin(self) -> None:
        """Begin a round: what began before does not count."""
        self._epoch += 1
        self._round = _Round()
