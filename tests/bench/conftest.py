"""Measured requests made by hand, and a server whose every byte a test writes itself."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

from lightgate.bench.load.drive import Finished
from lightgate.bench.load.jobs import Job
from lightgate.clock.marks import Marks, StampSource
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Usage, count
from lightgate.dialect import kinds
from lightgate.dialect.request import Message, Request
from lightgate.provider.call import Called
from lightgate.provider.catalogue import Provider
from lightgate.provider.prepare import prepare
from lightgate.provider.target import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    Serve = Callable[[Script], AbstractAsyncContextManager[int]]

MS = 1_000_000


def target_at(port: int) -> Target:
    url = f"http://127.0.0.1:{port}/v1"
    row = Provider(name="x", title="X", base_url=url, auth="none", dialect="openai")
    return Target(name="x/m", provider=row, model="m", base_url=url)


def job_at(port: int, name: str) -> Job:
    request = Request(model="m", messages=(Message(role="user", content="hi"),), max_tokens=5)
    return Job(name, prepare(target_at(port), request, (("x-request-id", name),)))


class Shape(NamedTuple):
    """A request as it was measured: instants in ms after its send, one token a burst."""

    bursts_ms: tuple[float, ...] = (200, 210, 220)
    first_kinds: int = kinds.TEXT
    usage: int | None = 3
    outcome: Outcome = Outcome.OK
    streamed: bool = True
    stamps: StampSource = "kernel"
    bound_ms: float = 0.0  # of the first and the last stamp
    send_ms: float = 0.0
    worker: int = 0
    name: str = "r"


@pytest.fixture
def measured() -> Callable[[Shape], Finished]:
    def make(shape: Shape) -> Finished:
        send = round(shape.send_ms * MS)
        marks = Marks(plan=send, stamp_source=shape.stamps)
        marks.send = send
        for at_ms in shape.bursts_ms:
            at = send + round(at_ms * MS)
            marks.burst(at, at - round(shape.bound_ms * MS), 1, 4)
        marks.end = marks.last
        said = None if shape.usage is None else Usage(tokens_out=shape.usage)
        called = Called(
            outcome=shape.outcome,
            error=None,
            status=200,
            streamed=shape.streamed,
            tokens=count(marks, said, chars=4 * len(shape.bursts_ms)),
            finish_reason="stop",
            kinds=shape.first_kinds,
            first_kinds=shape.first_kinds,
            bytes_in=100,
            bytes_out=100,
        )
        return Finished(job_at(1, shape.name), marks, called, shape.worker, 0)

    return make


@pytest.fixture
def shape() -> type[Shape]:
    return Shape


@pytest.fixture
def new_job() -> Callable[[int, str], Job]:
    return job_at


@pytest.fixture
def new_target() -> Callable[[int], Target]:
    return target_at


@pytest.fixture
def serving() -> Serve:
    """A TCP server on a free port that runs a script for each connection."""

    @asynccontextmanager
    async def serve(script: Script) -> AsyncIterator[int]:
        held: set[asyncio.Task[None] | None] = (
            set()
        )  # one that waits for ever is held by nobody else

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            held.add(asyncio.current_task())
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
            left = [task for task in held if task is not None and not task.done()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await server.wait_closed()

    return serve
