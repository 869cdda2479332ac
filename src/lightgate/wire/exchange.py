"""One request and its answer on one connection: parsing, deadlines, completion."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import httptools

from lightgate.errors import (
    AttemptError,
    Cancelled,
    DeadlineMissed,
    Malformed,
    PeerReset,
    TooLarge,
)

if TYPE_CHECKING:
    from lightgate.wire.link import Link
    from lightgate.wire.origin import Origin

HEAD_LIMIT: Final = 64 * 1024
Headers = list[tuple[bytes, bytes]]  # names in lower case


class Deadlines(NamedTuple):
    """Seconds; None waits for ever."""

    connect_s: float | None = 10.0
    first_byte_s: float | None = 120.0  # from the sent request to the first byte of the answer
    idle_s: float | None = 60.0  # the longest silence inside an answer
    total_s: float | None = 600.0


class Taker(Protocol):
    """Who takes an answer as it comes. An AttemptError that it raises ends the exchange."""

    def on_open(self, exchange: Exchange) -> None:
        """The request is about to be sent; `exchange.cancel()` closes the socket at once."""

    def on_sent(self, stamp: int) -> None:
        """The first byte of the request is about to be written; pool wait is over."""

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        """The status line and the headers came."""

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        """All body bytes of one read."""

    def on_end(self, stamp: int) -> None:
        """The answer is complete by its own framing."""


class Exchange:
    """The state of one exchange; `done` is its end."""

    __slots__ = (
        "_bodies",
        "_deadlines",
        "_error",
        "_head_bytes",
        "_headers",
        "_link",
        "_loop",
        "_origin",
        "_parser",
        "_stamp",
        "_started",
        "_status",
        "_taker",
        "_timer",
        "_touched",
        "bytes_in",
        "complete",
        "done",
        "framed",
        "keep_alive",
        "sent_ns",
    )

    def __init__(self, link: Link, origin: Origin, taker: Taker, deadlines: Deadlines) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = link
        self._origin = origin
        self._taker = taker
        self._deadlines = deadlines
        self._parser = httptools.HttpResponseParser(self)
        self._headers: Headers = []
        self._bodies: list[bytes] = []
        self._head_bytes = 0
        self._status = 0  # of the final answer; 0 until its headers are complete
        self._stamp = 0
        self._error: AttemptError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._started = self._touched = self.sent_ns = 0
        self.bytes_in = 0
        self.complete = False
        self.framed = False  # the answer says where it ends
        self.keep_alive = False
        self.done: asyncio.Future[None] = self._loop.create_future()

    def start(self, payload: bytes, began_ns: int) -> None:
        """Send the request; `began_ns` is when the caller's total deadline began."""
        self._started = began_ns
        self._taker.on_open(self)
        if self.done.done():
            return
        self.sent_ns = self._touched = time.monotonic_ns()
        self._taker.on_sent(self.sent_ns)
        self._arm()
        self._link.write(payload)

    def cancel(self) -> None:
        """Close the socket in this turn of the loop and end the exchange as cancelled."""
        if not self.done.done():
            self._fail(Cancelled("The call was cancelled."))

    def pause(self) -> None:
        """Stop reading: the caller's own client is slow."""
        self._link.pause_reading()

    def resume(self) -> None:
        """Go on reading."""
        self._touched = time.monotonic_ns()
        self._link.resume_reading()

    # From the connection

    def read(self, data: bytes, stamp: int, since: int) -> None:
        """Bytes came: parse, hand on, complete."""
        self._stamp = stamp
        self._touched = time.monotonic_ns()
        self.bytes_in += len(data)
        if not self._status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error = self._error or _malformed(self._origin, data, self._status, error)
        if not self._status and self._head_bytes > HEAD_LIMIT:
            self._error = self._error or TooLarge(
                f"{self._origin.authority} sent more than {HEAD_LIMIT} bytes of headers."
            )
        if self._bodies and not self.done.done():
            body = self._bodies[0] if len(self._bodies) == 1 else b"".join(self._bodies)
            self._bodies.clear()
            try:
                self._taker.on_body(body, stamp, since)
            except AttemptError as error:
                self._error = self._error or error
        if self._error is not None:
            self._fail(self._error)
        elif self.complete:
            self._finish(stamp)

    def eof(self, error: Exception | None) -> None:
        """The other side closed, cleanly or not."""
        if self.done.done():
            return
        if self._status and not self.framed and error is None:
            self.complete = True  # such an answer ends with its connection
            self._finish(time.monotonic_ns())
            return
        early = self.bytes_in == 0
        what = "before the answer began" if early else "in the middle of the answer"
        how = "reset" if error is not None else "closed"
        self._fail(PeerReset(f"{self._origin.authority} {how} the connection {what}.", early=early))

    # From the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """All headers: the final ones, or those of an interim answer."""
        status = int(self._parser.get_status_code())
        if status < 200:
            self._headers = []
            return
        names = {name for name, _ in self._headers}
        self.framed = (
            b"content-length" in names or b"transfer-encoding" in names or status in {204, 304}
        )
        self._status = status
        encoding = next((v for n, v in self._headers if n == b"content-encoding"), b"identity")
        if encoding.lower() != b"identity":
            self._error = Malformed(
                f"{self._origin.authority} compressed its answer although identity was asked for."
            )
            return
        try:
            self._taker.on_head(status, self._headers, self._stamp)
        except AttemptError as error:
            self._error = error

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if not self.complete:
            self._bodies.append(body)

    def on_message_complete(self) -> None:
        """An answer is whole."""
        if self._status:
            self.keep_alive = bool(self._parser.should_keep_alive()) and not self.complete
            self.complete = True

    def on_message_begin(self) -> None:
        """A second answer to one request means that the two sides disagree about framing."""
        if self.complete:
            self.keep_alive = False

    # Deadlines

    def _arm(self) -> None:
        due = self._due()
        if due is not None:
            wait = max(0.0, (due[0] - time.monotonic_ns()) / 1e9)
            self._timer = self._loop.call_later(wait, self._check)

    def _due(self) -> tuple[int, str] | None:
        limits = self._deadlines
        times: list[tuple[int, str]] = []
        if limits.total_s is not None:
            times.append((self._started + int(limits.total_s * 1e9), "total"))
        if self.bytes_in == 0 and limits.first_byte_s is not None:
            times.append((self.sent_ns + int(limits.first_byte_s * 1e9), "first_byte"))
        if self.bytes_in and limits.idle_s is not None:
            times.append((self._touched + int(limits.idle_s * 1e9), "idle"))
        return min(times) if times else None

    def _check(self) -> None:
        due = self._due()
        if due is not None and due[0] <= time.monotonic_ns() + 1_000_000:
            what = {
                "total": "did not finish in time",
                "first_byte": "sent nothing in time",
                "idle": "fell silent in the middle of the answer",
            }[due[1]]
            self._fail(DeadlineMissed(f"{self._origin.authority} {what}.", phase=due[1]))
        else:
            self._arm()

    def _finish(self, stamp: int) -> None:
        self._stop_timer()
        if self.done.done():
            return
        try:
            self._taker.on_end(stamp)
        except AttemptError as error:
            self._fail(error)
            return
        if not self.done.done():
            self.done.set_result(None)

    def _fail(self, error: AttemptError) -> None:
        self._stop_timer()
        self.keep_alive = False
        self._link.abort()
        if not self.done.done():
            self.done.set_exception(error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _malformed(
    origin: Origin, data: bytes, status: int, error: httptools.HttpParserError
) -> Malformed:
    if not status and not data.startswith(b"HTTP/"):
        return Malformed(
            f"{origin.authority} does not speak HTTP/1.1.", hint="Check the port and the scheme."
        )
    reason = str(error).splitlines()[0][:120] if str(error) else error.__class__.__name__
    return Malformed(f"{origin.authority} broke the HTTP framing: {reason}.")
