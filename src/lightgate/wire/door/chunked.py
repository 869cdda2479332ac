"""A chunked request body, decoded while it comes and never held beyond its limit.

Stricter than llhttp: no white space around a size, sizes of eight digits at most, extensions and
trailers bounded; both are checked and dropped, since nothing here acts on them.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING, Final

from lightgate.wire.door.inbound import RequestError

if TYPE_CHECKING:
    from lightgate.wire.door.inbound import BodySink

LINE_BYTES: Final = 256  # one size line with its extension
EXTRA_BYTES: Final = 8192  # all extensions and trailers of one body together
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;([\t -~\x80-\xff]*))?")
_TRAILER: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*")
_LINE, _DATA, _AFTER, _TRAILERS = range(4)


class ChunkedBody:
    """The body so far; `feed` takes reads until it returns the bytes after the end."""

    __slots__ = ("_body", "_extra", "_held", "_hint", "_left", "_limit", "_state")
    _left: int  # bytes of the current chunk still to come

    def __init__(self, limit: int, hint: str, sink: BodySink | None = None) -> None:
        self._limit = limit
        self._hint = hint  # what to do about a body that is too large
        # The memory of the one is not copied at the end, the other is no memory.
        self._body: BytesIO | BodySink = BytesIO() if sink is None else sink
        self._held = b""  # an unfinished line
        self._extra = 0
        self._state = _LINE

    @property
    def body(self) -> bytes:
        """Everything decoded so far; nothing where it went to a sink."""
        return self._body.getvalue() if isinstance(self._body, BytesIO) else b""

    @property
    def untouched(self) -> bool:
        """Whether nothing has come yet."""
        return self._state == _LINE and not self._held and not self._body.tell()

    def feed(self, data: bytes) -> bytes | None:
        """Take a read; None while the body goes on, else the bytes after it."""
        if self._held:
            data = self._held + data
            self._held = b""
        at, size = 0, len(data)
        while True:
            if self._state == _DATA:
                piece = data[at : at + self._left]
                self._body.write(piece)
                self._left -= len(piece)
                at += len(piece)
                if self._left:
                    return None
                self._state = _AFTER
            end = data.find(b"\r\n", at)
            if end < 0:
                self._hold(data[at:])
                return None
            line = data[at:end]
            at = end + 2
            if self._take(line):
                return data[at:size]

    def _hold(self, rest: bytes) -> None:
        if self._state == _AFTER:
            sound = rest in {b"", b"\r"}
        else:
            sound = len(rest) <= LINE_BYTES + 1 and b"\n" not in rest
        if not sound:
            raise RequestError(400, "A chunk of the body is malformed.")
        self._held = rest

    def _take(self, line: bytes) -> bool:
        """Take one line without its end; whether the body is complete."""
        if self._state == _AFTER:
            if line:
                raise RequestError(400, "A chunk is longer than its size.")
            self._state = _LINE
            return False
        if len(line) > LINE_BYTES:
            raise RequestError(400, "A line of the body's framing is too long.")
        if self._state == _TRAILERS:
            return self._trailer(line)
        match = _SIZE.fullmatch(line)
        if match is None:
            raise RequestError(400, "The size of a chunk is malformed.")
        self._spend(len(match[2] or b""))
        self._left = int(match[1], 16)
        if self._left > self._limit - self._body.tell():
            raise RequestError(413, f"The body is larger than {self._limit} bytes.{self._hint}")
        self._state = _DATA if self._left else _TRAILERS
        return False

    def _trailer(self, line: bytes) -> bool:
        if not line:
            return True
        if _TRAILER.fullmatch(line) is None:
            raise RequestError(400, "A trailer field is malformed.")
        self._spend(len(line))
        return False

    def _spend(self, extra: int) -> None:
        self._extra += extra
        if self._extra > EXTRA_BYTES:
            raise RequestError(400, "The body's framing is out of proportion.")
