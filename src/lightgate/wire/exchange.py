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
from lightgate.wire.tls import said_goodbye

if TYPE_CHECKING:
    from lightgate.wire.link import Link
    from lightgate.wire.origin import Origin

HEAD_LIMIT: Final = 64 * 1024  # also for what stands between two pieces of a body, and trailers
Headers = list[tuple[bytes, bytes]]  # names in lower case


class Deadlines(NamedTuple):
    """Seconds; None waits for ever."""

    connect_s: float | None = 10.0
    first_byte_s: float | None = 120.0  # from the sent request to the first byte of the answer
    idle_s: float | None = 60.0  # the longest silence inside an answer
    total_s: float | None = 600.0


class Taker(Protocol):
    """Who takes an answer as it comes.

    An AttemptError that it raises ends the exchange. So does any other exception, which is a
    defect: the caller gets it as it is, and the loop's own handler hears of it too.
    """

    def on_open(self, exchange: Exchange) -> None:
        """The request is about to be sent; `exchange.cancel()` closes the socket at once."""

    def on_sent(self, stamp: int) -> None:
        """The first byte of the request is about to be written; pool wait is over."""

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        """The status line and the headers came; the list is the taker's to keep."""

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        """All body bytes of one read."""

    def on_end(self, stamp: int) -> None:
        """The answer is complete by its own framing."""


class Exchange:
    """The state of one exchange; `done` is its end."""

    __slots__ = (
        "_bare",
        "_bodies",
        "_deadlines",
        "_error",
        "_headers",
        "_link",
        "_loop",
        "_origin",
        "_parser",
        "_paused",
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
        self._bare = 0  # bytes since the last piece of a body: heads, chunk sizes, trailers
        self._status = 0  # of the final answer; 0 until its headers are complete
        self._error: AttemptError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False
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
        if not self._link.is_open:  # it broke while nobody watched it
            self.eof(None)
            return
        self.sent_ns = self._touched = time.monotonic_ns()
        self._taker.on_sent(self.sent_ns)
        self._link.write(payload)  # right after the stamp; the timer can wait
        if not self.done.done():
            self._arm()

    def cancel(self) -> None:
        """Close the socket in this turn of the loop and end the exchange as cancelled."""
        if not self.done.done():
            self._fail(Cancelled("The call was cancelled."))

    def pause(self) -> None:
        """Stop reading: the caller's own client is slow. Silence is no longer the provider's."""
        if not self.done.done():
            self._paused = True
            self._link.pause_reading()

    def resume(self) -> None:
        """Go on reading; the idle deadline begins anew."""
        if self._paused and not self.done.done():
            self._paused = False
            self._touched = time.monotonic_ns()
            self._arm()
            self._link.resume_reading()

    def leave(self) -> None:
        """Nobody waits for the end any more: no timer fires, no error is owed to anyone."""
        self._stop_timer()
        if self.done.done() and not self.done.cancelled():
            self.done.exception()

    # From the connection

    def read(self, data: bytes, stamp: int, since: int) -> None:
        """Bytes came: parse, hand on, complete."""
        if self.done.done():  # nobody asked for more
            self.keep_alive = False
            self._link.abort()
            return
        self._touched = time.monotonic_ns()
        self.bytes_in += len(data)
        heading = not self._status
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._error = self._error or self._malformed(data, error)
        try:
            if heading:
                self._take_head(len(data), stamp)
            if self._bodies:
                body = b"".join(self._bodies)  # of one piece: that piece, no copy
                self._bodies.clear()
                self._bare = 0
                self._taker.on_body(body, stamp, since)
            elif self._error is None:
                self._count_bare(len(data))
        except AttemptError as error:
            self._error = error
        except BaseException as error:
            self._fail(error)
            raise
        if self._error is not None:
            self._fail(self._error)
        elif self.complete:
            self._finish(stamp)

    def eof(self, error: Exception | None) -> None:
        """The other side closed, cleanly or not."""
        if self.done.done():
            return
        if self._status and not self.framed and error is None and said_goodbye(self._link):
            self.complete = True  # such an answer ends with its connection
            self._finish(time.monotonic_ns())
            return
        early = self.bytes_in == 0
        what = "before the answer began" if early else "in the middle of the answer"
        how = "reset" if error is not None else "closed"
        self._fail(PeerReset(f"{self._origin.authority} {how} the connection {what}.", early=early))

    # From the parser. Nothing here may raise: the parser would hide what it was.

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; a trailer is not one."""
        if not self._status:
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """All headers: the final ones, or those of an interim answer."""
        status = int(self._parser.get_status_code())
        if status >= 200:
            names = {name for name, _ in self._headers}
            self.framed = (
                b"content-length" in names or b"transfer-encoding" in names or status in {204, 304}
            )
            self._status = status
            return
        self._headers = []
        if status == 101 or status < 100:
            self._error = Malformed(
                f"{self._origin.authority} answered with status {status}, which nobody asked for."
            )

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._status and not self.complete:
            self._bodies.append(body)

    def on_message_complete(self) -> None:
        """An answer is whole."""
        if self._status and not self.complete:
            self.keep_alive = bool(self._parser.should_keep_alive())
            self.complete = True

    def on_message_begin(self) -> None:
        """Something after the answer means that the two sides disagree about where it ended."""
        if self.complete:
            self._error = Malformed(
                f"{self._origin.authority} sent bytes after the end of its answer."
            )

    def _take_head(self, size: int, stamp: int) -> None:
        if self.bytes_in == size:
            self._arm()  # the first bytes: from here on silence counts
        if not self._status:
            return
        self._bare = 0
        refusal = _refuse(self._origin, str(self._parser.get_http_version()), self._headers)
        if refusal is not None:
            self._bodies.clear()
            raise refusal
        self._taker.on_head(self._status, self._headers, stamp)
        if self.done.done():  # the taker cancelled
            self._bodies.clear()

    def _count_bare(self, size: int) -> None:
        self._bare += size
        if self._bare > HEAD_LIMIT:
            what = "trailers" if self._status else "headers"
            raise TooLarge(f"{self._origin.authority} sent more than {HEAD_LIMIT} bytes of {what}.")

    def _malformed(self, data: bytes, error: Exception) -> Malformed:
        where = self._origin.authority
        if self.bytes_in == len(data) and not data.startswith(b"HTTP/"[: len(data)]):
            return _not_http(where)
        reason = str(error).splitlines()[0][:120] if str(error) else error.__class__.__name__
        return Malformed(f"{where} broke the HTTP framing: {reason}.")

    # Deadlines

    def _arm(self) -> None:
        self._stop_timer()
        due = self._due()
        if due is not None:
            wait = max(0.0, (due[0] - time.monotonic_ns()) / 1e9)
            self._timer = self._loop.call_later(wait, self._check)

    def _due(self) -> tuple[int, str] | None:
        limits = self._deadlines
        times: list[tuple[int, str]] = []
        if limits.total_s is not None:
            times.append((self._started + int(limits.total_s * 1e9), "total"))
        if not self._paused:
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
        if self._paused:  # the next exchange on this connection did not ask for it
            self._link.resume_reading()
        try:
            self._taker.on_end(stamp)
        except AttemptError as error:
            self._fail(error)
            return
        except BaseException as error:
            self._fail(error)
            raise
        if not self.done.done():
            self.done.set_result(None)

    def _fail(self, error: BaseException) -> None:
        self._stop_timer()
        self.keep_alive = False
        self._link.abort()
        if not self.done.done():
            self.done.set_exception(error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _refuse(origin: Origin, version: str, headers: Headers) -> Malformed | None:
    """What makes a well-formed head one that we cannot take, or None."""
    where = origin.authority
    if version not in {"1.0", "1.1"}:
        return _not_http(where)
    if sum(len(name) + len(value) + 4 for name, value in headers) > HEAD_LIMIT:
        return TooLarge(f"{where} sent more than {HEAD_LIMIT} bytes of headers.")
    for name, value in headers:
        coding = value.lower()
        if name == b"content-encoding" and coding not in {b"", b"identity"}:
            return Malformed(f"{where} compressed its answer although identity was asked for.")
        if name == b"transfer-encoding" and coding != b"chunked":
            return Malformed(f"{where} used a transfer coding other than chunked.")
    return None


def _not_http(where: str) -> Malformed:
    return Malformed(f"{where} does not speak HTTP/1.1.", hint="Check the port and the scheme.")
