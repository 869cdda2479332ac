"""The door on real sockets: both kinds of stamps, both kinds of loops."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
import socket
import ssl
import struct
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import uvloop

from lightgate.errors import ConfigError
from lightgate.wire.door.connection import ServerConnection, _log_failure
from lightgate.wire.door.door import TELL_S, Door, DoorLimits, Inbound, Reply
from lightgate.wire.door.service import http_date
from lightgate.wire.link.stamps import kernel_stamps_available

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lightgate.clock.marks import StampSource

    Handler = Callable[[Inbound, Reply], Awaitable[None]]
    Scene = Callable[[], Awaitable[None]]

STAMPING = pytest.mark.skipif(not kernel_stamps_available(), reason="this kernel does not stamp")
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Scene], None]:
    """Run a scene on a loop of its own, and see that it leaves no task behind."""

    def play(scene: Scene) -> None:
        async def checked() -> None:
            async with asyncio.timeout(20):
                await scene()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(checked())

    return play


@pytest.fixture(params=["read", pytest.param("kernel", marks=STAMPING)])
def stamp(request: pytest.FixtureRequest) -> StampSource:
    source: StampSource = request.param
    return source


async def echo(inbound: Inbound, reply: Reply) -> None:
    reply.whole(200, (), inbound.method + b" " + inbound.target + b" " + inbound.body)


async def opened(
    handler: Handler, stamp: StampSource = "read", limits: DoorLimits | None = None
) -> tuple[Door, asyncio.StreamReader, asyncio.StreamWriter]:
    door = Door(handler, stamp=stamp, limits=limits)
    port = await door.listen("127.0.0.1", 0)
    return door, *await asyncio.open_connection("127.0.0.1", port)


def test_a_gate_answers_before_the_body_is_here(run: Callable[[Scene], None]) -> None:
    heard: list[bytes] = []

    async def handler(inbound: Inbound, reply: Reply) -> None:
        heard.append(inbound.body)
        await echo(inbound, reply)

    def gate(inbound: Inbound, reply: Reply) -> None:
        assert inbound.body == b""
        if inbound.target == b"/no":
            reply.whole(401, (), b"not you")
        elif inbound.target == b"/broken":
            raise ValueError("a defect")

    async def scene() -> None:
        door = Door(handler, gate=gate)
        port = await door.listen("127.0.0.1", 0)
        for target, status in ((b"/no", 401), (b"/broken", 500)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc" % target)
            got = await reader.read()  # to the end: nothing can follow what was not read
            assert got.startswith(b"HTTP/1.1 %d " % status)
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /yes HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nExpect: 100-continue\r\n\r\n"
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abcdef")
        assert (await answer(reader))[2] == b"POST /yes abcdef"
        assert heard == [b"abcdef"]
        await shut(door, writer)

    run(scene)


async def shut(door: Door, writer: asyncio.StreamWriter) -> None:
    writer.close()
    await door.close()
    assert door.connections == 0


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    """One answer with a content-length: status, head, body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    body = await reader.readexactly(int(length[1])) if length else b""
    return int(head[9:12]), head, body


async def settle(condition: Callable[[], bool]) -> None:
    """Give the loop turns until something that it does by itself has happened."""
    while not condition():
        await asyncio.sleep(0)


async def only_guest(door: Door) -> ServerConnection:
    await settle(lambda: door.connections > 0)
    (connection,) = door._service.connections
    assert isinstance(connection, ServerConnection)
    return connection


def test_keep_alive_and_stamps(run: Callable[[Scene], None], stamp: StampSource) -> None:
    async def scene() -> None:
        seen: list[Inbound] = []

        async def handler(inbound: Inbound, reply: Reply) -> None:
            seen.append(inbound)
            await echo(inbound, reply)

        before = time.monotonic_ns()
        door, reader, writer = await opened(handler, stamp)
        for turn in range(3):
            writer.write(
                b"POST /%d HTTP/1.1\r\nHost: a\r\nX-Y: z\r\nContent-Length: 2\r\n\r\nh" % turn
            )
            await settle(lambda: door.connections == 1)
            writer.write(b"i")
            status, head, body = await answer(reader)
            assert (status, body) == (200, b"POST /%d hi" % turn)
            assert b"connection:" not in head
            assert b"server:" not in head.lower()
        after = time.monotonic_ns()
        for inbound in seen:
            assert before - 1_000_000 <= inbound.accepted_ns <= inbound.first_byte_ns
            assert inbound.first_byte_ns <= inbound.received_ns <= after + 1_000_000
            assert inbound.header(b"x-y") == b"z"
            assert inbound.header(b"x-z") is None
            assert inbound.peer == "{}:{}".format(*writer.get_extra_info("sockname"))
        assert len({inbound.accepted_ns for inbound in seen}) == 1
        assert len({inbound.first_byte_ns for inbound in seen}) == 3
        await shut(door, writer)

    run(scene)


def test_pipelined_requests_are_answered_in_order_one_at_a_time(
    run: Callable[[Scene], None], stamp: StampSource
) -> None:
    async def scene() -> None:
        running = 0

        async def handler(inbound: Inbound, reply: Reply) -> None:
            nonlocal running
            running += 1
            assert running == 1
            for _ in range(3):
                await asyncio.sleep(0)
            running -= 1
            await echo(inbound, reply)

        door, reader, writer = await opened(handler, stamp)
        many = b"".join(
            b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" % turn
            for turn in range(50)
        )
        chunked = (
            b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
        )
        writer.write(many + chunked + LAST)
        for turn in range(50):
            assert (await answer(reader))[2] == b"POST /%d abc" % turn
        assert (await answer(reader))[2] == b"POST /c x"
        assert (await answer(reader))[2] == b"GET /last "
        assert await reader.read() == b""
        await shut(door, writer)

    run(scene)


def test_reading_pauses_behind_a_running_request(
    run: Callable[[Scene], None], stamp: StampSource
) -> None:
    async def scene() -> None:
        gate = asyncio.Event()
        started = asyncio.Event()

        async def handler(inbound: Inbound, reply: Reply) -> None:
            started.set()
            await gate.wait()
            reply.whole(200, (), b"%d" % len(inbound.body))

        door, reader, writer = await opened(handler, stamp, DoorLimits(queue_bytes=1000))
        writer.write(GET)
        await started.wait()
        big = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 9_000_000
        writer.write(big)
        connection = await only_guest(door)
        await settle(lambda: connection._reading_paused)
        assert connection._queued < 1_000_000
        gate.set()
        assert (await answer(reader))[2] == b"0"
        assert (await answer(reader))[2] == b"9000000"
        for _ in range(3):  # what was taken up counts no more, however often
            writer.write(GET * 20)
            for _ in range(20):
                assert (await answer(reader))[2] == b"0"
        assert (connection._queued, connection._reading_paused) == (0, False)
        await shut(door, writer)

    run(scene)


@pytest.mark.parametrize("how", ["eof", "half", "reset"])
def test_a_hang_up_cancels_the_handler(
    run: Callable[[Scene], None], stamp: StampSource, how: str
) -> None:
    async def scene() -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def handler(inbound: Inbound, reply: Reply) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        door, _, writer = await opened(handler, stamp)
        writer.write(GET)
        await started.wait()
        sock = writer.get_extra_info("socket")
        if how == "half":
            writer.write_eof()
        elif how == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.close()
        else:
            writer.close()
        await cancelled.wait()
        await settle(lambda: door.connections == 0)
        await shut(door, writer)

    run(scene)


def test_a_hang_up_right_behind_the_request(
    run: Callable[[Scene], None], stamp: StampSource
) -> None:
    async def scene() -> None:
        async def handler(inbound: Inbound, reply: Reply) -> None:
            await asyncio.Event().wait()

        door = Door(handler, stamp=stamp)
        port = await door.listen("127.0.0.1", 0)
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(GET)
            await settle(lambda: door.connections == 1)
            await settle(lambda: door.connections == 0)
        await door.close()

    run(scene)


def test_what_a_handler_does_after_its_reply_goes_on(
    run: Callable[[Scene], None], stamp: StampSource
) -> None:
    async def scene() -> None:
        gate, settled = asyncio.Event(), asyncio.Event()

        async def handler(inbound: Inbound, reply: Reply) -> None:
            reply.whole(200, (), b"done")
            await gate.wait()
            settled.set()

        door, reader, writer = await opened(handler, stamp)
        writer.write(GET)
        assert (await answer(reader))[2] == b"done"
        writer.close()
        await writer.wait_closed()
        await settle(lambda: door.connections == 0)
        assert not settled.is_set()
        gate.set()
        await settled.wait()
        await shut(door, writer)

    run(scene)


def test_backpressure_reaches_the_handler(run: Callable[[Scene], None], stamp: StampSource) -> None:
    async def scene() -> None:
        sent = 0
        total = 12_000_000

        async def handler(inbound: Inbound, reply: Reply) -> None:
            nonlocal sent
            reply.start(200, (), length=total)
            while sent < total:
                reply.send(b"x" * 60_000)
                sent += 60_000
                await reply.drain()
            reply.finish()

        door, reader, writer = await opened(handler, stamp)
        writer.write(GET)
        head = await reader.readuntil(b"\r\n\r\n")
        connection = await only_guest(door)
        await settle(lambda: connection.writing_paused)
        assert sent < total
        assert connection.link.unsent < 500_000
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert len(await reader.readexactly(total)) == total
        await shut(door, writer)

    run(scene)


def test_a_client_that_takes_nothing_is_cut_off(
    run: Callable[[Scene], None], stamp: StampSource
) -> None:
    async def scene() -> None:
        over = asyncio.Event()

        async def handler(inbound: Inbound, reply: Reply) -> None:
            try:
                reply.start(200, ())
                while True:
                    reply.send(b"x" * 100_000)
                    await reply.drain()
            finally:
                over.set()

        door = Door(handler, stamp=stamp, limits=DoorLimits(write_s=0.05))
        port = await door.listen("127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, GET)
            await over.wait()
            await settle(lambda: door.connections == 0)
        await door.close()

    run(scene)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", None),
        (b"GET / HT", 408),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc", 408),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", 408),
    ],
    ids=["idle", "head", "body", "chunks"],
)
def test_deadlines(
    run: Callable[[Scene], None], stamp: StampSource, sent: bytes, status: int | None
) -> None:
    async def scene() -> None:
        short = DoorLimits(idle_s=60 if sent else 0.03, head_s=0.03, body_s=0.03)
        door, reader, writer = await opened(echo, stamp, short)
        writer.write(sent)
        got = await reader.read()
        if status is None:
            assert got == b""
        else:
            assert got.startswith(b"HTTP/1.1 %d " % status)
            assert b"connection: close" in got
        await shut(door, writer)

    run(scene)


def test_a_request_that_drips_within_its_deadline_is_served(run: Callable[[Scene], None]) -> None:
    async def scene() -> None:
        door, reader, writer = await opened(echo)
        for at in range(len(LAST)):
            writer.write(LAST[at : at + 1])
            await asyncio.sleep(0)
        assert (await answer(reader))[2] == b"GET /last "
        assert await reader.read() == b""
        await shut(door, writer)

    run(scene)


def test_a_refused_body_may_be_sent_to_its_end(
    run: Callable[[Scene], None], stamp: StampSource
) -> None:
    async def scene() -> None:
        door, reader, writer = await opened(echo, stamp, DoorLimits(body_bytes=1000))
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n")
        writer.write(b"x" * 5_000_000)
        await writer.drain()
        assert (await answer(reader))[0] == 413
        assert await reader.read() == b""
        await shut(door, writer)

    run(scene)


def test_expect_100_continue(run: Callable[[Scene], None], stamp: StampSource) -> None:
    async def scene() -> None:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        door, reader, writer = await opened(echo, stamp, DoorLimits(body_bytes=10))
        writer.write(head % 2)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hi" + head % 2 + b"ho" + head % 11)
        assert (await answer(reader))[2] == b"POST / hi"
        assert (await answer(reader))[2] == b"POST / ho"  # the body was there: nothing to ask for
        assert (await answer(reader))[0] == 413
        assert await reader.read() == b""
        await shut(door, writer)

    run(scene)


def test_head_has_no_body(run: Callable[[Scene], None]) -> None:
    async def scene() -> None:
        async def handler(inbound: Inbound, reply: Reply) -> None:
            if inbound.target == b"/whole":
                reply.whole(200, (), b"12345")
            else:
                reply.start(200, ())
                reply.send(b"12345")
                reply.finish()

        door, reader, writer = await opened(handler)
        for target in (b"/whole", b"/chunks"):
            writer.write(b"HEAD %b HTTP/1.1\r\nHost: a\r\n\r\n" % target)
        first = await reader.readuntil(b"\r\n\r\n")
        second = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: 5\r\n" in first
        assert b"transfer-encoding: chunked\r\n" in second
        writer.write(b"HEAD / HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        assert await reader.read() == b""
        await shut(door, writer)

    run(scene)


def test_http_1_0(run: Callable[[Scene], None]) -> None:
    async def scene() -> None:
        async def handler(inbound: Inbound, reply: Reply) -> None:
            reply.start(200, (), length=2 if inbound.target == b"/length" else None)
            reply.send(b"ok")
            reply.finish()

        door, reader, writer = await opened(handler)
        writer.write(b"GET /length HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        _, head, body = await answer(reader)
        assert b"connection: keep-alive\r\n" in head
        assert body == b"ok"
        writer.write(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        rest = await reader.read()
        assert b"transfer-encoding" not in rest
        assert b"connection: close\r\n" in rest
        assert rest.endswith(b"\r\n\r\nok")
        await shut(door, writer)

    run(scene)


@pytest.mark.parametrize("tokens", [b"close", b"Keep-Alive, Close", b"x\r\nConnection: close"])
def test_the_client_may_ask_to_close(run: Callable[[Scene], None], tokens: bytes) -> None:
    async def scene() -> None:
        door, reader, writer = await opened(echo)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: %b\r\n\r\n" % tokens + GET)
        assert b"connection: close\r\n" in (await answer(reader))[1]
        assert await reader.read() == b""
        await shut(door, writer)

    run(scene)


def test_a_failing_handler_is_walled_off(
    run: Callable[[Scene], None], stamp: StampSource, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async def handler(inbound: Inbound, reply: Reply) -> None:
            if inbound.target == b"/started":
                reply.start(200, ())
                reply.send(b"x")
            if inbound.target != b"/silent":
                raise ValueError(inbound.target)

        door = Door(handler, stamp=stamp)
        port = await door.listen("127.0.0.1", 0)
        for target, expected in (
            (b"/early", rb"HTTP/1.1 500 .*could not be served.*"),
            (b"/silent", rb"HTTP/1.1 500 .*could not be served.*"),
            (b"/started", rb"HTTP/1.1 200 .*\r\n\r\n1\r\nx\r\n"),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target)
            got = b""
            try:
                while data := await reader.read(1000):
                    got += data
            except ConnectionError:
                assert target == b"/started"
            if got or target != b"/started":
                assert re.fullmatch(expected, got, re.DOTALL)
            writer.close()
        await door.close()

    with caplog.at_level(logging.ERROR):
        run(scene)
    assert "ValueError" in caplog.text
    assert "handler" in caplog.text
    assert "/early" not in caplog.text
    assert "/started" not in caplog.text


def test_the_log_of_a_failure_begins_with_the_handler(caplog: pytest.LogCaptureFixture) -> None:
    def a_handler() -> None:
        raise ValueError("what a client sent")

    try:
        a_handler()
    except ValueError as error:
        with caplog.at_level(logging.ERROR):
            _log_failure(error)
    assert "ValueError: a_handler (" in caplog.text
    assert "what a client sent" not in caplog.text


def test_abort_closes_the_socket_in_the_same_turn(
    run: Callable[[Scene], None], stamp: StampSource
) -> None:
    async def scene() -> None:
        done = asyncio.Event()
        ends: list[bytes] = []

        async def handler(inbound: Inbound, reply: Reply) -> None:
            reply.abort()
            client.setblocking(True)  # no turn of the loop can come between
            client.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                ends.append(client.recv(100))
            done.set()

        door = Door(handler, stamp=stamp)
        port = await door.listen("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(GET)
            await done.wait()
            assert ends in ([], [b""])  # a reset, or the end of the stream
            await settle(lambda: door.connections == 0)
        await door.close()

    run(scene)


def test_abort_wakes_a_handler_that_waits_for_the_client(
    run: Callable[[Scene], None], stamp: StampSource
) -> None:
    async def scene() -> None:
        replies: list[Reply] = []
        woken = asyncio.Event()

        async def handler(inbound: Inbound, reply: Reply) -> None:
            replies.append(reply)
            reply.start(200, ())
            reply.send(b"x" * 30_000_000)
            await reply.drain()
            woken.set()

        door, _, writer = await opened(handler, stamp)
        writer.write(GET)
        connection = await only_guest(door)
        await settle(lambda: connection.writing_paused)
        assert not woken.is_set()
        replies[0].abort()
        await woken.wait()
        await settle(lambda: door.connections == 0)
        await shut(door, writer)

    run(scene)


def test_drain(run: Callable[[Scene], None], stamp: StampSource) -> None:
    async def scene() -> None:
        gate, started = asyncio.Event(), asyncio.Event()

        async def handler(inbound: Inbound, reply: Reply) -> None:
            started.set()
            await gate.wait()
            await echo(inbound, reply)

        door, reader, writer = await opened(handler, stamp)
        port = writer.get_extra_info("peername")[1]
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        await settle(lambda: door.connections == 2)
        writer.write(GET + GET)
        await started.wait()
        draining = asyncio.create_task(door.drain(10))
        assert await idle_reader.read() == b""
        idle_writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        gate.set()
        status, head, _ = await answer(reader)
        assert status == 200
        assert b"connection: close\r\n" in head
        assert await reader.read() == b""
        writer.close()
        await draining
        assert door.connections == 0

    run(scene)


def test_a_gentle_drain_closes_only_after_a_reply_that_says_so(
    run: Callable[[Scene], None], stamp: StampSource
) -> None:
    async def scene() -> None:
        gate, begun = asyncio.Event(), asyncio.Event()

        async def handler(inbound: Inbound, reply: Reply) -> None:
            if not begun.is_set():  # the first reply has sent its head when the drain begins
                reply.start(200, ())
                begun.set()
                await gate.wait()
                reply.send(b"streamed")
                reply.finish()
            else:
                await echo(inbound, reply)

        door, reader, writer = await opened(handler, stamp)
        port = writer.get_extra_info("peername")[1]
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        await settle(lambda: door.connections == 2)
        writer.write(GET)
        await begun.wait()
        draining = asyncio.create_task(door.drain(10, gentle=True))
        await settle(lambda: not door._listeners)
        gate.set()
        streamed = await reader.readuntil(b"0\r\n\r\n")
        assert b"connection: close" not in streamed
        for lines, writes in ((reader, writer), (idle_reader, idle_writer)):
            writes.write(GET)
            status, head, _ = await answer(lines)
            assert status == 200
            assert b"connection: close\r\n" in head
            assert await lines.read() == b""
            writes.close()
        await draining
        assert door.connections == 0

    run(scene)


def test_a_drain_with_courtesy_answers_once_more_and_then_closes_what_is_idle(
    run: Callable[[Scene], None], stamp: StampSource
) -> None:
    async def scene() -> None:
        door, reader, writer = await opened(echo, stamp)
        port = writer.get_extra_info("peername")[1]
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        await settle(lambda: door.connections == 2)
        draining = asyncio.create_task(door.drain(60, courtesy_s=0.5))
        await settle(lambda: not door._listeners)
        writer.write(GET)  # as a proxy does that has not heard of the end yet
        status, head, _ = await answer(reader)
        assert status == 200
        assert b"connection: close\r\n" in head
        assert await idle_reader.read() == b""  # long before the budget is over
        await draining
        assert door._service.ending
        writer.close()
        idle_writer.close()

    run(scene)


def test_drain_aborts_what_does_not_end(run: Callable[[Scene], None], stamp: StampSource) -> None:
    async def scene() -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def handler(inbound: Inbound, reply: Reply) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        door, reader, writer = await opened(handler, stamp)
        writer.write(GET)
        await started.wait()
        await door.drain(0.01)
        assert cancelled.is_set()
        assert door.connections == 0
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()

    run(scene)


def _has_begun(door: Door) -> bool:
    """Whether the one client of a door has sent some of a request."""
    [connection] = door._service.connections
    return not connection.idle


@pytest.mark.parametrize("gentle", [False, True])
def test_a_client_with_half_a_request_is_told_before_the_end(
    run: Callable[[Scene], None], stamp: StampSource, gentle: bool
) -> None:
    """A head or a body that does not come is refused, and may be sent again elsewhere."""

    async def scene() -> None:
        for half in (GET[:9], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nfive!"):
            door, reader, writer = await opened(echo, stamp)
            writer.write(half)
            await settle(functools.partial(_has_begun, door))
            await door.drain(TELL_S, gentle=gentle)  # the time to tell is all there is
            status, head, body = await answer(reader)
            assert status == 503
            assert b"retry-after: 1\r\n" in head
            assert b"is stopping" in body
            writer.close()

    run(scene)


def test_accepted_sockets_do_not_delay_and_ports_are_shared(
    run: Callable[[Scene], None], stamp: StampSource
) -> None:
    async def scene() -> None:
        async def handler(inbound: Inbound, reply: Reply) -> None:
            sock: Any = reply.link.info("socket")
            reply.whole(200, (), b"%d" % sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        doors = [Door(handler, stamp=stamp) for _ in range(2)]
        port = await doors[0].listen("127.0.0.1", 0, reuse_port=True)
        assert await doors[1].listen("127.0.0.1", port, reuse_port=True) == port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        assert int((await answer(reader))[2]) != 0
        writer.close()
        for door in doors:
            await door.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    run(scene)


def test_a_taken_port_is_an_error(run: Callable[[Scene], None], stamp: StampSource) -> None:
    async def scene() -> None:
        first, second = Door(echo, stamp=stamp), Door(echo, stamp=stamp)
        port = await first.listen("127.0.0.1", 0)
        with pytest.raises(OSError, match="in use"):
            await second.listen("127.0.0.1", port)
        await first.close()
        await second.close()

    run(scene)


def test_tls(run: Callable[[Scene], None]) -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)

    async def scene() -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def handler(inbound: Inbound, reply: Reply) -> None:
            if inbound.target == b"/wait":
                started.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.set()
            await echo(inbound, reply)

        door = Door(handler, tls=server)
        port = await door.listen("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client, server_hostname="localhost"
        )
        writer.write(GET)
        assert (await answer(reader))[2] == b"GET / "
        writer.write(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        await started.wait()
        writer.close()
        await cancelled.wait()
        await settle(lambda: door.connections == 0)
        await door.close()
        with pytest.raises(ConfigError):
            Door(echo, stamp="kernel", tls=server)

    run(scene)


@pytest.mark.parametrize(
    ("asked", "waits_s"),
    [
        ({"budget_s": 10.0}, [10.0 - TELL_S, TELL_S]),
        ({"budget_s": 10.0, "gentle": True, "courtesy_s": 3.0}, [10.0 - TELL_S, TELL_S]),
        ({"budget_s": 10.0, "courtesy_s": 3.0}, [3.0, 7.0 - TELL_S, TELL_S]),
        ({"budget_s": 10.0, "courtesy_s": 9.0}, [5.0, 5.0 - TELL_S, TELL_S]),  # half at most
        ({"budget_s": TELL_S / 4}, [0.0, TELL_S / 4]),
        ({"budget_s": TELL_S, "courtesy_s": TELL_S}, [TELL_S / 2, 0.0, TELL_S / 2]),
        ({"budget_s": 10.0, "ends": 1}, [10.0 - TELL_S]),
        ({"budget_s": 10.0, "courtesy_s": 3.0, "ends": 2}, [3.0, 7.0 - TELL_S]),
    ],
)
async def test_how_a_drain_divides_its_budget(
    asked: dict[str, Any], waits_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Courtesy first, then the running replies, then time to tell those that are not done."""
    door = Door(echo)
    waited: list[float] = []
    ends: int = asked.get("ends", 9)  # with which wait the last client is gone

    async def emptied(budget_s: float) -> bool:
        waited.append(budget_s)
        return len(waited) >= ends

    monkeypatch.setattr(door, "_emptied", emptied)
    await door.drain(**{name: value for name, value in asked.items() if name != "ends"})
    assert waited == pytest.approx(waits_s)


@pytest.mark.parametrize("second", [0, 951_782_400, 1_709_251_199, 1_763_424_000, 4_102_444_799])
def test_the_date_is_written_as_for_mail(second: int) -> None:
    assert http_date(second) == formatdate(second, usegmt=True).encode()
