"""The dialer of connections: name, TCP, proxy and TLS, each part timed on its own."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
import time
from typing import TYPE_CHECKING, Final

from lightgate.errors import AttemptError, ConnectionFailed, NoDescriptor, TlsFailed, Unreachable

if TYPE_CHECKING:
    from lightgate.clock.marks import Marks
    from lightgate.wire.client.dns import Resolver, SocketAddress
    from lightgate.wire.client.proxy import Proxies, Proxy
    from lightgate.wire.link.link import Link
    from lightgate.wire.link.stamper import Stamper
    from lightgate.wire.origin import Origin

STAGGER_S: Final = 0.25  # the next address is tried this long after the one before (RFC 8305)
PROXY_HEAD_LIMIT: Final = 16 * 1024
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r]")


class Dialer:
    """Opens connections for one client."""

    def __init__(
        self, stamper: Stamper, resolver: Resolver, proxies: Proxies, context: ssl.SSLContext | None
    ) -> None:
        self.stamper = stamper
        self._resolver = resolver
        self._proxies = proxies
        self._context = context

    async def dial(self, origin: Origin, marks: Marks) -> Link:
        """A connected link; the time of each part is written to the marks."""
        try:
            return await self._dial(origin, marks)
        except Unreachable:
            if _descriptor_left():
                raise
            raise _no_descriptor(str(origin)) from None

    async def _dial(self, origin: Origin, marks: Marks) -> Link:
        proxy = self._proxies.choose(origin)
        host, port = (proxy.host, proxy.port) if proxy else (origin.host, origin.port)
        began = time.monotonic_ns()
        addresses, asked = await self._resolver.resolve(host, port)
        resolved = time.monotonic_ns()
        if asked:
            marks.dns_ns = resolved - began
        sock = await _connect(addresses, f"The proxy {proxy.where}" if proxy else str(origin))
        try:
            if proxy is not None:
                await _tunnel(sock, proxy, origin)
            connected = time.monotonic_ns()
            marks.tcp_ns = connected - resolved
            if not origin.secure:
                return await self.stamper.link(sock)
            link = await self._secure(sock, origin)
            marks.tls_ns = time.monotonic_ns() - connected
        except BaseException:
            sock.close()
            raise
        return link

    async def _secure(self, sock: socket.socket, origin: Origin) -> Link:
        if self._context is None:
            from lightgate.wire.link.tls import client_context

            self._context = client_context()
        try:
            # A name may be written with the root's dot; certificates and SNI are without it.
            return await self.stamper.link(sock, self._context, origin.host.removesuffix("."))
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message.rstrip(".")
            raise TlsFailed(
                f"The certificate of {origin.host} is not trusted: {why}.",
                hint="Check the host name; for a private authority set SSL_CERT_FILE.",
            ) from None
        except ssl.SSLError as error:
            why = (error.reason or "the handshake failed").replace("_", " ").lower()
        except OSError:
            why = "it closed the connection during the handshake"
        raise TlsFailed(
            f"No TLS connection with {origin.authority}: {why}.", hint="Does this port speak https?"
        )


async def _connect(addresses: list[SocketAddress], name: str) -> socket.socket:
    """Connect to the first address that answers; each is tried STAGGER_S after the one before."""
    if len(addresses) == 1:
        return await _connect_one(addresses[0], name)
    waiting: set[asyncio.Task[socket.socket]] = set()
    failure: AttemptError = ConnectionFailed(f"{name} could not be reached.")
    try:
        for address in addresses:
            waiting.add(asyncio.ensure_future(_connect_one(address, name)))
            last = address is addresses[-1]
            while waiting:
                done, _ = await asyncio.wait(
                    waiting,
                    timeout=None if last else STAGGER_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    waiting.discard(task)
                    try:
                        return task.result()
                    except AttemptError as error:
                        failure = error
                if not last:
                    break
    finally:
        for task in waiting:
            task.add_done_callback(_close_late)
            task.cancel()
    raise failure


def _close_late(task: asyncio.Task[socket.socket]) -> None:
    """Close a connection that came too late."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _connect_one(address: SocketAddress, name: str) -> socket.socket:
    sock: socket.socket | None = None
    try:
        sock = socket.socket(address.family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, address.sockaddr)
    except BaseException as error:
        if sock is not None:
            sock.close()
        if isinstance(error, OSError):
            raise _unreachable(name, error) from None
        raise
    return sock


def _unreachable(name: str, error: OSError) -> AttemptError:
    if error.errno == errno.ECONNREFUSED:
        return ConnectionFailed(
            f"{name} refused the connection.", hint="Is the server running, and is the port right?"
        )
    if error.errno in {errno.EMFILE, errno.ENFILE}:
        return _no_descriptor(name)
    why = os.strerror(error.errno) if error.errno else error.__class__.__name__
    return ConnectionFailed(f"{name} could not be reached ({why}).", hint="Is the address right?")


def _no_descriptor(name: str) -> NoDescriptor:
    return NoDescriptor(
        f"No connection to {name} could be opened: this process may open no more files.",
        hint="Raise the limit (ulimit -n) or lower the concurrency.",
    )


def _descriptor_left() -> bool:
    """Whether this process may open one more file: a resolver does not say that it could not."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


async def _tunnel(sock: socket.socket, proxy: Proxy, origin: Origin) -> None:
    loop = asyncio.get_running_loop()
    head = b""
    try:
        await loop.sock_sendall(sock, proxy.connect_head(origin))
        while b"\r\n\r\n" not in head and len(head) < PROXY_HEAD_LIMIT:
            part = await loop.sock_recv(sock, 4096)
            if not part:
                break
            head += part
    except OSError:
        head = b""
    answer = _STATUS_LINE.match(head)
    status = answer[1].decode("ascii") if answer else ""
    if status.startswith("2") and head.endswith(b"\r\n\r\n"):
        return
    said = f"answered {status}" if status else "sent no HTTP answer"
    hint = "The proxy wants a name and a password: http://name:password@host:port."
    raise ConnectionFailed(
        f"The proxy {proxy.where} gave no tunnel to {origin.authority} (it {said}).",
        hint=hint if status == "407" else "Check HTTPS_PROXY and NO_PROXY.",
    )
