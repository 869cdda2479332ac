"""Deadlines, cancellation, backpressure, and takers that fail."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING

import pytest

from lightgate.errors import Cancelled, DeadlineMissed, StreamError
from lightgate.wire.client.dns import Resolver, SocketAddress
from lightgate.wire.client.roundtrip import Deadlines, Roundtrip
from lightgate.wire.origin import Origin

if TYPE_CHECKING:
    from lightgate.wire.client.response import Headers
    from wire.conftest import Keeper, Play, Rig, Script, Wire

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
SHORT = 0.03
LONG = 10.0
FOREVER = Deadlines(None, None, None, None)


async def silent(wire: Wire) -> None:
    await wire.request()
    await asyncio.Event().wait()


async def half(wire: Wire) -> None:
    await wire.answer(CHUNKED + b"5\r\nhello\r\n")
    await asyncio.Event().wait()


async def slow_head(wire: Wire) -> None:
    await wire.answer(b"HTTP/1.1 200 OK\r\nx: ")
    await asyncio.Event().wait()


async def dripping(wire: Wire) -> None:
    await wire.answer(CHUNKED)
    while True:
        await wire.send(b"1\r\na\r\n")
        await asyncio.sleep(SHORT / 10)


CASES = {
    "first_byte": (silent, Deadlines(LONG, SHORT, LONG, LONG)),
    "first_byte alone": (silent, Deadlines(None, SHORT, None, None)),
    "idle in the body": (half, Deadlines(LONG, LONG, SHORT, LONG)),
    "idle in the head": (slow_head, Deadlines(LONG, LONG, SHORT, LONG)),
    "idle alone": (half, Deadlines(None, None, SHORT, None)),
    "total of a silent server": (silent, Deadlines(LONG, LONG, LONG, SHORT)),
    "total of a lively one": (dripping, Deadlines(LONG, LONG, LONG, SHORT)),
    "total alone": (half, Deadlines(None, None, None, SHORT)),
}


@pytest.mark.parametrize("name", CASES)
def test_deadlines(play: Play, name: str) -> None:
    script, deadlines = CASES[name]

    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(script)
        await client.warm(server.origin, 1)  # or the time may be over before there is a connection
        await rig.until(lambda: bool(server.wires))
        error = await rig.fails(client, server.origin, deadlines)
        assert isinstance(error, DeadlineMissed)
        assert error.phase == name.split(" ", maxsplit=1)[0]
        assert server.wires[0].ended()

    play(scene)


def full_backlog() -> tuple[socket.socket, list[socket.socket], Origin]:
    """A listener whose queue is full: further connects hang."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = int(listener.getsockname()[1])
    fillers = []
    for _ in range(3):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", port))
        fillers.append(filler)
    return listener, fillers, Origin("http", "127.0.0.1", port)


@pytest.mark.parametrize(
    ("deadlines", "phase"),
    [
        (Deadlines(SHORT, LONG, LONG, LONG), "connect"),
        (Deadlines(LONG, LONG, LONG, SHORT), "total"),
    ],
)
def test_deadlines_while_connecting(play: Play, deadlines: Deadlines, phase: str) -> None:
    async def scene(rig: Rig) -> None:
        listener, fillers, origin = full_backlog()
        try:
            keeper = rig.keeper()
            error = await rig.fails(rig.client(), origin, deadlines, keeper)
            assert isinstance(error, DeadlineMissed)
            assert error.phase == phase
            assert keeper.log == []
        finally:
            for sock in (listener, *fillers):
                sock.close()

    play(scene)


def test_the_handshake_counts_as_connecting(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        server = rig.serve(silent)
        client, origin = rig.client(), server.origin._replace(scheme="https")
        call = asyncio.ensure_future(rig.fails(client, origin, Deadlines(connect_s=LONG)))
        await rig.until(lambda: bool(server.wires))
        rig.hurry(client)
        error = await call
        assert isinstance(error, DeadlineMissed)
        assert error.phase == "connect"
        assert server.wires[0].ended()

    play(scene)


# Cancellation


@pytest.mark.parametrize("script", [silent, slow_head, half])
def test_cancel_closes_the_socket_in_the_same_turn(play: Play, script: Script) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(script)
        keeper = rig.keeper()
        call = asyncio.ensure_future(rig.ask(client, server.origin, keeper=keeper))
        await rig.until(lambda: bool(server.requests))
        await rig.turns()
        assert keeper.trip is not None
        keeper.trip.cancel()
        assert server.wires[0].ended()
        with pytest.raises(Cancelled):
            await call
        assert client.open_connections == 0
        keeper.trip.cancel()  # a second time is harmless

    play(scene)


def test_cancel_over_tls_closes_in_the_same_turn(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        server = rig.serve(half, cert=rig.cert, host="localhost")
        client = rig.secure_client()
        keeper = rig.keeper()
        call = asyncio.ensure_future(rig.ask(client, server.origin, keeper=keeper))
        await rig.until(lambda: keeper.body == b"hello")
        assert keeper.trip is not None
        keeper.trip.cancel()
        assert server.wires[0].ended()
        with pytest.raises(Cancelled):
            await call

    play(scene)


@pytest.mark.parametrize("script", [silent, half])
def test_a_cancelled_task_leaves_nothing(play: Play, script: Script) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(script)
        keeper = rig.keeper()
        call = asyncio.ensure_future(rig.ask(client, server.origin, keeper=keeper))
        await rig.until(lambda: bool(server.requests))
        await rig.turns()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert server.wires[0].ended()
        assert client.open_connections == 0
        assert keeper.trip is not None
        assert not keeper.trip.connection.timer.ticking

    play(scene)


@pytest.mark.parametrize("turns", range(12))
def test_cancelled_at_any_turn(play: Play, turns: int) -> None:
    """From before the look-up, over TCP and TLS, into the exchange."""

    async def scene(rig: Rig) -> None:
        server = rig.serve(silent, cert=rig.cert, host="localhost")
        client = rig.secure_client()
        before = rig.sockets()
        call = asyncio.ensure_future(rig.ask(client, server.origin))
        await rig.turns(turns)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert client.open_connections == 0
        await rig.turns()
        await server.close()
        assert rig.sockets() == before - 1  # the listener
        assert asyncio.all_tasks() == {asyncio.current_task()}

    play(scene)


@pytest.mark.parametrize("closing", [False, True])
def test_cancelled_while_connecting(play: Play, *, closing: bool) -> None:
    async def scene(rig: Rig) -> None:
        listener, fillers, origin = full_backlog()
        try:
            client, before = rig.client(), rig.sockets()
            call = asyncio.ensure_future(rig.ask(client, origin, FOREVER))
            await rig.until(lambda: rig.sockets() > before)
            if closing:
                await client.close()
                with pytest.raises(Cancelled):
                    await call
            else:
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                assert client.open_connections == 0
                assert rig.sockets() == before
        finally:
            for sock in (listener, *fillers):
                sock.close()

    play(scene)


@pytest.mark.parametrize("closing", [False, True])
def test_cancelled_while_shaking_hands(play: Play, *, closing: bool) -> None:
    async def scene(rig: Rig) -> None:
        server = rig.serve(silent)
        client = rig.client()
        origin = server.origin._replace(scheme="https")
        call = asyncio.ensure_future(rig.ask(client, origin, FOREVER))
        await rig.until(lambda: bool(server.wires))
        await rig.turns()
        if closing:
            await client.close()
            with pytest.raises(Cancelled):
                await call
        else:
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        await rig.turns()
        assert server.wires[0].ended()
        assert client.open_connections == 0

    play(scene)


def test_cancelled_while_the_resolver_thinks(play: Play) -> None:
    async def never(host: str, port: int) -> list[SocketAddress]:
        await asyncio.Event().wait()
        return []

    async def scene(rig: Rig) -> None:
        client = rig.client(resolver=Resolver(never))
        before = len(asyncio.all_tasks())
        call = asyncio.ensure_future(rig.ask(client, Origin("http", "a.test", 80)))
        await rig.turns()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await rig.turns()
        assert len(asyncio.all_tasks()) == before
        assert client.open_connections == 0

    play(scene)


def test_cancelled_after_the_answer_was_complete_keeps_the_connection(play: Play) -> None:
    async def script(wire: Wire) -> None:
        while await wire.request():
            await wire.send(OK)

    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(script)
        keeper = rig.keeper()
        call = asyncio.ensure_future(rig.ask(client, server.origin, keeper=keeper))
        keeper.on_end = lambda stamp: call.cancel()  # type: ignore[method-assign,assignment] # fake
        with pytest.raises(asyncio.CancelledError):
            await call
        assert client.open_connections <= 1
        assert (await rig.ask(client, server.origin)).body == b"hello"

    play(scene)


# Backpressure


def later(monkeypatch: pytest.MonkeyPatch, trip: Roundtrip) -> None:
    """Let the deadlines' clock, but no timer, pass all of them; then look as a timer would."""
    now_ns = time.monotonic_ns
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns() + int(2 * LONG * 1e9))
    trip.expire()


def test_a_paused_exchange_blocks_the_server_and_resumes(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 64 * 1024 * 1024

    async def scene(rig: Rig) -> None:
        sent = 0

        async def script(wire: Wire) -> None:
            nonlocal sent
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            await wire.answer(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
            while sent < size:
                await wire.send(bytes(65536))
                sent += 65536
            await wire.request()

        client, server = rig.client(), rig.serve(script)
        keeper = rig.keeper()
        taken = 0

        def on_body(data: bytes, stamp: int, since: int) -> None:
            nonlocal taken
            taken += len(data)
            assert keeper.trip is not None
            if taken == len(data):
                keeper.trip.pause()
                keeper.trip.pause()

        keeper.on_body = on_body  # type: ignore[method-assign]  # a fake
        call = asyncio.ensure_future(
            rig.ask(client, server.origin, Deadlines(idle_s=LONG, total_s=None), keeper)
        )
        await rig.until(lambda: taken > 0)
        held, before = taken, -1
        while sent > before:  # until the kernel holds all that it takes
            before = sent
            await rig.turns(20)
        assert taken == held <= 512 * 1024
        assert sent < size
        assert keeper.trip is not None
        # The silence while we do not read is ours: it must not count as the server's.
        later(monkeypatch, keeper.trip)
        keeper.trip.resume()
        await call
        assert taken == size
        assert client.open_connections == 1

    play(scene)


def test_an_answer_that_ends_while_paused_leaves_a_readable_connection(play: Play) -> None:
    async def script(wire: Wire) -> None:
        while await wire.request():
            await wire.send(OK)

    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(script)
        keeper = rig.keeper()
        head = keeper.on_head

        def on_head(status: int, headers: Headers, stamp: int) -> None:
            head(status, headers, stamp)
            assert keeper.trip is not None
            keeper.trip.pause()

        keeper.on_head = on_head  # type: ignore[method-assign]  # a fake
        await rig.ask(client, server.origin, keeper=keeper)
        assert (await rig.ask(client, server.origin)).body == b"hello"
        assert keeper.trip is not None
        keeper.trip.pause()  # too late: the connection belongs to others now
        assert (await rig.ask(client, server.origin)).body == b"hello"
        assert len(server.wires) == 1

    play(scene)


def test_silence_after_a_resume_counts_again(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(half)
        keeper = rig.keeper()
        deadlines = Deadlines(None, None, LONG, None)
        call = asyncio.ensure_future(rig.fails(client, server.origin, deadlines, keeper))
        await rig.until(lambda: keeper.body == b"hello")
        assert keeper.trip is not None
        keeper.trip.pause()
        later(monkeypatch, keeper.trip)
        assert not keeper.trip.over
        keeper.trip.resume()
        keeper.trip.expire()
        assert not keeper.trip.over  # it begins anew
        later(monkeypatch, keeper.trip)
        error = await call
        assert isinstance(error, DeadlineMissed)
        assert error.phase == "idle"

    play(scene)


def test_a_large_request_is_sent_whole_to_a_slow_reader(play: Play) -> None:
    body = bytes(range(256)) * 4096  # 1 MiB, more than the kernel takes at once

    async def script(wire: Wire) -> None:
        request = await wire.request()
        await wire.send(OK if request.endswith(b"\r\n\r\n" + body) else b"HTTP/1.1 400 No\r\n\r\n")

    async def scene(rig: Rig) -> None:
        head = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body)
        kept = await rig.ask(rig.client(), rig.serve(script).origin, payload=head + body)
        assert kept.status == 200

    play(scene)


# Takers


class Defect(Exception):  # noqa: N818 - not an error of ours: what a defective taker raises
    pass


def failing(keeper: Keeper, method: str, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    setattr(keeper, method, fail)


METHODS = ["on_sent", "on_head", "on_body", "on_end"]


async def ok_then_wait(wire: Wire) -> None:
    await wire.answer(OK)
    await asyncio.Event().wait()


@pytest.mark.parametrize("method", METHODS)
def test_an_attempt_error_of_the_taker_ends_the_exchange(play: Play, method: str) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(ok_then_wait)
        keeper = rig.keeper()
        failing(keeper, method, StreamError("It said no."))
        assert isinstance(await rig.fails(client, server.origin, keeper=keeper), StreamError)

    play(scene)


@pytest.mark.parametrize("method", METHODS)
def test_a_defect_of_the_taker_closes_and_surfaces(play: Play, method: str) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(ok_then_wait)
        keeper = rig.keeper()
        failing(keeper, method, Defect())
        with pytest.raises(Defect):
            await rig.ask(client, server.origin, keeper=keeper)
        assert client.open_connections == 0
        await rig.turns()
        if method not in {"on_open", "on_sent"}:
            assert isinstance(rig.reports.pop()["exception"], Defect)
            assert server.wires[0].ended()

    play(scene)


@pytest.mark.parametrize("method", METHODS[:-1])
def test_a_taker_may_cancel_from_anywhere(play: Play, method: str) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(ok_then_wait)
        keeper = rig.keeper()

        def cancel(*args: object) -> None:
            assert keeper.trip is not None
            keeper.trip.cancel()

        setattr(keeper, method, cancel)
        assert isinstance(await rig.fails(client, server.origin, keeper=keeper), Cancelled)
        after = METHODS[METHODS.index(method) + 1 :]
        assert not {name.removeprefix("on_") for name in after[1:]} & set(keeper.log)

    play(scene)
