"""Answers that came compressed although none was asked for: a proxy on the way does that.

What one read holds keeps the stamp of the read. Compressed bytes can stand for a thousand times as
many: there is a limit to that, and to what is given out in one turn of the loop.
"""

from __future__ import annotations

import zlib
from typing import ClassVar, Final

from lightgate.errors import Malformed, TooLarge

_PLAIN: Final = frozenset((b"", b"identity"))
_GZIP: Final = 16 + zlib.MAX_WBITS
_WINDOWS: Final = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": zlib.MAX_WBITS}
# Registered codings that are named in an error; another word may be anything, a key among it.
_NAMED: Final = frozenset((b"br", b"zstd", b"compress", b"x-compress", b"dcb", b"dcz", b"exi"))
_FREE: Final = 1024 * 1024  # bytes that need no look at how many stand behind each
_MOST_EACH: Final = 100  # bytes for each compressed one; events and JSON come to 5 to 40
PIECE: Final = 65536  # bytes that are given out at once, as of an answer that is not compressed
_STEPS: Final = 256  # ... and the bodies, one after the other, that are opened for them


class Inflater:
    """The decompression of one answer; `read` is a piece of what has come of it.

    `more`: there is another piece, to be had by a `read` of nothing.
    """

    __slots__ = ("_coding", "_given", "_left", "_taken", "_where", "_zlib", "more")

    def __init__(self, coding: bytes, where: str) -> None:
        self._coding = coding
        self._where = where
        self._zlib = zlib.decompressobj(_WINDOWS[coding])
        self._taken = self._given = 0  # bytes, compressed and not
        self._left = b""  # compressed, not looked at yet
        self.more = False

    def read(self, data: bytes) -> bytes:
        """Take the bytes of one read and decompress a piece; Malformed and TooLarge say why not."""
        first = not self._taken
        self._taken += len(data)
        try:
            return self._read(data)
        except zlib.error:
            if not first or self._coding != b"deflate":
                raise Malformed(f"{self._where} sent a body that is not {self._name}.") from None
        # What many servers call deflate has no zlib header.
        self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            return self._read(data)
        except zlib.error:
            raise Malformed(f"{self._where} sent a body that is not {self._name}.") from None

    def end(self) -> None:
        """Note the end of the answer; Malformed where more was to come."""
        if self._taken and not self._zlib.eof:
            raise Malformed(f"{self._where} cut its compressed answer off.")

    def _read(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        data, size = self._left + data, 0
        for _ in range(_STEPS):
            if self._zlib.eof and data:  # a compressed body may be several, one after the other
                self._zlib = zlib.decompressobj(_WINDOWS[self._coding])
            room = max(_FREE, self._taken * _MOST_EACH) - self._given
            parts.append(self._zlib.decompress(data, min(room + 1, PIECE - size)))
            self._given += len(parts[-1])
            if len(parts[-1]) > room:
                raise TooLarge(
                    f"{self._where}: the answer is more than {_MOST_EACH} times as large as what"
                    " was sent of it."
                )
            size += len(parts[-1])
            data = self._zlib.unconsumed_tail or self._zlib.unused_data
            if size == PIECE or not data:
                break
        self._left = data
        self.more = size == PIECE or bool(data)
        return b"".join(parts)

    @property
    def _name(self) -> str:
        return self._coding.decode("ascii")


class Unread:
    """The body of an error answer in a coding that cannot be read: its status says enough."""

    __slots__ = ()
    more: ClassVar = False

    def read(self, data: bytes) -> bytes:  # noqa: ARG002 - an inflater's
        """Drop the bytes of one read."""
        return b""

    def end(self) -> None:
        """Note the end of the answer."""


def inflater_for(coding: bytes, status: int, where: str) -> Inflater | Unread | None:
    """What reads a content coding, None for a plain answer; Malformed where nothing can."""
    if coding in _PLAIN:
        return None
    if coding in _WINDOWS:
        return Inflater(coding, where)
    if status != 200:
        return Unread()
    name = f"as {coding.decode('ascii')!r}" if coding in _NAMED else "in an unknown way"
    raise Malformed(
        f"{where} compressed its answer {name}, which nobody asked for and cannot be read."
    )
