"""Time-ordered ids: UUID version 7, as text."""

from __future__ import annotations

import os
from struct import iter_unpack
from typing import TYPE_CHECKING, Final

from lightgate.clock.source import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lightgate.clock.source import Clock

_FETCHED: Final = 400 * 10  # random bytes at a time: ten for each id
# The tail of an id, as RFC 9562 lays it out after the milliseconds and the version: twelve random
# bits, the two bits of the variant (10), 62 random bits. A bit on top keeps the leading zeros.
_LOW: Final = (1 << 62) - 1
_CARRY: Final = 1 << 62  # of the variant: set once the lower bits have run over
_OVER_VARIANT: Final = (1 << 64) - (1 << 62)  # takes that carry to the upper bits
_FULL: Final = 1 << 77  # set once these have run over
_TOP: Final = 1 << 76
_FRAME: Final = _TOP | 1 << 63


class Ids:
    """Makes ids that sort by the time of their making.

    Within one maker every id is greater than the one before, also when the wall clock stands still
    or goes back: the random tail then counts on from a random start. Across processes the order is
    that of the wall clocks, to the millisecond.
    """

    __slots__ = ("_drawn", "_front", "_ms", "_random_bits", "_tail", "_wall_ns")

    def __init__(
        self, clock: Clock = SYSTEM, random_bits: Callable[[int], int] | None = None
    ) -> None:
        self._wall_ns = clock.wall_ns
        self._random_bits = random_bits
        self._drawn: Iterator[tuple[int, int]] = iter(())
        self._ms = 0  # of the last id
        self._front = "00000000-0000-7"  # the text of its milliseconds, and the version
        self._tail = _FRAME

    def new(self) -> str:
        """Make the next id: 36 characters in the usual groups."""
        high, low = next(self._drawn, None) or self._draw()
        ms = self._wall_ns() // 1_000_000
        if ms > self._ms:
            tail = _FRAME | (high >> 52) << 64 | ((high << 10 | low >> 6) & _LOW)
        else:
            # Random steps keep the next id hard to guess; a full tail moves the millisecond on.
            tail, ms = self._tail + 1 + (high >> 32), self._ms
            if tail & _CARRY:
                tail += _OVER_VARIANT
                if tail & _FULL:
                    tail, ms = tail - _TOP, ms + 1
        if ms != self._ms:
            self._ms, self._front = ms, f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7"
        self._tail = tail
        digits = hex(tail)
        return f"{self._front}{digits[3:6]}-{digits[6:10]}-{digits[10:]}"

    def _draw(self) -> tuple[int, int]:
        """Random bits of the system for one id; fetched for many at once: each is a system call."""
        if self._random_bits is not None:
            return self._random_bits(64), self._random_bits(16)
        self._drawn = iter_unpack(">QH", os.urandom(_FETCHED))
        return next(self._drawn)
