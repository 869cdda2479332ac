"""Connections that send half a head, or nothing, keep nobody else out."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from console.test_serve import status
from lightgate.clock.source import ManualClock
from lightgate.console.connection import (
    HEAD_LIMIT,
    HEAD_S,
    MOST,
    MOST_WAITING,
    SHORTAGE_NS,
    ConsoleConnection,
    Shortage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from own_time import OwnTime

HALF = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-"


async def page(_scope: Any, _receive: Any, send: Any) -> None:
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"ok"})


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@pytest.fixture
async def port(own: OwnTime) -> AsyncIterator[int]:  # whose deadlines pass at once
    config = uvicorn.Config(
        page,
        port=0,
        log_config=None,
        lifespan="off",
        http=ConsoleConnection,
        limit_concurrency=MOST,
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


Held = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


async def held(port: int, count: int, sent: bytes, local: str = "127.0.0.1") -> Held:
    """Connections that send so much and no more."""
    lines = []
    for _ in range(count):
        line = await asyncio.open_connection("127.0.0.1", port, local_addr=(local, 0))
        line[1].write(sent)
        lines.append(line)
    return lines


async def close(lines: Held) -> None:
    for _, writer in lines:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


HALF_BODY = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n{"


@pytest.mark.parametrize("sent", [HALF, b"", HALF_BODY])
async def test_half_sent_heads_keep_nobody_out(port: int, sent: bytes) -> None:
    lines = await held(port, MOST, sent)
    for _ in range(5):
        assert await status(port, "/") == 200
    await close(lines)


async def test_half_sent_heads_that_come_in_one_turn_keep_nobody_out(port: int) -> None:
    """Each of them had closed the same oldest one, which is still there until the turn is over."""
    lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(MOST + 44)]
    for line in lines:
        line.sendall(HALF)
    for _ in range(5):
        assert await status(port, "/") == 200
    for line in lines:
        line.close()


async def test_the_address_with_the_most_waiting_loses_its_oldest(port: int) -> None:
    [good] = await held(port, 1, HALF, "127.0.0.2")
    lines = await held(port, 2 * MOST_WAITING, HALF, "127.0.0.3")
    good[1].write(b"a: b\r\n\r\n")
    assert (await good[0].readline()).startswith(b"HTTP/1.1 200")
    with contextlib.suppress(ConnectionResetError):
        assert await lines[0][0].read() == b""
    lines[-1][1].write(b"a: b\r\n\r\n")
    assert (await lines[-1][0].readline()).startswith(b"HTTP/1.1 200")
    await close([good, *lines])


async def test_a_head_has_a_deadline_the_second_one_too(port: int) -> None:
    lines = await held(port, 2, HALF)
    lines[1][1].write(b"a: b\r\n\r\n" + HALF)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for reader, _ in lines:
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
    assert HEAD_S - 1 < loop.time() - began < HEAD_S + 2
    await close(lines)


async def test_a_head_has_a_bound(port: int) -> None:
    [(reader, writer)] = await held(port, 1, HALF + b"y: " + b"z" * (HEAD_LIMIT + 1))
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    await close([(reader, writer)])


def test_a_want_of_descriptors_is_one_line_in_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock, others = ManualClock(), list[dict[str, Any]]()
    shortage = Shortage(clock)
    loop: Any = SimpleNamespace(default_exception_handler=others.append)
    for _ in range(2):
        for number in (errno.EMFILE, errno.ENFILE):
            shortage.handle(loop, {"message": "accept", "exception": OSError(number, "full")})
        clock.advance(SHORTAGE_NS)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    for other in (OSError(errno.EPIPE, "gone"), ValueError("x"), None):
        shortage.handle(loop, {"message": "other", "exception": other})
    assert len(others) == 3
    assert len(caplog.records) == 2
