"""The plan of an answer: what is sent and when, decided before the first byte goes out.

Faults change an `AnswerPlan`; the player writes the finished one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.sim.answer.script import Counts, Script
from lightgate.sim.capacity import StatedLimit
from lightgate.sim.world import AnswerShape

if TYPE_CHECKING:
    from lightgate.sim.answer.turns import Scripted

LARGEST: Final = 1e9  # a larger argument is a typing error


class Argument(msgspec.Struct, frozen=True):
    """The argument of a fault: numbers separated by commas, or a word."""

    fault: str
    text: str

    @property
    def is_numeric(self) -> bool:
        """Whether every part is a finite number below LARGEST."""
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
    """An error instead of an answer, written in the dialect's error shape."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    shown_status: int | None = None  # the status line's, where it differs from the error's


class AnswerPlan(msgspec.Struct, kw_only=True):
    """Everything about one answer that a fault may change."""

    shape: AnswerShape
    script: Script  # empty until the early faults have been applied
    wall_s: float  # seconds since 1970, for dates in headers
    error: ErrorAnswer | None = None
    limits: tuple[StatedLimit, ...] = ()  # that the header states
    finish: str | None = None  # verbatim finish reason
    finish_every: bool = False
    null_choices: bool = False
    empty: bool = False  # no token, and no reason for that
    hidden: bool = False  # every token is reasoning that is only counted
    bom: bool = False
    no_space: bool = False
    blank_lines: int = 0
    junk: bytes = b""  # the bytes of a JUNK or RAW beat
    content_type: bytes | None = None  # instead of the dialect's
    length: int | None = None  # bytes that Content-Length promises and that are not sent
    ignores_cancel: bool = False
    stale: bool = False


class PlannedRequest(NamedTuple):
    """One request with its answer planned, decided before its first byte is answered."""

    number: int
    id: str
    start_ns: int
    plan: AnswerPlan
    counts: Counts
    reason: str  # stop | length | tool
    scripted: Scripted | None  # the words of the answer; None: made up
    load: int
    outcome: str
    fault: str | None
    weather: str | None
    cached: int  # tokens of the prompt that were in the cache
    answers: int  # that say the same, each with these counts
    slot: tuple[int, int] | None  # the slot and the instant until which it is held
