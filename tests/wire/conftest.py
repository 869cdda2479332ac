"""A scripted server on raw sockets, and a client that is watched for leaks.

A script is a coroutine that speaks for the server on one connection: it may send any bytes, close,
reset or stay silent. A scene is the client's side. `play` runs a scene on both kinds of loop and
with both kinds of stamps, and sees that no task, no socket and no report to the loop is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trustme
import uvloop

from lightgate.clock.marks import Marks
from lightgate.errors import AttemptError
from lightgate.wire.client.client import Client
from lightgate.wire.client.dns import Resolver, SocketAddress
from lightgate.wire.client.proxy import Proxies
from lightgate.wire.client.roundtrip import Deadlines, Outbound, Roundtrip
from lightgate.wire.link.tls import client_context
from lightgate.wire.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lightgate.clock.marks import StampSource
    from lightgate.wire.client.response import Headers

    Script = Callable[["Wire"], Awaitable[None]]
    Scene = Callable[["Rig"], Awaitable[None]]
    Play = Callable[[Scene], None]

PAYLOAD = b"POST /v1 HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"
PATIENT = Deadlines(connect_s=10, first_byte_s=10, idle_s=10, total_s=10)


class Wire:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        self.sock = sock
        self.requests: list[bytes] = []
        self._pending = b""
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = None if context is None else context.wrap_bio(self._in, self._out, True)
        self._loop = asyncio.get_running_loop()

    async def shake(self) -> None:
        """The TLS handshake, if there is one."""
        while self.tls is not None:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                data = await self._loop.sock_recv(self.sock, 65536)
                if not data:
                    raise ConnectionResetError from None
                self._in.write(data)
            except ssl.SSLError:
                await self._flush()  # the alert
                self.sock.close()
                raise
            else:
                await self._flush()
                return

    async def receive(self) -> bytes:
        """Some bytes; none at the end."""
        while True:
            if self.tls is not None:
                with contextlib.suppress(ssl.SSLWantReadError):
                    return self.tls.read(65536)
            data = await self._loop.sock_recv(self.sock, 65536)
            if self.tls is None or not data:
                return data
            self._in.write(data)

    async def request(self) -> bytes:
        """One whole request, or what there was of it when the client hung up."""
        data = self._pending
        while True:
            head, mark, rest = data.partition(b"\r\n\r\n")
            if mark:
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                if len(rest) >= size:
                    self._pending = rest[size:]
                    self.requests.append(head + mark + rest[:size])
                    return self.requests[-1]
            part = await self.receive()
            if not part:
                return data
            data += part

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        if self.tls is None:
            await self._loop.sock_sendall(self.sock, data)
        else:
            self.tls.write(data)
            await self._flush()

    async def answer(self, *pieces: bytes) -> None:
        """Read one request, then send."""
        await self.request()
        for piece in pieces:
            await self.send(piece)

    async def goodbye(self) -> None:
        """TLS's close_notify, then close."""
        if self.tls is not None:
            with contextlib.suppress(ssl.SSLError):
                self.tls.unwrap()
            await self._flush()
        self.sock.close()

    def reset(self) -> None:
        """Close so that the other side gets a RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def ended(self) -> bool:
        """Whether the client has hung up, seen without another turn of the loop."""
        self.sock.settimeout(5)
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True

    async def _flush(self) -> None:
        await self._loop.sock_sendall(self.sock, self._out.read())


class Server:
    """Listens on a free port and runs the script for each connection."""

    def __init__(self, script: Script, context: ssl.SSLContext | None, host: str) -> None:
        self._script = script
        self.context = context
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.sock.setblocking(False)
        self.port = int(self.sock.getsockname()[1])
        self.origin = Origin("https" if context else "http", host, self.port)
        self.wires: list[Wire] = []
        self._tasks: set[asyncio.Task[None]] = {asyncio.ensure_future(self._accept())}

    @property
    def requests(self) -> list[bytes]:
        """All requests that came, connection by connection."""
        return [request for wire in self.wires for request in wire.requests]

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self.sock)
            sock.setblocking(False)
            wire = Wire(sock, self.context)
            self.wires.append(wire)
            self._tasks.add(asyncio.ensure_future(self._serve(wire)))

    async def _serve(self, wire: Wire) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            await wire.shake()
            await self._script(wire)

    async def close(self) -> None:
        """End the scripts and close all sockets; a script's own failure is the test's."""
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        for wire in self.wires:
            wire.sock.close()
        self.sock.close()
        for end in ends:
            if isinstance(end, Exception):
                raise end


class Keeper:
    """A taker that writes down everything, in order."""

    def __init__(self) -> None:
        self.marks = Marks()
        self.trip: Roundtrip | None = None
        self.log: list[str] = []
        self.status = 0
        self.headers: Headers = []
        self.parts: list[bytes] = []
        self.stamps: list[tuple[str, int]] = []
        self.sinces: list[int] = []

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    def on_sent(self, stamp: int) -> None:
        self.log.append("sent")
        self.stamps.append(("sent", stamp))

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        self.status, self.headers = status, headers
        self.log.append("head")
        self.stamps.append(("head", stamp))

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        self.parts.append(data)
        self.stamps.append(("body", stamp))
        self.sinces.append(since)
        self.log.append("body")

    def on_end(self, stamp: int) -> None:
        self.log.append("end")
        self.stamps.append(("end", stamp))


class Rig:
    """What a scene works with; everything that it makes is closed after the scene."""

    def __init__(self, stamp: StampSource, trust: Trust) -> None:
        self.stamp = stamp
        self.authority = trust.authority
        self.cert = trust.cert
        self._context = trust.context
        self.reports: list[dict[str, Any]] = []  # what the loop's exception handler was told
        self._servers: list[Server] = []
        self._clients: list[Client] = []

    def serve(
        self, script: Script, *, cert: trustme.LeafCert | None = None, host: str = "127.0.0.1"
    ) -> Server:
        """A server; with a certificate it speaks TLS."""
        context: ssl.SSLContext | None = None
        if cert is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(["h2", "http/1.1"])
            cert.configure_cert(context)
        server = Server(script, context, host)
        self._servers.append(server)
        return server

    def client(self, **settings: Any) -> Client:
        """A client with this scene's kind of stamps, and no proxy unless named."""
        settings.setdefault("proxies", Proxies())
        client = Client(stamp=self.stamp, **settings)
        self._clients.append(client)
        return client

    def secure_client(self, **settings: Any) -> Client:
        """A client that trusts the scene's authority, and finds every name on this machine."""

        async def lookup(host: str, port: int) -> list[SocketAddress]:
            return [SocketAddress(socket.AF_INET, ("127.0.0.1", port))]

        return self.client(context=self._context, resolver=Resolver(lookup), **settings)

    async def ask(
        self,
        client: Client,
        origin: Origin,
        deadlines: Deadlines = PATIENT,
        keeper: Keeper | None = None,
        payload: bytes = PAYLOAD,
    ) -> Keeper:
        """One roundtrip, its answer written down."""
        keeper = keeper or Keeper()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def over(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        request = Outbound(origin, payload, keeper, keeper.marks, deadlines, over)
        keeper.trip = client.send(request)
        try:
            await done
        finally:
            keeper.trip.cancel()
        return keeper

    async def fails(
        self,
        client: Client,
        origin: Origin,
        deadlines: Deadlines = PATIENT,
        keeper: Keeper | None = None,
    ) -> AttemptError:
        """The error of one exchange: one sentence, and no connection kept."""
        with pytest.raises(AttemptError) as caught:
            await self.ask(client, origin, deadlines, keeper)
        message = caught.value.message
        assert message.endswith(".")
        assert not message.endswith("..")
        assert "\n" not in message
        assert client.open_connections == 0
        return caught.value

    def hurry(self, client: Client) -> None:
        """The time that a client has for the connection that it is opening is over now."""
        [scope] = client._dialing
        scope.reschedule(asyncio.get_running_loop().time())

    def keeper(self) -> Keeper:
        """A fresh taker."""
        return Keeper()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Let the loop turn until something has happened; the scene's own limit ends a wait."""
        while not happened():
            await self.turns(1)

    async def turns(self, count: int = 5) -> None:
        """Let the loop turn a few times, polling its sockets each time."""
        for _ in range(count):
            await asyncio.sleep(0)

    def sockets(self) -> int:
        """Sockets that this process has open."""
        found = 0
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                found += str(entry.readlink()).startswith("socket:")
        return found

    async def close(self) -> None:
        """Close clients first: they must not need their servers for it."""
        for client in self._clients:
            await client.close()
            assert client.open_connections == 0
        for server in self._servers:
            await server.close()


class Trust(NamedTuple):
    """A certificate authority, a good certificate for localhost, and a context that trusts it."""

    authority: trustme.CA
    cert: trustme.LeafCert
    context: ssl.SSLContext


@pytest.fixture(scope="session")
def trust() -> Trust:
    """Made once: keys are slow to make."""
    authority = trustme.CA()
    context = client_context()
    authority.configure_trust(context)
    return Trust(authority, authority.issue_cert("localhost"), context)


@pytest.fixture(params=["read", "kernel"])
def stamps(request: pytest.FixtureRequest) -> StampSource:
    """Both kinds of stamps, as the clients of a scene take them."""
    source: StampSource = request.param
    return source


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest, stamps: StampSource, trust: Trust) -> Play:
    """Runs a scene and sees that it leaves nothing behind."""

    def run(scene: Scene) -> None:
        async def checked() -> None:
            rig = Rig(stamps, trust)
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: rig.reports.append(context))
            before = rig.sockets()
            async with asyncio.timeout(20):
                try:
                    await scene(rig)
                finally:
                    await rig.close()
            await rig.turns()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert rig.sockets() == before
            assert rig.reports == []

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(checked())

    return run
