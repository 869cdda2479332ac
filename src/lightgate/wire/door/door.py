"""The door: an HTTP/1.1 server that stamps what comes in and notices at once who leaves."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Final, Protocol, cast

from lightgate.errors import ConfigError
from lightgate.wire.door.connection import ServerConnection, address_of
from lightgate.wire.door.farewell import Farewells
from lightgate.wire.door.inbound import DoorLimits, Inbound
from lightgate.wire.door.reply import Reply
from lightgate.wire.door.service import Service
from lightgate.wire.door.tasks import TaskHandler
from lightgate.wire.link.listen import BACKLOG, AcceptedLink, KernelListener, open_sockets
from lightgate.wire.link.stamper import Stamper

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Sequence

    from lightgate.clock.marks import StampSource
    from lightgate.wire.door.connection import ServedLink
    from lightgate.wire.door.crowd import Crowd, CrowdLimits
    from lightgate.wire.door.intake import SinkOf
    from lightgate.wire.door.service import AsyncHandler, Gate, Handler

__all__ = ["Door", "DoorLimits", "Inbound", "Reply"]


_SAID: Final = b'{"error":{"type":"overloaded_error","message":"Too many connections."}}'
TELL_S: Final = 0.5  # before the end of a drain, for clients to be told
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    b"retry-after: 1\r\nconnection: close\r\n\r\n%b" % (len(_SAID), _SAID)
)


class _Listener(Protocol):
    def close(self) -> None: ...


class Door:
    """Serves one handler; needs a running loop.

    The handler is called once for each request and answers it then or later; `Reply.on_lost` tells
    it that the client has left. A handler that is a coroutine function runs as one task for each
    request. Where a body is still on its way, the gate sees the head (the request without its body)
    first: a reply that it gives is the answer, and the body is not read.
    """

    def __init__(
        self,
        handler: Handler | AsyncHandler,
        *,
        stamp: StampSource = "read",
        limits: DoorLimits | None = None,
        tls: ssl.SSLContext | None = None,
        gate: Gate | None = None,
        crowd: CrowdLimits | None = None,
    ) -> None:
        if tls is not None and stamp == "kernel":
            raise ConfigError("A door with TLS stamps when it reads.", hint="Use stamp='read'.")
        self._limits = limits or DoorLimits()
        self._tasks: set[asyncio.Task[None]] = set()
        if inspect.iscoroutinefunction(handler):
            tasks = TaskHandler(handler)
            self._tasks, handler = tasks.running, tasks
        self._service = Service(cast("Handler", handler), self._limits, gate=gate, crowd=crowd)
        self._stamper = Stamper("kernel") if stamp == "kernel" else None
        self._tls = tls
        self._listeners: list[_Listener] = []
        self._farewells = Farewells(
            self._limits.linger_s, 0 if crowd is None else crowd.connections
        )

    @property
    def connections(self) -> int:
        """Clients that are connected now."""
        return len(self._service.connections)

    @property
    def crowd(self) -> Crowd:
        """What the clients hold together."""
        return self._service.crowd

    def sink_bodies(self, sink_of: SinkOf) -> None:
        """Ask for a place for each body that does not come with its head; None: into memory.

        The handler finds the place in the request's notes, and the request without its body.
        """
        self._service.sink_of = sink_of

    async def listen(self, host: str, port: int, *, reuse_port: bool = False) -> int:
        """Start accepting; the port that was bound (a free one for 0)."""
        return await self.accept_from(await open_sockets(host, port, reuse_port=reuse_port))

    async def accept_from(self, sockets: Sequence[socket.socket]) -> int:
        """Start accepting from sockets that are bound; the port of the first."""
        for sock in sockets:
            self._listeners.append(await self._listener(sock))
        bound: int = sockets[0].getsockname()[1]
        return bound

    async def drain(
        self, budget_s: float, *, gentle: bool = False, courtesy_s: float = 0.0
    ) -> None:
        """Accept no more, let running replies finish within the budget, then abort the rest.

        Idle connections are closed after `courtesy_s`. Until then, and with `gentle` within the
        whole budget, each gets one more reply, which tells the client that it is the last: no
        request meets a closed connection.
        A client that has not finished its request shortly before the end is told so.
        """
        courtesy_s = 0.0 if gentle else min(courtesy_s, budget_s / 2)
        self._stop_accepting(gentle=gentle or courtesy_s > 0)
        if courtesy_s > 0:
            await self._emptied(courtesy_s)
            self._service.close(gentle=False)
            budget_s -= courtesy_s
        for connection in () if gentle else tuple(self._service.connections):
            connection.retire()
        if not await self._emptied(max(0.0, budget_s - TELL_S)):
            for connection in tuple(self._service.connections):
                connection.give_up()
            await self._emptied(min(TELL_S, budget_s))
        await self.close()

    async def _emptied(self, budget_s: float) -> bool:
        """Wait until nobody is connected and no handler runs; whether it came to that."""
        try:
            async with asyncio.timeout(budget_s):
                while self._service.connections:
                    self._service.emptied.clear()
                    await self._service.emptied.wait()
                while self._tasks:
                    await asyncio.wait(self._tasks)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stop now: sockets are closed, handlers cancelled and waited for."""
        self._stop_accepting()
        self._farewells.close()
        for connection in tuple(self._service.connections):
            connection.abort()
        if self._tasks:  # a handler that will not be cancelled must not stop the door
            await asyncio.wait(self._tasks, timeout=self._limits.linger_s)
        if self._stamper is not None:
            self._stamper.close()

    async def _listener(self, sock: socket.socket) -> _Listener:
        if self._stamper is not None:
            return KernelListener(sock, self._stamper, self._greet)
        return await asyncio.get_running_loop().create_server(
            lambda: AcceptedLink(self._greet),
            sock=sock,
            ssl=self._tls,
            backlog=BACKLOG,
            ssl_handshake_timeout=None if self._tls is None else self._limits.head_s,
        )

    def _greet(self, link: ServedLink, peer: str, accepted_ns: int) -> None:
        if self._service.ending:
            link.abort()
        elif self._service.crowd.enter(address_of(peer)):
            ServerConnection(link, self._service, peer, accepted_ns)
        else:
            self._farewells.say(link, _FULL)

    def _stop_accepting(self, *, gentle: bool = False) -> None:
        self._service.close(gentle=gentle)
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
