"""A server whose every byte a test writes itself, and targets that point at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from lightgate.clock.marks import Marks
from lightgate.dialect.request import Message, Request
from lightgate.provider.call import Called, call
from lightgate.provider.catalogue import Provider
from lightgate.provider.target import Target
from lightgate.wire.client.client import Client
from lightgate.wire.client.roundtrip import Deadlines

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
QUICK = Deadlines(connect_s=2, first_byte_s=2, idle_s=2, total_s=5)
REQUEST = Request(model="m", messages=(Message(role="user", content="hi"),), max_tokens=5)


def target_at(port: int, family: str = "openai", root: str = "/v1") -> Target:
    url = f"http://127.0.0.1:{port}{root}"
    row = Provider(name="x", title="X", base_url=url, auth="none", dialect=family)  # type: ignore[arg-type] # a test's word
    return Target(name="x/m", provider=row, model="m", base_url=url)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    )
    return head + await reader.readexactly(length)


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[int]:
    """A TCP server on a free port that runs the script for each connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture(params=["read", "kernel"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    client = Client(stamp=request.param)
    yield client
    await client.close()


@pytest.fixture
def answer(client: Client) -> Callable[..., Awaitable[tuple[Called, Marks]]]:
    """Serve these bytes as the answer to one call, then close; what the call made of it."""

    async def one(
        data: bytes | list[bytes], *, request: Request = REQUEST, family: str = "openai"
    ) -> tuple[Called, Marks]:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            for part in [data] if isinstance(data, bytes) else data:
                writer.write(part)
                await writer.drain()

        async with serving(script) as port:
            marks = Marks()
            root = "/v1beta" if family == "gemini" else "/v1"
            target = target_at(port, family, root)
            return await call(target, request, marks, client=client, deadlines=QUICK), marks

    return one
