"""What all clients of a door hold together."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.wire.door.crowd import Crowd, CrowdLimits
from lightgate.wire.door.door import Door, DoorLimits
from lightgate.wire.door.farewell import FEW, MOST, Farewells

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lightgate.clock.marks import StampSource
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply

POST = b"POST / HTTP/1.1\r\nhost: h\r\n%bcontent-length: %d\r\n\r\n%b"


def test_connections_are_counted_by_address() -> None:
    crowd = Crowd(CrowdLimits(connections=3, connections_per_address=2))
    assert [crowd.enter(one) for one in "aaabb"] == [True, True, False, True, False]
    assert (crowd.connections, crowd.refused["connections"]) == (3, 2)
    crowd.leave("a")
    assert crowd.enter("b")
    assert not crowd.enter("c")


def test_an_address_that_left_altogether_may_have_as_many_again() -> None:
    crowd = Crowd(CrowdLimits(connections_per_address=2))
    for _ in range(3):
        assert [crowd.enter("::1"), crowd.enter("::1"), crowd.enter("::1")] == [True, True, False]
        crowd.leave("::1")
        crowd.leave("::1")
    assert crowd.connections == 0


def test_one_owner_holds_half_of_the_bodies_at_most() -> None:
    crowd = Crowd(CrowdLimits(body_bytes=100))
    assert crowd.hold("a", 50)
    assert not crowd.hold("a", 1)
    assert crowd.hold("b", 40)
    assert not crowd.hold("c", 11)
    assert crowd.refused["bodies"] == 2
    assert crowd.hold("c", 10)
    crowd.release("a", 50)
    assert crowd.body_bytes == 50
    assert crowd.hold("a", 50)


def test_no_limit_is_none() -> None:
    crowd = Crowd(CrowdLimits())
    assert all(crowd.enter("a") for _ in range(10_000))
    assert crowd.hold("a", 1 << 40)


async def settle(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.001)


async def status(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head.split()[1]


async def hello(inbound: Inbound, reply: Reply) -> None:
    reply.whole(200, (), b"%d" % len(inbound.body))


def owner(inbound: Inbound, reply: Reply) -> bytes | None:
    del reply
    return inbound.header(b"key")


async def test_a_connection_too_many_is_told_so_and_room_is_made_again() -> None:
    door = Door(hello, crowd=CrowdLimits(connections=2))
    port = await door.listen("127.0.0.1", 0)
    first, second = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    first[1].write(POST % (b"", 0, b""))
    assert await status(first[0]) == b"200"
    third = await asyncio.open_connection("127.0.0.1", port)
    said = await third[0].read()
    assert said.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1\r\n" in said
    for _, writer in (first, third):
        writer.close()
    await settle(lambda: door.connections == 1)
    fourth = await asyncio.open_connection("127.0.0.1", port)
    fourth[1].write(POST % (b"", 2, b"hi"))
    assert await status(fourth[0]) == b"200"
    for _, writer in (second, fourth):
        writer.close()
    await door.close()
    assert door.crowd.connections == 0


@asynccontextmanager
async def connected(**where: Any) -> AsyncIterator[asyncio.StreamReader]:
    """What a client reads, until it closes."""
    reader, writer = await asyncio.open_connection(**where)
    try:
        yield reader
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def crowded(
    stamp: StampSource = "read", linger_s: float = 60.0
) -> AsyncIterator[tuple[Door, int]]:
    """A door for one connection, which somebody has."""
    limits = DoorLimits(linger_s=linger_s)
    door = Door(hello, stamp=stamp, limits=limits, crowd=CrowdLimits(connections=1))
    port = await door.listen("127.0.0.1", 0)
    async with connected(host="127.0.0.1", port=port):
        await settle(lambda: door.connections == 1)
        yield door, port
        await door.close()
        assert not door._farewells


@pytest.mark.parametrize("stamp", ["read", "kernel"])
@pytest.mark.parametrize("size", [0, 50_000])
async def test_one_that_has_sent_its_request_already_hears_why_it_is_turned_away(
    stamp: StampSource, size: int
) -> None:
    async with crowded(stamp) as (door, port):
        # In the kernel's hands, and the door has not looked at the connection yet.
        sock = socket.create_connection(("127.0.0.1", port))
        request = POST % (b"", size, bytes(size))
        assert sock.send(request) == len(request)
        sock.setblocking(False)
        async with connected(sock=sock) as reader:
            said = await reader.read()  # to the end, which is no reset
            assert said.startswith(b"HTTP/1.1 503")
            assert said.endswith(b'"Too many connections."}}')
            assert len(door._farewells) == 1
        await settle(lambda: not door._farewells)


async def test_one_that_was_turned_away_and_does_not_leave_is_not_waited_for() -> None:
    async with (
        crowded(linger_s=0.05) as (door, port),
        connected(host="127.0.0.1", port=port) as reader,
    ):
        assert (await reader.read()).startswith(b"HTTP/1.1 503")
        await settle(lambda: not door._farewells)


async def test_so_many_that_are_turned_away_are_waited_for_and_no_more() -> None:
    async with crowded() as (door, port), AsyncExitStack() as clients:
        for _ in range(FEW + 5):
            reader = await clients.enter_async_context(connected(host="127.0.0.1", port=port))
            assert await status(reader) == b"503"
        assert len(door._farewells) == FEW


@pytest.mark.parametrize(("connections", "most"), [(0, MOST), (1, FEW), (480, 60), (100_000, MOST)])
def test_those_that_are_turned_away_hold_a_share_of_the_descriptors(
    connections: int, most: int
) -> None:
    assert Farewells(1.0, connections)._most == most


async def test_unfinished_bodies_are_counted_and_let_go() -> None:
    limits = DoorLimits(body_bytes=1 << 20)
    door = Door(hello, limits=limits, gate=owner, crowd=CrowdLimits(body_bytes=400_000))
    port = await door.listen("127.0.0.1", 0)
    half = b"x" * 150_000
    held = []
    for name in (b"key: one\r\n", b"key: two\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST % (name, 190_000, half))
        held.append((reader, writer))
    await settle(lambda: door.crowd.body_bytes >= 300_000)
    third, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(POST % (b"key: three\r\n", 190_000, half[:60_000]))
    await settle(lambda: door.crowd.body_bytes >= 360_000)
    writer.write(half[:60_000])
    assert await status(third) == b"503"  # it has no room
    assert door.crowd.body_bytes < 310_000  # and holds none, though it is still connected
    writer.close()
    (_, gone), (reader, finishing) = held
    gone.close()
    await settle(lambda: door.crowd.body_bytes < 160_000)
    finishing.write(b"x" * 40_000)
    assert await status(reader) == b"200"
    finishing.close()
    await settle(lambda: not door.connections)
    assert door.crowd.body_bytes == 0
    await door.close()
