"""A connected byte stream whose reads are stamped; the client and the door are built on it.

Two ways to stamp a read, one interface:
- `ReadLink` stamps with the monotonic clock in `data_received`: cheapest, but a busy loop is late;
- `KernelLink` asks the kernel when the last segment arrived: a busy loop cannot delay that stamp.

Every read reaches the peer as `on_read(data, stamp, since)`: the bytes arrived after `since` and
not after `stamp`; with a kernel stamp the last of them arrived exactly at `stamp`.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, cast

from lightgate.wire.link.anchor import RECHECK_NS, SO_TIMESTAMPNS, Anchor

if TYPE_CHECKING:
    from lightgate.wire.link.lag import LoopLag
    from lightgate.wire.link.poller import Poller

READ_SIZE: Final = 65536
HIGH_WATER: Final = 65536  # unsent bytes at which the peer is asked to pause
LOW_WATER: Final = 16384  # ... and at which it may go on
_TIMESPEC: Final = struct.Struct("@qq")
_CONTROL_SIZE: Final = socket.CMSG_SPACE(_TIMESPEC.size)


class Peer(Protocol):
    """What a link tells its owner; after the owner's own close or abort it says nothing more."""

    def on_read(self, data: bytes, stamp: int, since: int) -> None:
        """Bytes came."""

    def on_eof(self) -> None:
        """The other side will send no more."""

    def on_lost(self, error: Exception | None) -> None:
        """The connection is gone; said at most once."""

    def pause_writing(self) -> None:
        """More than the high water mark is waiting to be sent."""

    def resume_writing(self) -> None:
        """The backlog has drained."""


class Link(Protocol):
    """One connection."""

    @property
    def is_open(self) -> bool:
        """Whether bytes may still be written."""
        ...

    @property
    def unsent(self) -> int:
        """Bytes accepted by `write` that the kernel has not taken yet."""
        ...

    def attach(self, peer: Peer) -> None:
        """Name the owner; reads reach it from now on."""

    def write(self, data: bytes) -> None:
        """Send, or queue what the kernel does not take at once."""

    def pause_reading(self) -> None:
        """Stop reading; the kernel's window closes behind us."""

    def resume_reading(self) -> None:
        """Go on reading."""

    def close(self) -> None:
        """Send what is queued, then close."""

    def abort(self) -> None:
        """Close the socket in this turn of the loop; what is queued is lost."""

    def info(self, name: str) -> object:
        """Facts of the transport: `socket`, `peername`, `ssl_object`."""
        ...


class ReadLink(asyncio.Protocol):
    """A link on the loop's own transport, stamped when the loop reads."""

    __slots__ = ("_lag", "_open", "_peer", "_plain", "_sock", "_transport")

    def __init__(self, lag: LoopLag | None = None, sock: socket.socket | None = None) -> None:
        self._lag = lag
        self._sock = sock
        self._peer: Peer | None = None
        self._transport: asyncio.Transport | None = None
        self._plain: socket.socket | None = None  # where it may be written to past the transport
        self._open = False

    @property
    def is_open(self) -> bool:
        """Whether bytes may still be written."""
        return self._open

    @property
    def unsent(self) -> int:
        """Bytes that the transport still holds."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def attach(self, peer: Peer) -> None:
        """Name the owner."""
        self._peer = peer

    def write(self, data: bytes) -> None:
        """Send now what the kernel takes; the transport alone would wait for the loop's next turn.

        Only where the socket is ours to use (a client's, without TLS) and nothing is queued before.
        """
        if not self._open or self._transport is None or not data:
            return
        sock = self._plain
        if sock is not None and not self._transport.get_write_buffer_size():
            try:
                sent = sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                sent = 0  # the transport meets the same error and reports it in its own way
            if sent == len(data):
                return
            data = data[sent:]
        self._transport.write(data)

    def pause_reading(self) -> None:
        """Stop reading."""
        if self._open and self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading."""
        if self._open and self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Send what is queued, then close."""
        self._peer = None
        if self._transport is not None:
            self._transport.close()
        self._open = False

    def end_writing(self) -> bool:
        """Send what is queued, then end our half; False where that cannot be (TLS)."""
        if not self._open or self._transport is None or not self._transport.can_write_eof():
            return False
        self._transport.write_eof()
        self._open = False
        return True

    def abort(self) -> None:
        """Close in this turn: the FIN leaves now, the transport tidies up after it."""
        self._peer = None
        self._open = False
        if self._transport is None:
            return
        # The transport itself closes in its next turn only, so the connection is shut under it.
        sock = self._sock or self._transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            # uvloop lends a socket that cannot be shut, but has a descriptor that can.
            borrowed = socket.socket(sock.family, sock.type, sock.proto, fileno=sock.fileno())
            with contextlib.suppress(OSError):
                borrowed.shutdown(socket.SHUT_RDWR)
            borrowed.detach()
        self._transport.abort()

    def info(self, name: str) -> object:
        """Facts of the transport."""
        return self._transport.get_extra_info(name) if self._transport is not None else None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER, low=LOW_WATER)
        if self._transport.get_extra_info("sslcontext") is None:
            self._plain = self._sock
        self._open = True

    def data_received(self, data: bytes) -> None:
        """Stamp first, then everything else."""
        stamp = time.monotonic_ns()
        if self._peer is not None:
            since = stamp if self._lag is None else self._lag.since(stamp)
            self._peer.on_read(data, stamp, since)

    def eof_received(self) -> bool:
        """Leave the decision to close to the owner; TLS has no half-closed state and closes."""
        if self._peer is not None:
            self._peer.on_eof()
        return self._transport is not None and self._transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner once."""
        peer, self._peer, self._open = self._peer, None, False
        self._transport = None
        if peer is not None:
            peer.on_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        if self._peer is not None:
            self._peer.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        if self._peer is not None:
            self._peer.resume_writing()


class KernelLink:
    """A link on a bare socket, stamped by the kernel.

    When one read holds several segments only the stamp of the last one is known: `since` is then
    the instant of the read before, when the socket was seen empty.
    """

    __slots__ = (
        "_anchor",
        "_closing",
        "_ended",
        "_eof",
        "_events",
        "_fd",
        "_paused",
        "_peer",
        "_poller",
        "_queue",
        "_queued",
        "_seen_ns",
        "_sock",
        "_view",
        "_writing_paused",
    )

    def __init__(
        self, sock: socket.socket, anchor: Anchor, poller: Poller, view: memoryview
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._sock = sock
        self._fd = sock.fileno()
        self._anchor = anchor
        self._poller = poller
        self._view = view  # scratch space, shared by all links of one loop
        self._peer: Peer | None = None
        self._queue: deque[memoryview] = deque()
        self._queued = 0
        self._seen_ns = time.monotonic_ns()
        self._events = 0  # what the poller watches for
        self._paused = self._closing = self._ended = self._eof = self._writing_paused = False

    @property
    def is_open(self) -> bool:
        """Whether bytes may still be written."""
        return self._fd >= 0 and not (self._closing or self._ended)

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._queued

    def attach(self, peer: Peer) -> None:
        """Name the owner and start reading."""
        self._peer = peer
        self._watch()

    def write(self, data: bytes) -> None:
        """Send now what the kernel takes, queue the rest."""
        if not self.is_open or not data:
            return
        if self._queue:
            self._enqueue(memoryview(data))
            return
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._lose(error)
            return
        if sent < len(data):
            self._enqueue(memoryview(data)[sent:])
            self._watch()

    def pause_reading(self) -> None:
        """Stop reading."""
        self._paused = True
        self._watch()

    def resume_reading(self) -> None:
        """Go on reading."""
        self._paused = False
        self._watch()

    def close(self) -> None:
        """Send what is queued, then close."""
        self._peer = None
        if self._queue:
            self._closing = True
            self._watch()
        else:
            self._shut()

    def end_writing(self) -> bool:
        """Send what is queued, then end our half; reading goes on."""
        if not self.is_open:
            return False
        self._ended = True
        if not self._queue:
            self._end()
        return True

    def abort(self) -> None:
        """Close the socket now."""
        self._peer = None
        self._shut()

    def info(self, name: str) -> object:
        """Facts of the socket."""
        if name == "socket":
            return self._sock
        if name == "peername" and self._fd >= 0:
            try:
                return self._sock.getpeername()
            except OSError:
                return None
        return None

    def _watch(self) -> None:
        """Tell the poller what is of interest now."""
        if self._fd < 0:
            return
        events = select.EPOLLOUT if self._queue else 0
        if self._peer is not None and not (self._paused or self._eof or self._closing):
            events |= select.EPOLLIN
        if events == self._events:
            return
        self._events = events
        if events:
            self._poller.watch(self._fd, events, self._ready)
        else:  # an error would be reported for ever; it waits for the next read or write
            self._poller.forget(self._fd)

    def _ready(self, events: int) -> None:
        if events & ~select.EPOLLOUT and self._events & select.EPOLLIN:
            self._readable()
        if events & ~select.EPOLLIN and self._events & select.EPOLLOUT:
            self._writable()

    def _readable(self) -> None:
        now = time.monotonic_ns()
        anchor = self._anchor
        if now - anchor.checked_ns > RECHECK_NS:
            anchor.check(now)
        try:
            size, control, _, _ = self._sock.recvmsg_into((self._view,), _CONTROL_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        peer = self._peer
        if size == 0:
            self._eof = True
            self._watch()
            if peer is not None:
                peer.on_eof()
            return
        stamp = now
        if control:
            seconds, nanoseconds = _TIMESPEC.unpack(control[0][2])
            stamp = seconds * 1_000_000_000 + nanoseconds - anchor.offset_ns
        since = min(self._seen_ns, stamp)
        if size < len(self._view):  # a full view may leave bytes behind: then it was not seen empty
            self._seen_ns = now
        if peer is not None:
            peer.on_read(bytes(self._view[:size]), stamp, since)

    def _enqueue(self, rest: memoryview) -> None:
        self._queue.append(rest)
        self._queued += len(rest)
        if self._queued > HIGH_WATER and not self._writing_paused and self._peer is not None:
            self._writing_paused = True
            self._peer.pause_writing()

    def _writable(self) -> None:
        queue = self._queue
        while queue:
            try:
                sent = self._sock.send(queue[0])
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._lose(error)
                return
            self._queued -= sent
            if sent < len(queue[0]):
                queue[0] = queue[0][sent:]
                break
            queue.popleft()
        if not queue:
            self._watch()
            if self._closing:
                self._shut()
                return
            if self._ended:
                self._end()
        if self._writing_paused and self._queued <= LOW_WATER and self._peer is not None:
            self._writing_paused = False
            self._peer.resume_writing()

    def _end(self) -> None:
        with contextlib.suppress(OSError):  # already gone; the next read says so
            self._sock.shutdown(socket.SHUT_WR)

    def _lose(self, error: OSError) -> None:
        peer, self._peer = self._peer, None
        self._shut()
        if peer is not None:
            peer.on_lost(error)

    def _shut(self) -> None:
        if self._fd < 0:
            return
        self._poller.forget(self._fd)
        self._fd = -1
        self._events = 0
        self._queue.clear()
        self._queued = 0
        self._sock.close()
