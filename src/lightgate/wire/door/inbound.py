"""A request as it comes in: its head is read strictly, or refused.

llhttp parses; a head that llhttp lets pass and another server on the path might read differently (a
second space, versions of other protocols, codings before `chunked`, two hosts) is refused here. RFC
9112 is the measure; where it leaves a choice, the door closes the connection.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import httptools
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

Header = tuple[bytes, bytes]

# Every byte of a head that is neither a control character nor part of a line end. A sound head
# without these bytes is its line ends alone, so one comparison finds any other character.
PLAIN: Final = bytes(code for code in range(256) if code == 9 or (code >= 32 and code != 127))
_START: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/([0-9])\.([0-9])\r\n")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE)
_LENGTH_FIELD: Final = re.compile(
    rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n", re.IGNORECASE
)
LENGTH_DIGITS: Final = 15
_WATCHED: Final = frozenset(
    (
        b"connection",
        b"content-encoding",
        b"content-length",
        b"expect",
        b"host",
        b"transfer-encoding",
    )
)


class DoorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one connection: deadlines in seconds, sizes in bytes."""

    idle_s: float = 75.0  # without a byte, before the first request or between two
    head_s: float = 10.0  # from a request's first byte to the end of its head
    body_s: float = 60.0  # from the end of the head to the end of the body
    write_s: float = 30.0  # with the send buffer full and the client not taking an eighth of it
    linger_s: float = 2.0  # for the client to read a refusal before the socket goes
    head_bytes: int = 32 * 1024
    headers: int = 100
    body_bytes: int = 10 * 1024 * 1024
    body_hint: str = ""  # for whom a body is too large: what to do
    queue_bytes: int = 64 * 1024  # pipelined behind a running request, before reading pauses


class RequestError(Exception):
    """A request that is refused; after it the connection closes, its framing cannot be trusted."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class BodySink(Protocol):
    """Takes a body that is too large for memory, as it comes; made before a key was looked at."""

    limit: int  # bytes

    def write(self, data: bytes, /) -> int:
        """Take bytes of the body; all of them."""
        ...

    def tell(self) -> int:
        """The bytes that have come."""
        ...

    def attach(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Name what stops the client's bytes, and what lets them come again."""

    def drop(self) -> None:
        """Forget what has come: the rest will not."""


class Notes:
    """The handler's reading of a head, kept for requests that repeat the head on its connection.

    `sink` is where the body of this one request went, if the handler gave it a place.
    """

    __slots__ = ("read", "sink")

    def __init__(self) -> None:
        self.read: object = None
        self.sink: BodySink | None = None


class Inbound(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One complete request.

    The three stamps are nanoseconds of the monotonic clock, taken by the link: when the connection
    was accepted, when the first byte of this request came, and when the last byte of it came.
    """

    method: bytes
    target: bytes  # raw path?query, also where the client sent a whole URL
    headers: tuple[Header, ...]  # names in lower case; the length is that of `body`
    body: bytes
    peer: str  # address:port
    accepted_ns: int
    first_byte_ns: int
    received_ns: int
    notes: Notes = msgspec.field(default_factory=Notes)

    def header(self, name: bytes) -> bytes | None:
        """The first value under a lower-case name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None


class RequestHead:
    """The head of a request, and what it says about what follows it."""

    __slots__ = (
        "_fields",
        "_twice",
        "_watched",
        "chunked",
        "expects",
        "headers",
        "keep_alive",
        "length",
        "method",
        "minor",
        "notes",
        "target",
    )

    def __init__(self, raw: bytes, limits: DoorLimits) -> None:
        self._fields: list[Header] = []
        self._watched: dict[bytes, bytes] = {}
        self._twice = b""
        lines = raw.count(b"\r\n")
        if len(raw.translate(None, PLAIN)) != 2 * lines:
            raise RequestError(400, "A control character or a bare line end is in the head.")
        if lines - 2 > limits.headers:
            raise RequestError(431, f"More than {limits.headers} header fields.")
        self._read_start(raw)
        try:
            httptools.HttpRequestParser(self).feed_data(raw)
        except httptools.HttpParserUpgrade:
            pass  # an offer to change protocols may be ignored (RFC 9110, 7.8)
        except httptools.HttpParserInvalidMethodError:
            raise RequestError(501, "The method is unknown.") from None
        except httptools.HttpParserError:
            raise RequestError(400, "The head of the request is malformed.") from None
        self.headers = tuple(self._fields)
        self.notes = Notes()
        if self._twice:
            raise RequestError(400, f"More than one {self._twice.decode()} field.")
        self._read_framing()
        self._read_target()
        if b"content-encoding" in self._watched:
            raise RequestError(415, "Request bodies must not be compressed.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one field from llhttp, which leaves white space after the value in place."""
        name = name.lower()
        value = value.rstrip(b" \t")
        if name != b"content-length":  # it differs where all else repeats
            self._fields.append((name, value))
        if name in _WATCHED:
            watched = self._watched
            if name not in watched:
                watched[name] = value
            elif name == b"connection":
                watched[name] += b"," + value
            else:
                self._twice = name

    def _read_start(self, raw: bytes) -> None:
        start = _START.match(raw)
        if start is None:
            raise RequestError(400, "The request line is malformed.")
        self.method, self.target, major, minor = start.groups()
        if major != b"1" or minor not in b"01":
            raise RequestError(505, "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
        self.minor = minor[0] - 48
        if self.method == b"CONNECT":
            raise RequestError(501, "This is not a proxy.")

    def _read_framing(self) -> None:
        watched = self._watched
        self.length = 0
        self.chunked = False
        length, coding = watched.get(b"content-length"), watched.get(b"transfer-encoding")
        if coding is not None:
            if length is not None:
                raise RequestError(400, "Content-Length and Transfer-Encoding exclude each other.")
            if coding.lower() != b"chunked" or self.minor == 0:
                raise RequestError(400, "The only transfer coding is chunked, on HTTP/1.1.")
            self.chunked = True
        elif length is not None:
            if _LENGTH.fullmatch(length) is None:
                raise RequestError(400, "Content-Length is not a number.")
            self.length = int(length)
        tokens = watched.get(b"connection")
        if tokens is None:
            self.keep_alive = self.minor == 1
        else:
            named = {token.strip(b" \t") for token in tokens.lower().split(b",")}
            self.keep_alive = b"close" not in named and (self.minor == 1 or b"keep-alive" in named)
        expectation = watched.get(b"expect") if self.minor == 1 else None
        self.expects = expectation is not None
        if expectation is not None and expectation.lower() != b"100-continue":
            raise RequestError(417, "The only expectation that is met is 100-continue.")

    def _read_target(self) -> None:
        host = self._watched.get(b"host")
        if host is None:
            if self.minor == 1:
                raise RequestError(400, "HTTP/1.1 needs a Host field.")
        elif _HOST.fullmatch(host) is None:
            raise RequestError(400, "The Host field is malformed.")
        target = self.target
        if b"#" in target:
            raise RequestError(400, "A request target has no fragment.")
        if target.startswith(b"/") or (target == b"*" and self.method == b"OPTIONS"):
            return
        whole = _ABSOLUTE.fullmatch(target)
        if whole is None:
            raise RequestError(400, "The request target is malformed.")
        authority, path = whole.groups()
        if _HOST.fullmatch(authority) is None:
            raise RequestError(400, "The request target is malformed.")
        if host is not None and authority.lower() != host.lower():
            raise RequestError(400, "The request target and the Host field disagree.")
        self.target = path if path.startswith(b"/") else b"/" + path


class Repeat(NamedTuple):
    """A head that was read, without the digits of its length.

    A client that keeps its connection sends the same fields with every request. Reading them once
    is enough: a head that repeats them differs in a number of digits at a known place.
    """

    before: bytes
    after: bytes


def repeat_of(raw: bytes, head: RequestHead) -> Repeat | None:
    """The pattern for the next head; None where this one declares no length in the usual way."""
    found = None if head.chunked or head.expects else _LENGTH_FIELD.search(raw)
    if found is None:
        return None
    return Repeat(raw[: found.start(1)], raw[found.end(1) :])
