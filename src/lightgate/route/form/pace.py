"""The pace of a target: how much slower each answer comes with every request beside it.

An engine that batches gives each stream a part of what it can do together. How large a part is
fitted to this gateway's own answers: the seconds of their tokens, against the mean number that was
in flight while they came. What an answer would have taken alone is what form learns, so that a
batch is not mistaken for weather. Beyond twice the largest batch of which an answer has told
nothing is known: there a request is taken to cost a little, so that a sudden burst is spread.
"""

from __future__ import annotations

from math import log
from typing import Final

KEEP: Final = 0.99  # of the weight of older answers, with each new one
RIDGE: Final = 2.0  # squared requests that hold the slope at nothing
DOUBT: Final = 9.0  # squared errors of the slope by which it is made smaller: noise is no slope
REFIT: Final = 4  # answers after which the drag is fitted anew
FEWEST: Final = 20.0  # answers before anything is fitted
STEEPEST: Final = 1.0  # of the time alone, for each request beside it: then nothing is shared
WILDEST: Final = 3.0  # times the expected time of a token: a stall in the middle counts as this
LEAST_ALONE: Final = 0.1  # of the usual time of a token: what it takes alone at least
KNOWN: Final = 16.0  # requests beside an answer that are taken to cost nothing, before any was seen
ALWAYS: Final = -1.0  # in flight: below any number
UNKNOWN: Final = 0.5  # of the time alone, for each log of how far beyond what is known it is


class PaceCurve:
    """The time of a token at one target, by the number of requests beside it.

    With each of them a token takes `drag` times the time alone longer. Up to `free` in flight, one
    more costs nothing; beyond `known` nothing was seen. `flying` are in flight since `since_ns`,
    `area` is their number times nanoseconds until then, and `streams` has both of the first token
    of each attempt, by its start: form keeps these four itself, at every start and end.
    """

    __slots__ = (
        "_sums",
        "_until_fit",
        "area",
        "drag",
        "flying",
        "free",
        "known",
        "learning",
        "since_ns",
        "streams",
    )

    def __init__(self) -> None:
        self.drag = 0.0
        self.known = self.free = KNOWN
        self.flying = self.area = 0.0
        self.since_ns = 0
        self.streams: dict[int, tuple[float, int]] = {}
        self.learning = False  # whether another request was in flight when an answer ended, once
        # Of all answers, the newest counting most: weight, beside, squared, seconds of a token,
        # both multiplied, seconds squared.
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self._until_fit = REFIT

    def slower(self, beside: float) -> float:
        """Return how many times as long as alone a token takes with so many beside it."""
        return 1.0 + self.drag * beside

    def more(self, beside: float) -> float:
        """Return the part of the time alone that a token of one more request takes longer."""
        return self.drag * beside + UNKNOWN * log(max(1.0, beside / self.known))

    @property
    def usual(self) -> float:
        """The mean number of requests beside an answer."""
        w, x, *_ = self._sums
        return x / w if w else 0.0

    def take(self, drag: float, known: float) -> None:
        """Take over what another worker knows, until this one's own answers are enough."""
        w, *_ = self._sums
        if w < FEWEST:
            self.drag = min(max(drag, 0.0), STEEPEST)
        self.known = max(self.known, known)
        self.free = ALWAYS if self.drag else self.known

    def ended(
        self, began_ns: int, now_ns: int, token_s: float, *, calm: bool
    ) -> tuple[float, float]:
        """Take in an answer that ends now, of the attempt that began then; return as `saw` does."""
        stream = self.streams.get(began_ns)
        if stream is None or now_ns <= stream[1]:
            return 0.0, 0.0
        area = self.area + self.flying * (now_ns - self.since_ns) - stream[0]
        beside = max(0.0, area / (now_ns - stream[1]) - 1.0)
        self.known = max(self.known, 2.0 * beside)
        self.free = ALWAYS if self.drag else self.known
        return self.saw(beside, token_s, calm=calm)

    def saw(self, beside: float, token_s: float, *, calm: bool) -> tuple[float, float]:
        """Take in an answer by the seconds of each of its tokens; `calm`: to fit the drag by.

        Return two logs: how much faster it would have come alone, and how much larger the speed
        alone has become, so that the speed with as many beside it as usual stays what it was.
        """
        moved = 0.0
        if calm:
            self.learning = True
            w, x, xx, y, xy, yy = self._sums
            if w >= FEWEST:
                expected_s = y / w * (1.0 + self.drag * beside) / (1.0 + self.drag * x / w)
                token_s = min(token_s, WILDEST * expected_s)
            self._sums = (
                w * KEEP + 1.0,
                x * KEEP + beside,
                xx * KEEP + beside * beside,
                y * KEEP + token_s,
                xy * KEEP + beside * token_s,
                yy * KEEP + token_s * token_s,
            )
            self._until_fit -= 1
            if self._until_fit <= 0 and w >= FEWEST:
                self._until_fit = REFIT
                moved = self._fit()
        return (log(1.0 + self.drag * beside) if self.drag else 0.0), moved

    def _fit(self) -> float:
        """Fit a line to seconds against requests beside; return the log that the speed moves by."""
        w, x, xx, y, xy, yy = self._sums
        xx, xy, yy = xx - x * x / w, xy - x * y / w, yy - y * y / w
        before, self.drag = self.drag, 0.0
        slope = xy / (xx + RIDGE)
        if slope > 0.0:
            error = (yy - 2.0 * slope * xy + slope * slope * xx) / (w - 2.0)
            slope -= DOUBT * max(error, 0.0) / ((xx + RIDGE) * slope)
        if slope > 0.0:
            alone_s = max((y - slope * x) / w, LEAST_ALONE * y / w)
            self.drag = min(slope / alone_s, STEEPEST)
        self.free = ALWAYS if self.drag else self.known
        if self.drag == before:
            return 0.0
        return log((1.0 + self.drag * x / w) / (1.0 + before * x / w))
