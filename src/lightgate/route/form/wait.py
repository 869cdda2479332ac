"""What requests in flight cost: how long one more of them waits at a target.

A target serves some requests at once; those beyond that room wait, each a little longer than the
one before. Both numbers, the room and the seconds for each request beyond it, are fitted to the
first tokens of this gateway's own requests: their delay beyond what the target needs alone, against
the number in flight when they started. Beyond twice the largest number that was ever tried nothing
is known: there a request is taken to wait as if the room ended at that point.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MEMORY: Final = 100.0  # samples that count, the newest most
GENERATIONS: Final = 2.0  # and at least as many as this times the most that were ever in flight
RESCALE: Final = 1e9  # a weight of a new sample at which all are divided by it
LEAST_WEIGHT: Final = 1e-3  # of a new sample's, of a number in flight that is kept in mind
REFIT: Final = 4  # samples after which the curve is fitted anew
RIDGE: Final = 0.5  # squared requests that hold the slope at nothing
BETTER: Final = 0.98  # times the squared error of a smaller room: a larger one must be below it
EASY: Final = 0.5  # of the time alone: a number in flight with a smaller delay makes nobody wait
SPARE: Final = 0.75  # of the room: up to here a second attempt takes nothing from others
ROOM: Final = 4  # of a target of which nothing is known
HOLDING_S: Final = 2.0  # for which a request is taken to be in flight, before one has ended
HOLDING_ALPHA: Final = 0.1  # weight of the newest request in that time
DOUBT: Final = 0.5  # of the wait behind a full room, where nothing was tried
WILDEST: Final = 10.0  # times the time alone that one sample may lie above the curve
WILDEST_S: Final = 1.0  # and at least
SLACK: Final = 0.7  # usual errors that a sample must be off to add up
ALARM: Final = 8.0  # usual errors in sum: the target serves more or fewer at once than before
MOST: Final = 3.0  # usual errors that one sample counts for
ERROR_ALPHA: Final = 0.05  # weight of the newest sample in the usual error
ERROR_S: Final = 0.1  # seconds that a sample is off the curve, before any was
ERROR_LEAST: Final = 0.2  # of the time alone
FORGET: Final = 5.0  # times as much a new sample weighs from then on
ROOMS: Final = (
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64,
    80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512,
)  # fmt: skip


class _Fitted(NamedTuple):
    error: float
    room: float
    slope: float


class WaitCurve:
    """The wait at one target by the number in flight, the request itself included.

    `room` requests wait for nobody; each one beyond waits `slope` seconds more. Beyond `known`
    nothing was tried: there each one counts `doubt` seconds on top. Up to `free` neither counts.
    `easy` is the largest number at which requests were seen not to wait.
    """

    __slots__ = (
        "_bins",
        "_error_s",
        "_fall",
        "_growth",
        "_rise",
        "_unit",
        "_until_fit",
        "alone_s",
        "doubt",
        "easy",
        "free",
        "holding_s",
        "known",
        "room",
        "slope",
        "widest",
    )

    def __init__(self) -> None:
        self.room = float(ROOM)
        self.slope = 0.0
        self.easy = ROOM // 2
        self.alone_s = 0.0  # what a first token needs if nobody waits, by the last sample
        self.widest = 0  # the most that were in flight when a first token's request started
        self.holding_s = 0.0  # that a request is in flight; 0: none has ended
        self.known = self.free = float(ROOM)
        self.doubt = DOUBT * HOLDING_S / ROOM
        self._bins: dict[int, list[float]] = {}  # in flight: weight, seconds, squared seconds
        self._unit = 1.0  # the weight of a new sample; grows instead of all others shrinking
        self._growth = MEMORY / (MEMORY - 1.0)  # with each sample
        self._until_fit = REFIT
        self._error_s = ERROR_S
        self._rise = self._fall = 0.0

    def seconds(self, flying: float) -> float:
        """Return the wait of a request with which so many are in flight."""
        wait = 0.0
        if flying > self.room:
            wait = self.slope * (flying - self.room)
        if flying > self.known:
            wait += self.doubt * (flying - self.known)
        return wait

    def hidden(self, flying: int) -> float:
        """Return the seconds of wait that a first token may hold beyond what the curve knows."""
        if flying <= self.easy + 1:
            return 0.0
        return (self.holding_s or HOLDING_S) * (flying - self.easy) / flying

    def spare(self, flying: float) -> bool:
        """Return whether so many requests leave some of the target's room free."""
        return self.slope * self.room < self.alone_s or flying <= SPARE * self.room

    def saw(self, flying: int, extra_s: float, alone_s: float) -> None:
        """Take in a first token that came `extra_s` later than the target needs alone."""
        self.alone_s = alone_s
        expected_s = self.seconds(flying)
        extra_s = min(extra_s, expected_s + max(WILDEST * alone_s, WILDEST_S))
        if flying > self.widest:
            self.widest = flying
            self._explored()
        self._notice(extra_s - expected_s, alone_s)
        if flying > 64:
            flying -= flying % (4 if flying <= 256 else 16)
        unit = self._unit = self._unit * self._growth
        found = self._bins.get(flying)
        if found is None:
            found = self._bins[flying] = [0.0, 0.0, 0.0]
        found[0] += unit
        found[1] += unit * extra_s
        found[2] += unit * extra_s * extra_s
        self._until_fit -= 1
        if self._until_fit <= 0:
            self._until_fit = REFIT
            self._fit()

    def held(self, seconds: float) -> None:
        """Take in how long a request was in flight, its wait included."""
        before = self.holding_s
        self.holding_s = before + HOLDING_ALPHA * (seconds - before) if before else seconds
        self.doubt = DOUBT * (self.holding_s or HOLDING_S) / self.known

    def take(self, known: tuple[float, float, int, float]) -> None:
        """Take over another worker's curve, where that one has seen more in flight.

        Its room and slope count until this worker's own samples say something.
        """
        room, slope, widest, holding_s = known
        if widest <= self.widest:
            return
        self.widest = widest
        self.holding_s = self.holding_s or holding_s
        if not self._bins:
            self.room, self.slope = max(1.0, room), max(0.0, slope)
        self._explored()

    def _explored(self) -> None:
        self.known = max(2.0 * self.widest, float(ROOM))
        memory = max(MEMORY, GENERATIONS * self.widest)
        self._growth = memory / (memory - 1.0)
        self.doubt = DOUBT * (self.holding_s or HOLDING_S) / self.known
        self.free = min(self.known, self.room) if self.slope else self.known

    def _notice(self, off_s: float, alone_s: float) -> None:
        """Forget most of what was seen once the curve is wrong in one direction for a while."""
        error_s = self._error_s
        z = max(-MOST, min(MOST, off_s / (error_s + ERROR_LEAST * alone_s)))
        self._error_s += ERROR_ALPHA * (min(abs(off_s), 4.0 * error_s + alone_s) - error_s)
        self._rise = max(0.0, self._rise + z - SLACK)
        self._fall = max(0.0, self._fall - z - SLACK)
        if self._rise > ALARM or self._fall > ALARM:
            self._rise = self._fall = 0.0
            self._unit *= FORGET

    def _fit(self) -> None:
        """Fit a line that begins to rise at the room, for each room; take the best."""
        self._tidy()
        best = _Fitted(float("inf"), 1.0, 0.0)
        for fitted in reversed(self._fits()):  # the smallest room first
            if fitted.error < best.error * BETTER:
                best = fitted
        self.room, self.slope = best.room, best.slope
        self.free = min(self.known, self.room) if self.slope else self.known

    def _tidy(self) -> None:
        """Drop what weighs nothing, and keep the weights inside what a float can hold."""
        bins, unit = self._bins, self._unit
        if unit <= RESCALE and len(bins) <= 2 * len(ROOMS):
            return
        for flying in [key for key, sums in bins.items() if sums[0] < LEAST_WEIGHT * unit]:
            del bins[flying]
        for sums in bins.values():
            sums[:] = [one / unit for one in sums]
        self._unit = 1.0

    def _fits(self) -> list[_Fitted]:
        """Return the best line for each room that some numbers in flight lie above."""
        bins, order = self._bins, sorted(self._bins)
        total = y = yy = 0.0
        usual = None  # what the fewest in flight were late by: that is not the queue
        for flying in order:
            w, wy, wyy = bins[flying]
            total += w
            y += wy
            yy += wyy
            if usual is None:
                usual = max(0.0, wy / w) if w >= self._unit else None
            if usual is None or wy < (usual + EASY * self.alone_s) * w:
                self.easy = flying
        spread, ridge = yy - y * y / total, RIDGE * self._unit
        weight = n1 = n2 = y0 = y1 = 0.0  # sums over the numbers above the room
        found: list[_Fitted] = []
        for room in reversed(ROOMS):
            while order and order[-1] > room:
                flying = order.pop()
                w, wy, _ = bins[flying]
                weight += w
                n1 += w * flying
                n2 += w * flying * flying
                y0 += wy
                y1 += wy * flying
            if not weight:
                continue
            x = n1 - room * weight
            xx = n2 - 2.0 * room * n1 + room * room * weight - x * x / total
            xy = y1 - room * y0 - x * y / total
            slope = max(0.0, xy / (xx + ridge))
            error = spread - 2.0 * slope * xy + slope * slope * xx
            found.append(_Fitted(error, float(room), slope))
        return found
