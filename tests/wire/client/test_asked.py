"""One request that is waited for, connections that come too late or never, and what is told."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.marks import Marks
from lightgate.errors import AttemptError, Cancelled, ConnectionFailed, NoDescriptor, PeerReset
from lightgate.wire.client import dial
from lightgate.wire.client.dns import SocketAddress
from lightgate.wire.client.roundtrip import Deadlines, Outbound, Roundtrip
from lightgate.wire.origin import Origin
from wire.conftest import PATIENT, PAYLOAD, Keeper

if TYPE_CHECKING:
    from wire.conftest import Play, Rig, Wire

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
NOWHERE = Origin("http", "127.0.0.1", 9)


async def always_ok(wire: Wire) -> None:
    while await wire.request():
        await wire.send(OK)


def test_a_request_that_is_waited_for(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        async def broken(wire: Wire) -> None:
            await wire.request()
            wire.reset()

        client, server, bad = rig.client(), rig.serve(always_ok), rig.serve(broken)
        keeper = rig.keeper()
        await client.ask(server.origin, PAYLOAD, keeper, keeper.marks, PATIENT)
        assert (keeper.status, keeper.body) == (200, b"hello")
        assert client.open_connections == 1
        with pytest.raises(PeerReset):
            await client.ask(bad.origin, PAYLOAD, rig.keeper(), Marks(), PATIENT)
        assert client.open_connections == 1

    play(scene)


def test_a_request_that_is_given_up_while_it_is_waited_for(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        async def silent(wire: Wire) -> None:
            await wire.request()
            await wire.request()

        client, server = rig.client(), rig.serve(silent)
        keeper = rig.keeper()
        asked = client.ask(server.origin, PAYLOAD, keeper, keeper.marks, PATIENT)
        task = asyncio.ensure_future(asked)
        await rig.until(lambda: bool(server.requests))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.open_connections == 0

    play(scene)


async def failing(rig: Rig, dialled: Any) -> tuple[list[BaseException | None], asyncio.Task[None]]:
    """A request whose connection is opened by a dialer of the test's own."""
    client = rig.client()
    client._dialer = dialled
    ends: list[BaseException | None] = []
    keeper = rig.keeper()
    trip = client.send(Outbound(NOWHERE, PAYLOAD, keeper, keeper.marks, PATIENT, ends.append))
    task = trip.dialling
    assert task is not None
    await rig.turns()
    return ends, task


def test_a_loop_that_ends_and_a_dialer_with_a_defect_end_the_request(play: Play) -> None:
    class Never:
        async def dial(self, origin: Origin, marks: Marks) -> Any:
            await asyncio.get_running_loop().create_future()

    class Defect:
        async def dial(self, origin: Origin, marks: Marks) -> Any:
            raise ValueError(origin, marks)

    async def scene(rig: Rig) -> None:
        ends, task = await failing(rig, Never())
        assert ends == []
        task.cancel()  # as `asyncio.run` does with what is left
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [str(one) for one in ends] == ["The client was closed."]
        assert isinstance(ends[0], Cancelled)
        ends, task = await failing(rig, Defect())
        assert [type(one) for one in ends] == [ValueError]
        assert isinstance(task.exception(), ValueError)

    play(scene)


def test_a_connection_that_comes_although_the_request_was_cancelled(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(always_ok)
        opened, real = asyncio.Event(), client._dialer

        class Stubborn:
            async def dial(self, origin: Origin, marks: Marks) -> Any:
                link = await real.dial(origin, marks)
                opened.set()
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError:
                    return link

        held: Any = client
        held._dialer = Stubborn()
        keeper, ends = rig.keeper(), list[BaseException | None]()
        trip = client.send(
            Outbound(server.origin, PAYLOAD, keeper, keeper.marks, PATIENT, ends.append)
        )
        await opened.wait()
        trip.cancel()
        held._dialer = real
        await rig.until(lambda: len(client._pools[server.origin].idle) == 1)
        assert [str(one) for one in ends] == ["The call was cancelled."]
        assert client.open_connections == 1
        assert (await rig.ask(client, server.origin)).body == b"hello"
        assert len(server.wires) == 1

    play(scene)


@pytest.mark.parametrize("late", [False, True])
async def test_the_first_address_that_answers_is_taken(
    monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    made, given_up = [socket.socket(), socket.socket()], list[int]()

    async def connect(address: SocketAddress, name: str) -> socket.socket:
        if address.family == 2:
            return made[1]
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            given_up.append(address.family)
            if not late:
                raise
        return made[0]

    monkeypatch.setattr(dial, "STAGGER_S", 0)
    monkeypatch.setattr(dial, "_connect_one", connect)
    addresses = [SocketAddress(number, ("", 1)) for number in (1, 3, 2)]
    async with asyncio.timeout(20):
        assert await dial._connect(addresses, "a") is made[1]
        while len(given_up) < 2:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert (made[0].fileno() == -1) is late
    assert made[1].fileno() != -1
    for one in made:
        one.close()


async def test_the_error_of_the_last_address_is_told_once_all_have_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect(address: SocketAddress, name: str) -> socket.socket:
        raise ConnectionFailed(f"{name} {address.family}.")

    monkeypatch.setattr(dial, "_connect_one", connect)
    addresses = [SocketAddress(number, ("", 1)) for number in (1, 2)]
    async with asyncio.timeout(20):
        with pytest.raises(ConnectionFailed, match=r"a 2\."):
            await dial._connect(addresses, "a")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (OSError(errno.ECONNREFUSED, ""), ConnectionFailed, "a refused the connection."),
        (OSError(errno.EMFILE, ""), NoDescriptor, "this process may open no more files."),
        (OSError(errno.ENFILE, ""), NoDescriptor, "this process may open no more files."),
        (OSError(errno.EHOSTUNREACH, ""), ConnectionFailed, "reached (No route to host)."),
        (OSError(), ConnectionFailed, "a could not be reached (OSError)."),
    ],
)
def test_why_an_address_is_not_reached(
    error: OSError, kind: type[AttemptError], message: str
) -> None:
    told = dial._unreachable("a", error)
    assert type(told) is kind
    assert told.message.endswith(message)


@pytest.mark.parametrize(
    ("total_s", "passed_ns", "left_s"),
    [(None, 0, None), (2.0, 500_000_000, 1.5), (2.0, 2_000_000_000, 0.0), (2.0, 9**12, 0.0)],
)
def test_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, total_s: float | None, passed_ns: int, left_s: float | None
) -> None:
    owner: Any = None
    monkeypatch.setattr("time.monotonic_ns", lambda: 5_000)
    keeper = Keeper()
    wish = Outbound(
        NOWHERE, PAYLOAD, keeper, Marks(), Deadlines(total_s=total_s), lambda error: None
    )
    trip = Roundtrip(owner, wish)
    monkeypatch.setattr("time.monotonic_ns", lambda: 5_000 + passed_ns)
    assert trip.left_s() == left_s
