"""Many idle and slow clients do not disturb the others, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from typing import TYPE_CHECKING

import pytest
import uvloop

from lightgate.wire.door.door import Door, DoorLimits, Inbound, Reply
from lightgate.wire.link.stamps import kernel_stamps_available

if TYPE_CHECKING:
    from lightgate.clock.marks import StampSource

STAMPING = pytest.mark.skipif(not kernel_stamps_available(), reason="this kernel does not stamp")
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
DRIP = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
CROWD = 300


async def handler(inbound: Inbound, reply: Reply) -> None:
    reply.start(200, ())
    for _ in range(5):
        reply.send(b"token ")
        await asyncio.sleep(0)
    reply.finish()


async def drip(writer: asyncio.StreamWriter, stop: asyncio.Event) -> None:
    """One byte a turn of a request that never becomes whole."""
    at = 0
    with contextlib.suppress(ConnectionError):
        while not stop.is_set():
            writer.write(DRIP[at : at + 1] or b"x")
            at += 1
            await asyncio.sleep(0)


async def scene(stamp: StampSource) -> None:
    door = Door(handler, stamp=stamp, limits=DoorLimits(body_bytes=2_000_000))
    port = await door.listen("127.0.0.1", 0)
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CROWD)]
    slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
    stop = asyncio.Event()
    drips = [asyncio.create_task(drip(writer, stop)) for _, writer in slow]

    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(50):
        writer.write(GET)
        answer = await reader.readuntil(b"0\r\n\r\n")
        assert answer.count(b"token ") == 5
    assert door.connections == CROWD + 21

    for idle_reader, idle_writer in idle[:10]:  # the idle ones are still served
        idle_writer.write(GET)
        assert (await idle_reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
    stop.set()
    await asyncio.gather(*drips)
    await door.close()
    assert door.connections == 0
    for _, each in (*idle, *slow, (reader, writer)):
        each.close()
        with contextlib.suppress(ConnectionError):
            await each.wait_closed()


@pytest.mark.parametrize("stamp", ["read", pytest.param("kernel", marks=STAMPING)])
def test_a_crowd(stamp: StampSource) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft > 2 * CROWD + 100, "too few file descriptors for this test: ulimit -n"
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scene(stamp), 60))


async def flood(stamp: StampSource) -> None:
    """More clients at once than one turn of the loop accepts in other servers."""
    door = Door(handler, stamp=stamp)
    port = await door.listen("127.0.0.1", 0)

    async def one() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        answer = await reader.read()
        writer.close()
        return answer

    answers = await asyncio.gather(*(one() for _ in range(CROWD)))
    assert all(answer.count(b"token ") == 5 for answer in answers)
    await door.drain(5)
    assert door.connections == 0


@pytest.mark.parametrize("stamp", ["read", pytest.param("kernel", marks=STAMPING)])
def test_a_flood(stamp: StampSource) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(flood(stamp), 60))
