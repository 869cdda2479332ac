"""One client's connection to the door: requests in, replies out, strictly in order.

    READING ──► BUSY ──► FLUSH ──► READING (keep-alive)
       └─ refused ─┴───────┴─────► LINGER ──► GONE

One reply is under way at a time. Bytes that come meanwhile are kept with their stamps, up to a
limit, so that reading goes on and the end of the stream is noticed at once. After the last reply
our half is closed and what still comes is dropped for a moment: a socket that is closed over unread
bytes sends a reset, and the client would lose the answer.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import TYPE_CHECKING, Final, Protocol

from lightgate.wire.door.inbound import Inbound, RequestError
from lightgate.wire.door.intake import BODY, IDLE, Intake
from lightgate.wire.door.reply import Reply
from lightgate.wire.link.link import Link
from lightgate.wire.link.timers import Deadline

if TYPE_CHECKING:
    from collections.abc import Hashable

    from lightgate.wire.door.inbound import BodySink, RequestHead
    from lightgate.wire.door.service import Service

logger = logging.getLogger(__name__)

_READING, _BUSY, _FLUSH, _LINGER, _GONE = range(5)
# Of what waits for a client, it takes this part before each deadline: a byte now and then would
# hold an answer of 32 MiB in memory for years.
SHARE: Final = 8
SINK_BYTES: Final = 1 << 20  # of a large body that must come within the time of a body
_JSON: Final = ((b"content-type", b"application/json"),)
_LATER: Final = ((b"retry-after", b"1"),)
_REFUSAL: Final = b'{"error":{"type":"invalid_request_error","message":"%b"}}'
_FAILURE: Final = b'{"error":{"type":"server_error","message":"The request could not be served."}}'


class ServedLink(Link, Protocol):
    """A link whose sending half can be ended alone."""

    def end_writing(self) -> bool:
        """Send what is queued, then end our half; False where that cannot be."""
        ...


class ServerConnection:
    """The state machine of one connection; a link's peer and its replies' room."""

    __slots__ = (
        "_accepted_ns",
        "_address",
        "_deadline",
        "_drained",
        "_held",
        "_intake",
        "_loop",
        "_mark",
        "_owner",
        "_peer",
        "_queue",
        "_queued",
        "_reading_paused",
        "_reply",
        "_serving",
        "_state",
        "_unqueuing",
        "link",
        "service",
        "writing_paused",
    )

    def __init__(self, link: ServedLink, service: Service, peer: str, accepted_ns: int) -> None:
        self.link = link
        self.writing_paused = False
        self.service = service
        self._peer = peer
        self._address = address_of(peer)
        self._accepted_ns = accepted_ns
        self._loop = asyncio.get_running_loop()
        self._state = _READING
        self._intake = Intake(service.limits, service.sink_of)
        self._queue: list[tuple[bytes, int]] = []  # pipelined reads with their stamps
        self._queued = 0
        self._reading_paused = False
        self._reply: Reply | None = None
        self._unqueuing = False  # whether what was kept is being read
        self._serving = False  # whether a request is being handed over in this turn
        self._drained: asyncio.Future[None] | None = None
        # Unsent bytes when the write deadline was set; parts of a body that went to a sink.
        self._mark = 0
        self._held = 0  # bytes of a body that did not come with its head
        self._owner: Hashable = None  # of those bytes
        self._deadline = Deadline(self._loop, self._expire)
        self._deadline.set(service.limits.idle_s)
        service.connections.add(self)
        link.attach(self)

    # Reply's outlet to the client

    async def writable(self) -> None:
        """Wait until the client has taken most of the backlog."""
        while self.writing_paused and self.link.is_open:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)  # several may wait, and one of them be cancelled

    def cut(self) -> None:
        """Close the socket in this turn of the loop."""
        self.link.abort()
        self._wake()

    # The door's orders

    @property
    def idle(self) -> bool:
        """Whether nothing of a request has come since the last reply."""
        return self._state == _READING and self._intake.phase == IDLE

    def retire(self) -> None:
        """Close if idle; a running reply closes after itself."""
        if self.idle:
            self._end()

    def give_up(self) -> None:
        """Wait no longer for a request: an unfinished one is refused, and may be sent again."""
        if self._state == _READING and not self.idle:
            self._refuse(503, "The gateway is stopping; send the request again.", _LATER)
        else:
            self.retire()

    def abort(self) -> None:
        """Close the socket and tell the handler now."""
        self._drop()

    # The link's peer

    def on_read(self, data: bytes, stamp: int, since: int) -> None:  # noqa: ARG002 - Peer's signature
        """Bytes came: the next request's, or some to keep until its turn."""
        state = self._state
        if state == _READING:
            self._take(data, stamp)
        elif state <= _FLUSH:
            self._queue.append((data, stamp))
            self._queued += len(data)
            if self._queued > self.service.limits.queue_bytes and not self._reading_paused:
                self._reading_paused = True  # a hang-up behind these bytes shows when we write
                self.link.pause_reading()

    def on_eof(self) -> None:
        """The client hung up: a reply that is under way has no reader any more."""
        if self._reply is not None and not self._reply.finished:
            self._drop()
        elif not self.link.unsent:
            self.link.close()
            self._leave()
        elif self._state != _LINGER:  # the answer is complete and still being taken
            self._end()

    def on_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - a reset and an end are one
        """The connection broke."""
        self._drop()

    def pause_writing(self) -> None:
        """The client is slow: from here on it has to take something before each deadline."""
        self.writing_paused = True
        if self._state in {_BUSY, _FLUSH}:
            self._mark = self.link.unsent
            self._deadline.set(self.service.limits.write_s)

    def resume_writing(self) -> None:
        """The client caught up."""
        self.writing_paused = False
        self._wake()
        if self._state == _BUSY:
            self._deadline.due_ns = 0
        elif self._state == _FLUSH:
            self._next()

    # Serving

    def _take(self, data: bytes, stamp: int) -> None:
        intake = self._intake
        phase, sink = intake.phase, intake.sink
        try:
            rest = intake.take(data, stamp)
        except RequestError as error:
            self._refuse(error.status, error.reason)
            return
        if phase == BODY and not self._hold(len(data), sink):
            return
        if rest is not None:
            self._serve(intake, rest, stamp)
        elif intake.phase != phase:
            limits = self.service.limits
            self._deadline.set(limits.body_s if intake.phase == BODY else limits.head_s)
            if intake.phase == BODY:
                self._owner = self._address
                if self._turned_away(intake.head, stamp):
                    return
                if not self._hold(len(data), intake.sink):
                    return
                if not (intake.head.expects and intake.awaits_go):
                    return
                self.link.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _hold(self, size: int, sink: BodySink | None) -> bool:
        """Count a read of a body; whether there is room for it."""
        if sink is not None:
            return self._sink(sink)
        if self.service.crowd.hold(self._owner, size):
            self._held += size
            return True
        self._refuse(503, "Too many request bodies are held at the moment.", _LATER)
        return False

    def _sink(self, sink: BodySink) -> bool:
        """Give a body that goes elsewhere more time for each of its parts; it holds no memory."""
        parts = sink.tell() // SINK_BYTES + 1
        if self._mark == 0:
            sink.attach(self.link.pause_reading, self.link.resume_reading)
        if parts > self._mark:
            self._mark = parts
            self._deadline.set(self.service.limits.body_s)
        return True

    def _let_go(self) -> None:
        self.service.crowd.release(self._owner, self._held)
        self._held = 0

    def _turned_away(self, head: RequestHead, stamp: int) -> bool:
        """Whether the gate has answered a head whose body has not come."""
        gate = self.service.gate
        if gate is None:
            return False
        reply = Reply(self, head.method, head.minor, keep_alive=False)
        try:
            owner = gate(self._inbound(head, b"", stamp), reply)
            if owner is not None:
                self._owner = owner
        except Exception as error:  # noqa: BLE001 - the outer wall of a request
            _log_failure(error)
            self._fail(reply)
        if not reply.started:
            return False
        self._end()
        return True

    def _serve(self, intake: Intake, rest: bytes, stamp: int) -> None:
        head, body = intake.head, intake.body
        intake.body = b""
        self._state = _BUSY
        self._deadline.due_ns = 0
        if rest:
            self._queue.insert(0, (rest, stamp))
            self._queued += len(rest)
        inbound = self._inbound(head, body, stamp)
        self._reply = reply = Reply(self, head.method, head.minor, keep_alive=head.keep_alive)
        # In the next turn: requests that came at the same time are all stamped before the first of
        # them is worked on, so that their wait for each other is seen.
        self._loop.call_soon(self._hand_over, inbound, reply)

    def _hand_over(self, inbound: Inbound, reply: Reply) -> None:
        """Let the handler answer a request, unless its client has left meanwhile."""
        if self._state == _GONE or reply is not self._reply:
            if inbound.notes.sink is not None:
                inbound.notes.sink.drop()
            return
        self._serving = True
        try:
            self.service.handler(inbound, reply)
        except Exception as error:  # noqa: BLE001 - the outer wall of a request
            self.failed(reply, error)
        self._serving = False
        if reply.finished:
            self.replied(reply)

    def _inbound(self, head: RequestHead, body: bytes, stamp: int) -> Inbound:
        first_ns = self._intake.first_ns
        # A busy loop accepts late; the kernel had the connection before it had bytes on it.
        if first_ns < self._accepted_ns:  # noqa: PLR1730 - a call less, for every request
            self._accepted_ns = first_ns
        return Inbound(
            method=head.method,
            target=head.target,
            headers=head.headers,
            body=body,
            peer=self._peer,
            accepted_ns=self._accepted_ns,
            first_byte_ns=first_ns,
            received_ns=stamp,
            notes=head.notes,
        )

    def failed(self, reply: Reply, error: Exception | None) -> None:
        """End a reply whose handler has a defect: as a failure, or by cutting it off."""
        if error is not None:
            _log_failure(error)
        self._fail(reply)

    def _fail(self, reply: Reply) -> None:
        reply.keep_alive = False
        if not reply.started:
            reply.whole(500, _JSON, _FAILURE)
        elif not reply.finished:
            reply.abort()

    def replied(self, reply: Reply) -> None:
        """Turn to what comes after a reply that has just been finished."""
        if self._serving or reply is not self._reply:
            return
        self._reply = None
        if self._held:
            self._let_go()
        if self._state in {_GONE, _LINGER}:
            return
        if not self.link.is_open:  # aborted or closed by the handler; the link says no more
            self._leave()
        elif not reply.keep_alive or self.service.ending:
            self._end()
        elif self.writing_paused:
            self._state = _FLUSH
        else:
            self._next()

    def _next(self) -> None:
        """Turn to the next request, and to what has come of it already."""
        if self.service.ending:
            self._end()
            return
        self._state = _READING
        self._mark = 0
        self._deadline.set(self.service.limits.idle_s)
        if self._queue and not self._unqueuing:
            self._unqueuing = True  # replies that are finished at once come back here
            while self._queue and self._state == _READING:
                data, stamp = self._queue.pop(0)
                self._queued -= len(data)
                self._take(data, stamp)
            self._unqueuing = False
        if self._reading_paused and self._queued <= self.service.limits.queue_bytes:
            self._reading_paused = False
            self.link.resume_reading()

    # Ending

    def _refuse(self, status: int, reason: str, more: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        method = b"HEAD" if self._intake.is_head_method else b"GET"
        reply = Reply(self, method, 1, keep_alive=False)
        reply.whole(status, (*_JSON, *more), _REFUSAL % reason.encode())
        self._end()

    def _end(self) -> None:
        """End our half, then wait a little for the client to end its own."""
        if self._state == _GONE:
            return
        self._state = _LINGER
        self._queue.clear()
        self._intake.drop()  # of a body that was refused, nothing is held while the client reads so
        if self._held:
            self._let_go()
        if self._reading_paused:
            self.link.resume_reading()
        if not self.link.end_writing():
            self.link.close()
            self._leave()
            return
        self._mark = self.link.unsent
        limits = self.service.limits
        self._deadline.set(limits.write_s if self._mark else limits.linger_s)

    def _drop(self) -> None:
        """Close the socket now; the handler of an unfinished reply is told."""
        reply = self._reply
        self.link.abort()
        self._leave()
        if reply is not None and not reply.finished:
            reply.lose()

    def _leave(self) -> None:
        if self._state != _GONE:
            self._state = _GONE
            if self._held:
                self._let_go()
            self.service.crowd.leave(self._address)
        self._deadline.close()
        self._intake.drop()
        self._queue.clear()
        self._wake()
        self.service.forget(self)

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def _expire(self) -> None:
        limits = self.service.limits
        unsent = self.link.unsent
        if self.idle:
            self._end()
        elif self._state == _READING:
            self._refuse(408, "The request did not come in time.")
        elif unsent and self._mark - unsent >= max(1, self._mark // SHARE):
            self._mark = unsent
            self._deadline.set(limits.write_s)
        elif self._state == _LINGER and self._mark and not unsent:
            self._mark = 0
            self._deadline.set(limits.linger_s)
        else:
            self._drop()


def address_of(peer: str) -> str:
    """The address in a peer's name, without its port."""
    return peer.rpartition(":")[0]


def _log_failure(error: Exception) -> None:
    """The kind of the error and where it was raised; its message may hold what a client sent."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    way = " > ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames[-5:])
    logger.error("a handler failed with %s: %s", type(error).__name__, way)
