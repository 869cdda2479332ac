"""Opening one connection: name, TCP, proxy, TLS, each part timed on its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from typing import TYPE_CHECKING, Final

from lightgate.errors import AttemptError, ConnectionFailed, TlsFailed

if TYPE_CHECKING:
    from lightgate.clock.marks import Marks
    from lightgate.wire.dns import Address, Resolver
    from lightgate.wire.link import Link
    from lightgate.wire.origin import Origin
    from lightgate.wire.proxy import Proxies, Proxy
    from lightgate.wire.stamper import Stamper

STAGGER_S: Final = 0.25  # the next address is tried this long after the one before (RFC 8305)
PROXY_HEAD_LIMIT: Final = 16 * 1024


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
        """A connected link; what each part took is written to the marks."""
        proxy = self._proxies.choose(origin)
        host, port = (proxy.host, proxy.port) if proxy else (origin.host, origin.port)
        began = time.monotonic_ns()
        addresses, asked = await self._resolver.resolve(host, port)
        resolved = time.monotonic_ns()
        if asked:
            marks.dns_ns = resolved - began
        sock = await _connect(addresses, f"{origin.scheme}://{host}:{port}")
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
            from lightgate.wire.tls import client_context

            self._context = client_context()
        try:
            return await self.stamper.link(sock, self._context, origin.host)
        except ssl.SSLCertVerificationError as error:
            raise TlsFailed(
                f"The certificate of {origin.host} is not trusted: {error.verify_message}.",
                hint="Check the host name; for a private authority set SSL_CERT_FILE.",
            ) from None
        except (ssl.SSLError, OSError) as error:
            why = getattr(error, "reason", None) or error.__class__.__name__
            raise TlsFailed(
                f"No TLS connection with {origin.authority}: {why}.",
                hint="Does this port speak https?",
            ) from None


async def _connect(addresses: list[Address], name: str) -> socket.socket:
    """The first address that answers; the next one starts a moment after the one before."""
    if len(addresses) == 1:
        return await _connect_one(addresses[0], name)
    waiting: set[asyncio.Task[socket.socket]] = set()
    failure: AttemptError | None = None
    try:
        for address in [*addresses, None]:
            if address is not None:
                waiting.add(asyncio.ensure_future(_connect_one(address, name)))
            timeout = STAGGER_S if address is not None else None
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    error = task.exception()
                    if error is None:
                        return task.result()
                    if isinstance(error, AttemptError):
                        failure = error
                if timeout is not None:
                    break
    finally:
        for task in waiting:
            task.add_done_callback(_close_late)
            task.cancel()
    raise failure or ConnectionFailed(f"{name} could not be reached.")


def _close_late(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _connect_one(address: Address, name: str) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, address.sockaddr)
    except OSError as error:
        sock.close()
        refused = isinstance(error, ConnectionRefusedError)
        raise ConnectionFailed(
            f"{name} refused the connection."
            if refused
            else f"{name} could not be reached ({error.strerror or error.__class__.__name__}).",
            hint="Is the server running, and is the port right?",
        ) from None
    except BaseException:
        sock.close()
        raise
    return sock


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
    words = head.split(b"\r\n", 1)[0].split(b" ", 2)
    granted = len(words) > 1 and words[0].startswith(b"HTTP/1.") and words[1][:1] == b"2"
    if not granted or not head.endswith(b"\r\n\r\n"):
        said = words[1].decode("ascii", "replace")[:3] if len(words) > 1 else "nothing"
        raise ConnectionFailed(
            f"The proxy {proxy.host}:{proxy.port} gave no tunnel to {origin.authority}"
            f" (it answered {said}).",
            hint="Check HTTPS_PROXY and NO_PROXY.",
        )
