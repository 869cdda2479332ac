"""Links on bare sockets, stamped by the kernel, and the poller that watches them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from lightgate.wire.link.link import HIGH_WATER, LOW_WATER, SLICE
from lightgate.wire.link.stamps import RECHECK_NS, SO_TIMESTAMPNS, WAKE_NS, BusyTime

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.wire.link.link import Peer
    from lightgate.wire.link.stamps import Anchor

_TIMESPEC: Final = struct.Struct("@qq")
_CONTROL_SIZE: Final = socket.CMSG_SPACE(_TIMESPEC.size)
BATCH: Final = 512  # sockets served in one turn of the loop; then the others get theirs


class Poller:
    """The readiness of bare sockets: calls the owner of each with the events that are ready.

    The event loop's own watcher for bare sockets (uvloop on libuv) stops without a word when a
    socket has an error, as it has after a reset. So the links have an epoll of their own; the loop
    watches that one descriptor, and one turn serves every socket that is ready.
    """

    __slots__ = (
        "_busy",
        "_busy_ns",
        "_epoll",
        "_loop",
        "_polled_ns",
        "_watched",
        "awake_ns",
        "since_ns",
    )

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._busy = BusyTime()
        self._busy_ns = self._busy.total_ns()
        self._polled_ns = time.monotonic_ns()  # of the last poll that found every ready socket
        self.since_ns = self._polled_ns  # what is read in this turn arrived after this instant
        # What followed an instant of B busy nanoseconds arrived after this and B; 0: nobody asked.
        self.awake_ns = 0
        self._watched: dict[int, Callable[[int], None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Call back whenever one of these events, an error or a hang-up is there."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._epoll.fileno(), self._ready)
        if fd in self._watched:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._watched[fd] = callback

    def busy_ns(self) -> int:
        """For how long this thread has been busy; 0 where the system does not tell."""
        fd = self._busy.fd  # `BusyTime.total_ns`, without the call
        return time.thread_time_ns() + int(os.pread(fd, 96, 0).split(b" ", 2)[1]) if fd >= 0 else 0

    def forget(self, fd: int) -> None:
        """Call back no more; call this before the socket is closed."""
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Watch nothing any more."""
        if self._epoll.closed:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._epoll.fileno())
        self._watched.clear()
        self._epoll.close()
        self._busy.close()

    def _ready(self) -> None:
        watched, fd = self._watched, self._busy.fd
        now, since = time.monotonic_ns(), self._polled_ns
        # The poll before found them empty. If that was long ago because the loop slept, they were
        # empty until the bytes came that woke it: not longer ago than the thread has been busy.
        if now - since > WAKE_NS and fd >= 0:  # `BusyTime.total_ns`, without the call
            busy = time.thread_time_ns() + int(os.pread(fd, 96, 0).split(b" ", 2)[1])
            self.awake_ns = now - busy - WAKE_NS
            since = max(since, self.awake_ns + self._busy_ns)
            self._busy_ns = busy
        else:
            self.awake_ns = 0
        self.since_ns = since
        found = self._epoll.poll(0, BATCH)
        if len(found) < BATCH:
            self._polled_ns = now
        for fd, events in found:
            # A callback may have closed a later socket of this batch, and even opened another one
            # with its number: that one is asked to read, finds nothing, and goes on waiting.
            callback = watched.get(fd)
            if callback is not None:
                callback(events)


class KernelLink:
    """A link on a bare socket, stamped by the kernel.

    When one read holds several segments only the stamp of the last one is known: the others came
    after `since`, when the socket was last known to be empty. Smaller reads would not help: the
    kernel merges segments that wait, and keeps the last stamp.
    """

    __slots__ = (
        "_anchor",
        "_asked_ns",
        "_closing",
        "_ended",
        "_eof",
        "_events",
        "_fd",
        "_paused",
        "_poller",
        "_queue",
        "_queued",
        "_seen_ns",
        "_sock",
        "_view",
        "_watched_ns",
        "_writing_paused",
        "peer",
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
        self.peer: Peer | None = None
        self._queue: deque[memoryview] = deque()
        self._queued = 0
        self._asked_ns = 0  # busy time of the thread when it last wrote; 0 after the next read
        self._seen_ns = self._watched_ns = time.monotonic_ns()
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
        self.peer = peer
        self._watch()

    def write(self, data: bytes | memoryview) -> None:
        """Send now what the kernel takes, queue the rest."""
        if self._fd < 0 or self._closing or self._ended or not data:  # `is_open`, without the call
            return
        if self._queue:
            self._enqueue(memoryview(data))
            return
        try:
            sent = self._sock.send(data if len(data) <= SLICE else memoryview(data)[:SLICE])
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._lose(error)
            return
        if sent < len(data):
            self._enqueue(memoryview(data)[sent:])
            self._watch()
        else:
            self._asked_ns = self._poller.busy_ns()

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
        self.peer = None
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
        self.peer = None
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
        """Tell the poller which events are wanted now."""
        if self._fd < 0:
            return
        events = select.EPOLLOUT if self._queue else 0
        if self.peer is not None and not (self._paused or self._eof or self._closing):
            events |= select.EPOLLIN
        if events == self._events:
            return
        if events & select.EPOLLIN and not self._events & select.EPOLLIN:
            self._watched_ns = time.monotonic_ns()
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

    def _readable(self) -> None:  # noqa: C901 - for every token: no calls that can be spared
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
        peer = self.peer
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
        since, empty = self._seen_ns, self._poller.since_ns
        if empty > since and empty > self._watched_ns:
            since = empty
        if self._asked_ns:  # an answer comes after its request, so what was done before is no delay
            since = max(since, self._poller.awake_ns + self._asked_ns)
            self._asked_ns = 0
        if size < len(self._view):
            self._seen_ns = now
        else:  # bytes may be left behind: a poll before this instant did not see it empty
            self._watched_ns = now
        if peer is not None:
            peer.on_read(bytes(self._view[:size]), stamp, since if since < stamp else stamp)  # noqa: FURB136 - a call less

    def _enqueue(self, rest: memoryview) -> None:
        self._queue.append(rest)
        self._queued += len(rest)
        if self._queued > HIGH_WATER and not self._writing_paused and self.peer is not None:
            self._writing_paused = True
            self.peer.pause_writing()

    def _writable(self) -> None:
        queue, most = self._queue, SLICE
        while queue and most:
            try:
                sent = self._sock.send(queue[0][:most])
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._lose(error)
                return
            self._queued -= sent
            most -= sent
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
        if self._writing_paused and self._queued <= LOW_WATER and self.peer is not None:
            self._writing_paused = False
            self.peer.resume_writing()

    def _end(self) -> None:
        with contextlib.suppress(OSError):  # already gone; the next read says so
            self._sock.shutdown(socket.SHUT_WR)

    def _lose(self, error: OSError) -> None:
        peer, self.peer = self.peer, None
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
