"""The draft of an answer: what will be said and when, before the first byte goes out.

Faults edit drafts; the stream plays the finished one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from lightgate.sim.answer.script import Script
    from lightgate.sim.world import AnswerShape

LARGEST: Final = 1e9  # beyond that an argument is a typing error


class Argument(msgspec.Struct, frozen=True):
    """A fault's argument: numbers separated by commas, or a word."""

    fault: str
    text: str

    @property
    def is_numeric(self) -> bool:
        """Whether every part is a finite number of sensible size."""
        try:
            numbers = [float(part) for part in self.text.split(",")]
        except ValueError:
            return False
        return all(math.isfinite(number) and abs(number) < LARGEST for number in numbers)

    @property
    def number(self) -> float:
        """The first number."""
        return float(self.text.split(",")[0])

    @property
    def count(self) -> int:
        """The first number as a count."""
        return max(int(self.number), 0)

    @property
    def second_number(self) -> float | None:
        """The number after the first comma."""
        parts = self.text.split(",")
        return float(parts[1]) if len(parts) > 1 else None


class ErrorAnswer(NamedTuple):
    """An answer of a status alone, in the dialect's error shape."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    shown_status: int | None = None  # the status of the HTTP answer, where it lies


class AnswerPlan:
    """Everything that a fault may change about one answer."""

    __slots__ = (
        "blank_lines",
        "bom",
        "content_type",
        "empty",
        "finish",
        "finish_every",
        "ignores_cancel",
        "junk",
        "length",
        "no_space",
        "null_choices",
        "refusal",
        "script",
        "shape",
        "stale",
        "wall_s",
    )

    def __init__(self, shape: AnswerShape, script: Script, wall_s: float) -> None:
        self.shape = shape
        self.script = script  # empty until the early faults have been applied
        self.wall_s = wall_s  # seconds since 1970, for dates in headers
        self.refusal: ErrorAnswer | None = None
        self.finish: str | None = None  # verbatim finish reason
        self.finish_every = False
        self.null_choices = False
        self.empty = False
        self.bom = False
        self.no_space = False
        self.blank_lines = 0
        self.junk = b""  # what a JUNK beat sends
        self.content_type: bytes | None = None  # instead of the dialect's
        self.length: int | None = None  # bytes that Content-Length promises and nobody sends
        self.ignores_cancel = False
        self.stale = False
