"""Time-ordered ids: UUID version 7, as text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from lightgate.clock.source import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.clock.source import Clock

_TAIL_BITS: Final = 74  # what RFC 9562 leaves after 48 bits of milliseconds, version and variant
_TAIL: Final = (1 << _TAIL_BITS) - 1
_FETCHED: Final = 4096  # random bytes at a time
_LOW: Final = (1 << 62) - 1


class Chance:
    """Random bits of the system, fetched for many ids at once: each fetch is a system call."""

    __slots__ = ("_at", "_store")

    def __init__(self) -> None:
        self._store = b""
        self._at = 0

    def bits(self, count: int) -> int:
        """A number of at most so many bits; no bit of the store is used twice."""
        size = (count + 7) // 8
        end = self._at + size
        if end > len(self._store):
            self._store, end = os.urandom(_FETCHED), size
        found = int.from_bytes(self._store[end - size : end], "big")
        self._at = end
        return found >> (8 * size - count)


class Ids:
    """Makes ids that sort by the time of their making.

    Within one maker every id is greater than the one before, also when the wall clock stands still
    or goes back: the random tail then counts on from a random start. Across processes the order is
    that of the wall clocks, to the millisecond.
    """

    __slots__ = ("_clock", "_random_bits", "_value")

    def __init__(
        self, clock: Clock = SYSTEM, random_bits: Callable[[int], int] | None = None
    ) -> None:
        self._clock = clock
        self._random_bits = random_bits or Chance().bits
        self._value = 0

    def new(self) -> str:
        """Make the next id: 36 characters in the usual groups."""
        fresh = (self._clock.wall_ns() // 1_000_000) << _TAIL_BITS | self._random_bits(_TAIL_BITS)
        if fresh >> _TAIL_BITS <= self._value >> _TAIL_BITS:
            # Random steps keep the next id hard to guess; a full tail moves the millisecond on.
            fresh = self._value + 1 + self._random_bits(32)
        self._value = fresh
        return _text(fresh)


def _text(value: int) -> str:
    tail = value & _TAIL
    number = (
        (value >> _TAIL_BITS) << 80 | 0x7 << 76 | (tail >> 62) << 64 | 0b10 << 62 | (tail & _LOW)
    )
    digits = number.to_bytes(16, "big").hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
