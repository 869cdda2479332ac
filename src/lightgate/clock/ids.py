"""Time-ordered ids: UUID version 7, as text."""

from __future__ import annotations

import os
from struct import iter_unpack
from typing import TYPE_CHECKING, Final

from lightgate.clock.source import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lightgate.clock.source import Clock

_TAIL_BITS: Final = 74  # what RFC 9562 leaves after 48 bits of milliseconds, version and variant
_TAIL: Final = (1 << _TAIL_BITS) - 1
_FETCHED: Final = 400 * 10  # random bytes at a time: ten for each id
_LOW: Final = (1 << 62) - 1


class Ids:
    """Makes ids that sort by the time of their making.

    Within one maker every id is greater than the one before, also when the wall clock stands still
    or goes back: the random tail then counts on from a random start. Across processes the order is
    that of the wall clocks, to the millisecond.
    """

    __slots__ = ("_clock", "_drawn", "_random_bits", "_value")

    def __init__(
        self, clock: Clock = SYSTEM, random_bits: Callable[[int], int] | None = None
    ) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._drawn: Iterator[tuple[int, int]] = iter(())
        self._value = 0

    def new(self) -> str:
        """Make the next id: 36 characters in the usual groups."""
        high, low = next(self._drawn, None) or self._draw()
        fresh = (self._clock.wall_ns() // 1_000_000) << _TAIL_BITS | high << 10 | low >> 6
        if fresh >> _TAIL_BITS <= self._value >> _TAIL_BITS:
            # Random steps keep the next id hard to guess; a full tail moves the millisecond on.
            fresh = self._value + 1 + (high >> 32)
        self._value = fresh
        tail = fresh & _TAIL
        number = (
            (fresh >> _TAIL_BITS) << 80 | 0x7 << 76 | (tail >> 62) << 64 | 1 << 63 | (tail & _LOW)
        )
        digits = number.to_bytes(16, "big").hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _draw(self) -> tuple[int, int]:
        """Random bits of the system for one id; fetched for many at once: each is a system call."""
        if self._random_bits is not None:
            return self._random_bits(64), self._random_bits(16)
        self._drawn = iter_unpack(">QH", os.urandom(_FETCHED))
        return next(self._drawn)
