"""One request and its answer on one pooled connection: parsing, deadlines, completion.

    connecting ──► under way ──► over
                      └─ closed by the server before any byte ──► connecting (once)

Everything happens in callbacks of the connection's link and of its timer; a task exists only while
a connection is being opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import httptools
import msgspec

from lightgate.clock.marks import Marks
from lightgate.errors import (
    AttemptError,
    Cancelled,
    DeadlineMissed,
    Malformed,
    PeerReset,
    TooLarge,
)
from lightgate.wire.client.coding import inflater_for
from lightgate.wire.client.unpacking import Taker, Unpacking
from lightgate.wire.link.tls import said_goodbye
from lightgate.wire.origin import Origin

if TYPE_CHECKING:
    import asyncio

    from lightgate.wire.client.pool import Connection
    from lightgate.wire.client.response import ResponseParser
    from lightgate.wire.link.link import Link

_CODINGS: Final = frozenset((b"content-encoding", b"transfer-encoding"))
_FAR_S: Final = 1e9  # longer than any deadline
HEAD_LIMIT: Final = 64 * 1024  # also for what stands between two pieces of a body, and trailers
_SURELY_SHORT: Final = HEAD_LIMIT // 2  # bytes, whose headers are within the limit as they count
_MISSED: Final = {
    "total": "did not finish in time",
    "first_byte": "sent nothing in time",
    "idle": "fell silent in the middle of the answer",
}


class Deadlines(msgspec.Struct, frozen=True, gc=False):
    """Seconds; None waits for ever."""

    connect_s: float | None = 10.0
    first_byte_s: float | None = 120.0  # from the sent request to the first byte of the answer
    idle_s: float | None = 60.0  # the longest silence inside an answer
    total_s: float | None = 600.0


class Outbound(msgspec.Struct, frozen=True, gc=False):
    """What is sent, who takes the answer, and `over`: called once with the error or None.

    `rest` are pieces of a large body, sent after the payload as they are: to put them together
    would hold the loop for the time of a copy. `once`: never a second time, not even where the
    server closed a pooled connection before any byte of the answer: what was asked for may be done.
    """

    origin: Origin
    payload: bytes
    taker: Taker
    marks: Marks
    deadlines: Deadlines
    over: Callable[[BaseException | None], None]
    rest: tuple[bytes | memoryview, ...] = ()
    once: bool = False


class TripOwner(Protocol):
    """What takes a roundtrip's connection back; the client is one."""

    def ended(self, trip: Roundtrip, error: BaseException | None) -> None:
        """The roundtrip is over on its connection, well or with an error."""


class Roundtrip:
    """The state of one request from the call of `Client.send` to its end.

    `dialling` is the task that opens its connection, None once there is one.
    """

    __slots__ = (
        "_bare",
        "_error",
        "_owner",
        "_response",
        "_touched",
        "began_ns",
        "bytes_in",
        "connection",
        "dialling",
        "keep_alive",
        "over",
        "paused",
        "request",
        "sent_ns",
    )

    connection: Connection
    _response: ResponseParser

    def __init__(self, owner: TripOwner, request: Outbound) -> None:
        self._owner = owner
        self.request = request
        self.dialling: asyncio.Task[None] | None = None
        self.over = False
        self.began_ns = time.monotonic_ns()  # the total deadline counts from here
        self.bytes_in = 0

    @property
    def link(self) -> Link:
        """The connection, once there is one."""
        return self.connection.link

    def left_s(self) -> float | None:
        """Seconds until the total deadline; None where there is none."""
        total_s = self.request.deadlines.total_s
        if total_s is None:
            return None
        return max(0.0, total_s - (time.monotonic_ns() - self.began_ns) / 1e9)

    def go(self, connection: Connection) -> None:
        """Send the request on a connection that is this roundtrip's alone."""
        self.dialling = None
        self.connection = connection
        connection.trip = self
        link = connection.link
        link.peer = self
        self._response = response = connection.response
        response.begin()
        self._bare = 0  # bytes since the last piece of a body: heads, chunk sizes, trailers
        self._error: AttemptError | None = None
        self.paused = False
        self.keep_alive = False
        if not link.is_open:  # the link broke while the connection was idle
            self._touched = self.sent_ns = 0
            self.eof(None)
            return
        request = self.request
        self.sent_ns = self._touched = stamp = time.monotonic_ns()
        try:
            request.taker.on_sent(stamp)
        except Exception as error:  # noqa: BLE001 - a taker's defect ends its own roundtrip only
            self.fail(error)
            return
        link.write(request.payload)  # right after the stamp; the timer can wait
        for piece in request.rest:
            link.write(piece)
        if not self.over:
            self._arm()

    def cancel(self) -> None:
        """Close the socket in this turn of the loop and end the roundtrip as cancelled."""
        if self.over:
            return
        if self.dialling is not None:
            self.dialling.cancel()
            self.finish_unsent(Cancelled("The call was cancelled."))
        else:
            self.fail(Cancelled("The call was cancelled."))

    def finish_unsent(self, error: BaseException) -> None:
        """End a roundtrip that has no connection."""
        if not self.over:
            self.over = True
            self.dialling = None
            over = self.request.over
            del self.request  # its taker holds the roundtrip
            over(error)

    def pause(self) -> None:
        """Stop reading: the caller's own client is slow, so silence is not the provider's."""
        if not self.over and self.dialling is None:
            self.paused = True
            self.connection.link.pause_reading()

    def resume(self) -> None:
        """Go on reading; the idle deadline begins anew."""
        if not self.over and self.paused:
            self.paused = False
            self._touched = time.monotonic_ns()
            self._arm()
            taker = self.request.taker
            if isinstance(taker, Unpacking) and taker.busy:
                taker.read_on()
            else:
                self.link.resume_reading()

    # The link's peer, while it is under way

    def on_read(self, data: bytes, stamp: int, since: int) -> None:  # noqa: C901 - for every token: no calls that can be spared
        """Parse the bytes of one read, hand them on, complete the answer."""
        if self.over:  # bytes after the end
            self.keep_alive = False
            self.connection.link.abort()
            return
        if stamp > self._touched:  # noqa: PLR1730 - a call less; bytes may be older than a pause
            self._touched = stamp
        self.bytes_in += len(data)
        response = self._response
        heading = not response.status
        try:
            response.feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._error = self._malformed(data, error)
        if response.strange:
            self._error = self._strange(response)
        try:
            if heading and response.status:
                self._take_head(stamp, since)
            bodies = response.bodies
            if bodies:
                body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
                bodies.clear()
                self._bare = 0
                self.request.taker.on_body(body, stamp, since)
            elif self._error is None:
                self._bare += len(data)
                if self._bare > HEAD_LIMIT:
                    self._error = self._too_bare("trailers" if response.status else "headers")
        except AttemptError as error:
            self._error = error
        except BaseException as error:
            self.fail(error)
            raise
        if self._error is not None:
            self.fail(self._error)
        elif response.complete and not self.over:
            self.keep_alive = response.keep_alive
            self.finish(stamp)

    def on_eof(self) -> None:
        """The server closed."""
        self.eof(None)
        self.connection.link.abort()

    def on_lost(self, error: Exception | None) -> None:
        """The connection broke."""
        self.eof(error or ConnectionResetError("connection lost"))

    def pause_writing(self) -> None:
        """A request is written whole; the link queues what the kernel does not take."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def eof(self, error: Exception | None) -> None:
        """End the roundtrip because the other side closed, cleanly or with an error."""
        response, link = self._response, self.connection.link
        if self.over or response.complete:  # what has come of it is still being unpacked
            return
        if response.status and not response.framed and error is None and said_goodbye(link):
            response.complete = True  # such an answer ends with its connection
            self.finish(time.monotonic_ns())
            return
        early = self.bytes_in == 0
        what = "before the answer began" if early else "in the middle of the answer"
        how = "reset" if error is not None else "closed"
        where = self.request.origin.authority
        self.fail(PeerReset(f"{where} {how} the connection {what}.", early=early))

    def _take_head(self, stamp: int, since: int) -> None:
        """Hand the head on, unless something in it cannot be taken.

        A head that ends its read came with the read's last segment, whose stamp the kernel knows.
        """
        response, marks = self._response, self.request.marks
        exact = marks.stamp_source == "kernel" and not response.bodies
        marks.headers_since = stamp if exact else since
        self._bare = 0
        if response.version != "1.1" and response.version != "1.0":  # noqa: PLR1714 - for every answer
            raise _not_http(self.request.origin.authority)
        if response.coded:
            for name, value in response.headers:
                if name in _CODINGS and value != b"chunked":
                    self._check_coding(name, value.lower())
        if self.bytes_in > _SURELY_SHORT:
            size = sum([len(name) + len(value) + 4 for name, value in response.headers])
            if size > HEAD_LIMIT:
                raise self._too_bare("headers")
        self.request.taker.on_head(response.status, response.headers, stamp)
        if self.over:  # the taker cancelled
            response.bodies.clear()

    def _check_coding(self, name: bytes, value: bytes) -> None:
        where = self.request.origin.authority
        if name == b"transfer-encoding":
            if value != b"chunked":
                raise Malformed(f"{where} used a transfer coding other than chunked.")
            return
        if isinstance(self.request.taker, Unpacking):
            raise Malformed(f"{where} compressed its answer twice.")
        inflater = inflater_for(value, self._response.status, where)
        if inflater is not None:
            taker = Unpacking(self, self.request.taker, inflater)
            self.request = msgspec.structs.replace(self.request, taker=taker)

    def _strange(self, response: ResponseParser) -> Malformed:
        where = self.request.origin.authority
        if response.complete:
            del response.bodies[response.pieces :]
            return Malformed(f"{where} sent bytes after the end of its answer.")
        return Malformed(
            f"{where} answered with status {response.strange}, which nobody asked for."
        )

    def _too_bare(self, what: str) -> TooLarge:
        where = self.request.origin.authority
        return TooLarge(f"{where} sent more than {HEAD_LIMIT} bytes of {what}.")

    def _malformed(self, data: bytes, error: Exception) -> Malformed:
        where = self.request.origin.authority
        if self.bytes_in == len(data) and not data.startswith(b"HTTP/"[: len(data)]):
            return _not_http(where)
        return Malformed(f"{where} broke the HTTP framing: {error}.")

    # Deadlines

    def _arm(self) -> None:
        """Set the timer for the next deadline.

        Before the first byte the idle deadline does not hold yet, but it cannot be over sooner than
        from now on: one timer does for both, and the first byte need not move it.
        """
        timer = self.connection.timer
        if self.bytes_in or self.paused:
            due = self._due()
            if due is not None:
                timer.set(max(0.0, (due[0] - time.monotonic_ns()) / 1e9))
            return
        limits, wait_s = self.request.deadlines, _FAR_S
        if limits.total_s is not None:
            wait_s = limits.total_s - (self.sent_ns - self.began_ns) / 1e9
        if limits.first_byte_s is not None and limits.first_byte_s < wait_s:
            wait_s = limits.first_byte_s
        if limits.idle_s is not None and limits.idle_s < wait_s:
            wait_s = limits.idle_s
        if wait_s < _FAR_S:
            timer.set(wait_s if wait_s > 0.0 else 0.0)  # noqa: FURB136 - cheaper

    def expire(self) -> None:
        """End the roundtrip if one of its deadlines has passed, else set the timer anew."""
        if self.over:
            return
        due = self._due()
        if due is not None and due[0] <= time.monotonic_ns() + 1_000_000:
            where = self.request.origin.authority
            self.fail(DeadlineMissed(f"{where} {_MISSED[due[1]]}.", phase=due[1]))
        else:
            self._arm()

    def _due(self) -> tuple[int, str] | None:
        limits = self.request.deadlines
        times: list[tuple[int, str]] = []
        if limits.total_s is not None:
            times.append((self.began_ns + int(limits.total_s * 1e9), "total"))
        if not self.paused:
            if self.bytes_in == 0 and limits.first_byte_s is not None:
                times.append((self.sent_ns + int(limits.first_byte_s * 1e9), "first_byte"))
            if self.bytes_in and limits.idle_s is not None:
                times.append((self._touched + int(limits.idle_s * 1e9), "idle"))
        return min(times) if times else None

    def finish(self, stamp: int) -> None:
        """End the roundtrip well, once all of its answer has been handed on."""
        taker = self.request.taker
        if isinstance(taker, Unpacking) and taker.puts_off(stamp):
            return
        if self.paused:  # the next roundtrip on this connection did not ask for it
            self.connection.link.resume_reading()
        try:
            taker.on_end(stamp)
        except AttemptError as error:
            self.fail(error)
            return
        except BaseException as error:
            self.fail(error)
            raise
        if not self.over:
            self.over = True
            self.connection.timer.due_ns = 0
            self._owner.ended(self, None)

    def fail(self, error: BaseException) -> None:
        """Close the connection and end the roundtrip with an error."""
        connection = self.connection
        connection.timer.due_ns = 0
        connection.link.abort()
        if not self.over:
            self.over = True
            self._owner.ended(self, error)


def _not_http(where: str) -> Malformed:
    return Malformed(f"{where} does not speak HTTP/1.1.", hint="Check the port and the scheme.")
