"""Requests, put together out of reads; nothing beyond the limits is ever held."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final

from lightgate.wire.door.chunked import ChunkedBody
from lightgate.wire.door.inbound import (
    LENGTH_DIGITS,
    PLAIN,
    Repeat,
    RequestError,
    RequestHead,
    repeat_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.wire.door.inbound import BodySink, DoorLimits

    # Where the body of a request goes that does not come with its head; None: into memory.
    SinkOf = Callable[[RequestHead], BodySink | None]

IDLE: Final = 0  # nothing of a request has come
HEAD: Final = 1  # its head is unfinished
BODY: Final = 2  # its body is unfinished


class Intake:
    """One request at a time: `take` reads until it returns what came after the request."""

    __slots__ = (
        "_buffer",
        "_chunks",
        "_left",
        "_limits",
        "_part",
        "_repeat",
        "_scanned",
        "_sink_of",
        "body",
        "first_ns",
        "head",
        "phase",
        "sink",
    )

    head: RequestHead  # of the request that came last; unset until the first one
    first_ns: int  # stamp of the read that held the request's first byte; unset until then
    _left: int  # bytes that an unfinished body of known length still needs; unset without one

    def __init__(self, limits: DoorLimits, sink_of: SinkOf | None = None) -> None:
        self._limits = limits
        self._sink_of = sink_of
        self._buffer = b""  # an unfinished head
        self._scanned = 0  # bytes of it known to be sound
        # An unfinished body of known length. Its memory is taken as it comes and never copied:
        # to join 32 MiB of reads at their end would hold the loop for 20 ms.
        self._part: BytesIO | BodySink | None = None
        self._chunks: ChunkedBody | None = None
        self._repeat: Repeat | None = None
        self.phase = IDLE
        self.body = b""  # of the request that came last
        self.sink: BodySink | None = None  # where an unfinished body goes instead

    @property
    def awaits_go(self) -> bool:
        """Whether the client holds a body back until it is told to go on."""
        return (
            self.phase == BODY
            and self.head.expects
            and self._part is None
            and (self._chunks is None or self._chunks.untouched)
        )

    @property
    def is_head_method(self) -> bool:
        """Whether a refusal must come without a body."""
        if self.phase == BODY:
            return self.head.method == b"HEAD"
        return self._buffer.startswith(b"HEAD ")

    def take(self, data: bytes, stamp: int) -> bytes | None:
        """Take a read; None while the request is incomplete, else the bytes after it."""
        if self.phase == IDLE:
            self.first_ns = stamp
            repeat = self._repeat
            if repeat is not None and data.startswith(repeat.before):
                rest = self._take_again(data, repeat)
                if rest is not None:
                    return rest
            return self._take_head(data)
        if self.phase == BODY:
            return self._take_body(data)
        return self._take_head(self._buffer + data)

    def _take_head(self, data: bytes) -> bytes | None:
        """Take all that has come of a request up to now; None while its head is incomplete."""
        # One empty line before a request is tolerated (RFC 9112, 2.2).
        start = 2 if data.startswith(b"\r\n") else 0
        found = data.find(b"\r\n\r\n", max(self._scanned - 3, start))
        end = len(data) if found == -1 else found + 4
        self._buffer = data
        if end > self._limits.head_bytes:
            raise RequestError(431, f"The head is larger than {self._limits.head_bytes} bytes.")
        if found == -1:
            self._check_part(data)
            return None
        raw = data[start:end]
        length, repeat = -1, self._repeat
        if repeat is not None:
            before, after = repeat
            digits = raw[len(before) : len(raw) - len(after)]
            if len(digits) <= LENGTH_DIGITS and digits.isdigit() and raw == before + digits + after:
                length = int(digits)
        if length == -1:
            self.head = head = RequestHead(raw, self._limits)
            self._repeat = repeat_of(raw, head)
            length = head.length
        self._buffer = b""
        self._scanned = 0
        if not self.head.chunked and length <= self._limits.body_bytes:
            past = end + length
            if past <= len(data):  # all of it is here, as nearly always
                self.phase = IDLE
                self.body = data[end:past]
                return data[past:]
        return self._begin_body(self.head, length, data[end:])

    def _take_again(self, data: bytes, repeat: Repeat) -> bytes | None:
        """Take a whole request whose head is the last one's, but for the number of its length.

        None where there is more to look at: nothing has been taken then.
        """
        before, after = repeat
        at = len(before)
        stop = data.find(b"\r", at, at + LENGTH_DIGITS + 1)
        digits = data[at:stop]
        if not digits.isdigit() or not data.startswith(after, stop):  # not with a stop of -1 either
            return None
        limits, length, end = self._limits, int(digits), stop + len(after)
        past = end + length
        if end > limits.head_bytes or length > limits.body_bytes or past > len(data):
            return None
        self.body = data[end:past]
        return data[past:]

    def drop(self) -> None:
        """Let go of what is unfinished."""
        self._buffer = b""
        self._part = self._chunks = None
        sink, self.sink = self.sink, None
        if sink is not None:
            sink.drop()

    def _check_part(self, data: bytes) -> None:
        """What can never become a head is refused before it is complete."""
        self.phase = HEAD
        part = data[self._scanned :].removesuffix(b"\r")
        if len(part.translate(None, PLAIN)) != 2 * part.count(b"\r\n"):
            raise RequestError(400, "A control character or a bare line end is in the head.")
        self._scanned += len(part)

    def _begin_body(self, head: RequestHead, length: int, rest: bytes) -> bytes | None:
        limit = self._limits.body_bytes
        sink = self.sink = None if self._sink_of is None else self._sink_of(head)
        if sink is not None:
            limit, head.notes.sink = sink.limit, sink
            self._repeat = None  # the notes are this request's alone
        hint = "" if sink is not None else self._limits.body_hint
        if head.chunked:
            self._chunks = ChunkedBody(limit, hint, sink)
        elif length > limit:
            raise RequestError(413, f"The body is larger than {limit} bytes.{hint}")
        self.phase = BODY
        self._left = length
        return self._take_body(rest) if rest else None

    def _take_body(self, data: bytes) -> bytes | None:
        chunks, left = self._chunks, self._left
        if chunks is not None:
            rest = chunks.feed(data)
            if rest is not None:
                self.phase = IDLE
                self.body = chunks.body
                self._chunks = self.sink = None
            return rest
        if self._part is None:
            self._part = self.sink or BytesIO()
        self._left = left - self._part.write(data[:left])
        if self._left:
            return None
        self.phase = IDLE
        self.body = self._part.getvalue() if isinstance(self._part, BytesIO) else b""
        self._part = self.sink = None
        return data[left:]
