"""The maker of stamped links, one per event loop; it owns the parts that the links share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lightgate.errors import ConfigError
from lightgate.wire.link.kernel import KernelLink, Poller
from lightgate.wire.link.link import READ_SIZE, Link, ReadLink
from lightgate.wire.link.stamps import Anchor, LoopLag, kernel_stamps_available
from lightgate.wire.link.tls import TlsLink

if TYPE_CHECKING:
    import socket
    import ssl

    from lightgate.clock.marks import StampSource
    from lightgate.wire.link.link import Peer


def best_source() -> StampSource:
    """Kernel stamps where the operating system has them, else read stamps."""
    return "kernel" if kernel_stamps_available() else "read"


class Stamper:
    """Makes links that stamp in one way.

    `watch_lag` (read stamps only) bounds how late each stamp may be, for about two microseconds a
    read; without it a read stamp has no bound.
    """

    def __init__(self, source: StampSource, *, watch_lag: bool = True) -> None:
        if source == "kernel" and not kernel_stamps_available():
            raise ConfigError(
                "This system's kernel does not stamp received data.",
                hint="Use read stamps instead (--stamps read).",
            )
        self.source: StampSource = source
        self.anchor = Anchor(keep_enabled=True) if source == "kernel" else None
        self._lag = LoopLag() if source == "read" and watch_lag else None
        self._poller = Poller() if source == "kernel" else None
        self._view = memoryview(bytearray(READ_SIZE))

    @property
    def steps(self) -> int:
        """The number of steps of the wall clock under the kernel's stamps."""
        return 0 if self.anchor is None else self.anchor.steps

    async def link(
        self, sock: socket.socket, context: ssl.SSLContext | None = None, host: str = ""
    ) -> Link:
        """A link on a connected socket, after the TLS handshake where there is one."""
        inner: Link
        if self.anchor is not None and self._poller is not None:
            inner = KernelLink(sock, self.anchor, self._poller, self._view)
        else:
            lag = self._lag
            _, inner = await asyncio.get_running_loop().create_connection(
                lambda: _DialedLink(lag, sock), sock=sock
            )
        return inner if context is None else await _handshake(inner, context, host)

    def accepted(self, sock: socket.socket) -> KernelLink:
        """A kernel-stamped link on a socket that a listener accepted."""
        if self.anchor is None or self._poller is None:
            raise ConfigError("Only a kernel stamper makes links of accepted sockets.")
        return KernelLink(sock, self.anchor, self._poller, self._view)

    def close(self) -> None:
        """Give back the parts that the links shared."""
        if self.anchor is not None:
            self.anchor.close()
        if self._poller is not None:
            self._poller.close()
        if self._lag is not None:
            self._lag.close()


class _EarlyReads:
    """The owner of a link until its real owner attaches; keeps the reads before that."""

    __slots__ = ("_link", "reads")

    def __init__(self, link: ReadLink) -> None:
        self._link = link
        self.reads: list[tuple[bytes, int, int]] = []

    def on_read(self, data: bytes, stamp: int, since: int) -> None:
        """Keep the read, and ask for no more."""
        self.reads.append((data, stamp, since))
        self._link.pause_reading()

    def on_eof(self) -> None:
        """Close the link; the owner finds it closed."""
        self._link.abort()

    def on_lost(self, error: Exception | None) -> None:
        """The owner finds a closed link."""

    def pause_writing(self) -> None:
        """Nothing is written yet."""

    def resume_writing(self) -> None:
        """Nothing is written yet."""


class _DialedLink(ReadLink):
    """A read link that loses no bytes before it has an owner, as a kernel link does not.

    The loop tells the dialer of a connection a turn after it has begun to read from it.
    """

    __slots__ = ("_early",)

    def __init__(self, lag: LoopLag | None, sock: socket.socket) -> None:
        super().__init__(lag, sock)
        self._early: _EarlyReads | None = _EarlyReads(self)
        super().attach(self._early)

    def attach(self, peer: Peer) -> None:
        """Name the owner; earlier reads reach it in the next turn."""
        self.peer = peer
        if self._early is not None:
            early, self._early = self._early, None
            if early.reads:
                asyncio.get_running_loop().call_soon(self._replay, early)

    def _replay(self, early: _EarlyReads) -> None:
        for read in early.reads:
            if self.peer is not None:
                self.peer.on_read(*read)
        self.resume_reading()


async def _handshake(inner: Link, context: ssl.SSLContext, host: str) -> TlsLink:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    try:
        link = TlsLink(inner, context, host)
        link.start(settle)
        await done
    except BaseException:
        inner.abort()
        raise
    return link
