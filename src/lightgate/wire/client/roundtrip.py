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
from lightgate.wire.client.response import AnswerParser, Headers
from lightgate.wire.link.timers import Deadline
from lightgate.wire.link.tls import said_goodbye

if TYPE_CHECKING:
    from lightgate.wire.link.link import Link
    from lightgate.wire.origin import Origin

_FAR_S: Final = 1e9  # longer than any deadline
HEAD_LIMIT: Final = 64 * 1024  # also for what stands between two pieces of a body, and trailers

__all__ = ["Deadlines", "Exchange", "Headers", "Seat", "Taker"]


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


class _Nobody:
    """Takes nothing, because nothing comes any more."""

    def on_open(self, exchange: Exchange) -> None: ...

    def on_sent(self, stamp: int) -> None: ...

    def on_head(self, status: int, headers: Headers, stamp: int) -> None: ...

    def on_body(self, data: bytes, stamp: int, since: int) -> None: ...

    def on_end(self, stamp: int) -> None: ...


_NOBODY: Final = _Nobody()


class Seat:
    """What a connection lends to its exchanges, one after the other: its parser and its timer."""

    __slots__ = ("answer", "exchange", "loop", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.answer = AnswerParser()
        self.timer = Deadline(loop, self._expire)
        self.exchange: Exchange | None = None

    def _expire(self) -> None:
        if self.exchange is not None:
            self.exchange.expire()

    def close(self) -> None:
        """Give the timer back."""
        self.timer.close()
        self.exchange = None


class Exchange:
    """The state of one exchange; `done` is its end."""

    __slots__ = (
        "_answer",
        "_bare",
        "_deadlines",
        "_error",
        "_link",
        "_origin",
        "_paused",
        "_started",
        "_taker",
        "_timer",
        "_touched",
        "bytes_in",
        "done",
        "keep_alive",
        "sent_ns",
    )

    def __init__(
        self,
        link: Link,
        origin: Origin,
        taker: Taker,
        deadlines: Deadlines,
        seat: Seat | None = None,
    ) -> None:
        self._link = link
        self._origin = origin
        self._taker = taker
        self._deadlines = deadlines
        seat = seat or Seat(asyncio.get_running_loop())
        self._answer = seat.answer
        self._answer.begin()
        self._timer = seat.timer
        seat.exchange = self
        self._bare = 0  # bytes since the last piece of a body: heads, chunk sizes, trailers
        self._error: AttemptError | None = None
        self._paused = False
        self._started = self._touched = self.sent_ns = 0
        self.bytes_in = 0
        self.keep_alive = False
        self.done: asyncio.Future[None] = seat.loop.create_future()

    @property
    def complete(self) -> bool:
        """Whether the answer is whole by its own framing."""
        return self._answer.complete

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
        """Nobody waits for the end any more: no timer fires, no error is owed to anyone.

        The taker holds the exchange; let go of it, or both wait for the collector.
        """
        self._stop_timer()
        self._taker = _NOBODY
        if self.done.done() and not self.done.cancelled():
            self.done.exception()

    # The link's peer, while it is under way

    def on_read(self, data: bytes, stamp: int, since: int) -> None:  # noqa: C901 - for every token: no calls that can be spared
        """Bytes came: parse, hand on, complete."""
        if self.done.done():  # nobody asked for more
            self.keep_alive = False
            self._link.abort()
            return
        if stamp > self._touched:  # noqa: PLR1730 - a call less; bytes may be older than a pause
            self._touched = stamp
        self.bytes_in += len(data)
        answer = self._answer
        heading = not answer.status
        try:
            answer.feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._error = self._malformed(data, error)
        if answer.strange:
            self._error = self._strange(answer)
        try:
            if heading and answer.status:
                self._take_head(stamp)
            bodies = answer.bodies
            if bodies:
                body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
                bodies.clear()
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
        elif answer.complete:
            self.keep_alive = answer.keep_alive
            self._finish(stamp)

    def on_eof(self) -> None:
        """The server closed."""
        self.eof(None)
        self._link.abort()

    def on_lost(self, error: Exception | None) -> None:
        """The connection broke."""
        self.eof(error or ConnectionResetError("connection lost"))

    def pause_writing(self) -> None:
        """A request is written whole; the link queues what the kernel does not take."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def eof(self, error: Exception | None) -> None:
        """The other side closed, cleanly or not."""
        if self.done.done():
            return
        answer = self._answer
        if answer.status and not answer.framed and error is None and said_goodbye(self._link):
            answer.complete = True  # such an answer ends with its connection
            self._finish(time.monotonic_ns())
            return
        early = self.bytes_in == 0
        what = "before the answer began" if early else "in the middle of the answer"
        how = "reset" if error is not None else "closed"
        self._fail(PeerReset(f"{self._origin.authority} {how} the connection {what}.", early=early))

    def _take_head(self, stamp: int) -> None:
        answer = self._answer
        self._bare = 0
        refusal = _refuse(self._origin, answer.version, answer.headers)
        if refusal is not None:
            answer.bodies.clear()
            raise refusal
        self._taker.on_head(answer.status, answer.headers, stamp)
        if self.done.done():  # the taker cancelled
            answer.bodies.clear()

    def _strange(self, answer: AnswerParser) -> Malformed:
        where = self._origin.authority
        if answer.complete:
            return Malformed(f"{where} sent bytes after the end of its answer.")
        return Malformed(f"{where} answered with status {answer.strange}, which nobody asked for.")

    def _count_bare(self, size: int) -> None:
        self._bare += size
        if self._bare > HEAD_LIMIT:
            what = "trailers" if self._answer.status else "headers"
            raise TooLarge(f"{self._origin.authority} sent more than {HEAD_LIMIT} bytes of {what}.")

    def _malformed(self, data: bytes, error: Exception) -> Malformed:
        where = self._origin.authority
        if self.bytes_in == len(data) and not data.startswith(b"HTTP/"[: len(data)]):
            return _not_http(where)
        reason = str(error).splitlines()[0][:120] if str(error) else error.__class__.__name__
        return Malformed(f"{where} broke the HTTP framing: {reason}.")

    # Deadlines

    def _arm(self) -> None:
        """Look again when the next deadline may be over.

        Before the first byte the idle deadline does not hold yet, but it cannot be over sooner than
        from now on: one timer does for both, and the first byte need not move it.
        """
        if self.bytes_in or self._paused:
            due = self._due()
            if due is not None:
                self._timer.set(max(0.0, (due[0] - time.monotonic_ns()) / 1e9))
            return
        limits, wait_s = self._deadlines, _FAR_S
        if limits.total_s is not None:
            wait_s = limits.total_s - (time.monotonic_ns() - self._started) / 1e9
        if limits.first_byte_s is not None and limits.first_byte_s < wait_s:
            wait_s = limits.first_byte_s
        if limits.idle_s is not None and limits.idle_s < wait_s:
            wait_s = limits.idle_s
        if wait_s < _FAR_S:
            self._timer.set(max(0.0, wait_s))

    def expire(self) -> None:
        """The timer says that a deadline may be over."""
        if not self.done.done():
            self._check()

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
        self._timer.clear()


def _refuse(origin: Origin, version: str, headers: Headers) -> Malformed | None:
    """What makes a well-formed head one that we cannot take, or None."""
    if version not in {"1.0", "1.1"}:
        return _not_http(origin.authority)
    size = 0
    for name, value in headers:
        size += len(name) + len(value) + 4
        if name == b"content-encoding" and value.lower() not in {b"", b"identity"}:
            return Malformed(
                f"{origin.authority} compressed its answer although identity was asked for."
            )
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            return Malformed(f"{origin.authority} used a transfer coding other than chunked.")
    if size > HEAD_LIMIT:
        return TooLarge(f"{origin.authority} sent more than {HEAD_LIMIT} bytes of headers.")
    return None


def _not_http(where: str) -> Malformed:
    return Malformed(f"{where} does not speak HTTP/1.1.", hint="Check the port and the scheme.")
