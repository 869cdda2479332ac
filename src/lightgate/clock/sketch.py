"""Quantiles of unlimited samples in bounded space, mergeable over time and machines.

DDSketch (Masson, Rim and Lee, VLDB 2019): a bucket for every power of gamma = (1 + e) / (1 - e), so
that any value of a bucket is within the relative error e of the value that stands for it. Buckets
are one dense list with an offset; zero and +inf (a failure) have buckets of their own. It is plain
Python: the console keeps sketches all day, and numpy would take a quarter of its memory.
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections import Counter
from functools import lru_cache
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Final, Self

from lightgate.clock.quantile import rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RELATIVE_ERROR: Final = 0.01
LIMIT: Final = 2048  # buckets: 17 decades at 1 %; beyond it the lowest are collapsed into one
TINY: Final = 1e-9  # what is smaller counts as zero: a picosecond, where samples are milliseconds
_LARGEST: Final = math.log(sys.float_info.max)
_GROWTH: Final = 64  # spare buckets at a reallocation
_MAGIC: Final = b"LGDD\x01"  # the last byte is the version of the format
# relative error, lowest index, buckets, bytes per bucket, zeros, infinities, min, max, sum
_HEAD: Final = struct.Struct("<diIBQQddd")
_CRC: Final = struct.Struct("<I")
_WIDTHS: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}  # array's codes; bytes are little-endian


class DDSketch:
    """A sketch of values from 0 to +inf with a bounded relative error.

    `count` is of all samples; `low`, `high` and `total` are exact, over the finite ones.
    """

    __slots__ = (
        "_buckets",
        "_log_gamma",
        "_offset",
        "high",
        "infinities",
        "low",
        "relative_error",
        "total",
        "zeros",
    )

    def __init__(self, relative_error: float = RELATIVE_ERROR) -> None:
        if not 1e-4 <= relative_error <= 0.5:
            raise ValueError(
                f"a relative error lies between 0.0001 and 0.5, not at {relative_error}"
            )
        self.relative_error = relative_error
        self._log_gamma = math.log1p(2.0 * relative_error / (1.0 - relative_error))
        self._buckets: list[int] = []
        self._offset = 0  # the index of the first bucket
        self.zeros = 0
        self.infinities = 0
        self.low = math.inf
        self.high = -math.inf
        self.total = 0.0

    @property
    def count(self) -> int:
        """Samples taken in, zeros and infinities included."""
        return sum(self._buckets) + self.zeros + self.infinities

    def add(self, value: float, count: int = 1) -> None:
        """Take `count` samples of one value in."""
        if not value >= 0.0 or count < 1:
            raise ValueError(f"a sample is a number from 0 up, at least once: {value} x {count}")
        if value == math.inf:
            self.infinities += count
            return
        self._note(value, value, value * count)
        if value < TINY:
            self.zeros += count
            return
        index = self._index(value)
        self._cover(index, index)
        self._buckets[max(0, index - self._offset)] += count

    def add_many(self, values: Iterable[float]) -> None:
        """Take many samples in at once."""
        finite = list(map(float, values))
        if not finite:
            return
        if not (min(finite) >= 0.0 and sum(finite) >= 0.0):  # a sum with a NaN is one
            raise ValueError("a sample is a number from 0 up")
        if max(finite) == math.inf:
            samples, finite = finite, [value for value in finite if value != math.inf]
            self.infinities += len(samples) - len(finite)
            if not finite:
                return
        low = min(finite)
        self._note(low, max(finite), sum(finite))
        large = finite if low >= TINY else [value for value in finite if value >= TINY]
        self.zeros += len(finite) - len(large)
        if not large:
            return
        ceil, log, width = math.ceil, math.log, self._log_gamma
        counted = Counter([ceil(log(value) / width) for value in large])
        self._cover(min(counted), max(counted))
        buckets, offset = self._buckets, self._offset
        for index, count in counted.items():
            buckets[max(0, index - offset)] += count

    def merge(self, other: Self) -> None:
        """Take in all that another sketch of the same error has seen."""
        if other.relative_error != self.relative_error:
            raise ValueError(
                f"sketches of different errors do not merge: {other.relative_error} into "
                f"{self.relative_error}"
            )
        self.zeros += other.zeros
        self.infinities += other.infinities
        self._note(other.low, other.high, other.total)
        size = len(other._buckets)
        if size == 0:
            return
        self._cover(other._offset, other._offset + size - 1)
        start = other._offset - self._offset
        if start < 0:  # its lowest buckets are below ours: collapse them
            cut = min(-start, size)
            self._buckets[0] += sum(other._buckets[:cut])
            self._add(0, other._buckets[cut:])
        else:
            self._add(start, other._buckets)

    def quantile(self, q: float) -> float | None:
        """Nearest-rank quantile within the relative error; +inf where failures reach that far."""
        return self.quantiles((q,))[0]

    def quantiles(self, shares: Iterable[float]) -> list[float | None]:
        """Several quantiles at once: the counts are added up once for all of them."""
        n = self.count
        if n == 0:
            return [None for _ in shares]
        below = list(accumulate(self._buckets))
        finite = n - self.infinities
        return [self._at_place(rank(n, q), below, finite) for q in shares]

    def _at_place(self, place: int, below: Sequence[int], finite: int) -> float:
        if place > finite:
            return math.inf
        if place <= self.zeros:
            return self.low
        at = bisect_left(below, place - self.zeros)
        return min(self.high, max(self.low, self._value(at + self._offset)))

    def at_most(self, bound: float) -> int:
        """Count the samples up to `bound`, within the relative error of it."""
        if bound == math.inf:
            return self.count
        if bound < TINY:
            return self.zeros if bound >= 0.0 else 0
        whole = self._index(bound) - self._offset + (self._value(self._index(bound)) <= bound)
        return self.zeros + sum(self._buckets[: max(0, whole)])

    @property
    def mean(self) -> float | None:
        """Mean of the finite samples, exact; None before the first."""
        finite = self.count - self.infinities
        return self.total / finite if finite else None

    def to_bytes(self) -> bytes:
        """Serialise: a header, the counts in as few bytes as the largest needs, a checksum."""
        first, stop = 0, len(self._buckets)
        while stop and not self._buckets[stop - 1]:
            stop -= 1
        while first < stop and not self._buckets[first]:
            first += 1
        counts = self._buckets[first:stop]
        largest = max(counts, default=0)
        width = next(size for size in _WIDTHS if largest < 1 << (8 * size))
        head = _HEAD.pack(
            self.relative_error,
            self._offset + first if counts else 0,
            len(counts),
            width,
            self.zeros,
            self.infinities,
            self.low,
            self.high,
            self.total,
        )
        body = _MAGIC + head + _little(array(_WIDTHS[width], counts)).tobytes()
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; ValueError on anything else."""
        error, offset, counts, zeros, infinities, low, high, total = _parsed(data)
        sketch = cls(error)
        sketch._buckets, sketch._offset = list(counts), offset
        sketch.zeros, sketch.infinities = zeros, infinities
        sketch.low, sketch.high, sketch.total = low, high, total
        return sketch

    @classmethod
    def from_many(cls, packed: Sequence[bytes]) -> Self:
        """Read and merge what `to_bytes` wrote; all buckets of an index are added up at once."""
        kept = [_parsed(data) for data in packed]
        errors = {one[0] for one in kept}
        if len(errors) > 1:
            raise ValueError(f"sketches of different errors do not merge: {sorted(errors)}")
        sketch = cls(*errors)
        for _, _, _, zeros, infinities, low, high, total in kept:
            sketch.zeros += zeros
            sketch.infinities += infinities
            sketch._note(low, high, total)
        filled = [(offset, counts) for _, offset, counts, *_ in kept if counts]
        if filled:
            sketch._offset, sketch._buckets = _columns(filled)
        return sketch

    def _note(self, low: float, high: float, total: float) -> None:
        self.low = min(self.low, low)
        self.high = max(self.high, high)
        self.total += total

    def _index(self, value: float) -> int:
        return math.ceil(math.log(value) / self._log_gamma)

    def _value(self, index: int) -> float:
        """Give the value with the least worst relative error to all of a bucket."""
        exponent = index * self._log_gamma + math.log1p(-self.relative_error)
        return math.exp(min(exponent, _LARGEST))

    def _cover(self, lowest: int, highest: int) -> None:
        """Make room for these indices; beyond the limit the lowest buckets become one."""
        size = len(self._buckets)
        first, last = self._offset, self._offset + size - 1
        if size and (lowest >= first or size == LIMIT) and highest <= last:
            return
        # Spare room only on the side that grows: a top that drifts up would cost buckets below.
        lowest = first if size and lowest >= first else lowest - _GROWTH
        highest = last if size and highest <= last else highest + _GROWTH
        lowest = max(lowest, highest - LIMIT + 1)
        old, start = self._buckets, self._offset - lowest
        self._buckets, self._offset = [0] * (highest - lowest + 1), lowest
        if size and start < 0:
            cut = min(-start, size)
            self._buckets[0] = sum(old[:cut])
            self._add(0, old[cut:])
        elif size:
            self._buckets[start : start + size] = old

    def _add(self, start: int, counts: list[int]) -> None:
        """Add counts to the buckets from a place on."""
        stop = start + len(counts)
        self._buckets[start:stop] = map(add, self._buckets[start:stop], counts)


def _columns(kept: Sequence[tuple[int, bytes | array[int]]]) -> tuple[int, list[int]]:
    """The lowest index, and the sums of the counts of every index from there on."""
    lowest = min(offset for offset, _ in kept)
    highest = max(offset + len(counts) for offset, counts in kept)
    rows: list[Sequence[int]] = []
    for offset, counts in kept:
        before, behind = offset - lowest, highest - offset - len(counts)
        if isinstance(counts, bytes):
            rows.append(bytes(before) + counts + bytes(behind))
        else:
            rows.append([0] * before + counts.tolist() + [0] * behind)
    sums = list(map(sum, zip(*rows, strict=True)))
    over = len(sums) - LIMIT
    if over <= 0:
        return lowest, sums
    return lowest + over, [sum(sums[: over + 1]), *sums[over + 1 :]]


def _parsed(
    data: bytes,
) -> tuple[float, int, bytes | array[int], int, int, float, float, float]:
    """What `to_bytes` wrote: error, offset, counts, zeros, infinities, low, high, total.

    ValueError for anything else, and for numbers that no samples can give.
    """
    start = len(_MAGIC) + _HEAD.size
    if len(data) < start + _CRC.size or not data.startswith(_MAGIC):
        raise ValueError("not a sketch of this version")
    if _CRC.unpack_from(data, len(data) - _CRC.size)[0] != zlib.crc32(data[: -_CRC.size]):
        raise ValueError("a damaged sketch: the checksum differs")
    error, offset, size, width, zeros, infinities, low, high, total = _HEAD.unpack_from(
        data, len(_MAGIC)
    )
    if width not in _WIDTHS or size > LIMIT or len(data) != start + size * width + _CRC.size:
        raise ValueError("a damaged sketch: its length is not what its header says")
    counts: bytes | array[int] = data[start : -_CRC.size]
    if width > 1:
        counts = _little(array(_WIDTHS[width], counts))
        if width == 8 and sum(counts) > 2**62:
            raise ValueError("a damaged sketch: counts beyond any count of samples")
    lowest, highest = _bounds(error)
    if size and not (lowest <= offset and offset + size - 1 <= highest):
        raise ValueError("a damaged sketch: buckets beyond any number")
    empty = low == math.inf and high == -math.inf and total == 0.0
    filled = 0.0 <= low <= high < math.inf and total >= 0.0
    if not (filled if zeros or any(counts) else empty):
        raise ValueError("a damaged sketch: its counts and its extremes contradict")
    return error, offset, counts, zeros, infinities, low, high, total


@lru_cache(maxsize=16)
def _bounds(error: float) -> tuple[int, int]:
    """The first and the last index that a number can have."""
    sketch = DDSketch(error)
    return sketch._index(TINY), sketch._index(sys.float_info.max)  # noqa: SLF001 - of this module


def _little(counts: array[int]) -> array[int]:
    """The same bytes in little-endian order, whatever the machine's."""
    if sys.byteorder == "big":
        counts.byteswap()
    return counts


def merge_all(sketches: Iterable[DDSketch]) -> DDSketch:
    """Merge many sketches into a new one; an empty one of nothing."""
    merged: DDSketch | None = None
    for sketch in sketches:
        if merged is None:
            merged = DDSketch(sketch.relative_error)
        merged.merge(sketch)
    return merged if merged is not None else DDSketch()
