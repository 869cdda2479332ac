"""The answer to one request: framed by the door, never by the handler.

Every `send` is one write, its chunk framing included, because each write is one segment on the
wire. Names and values are checked for line ends, so nothing that a handler passes on can split an
answer in two.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from lightgate.wire.door.inbound import PLAIN, Header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lightgate.wire.link.link import Link

_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TRAILERS: Final = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)*")
_OURS: Final = frozenset((b"connection", b"content-length", b"keep-alive", b"transfer-encoding"))
_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %s\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
_COPIED: Final = (
    262_144  # bytes of a body that are put behind the head, for one write instead of two
)
_BODILESS: Final = frozenset((204, 304))
_UNSOUND: Final = "A header value holds a line end or a control character."
_WHOLE: Final = b"HTTP/1.1 200 OK\r\n%bdate: %b\r\ncontent-length: %d\r\n\r\n%b"


class DoorTerms(Protocol):
    """What a reply needs to know of the door."""

    closing: bool  # no further request will be read

    def date(self) -> bytes:
        """The value of the Date field."""
        ...


class ReplyConnection(Protocol):
    """What a reply needs of the connection that it goes out on."""

    writing_paused: bool

    @property
    def link(self) -> Link:
        """The connection itself."""
        ...

    @property
    def service(self) -> DoorTerms:
        """What all connections of the door share."""
        ...

    async def writable(self) -> None:
        """Wait until the client has taken most of the backlog."""

    def cut(self) -> None:
        """Close the socket in this turn of the loop."""

    def replied(self, reply: Reply) -> None:
        """The reply has just been finished."""

    def failed(self, reply: Reply, error: Exception | None) -> None:
        """The handler of this reply has a defect; None where it has been logged."""


class Reply:
    """The answer to one request; `start`, any number of `send`, `finish`, or `whole` at once.

    `on_lost`, where the handler has set it, is called once if the client leaves before the reply is
    finished; nothing that is sent afterwards has a reader.
    """

    __slots__ = (
        "_chunked",
        "_connection",
        "_left",
        "_minor",
        "_mute",
        "extra",
        "finished",
        "keep_alive",
        "on_lost",
        "started",
    )

    def __init__(
        self, connection: ReplyConnection, method: bytes, minor: int, *, keep_alive: bool
    ) -> None:
        self._connection = connection
        self._minor = minor
        self._mute = method == b"HEAD"  # the framing of an answer without its body
        self._chunked = False
        self._left = -1  # bytes of the declared length still to be sent; -1 where none was
        self.keep_alive = keep_alive  # set to False before `start` to close after this reply
        self.extra = b""  # whole field lines of the head, whatever the answer is
        self.started = False
        self.finished = False
        self.on_lost: Callable[[], object] | None = None

    @property
    def link(self) -> Link:
        """The connection itself, for those who must misbehave."""
        return self._connection.link

    @property
    def crowded(self) -> bool:
        """Whether the client reads more slowly than it is sent to; `drain` waits for it."""
        return self._connection.writing_paused

    def start(
        self,
        status: int,
        headers: Iterable[Header] | bytes,
        *,
        length: int | None = None,
        first: bytes = b"",
    ) -> None:
        """Send the head at once; without a length the body is chunked (HTTP/1.0: until close).

        `first` is a piece of the body that goes out in the same write. Headers as bytes are whole
        field lines, put together by a caller who has checked each value for line ends himself.
        """
        head = self._head(status, headers, length)
        self.link.write(head + self._framed(first) if first else head)

    def send(self, data: bytes) -> bool:
        """Send a piece of the body now, in one write; an empty one is nothing.

        Whether the client reads more slowly than it is sent to: `drain` waits for it.
        """
        if not self.started or self.finished:
            raise RuntimeError("A reply's body goes between its start and its finish.")
        connection = self._connection
        if self._chunked and data and not self._mute:  # what nearly every token is
            connection.link.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            framed = self._framed(data) if data else b""
            if framed:
                connection.link.write(framed)
        return connection.writing_paused

    async def drain(self) -> None:
        """Wait while the client reads more slowly than it is sent to."""
        if self._connection.writing_paused:
            await self._connection.writable()

    def finish(self, trailer: bytes = b"", *, last: bytes = b"") -> None:
        """End the body; `trailer` is whole field lines, and needs a chunked body.

        `last` is a piece of the body that goes out in the same write.
        """
        if not self.started or self.finished:
            raise RuntimeError("A reply is finished once, after its start.")
        if trailer and not (self._chunked and _TRAILERS.fullmatch(trailer)):
            raise ValueError("Trailers are field lines at the end of a chunked body.")
        end = self._framed(last) if last else b""
        if self._left > 0 and not self._mute:
            self.abort()
            raise RuntimeError("The body is shorter than the length that was declared.")
        self.finished = True
        if self._chunked and not self._mute:
            end += b"0\r\n%b\r\n" % trailer
        if end:
            self._connection.link.write(end)
        self.on_lost = None
        self._connection.replied(self)

    def whole(self, status: int, headers: Iterable[Header] | bytes, body: bytes) -> None:
        """Send a complete answer in one write; headers are as for `start`."""
        connection, size = self._connection, len(body)
        if (  # what nearly every answer is: lines of the handler's, a date and a length
            status == 200
            and type(headers) is bytes
            and self.keep_alive
            and self._minor == 1
            and size <= _COPIED
            and not (self._mute or self.extra or self.started or connection.service.closing)
        ):
            if len(headers.translate(None, PLAIN)) != 2 * headers.count(b"\r\n"):
                raise ValueError(_UNSOUND)
            self.started = self.finished = True
            connection.link.write(_WHOLE % (headers, connection.service.date(), size, body))
        else:
            head = self._head(status, headers, size)
            self.finished = True
            if self._mute:
                connection.link.write(head)
            elif size <= _COPIED:
                connection.link.write(head + body)
            else:
                connection.link.write(head)
                connection.link.write(body)
        self.on_lost = None
        connection.replied(self)

    def abort(self) -> None:
        """Close the socket in this turn of the loop."""
        self.started = self.finished = True
        self.on_lost = None
        self._connection.cut()
        self._connection.replied(self)

    def lose(self) -> None:
        """Note that the client has left, and tell the handler."""
        on_lost, self.on_lost = self.on_lost, None
        self.keep_alive = False
        if on_lost is not None:
            on_lost()

    def fail(self, error: Exception | None) -> None:
        """End the reply because of a defect of the handler that shows only now."""
        self._connection.failed(self, error)

    def _framed(self, data: bytes) -> bytes:
        if self._left >= 0:
            if len(data) > self._left:
                raise ValueError("The body is longer than the length that was declared.")
            self._left -= len(data)
        if self._mute:
            return b""
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _head(self, status: int, headers: Iterable[Header] | bytes, length: int | None) -> bytes:
        if self.started:
            raise RuntimeError("A reply starts once.")
        if not 200 <= status <= 999:
            raise ValueError(f"{status} is not the status of a final answer.")
        if status in _BODILESS and length:
            raise ValueError(f"An answer of status {status} has no body.")
        parts = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        lines = 0
        if isinstance(headers, bytes):
            parts.append(headers)
            lines = headers.count(b"\r\n") - 1
            dated = False
        else:
            dated = self._fields(headers, parts)
        if not dated:
            parts.append(b"date: %b\r\n" % self._connection.service.date())
        if self.extra:
            parts.append(self.extra)
            lines += self.extra.count(b"\r\n") - 1
        self._frame(status, length, parts)
        head = b"".join(parts)
        _check_lines(head, len(parts) + lines)
        self.started = True
        self._mute = self._mute or status in _BODILESS
        return head + b"\r\n"

    def _fields(self, headers: Iterable[Header], parts: list[bytes]) -> bool:
        """Write the fields down; whether a date is among them."""
        dated = False
        for name, value in headers:
            lower = name.lower()
            if _TOKEN.fullmatch(name) is None or lower in _OURS:
                raise ValueError(f"{name!r} is no header name that a handler may set.")
            dated = dated or lower == b"date"
            parts.append(b"%b: %b\r\n" % (name, value))
        return dated

    def _frame(self, status: int, length: int | None, parts: list[bytes]) -> None:
        if length is not None:
            self._left = length
            if status != 204:  # RFC 9110, 8.6
                parts.append(b"content-length: %d\r\n" % length)
        elif status not in _BODILESS:
            self._chunked = self._minor == 1
            if self._chunked:
                parts.append(b"transfer-encoding: chunked\r\n")
            else:
                self.keep_alive = False  # the close is what ends the body
        if self._connection.service.closing:
            self.keep_alive = False
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        elif self._minor == 0:
            parts.append(b"connection: keep-alive\r\n")


def _check_lines(lines: bytes, count: int) -> None:
    """See that lines have no other line end or control character than their own `count` ends."""
    if len(lines.translate(None, PLAIN)) != 2 * count:
        raise ValueError(_UNSOUND)
