"""Listening sockets, and the links of accepted connections, stamped by loop or kernel."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from typing import TYPE_CHECKING, Final

from lightgate.wire.link.link import ReadLink
from lightgate.wire.link.stamps import SO_TIMESTAMPNS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.wire.door.connection import ServedLink
    from lightgate.wire.link.stamper import Stamper

    Greet = Callable[[ServedLink, str, int], None]  # link, peer, instant of the accept

BACKLOG: Final = 2048
RETRY_S: Final = 0.5  # how long accepting rests when the process has no file descriptor left
_NO_ADDRESS: Final = frozenset((errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT))


async def open_sockets(host: str, port: int, *, reuse_port: bool) -> list[socket.socket]:
    """A bound socket for each address of the host; port 0 gives all of them the same free port."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    refused: OSError | None = None
    for family, kind, proto, _, address in dict.fromkeys(found):
        where = (address[0], port, *address[2:])
        try:
            sock = _bound(socket.socket(family, kind, proto), where, reuse_port=reuse_port)
        except OSError as error:
            if error.errno not in _NO_ADDRESS:
                for opened in sockets:
                    opened.close()
                raise
            refused = error  # a name may stand for an address that this machine does not have
        else:
            port = sock.getsockname()[1]
            sockets.append(sock)
    if refused is not None and not sockets:
        raise refused
    return sockets


def listen_at(bound: socket.socket) -> socket.socket:
    """A listening socket at the address of a bound one, which shares the port with it."""
    sock = socket.socket(bound.family, bound.type, bound.proto)
    _bound(sock, bound.getsockname(), reuse_port=True).listen(BACKLOG)
    return sock


def _bound(sock: socket.socket, where: tuple[object, ...], *, reuse_port: bool) -> socket.socket:
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(where)
    except OSError:
        sock.close()
        raise
    return sock


def peer_name(address: object) -> str:
    """address:port, with an IPv6 address in brackets."""
    if not isinstance(address, tuple) or len(address) < 2:
        return ""
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{address[1]}"


class AcceptedLink(ReadLink):
    """A read-stamped link on an accepted connection; given to the door once it is connected."""

    __slots__ = ("_greet",)

    def __init__(self, greet: Greet) -> None:
        super().__init__()
        self._greet = greet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stamp the accept (with TLS: the end of the handshake)."""
        accepted_ns = time.monotonic_ns()
        super().connection_made(transport)
        self._greet(self, peer_name(self.info("peername")), accepted_ns)


class KernelListener:
    """A listener on a socket that the kernel stamps: not even a first byte goes unstamped."""

    __slots__ = ("_greet", "_loop", "_retry", "_sock", "_stamper")

    def __init__(self, sock: socket.socket, stamper: Stamper, greet: Greet) -> None:
        self._sock = sock
        self._stamper = stamper
        self._greet = greet
        self._retry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.listen(BACKLOG)
        self._watch()

    def close(self) -> None:
        """Stop accepting."""
        if self._retry is not None:
            self._retry.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def _watch(self) -> None:
        self._retry = None
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(BACKLOG):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # the client hung up before the accept
            except OSError:
                self._loop.remove_reader(self._sock.fileno())
                self._retry = self._loop.call_later(RETRY_S, self._watch)
                return
            accepted_ns = time.monotonic_ns()
            with contextlib.suppress(OSError):  # reset already: the first read says so
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._greet(self._stamper.accepted(sock), peer_name(address), accepted_ns)
            if self._sock.fileno() < 0:
                return
