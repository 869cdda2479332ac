"""Frames between a worker and the process beside it: a pickled value, then bytes as they are.

A frame is a count, so many lengths, and so many segments. The first segment is the value; the
others are bodies, which are copied once on their way and never pickled.
"""

from __future__ import annotations

import pickle
import struct
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_COUNT: Final = struct.Struct("<I")
_LENGTH: Final = struct.Struct("<Q")
SLICE: Final = 1 << 20  # bytes that are written in one turn of a loop: a reader on another core can
# take a body of 32 MiB as fast as it is written, and one write would last for all of it

Segments = list[bytes]


def pieces(value: object, bodies: Sequence[bytes]) -> Iterator[bytes]:
    """The pieces of one frame, to be written one after the other."""
    first = pickle.dumps(value, protocol=5)
    segments = (first, *bodies)
    lengths = b"".join([_LENGTH.pack(len(segment)) for segment in segments])
    yield _COUNT.pack(len(segments)) + lengths
    yield from segments


def sliced(pieces: Iterable[bytes]) -> Iterator[memoryview]:
    """Cut pieces into slices that a loop can write in one turn."""
    for piece in pieces:
        whole = memoryview(piece)
        for start in range(0, len(whole), SLICE):
            yield whole[start : start + SLICE]


def value_of(segments: Segments) -> Any:
    """The value of a frame that has come whole."""
    return pickle.loads(segments[0])  # noqa: S301 - written by our own process


class FrameReader:
    """Puts frames together out of reads, and hands each on when it is whole."""

    def __init__(self, take: Callable[[Segments], None]) -> None:
        self._take = take
        self._part = BytesIO()  # whose memory is not copied at the end
        self._need = _COUNT.size
        self._lengths: list[int] | None = None  # None: the count is to come; empty: the lengths
        self._done: Segments = []

    def feed(self, data: bytes) -> None:
        """Take one read."""
        while len(data) >= self._need:
            self._part.write(data[: self._need])
            data = data[self._need :]
            whole = self._part.getvalue()
            self._part = BytesIO()
            self._step(whole)
        if data:
            self._need -= self._part.write(data)

    def _step(self, whole: bytes) -> None:
        """Take what was waited for, and say what comes next."""
        if self._lengths is None:
            self._lengths = []
            self._need = _LENGTH.size * _COUNT.unpack(whole)[0]
            return
        if not self._lengths:
            self._lengths = [one[0] for one in _LENGTH.iter_unpack(whole)]
        else:
            self._done.append(whole)
        if len(self._done) < len(self._lengths):
            self._need = self._lengths[len(self._done)]
            return
        segments, self._done, self._lengths = self._done, [], None
        self._need = _COUNT.size
        self._take(segments)
