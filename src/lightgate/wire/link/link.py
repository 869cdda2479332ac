"""A connected byte stream whose reads are stamped; the client and the door are built on it.

Two ways to stamp a read, one interface:
- `ReadLink` stamps with the monotonic clock in `data_received`: cheapest, but a busy loop is late;
- `kernel.KernelLink` asks the kernel when the last segment arrived: a busy loop cannot delay that.

Every read reaches the peer as `on_read(data, stamp, since)`: the bytes arrived after `since` and
not after `stamp`; with a kernel stamp the last of them arrived exactly at `stamp`. A `since` of 0
is one that nobody watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.wire.link.stamps import LoopLag

# Bytes that a link hands to its owner in one turn of the loop. A loop gives 256 KB at once, and up
# to 8 MB while its buffers come full; 256 KB of events of ten bytes each are 0.1 s of work.
READ_SIZE: Final = 65536
HIGH_WATER: Final = 65536  # unsent bytes at which the peer is asked to pause
LOW_WATER: Final = 16384  # ... and at which it may go on
# Bytes that one link sends in a turn of the loop: a peer that reads as fast as they are written
# would have a whole body of 32 MiB taken by one call, in some 50 ms.
SLICE: Final = 1 << 20


class Peer(Protocol):
    """The owner of a link, as the link calls it; not called after the owner's close or abort."""

    def on_read(self, data: bytes, stamp: int, since: int) -> None:
        """Take the bytes of one read."""

    def on_eof(self) -> None:
        """Take the end of the other side's bytes."""

    def on_lost(self, error: Exception | None) -> None:
        """Take the loss of the connection; called at most once."""

    def pause_writing(self) -> None:
        """Write no more: the unsent bytes are above the high water mark."""

    def resume_writing(self) -> None:
        """Write again: the unsent bytes are below the low water mark."""


class Link(Protocol):
    """A connection whose reads are stamped.

    Its first owner is named by `attach`; later on another one is put into `peer`.
    """

    peer: Peer | None

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

    def write(self, data: bytes | memoryview) -> None:
        """Send, or queue what the kernel does not take at once."""

    def pause_reading(self) -> None:
        """Stop reading; the kernel's window then closes."""

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

    __slots__ = (
        "_after",
        "_full",
        "_halted",
        "_held",
        "_lag",
        "_plain",
        "_resting",
        "_sock",
        "_transport",
        "_unread",
        "is_open",
        "peer",
    )  # fmt: skip

    def __init__(self, lag: LoopLag | None = None, sock: socket.socket | None = None) -> None:
        self._lag = lag
        self._sock = sock
        self.peer: Peer | None = None
        self._transport: asyncio.Transport | None = None
        self._plain: socket.socket | None = None  # where it may be written to past the transport
        self._halted = False  # the owner wants no bytes
        self._resting = False  # the next slice comes in the next turn of the loop
        self._unread: tuple[bytes, int, int, int] | None = None  # of a large read, and from where
        self._held: deque[memoryview] = deque()  # of large bodies, not given to the transport yet
        self._after: Callable[[], None] | None = None  # what ends the link once all is given
        self._full = False  # the owner was asked to pause
        self.is_open = False  # whether bytes may still be written

    @property
    def unsent(self) -> int:
        """Bytes that the transport still holds."""
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + sum([len(data) for data in self._held])

    def attach(self, peer: Peer) -> None:
        """Name the owner."""
        self.peer = peer

    def write(self, data: bytes | memoryview) -> None:
        """Send now what the kernel takes; the transport alone would wait for the loop's next turn.

        Only where the socket is ours to use (a client's, without TLS) and nothing is queued before.
        """
        transport = self._transport
        if transport is None or not self.is_open or not data:
            return
        if self._held or len(data) > SLICE:
            self._hold(memoryview(data))
            return
        sock = self._plain
        if sock is not None and not transport.get_write_buffer_size():
            try:
                sent = sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                sent = 0  # the transport meets the same error and reports it in its own way
            if sent == len(data):
                return
            transport.write(memoryview(data)[sent:])  # a large rest is not copied
            return
        transport.write(data)

    def _hold(self, data: memoryview) -> None:
        """Send a large body in slices, one in each turn of the loop."""
        first = not self._held
        self._held.extend([data[at : at + SLICE] for at in range(0, len(data), SLICE)])
        if first:
            self.pause_writing()
            self._send_on()

    def _send_on(self) -> None:
        """Give the transport the next slice, unless it is full: then it will say that it is not."""
        transport = self._transport
        if not self._held or transport is None or transport.get_write_buffer_size() > HIGH_WATER:
            return
        transport.write(self._held.popleft())
        if not self._held and self._after is not None:
            self._after()
        elif transport.get_write_buffer_size() <= HIGH_WATER:
            self.resume_writing()

    def pause_reading(self) -> None:
        """Stop reading."""
        self._halted = True
        if self.is_open and self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading."""
        self._halted = False
        if self._unread is not None:
            self._read_later()
        elif self.peer is not None and self._transport is not None:  # our half may have ended
            self._transport.resume_reading()

    def _read_later(self) -> None:
        if not self._resting:
            self._resting = True
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        """Hand the next slice of a large read on; after the last one the socket is read again."""
        self._resting = False
        if self._unread is None or self._halted or self.peer is None:
            return
        data, at, stamp, since = self._unread
        past = at + READ_SIZE
        self._unread = (data, past, stamp, since) if past < len(data) else None
        self.peer.on_read(data[at:past], stamp, since)
        if not self._halted:
            self.resume_reading()

    def close(self) -> None:
        """Send what is queued, then close."""
        self.peer = None
        if self._transport is not None:
            if self._held:
                self._after = self._transport.close
            else:
                self._transport.close()
        self.is_open = False

    def end_writing(self) -> bool:
        """Send what is queued, then end our half; False where that cannot be (TLS)."""
        if not self.is_open or self._transport is None or not self._transport.can_write_eof():
            return False
        if self._held:
            self._after = self._transport.write_eof
        else:
            self._transport.write_eof()
        self.is_open = False
        return True

    def abort(self) -> None:
        """Close in this turn: the FIN leaves now, the transport tidies up after it."""
        self.peer = None
        self.is_open = False
        self._held.clear()
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
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Stamp first, then everything else."""
        stamp = time.monotonic_ns()
        peer = self.peer
        if peer is None:
            return
        since = 0 if self._lag is None else self._lag.since(stamp)
        if len(data) <= READ_SIZE or self._transport is None:
            peer.on_read(data, stamp, since)
            return
        self._transport.pause_reading()  # others have their turns before the rest
        self._unread = (data, 0, stamp, since)
        self._read_on()

    def eof_received(self) -> bool:
        """Leave the decision to close to the owner; TLS has no half-closed state and closes."""
        if self.peer is not None:
            self.peer.on_eof()
        return self._transport is not None and self._transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner once."""
        peer, self.peer, self.is_open = self.peer, None, False
        self._transport = self._unread = None
        self._held.clear()
        if peer is not None:
            peer.on_lost(exc)

    def pause_writing(self) -> None:
        """Tell the owner that the transport's buffer is full, unless it knows."""
        if self.peer is not None and not self._full:
            self._full = True
            self.peer.pause_writing()

    def resume_writing(self) -> None:
        """Tell the owner that the transport's buffer has drained, and all before it."""
        if self._held:
            asyncio.get_running_loop().call_soon(self._send_on)
        elif self.peer is not None and self._full:
            self._full = False
            self.peer.resume_writing()
