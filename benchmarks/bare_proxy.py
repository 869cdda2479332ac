"""The least that a Python proxy can do: bytes through, HTTP only as far as to know where it ends.

    python benchmarks/bare_proxy.py --upstream PORT [--port 0]

Raw asyncio protocols on uvloop, httptools for the framing, one pool of warm connections. No key, no
route, no clock, no record, no deadline: the floor that overhead.py measures Lightgate against. Ends
when standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys

import httptools
import uvloop


class Pool:
    """Idle connections to the upstream."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.idle: list[Upstream] = []

    async def send(self, client: Client, request: bytes) -> None:
        """Open a connection for a request that found none idle."""
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_connection(lambda: Upstream(self), "127.0.0.1", self.port)
        upstream.send(client, request)


class Upstream(asyncio.Protocol):
    """A connection to the upstream; carries one answer at a time."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.client: Client | None = None
        self.transport: asyncio.Transport | None = None
        self.parser = httptools.HttpResponseParser(self)
        self.complete = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready to send."""
        self.transport = transport  # type: ignore[assignment]  # a stream's transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's
        """The upstream closed it; so does the client's side, if it waits for an answer."""
        if self in self.pool.idle:
            self.pool.idle.remove(self)
        if self.client is not None and self.client.transport is not None:
            self.client.transport.close()

    def send(self, client: Client, request: bytes) -> None:
        """Carry one request; its answer goes to this client."""
        self.client = client
        client.upstream = self
        if self.transport is not None:
            self.transport.write(request)

    def on_message_complete(self) -> None:
        """The parser has seen the end of the answer."""
        self.complete = True

    def data_received(self, data: bytes) -> None:
        """Hand it on as it is."""
        client = self.client
        if client is not None and client.transport is not None:
            client.transport.write(data)
        self.parser.feed_data(data)
        if self.complete:
            self.complete = False
            self.parser = httptools.HttpResponseParser(self)
            self.client = None
            if client is not None:
                client.upstream = None
            self.pool.idle.append(self)


class Client(asyncio.Protocol):
    """A connection from a client."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.upstream: Upstream | None = None
        self.transport: asyncio.Transport | None = None
        self.parser = httptools.HttpRequestParser(self)
        self.parts: list[bytes] = []
        self.complete = False
        self.opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self.transport = transport  # type: ignore[assignment]  # a stream's transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's
        """It left: what it waited for is closed."""
        self.transport = None
        if self.upstream is not None and self.upstream.transport is not None:
            self.upstream.transport.close()

    def on_message_complete(self) -> None:
        """The parser has seen the end of the request."""
        self.complete = True

    def data_received(self, data: bytes) -> None:
        """Send the request on when it is complete."""
        self.parts.append(data)
        self.parser.feed_data(data)
        if not self.complete:
            return
        self.complete = False
        self.parser = httptools.HttpRequestParser(self)
        request = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        self.parts = []
        if self.pool.idle:
            self.pool.idle.pop().send(self, request)
        else:
            self.opening = asyncio.ensure_future(self.pool.send(self, request))


async def serve(port: int, upstream: int) -> None:
    loop = asyncio.get_running_loop()
    pool = Pool(upstream)
    server = await loop.create_server(lambda: Client(pool), "127.0.0.1", port, backlog=1024)
    print(json.dumps({"ready": True, "port": server.sockets[0].getsockname()[1]}), flush=True)
    over = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)  # never written to: readable at its end
    await over.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="The least that a Python proxy can do.")
    parser.add_argument("--upstream", type=int, required=True, metavar="PORT")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    uvloop.run(serve(options.port, options.upstream))


if __name__ == "__main__":
    main()
