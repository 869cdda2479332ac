"""The client on real sockets: framing, the pool, replays, the stamps."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from typing import TYPE_CHECKING

import pytest

from lightgate.errors import Malformed, PeerReset, TooLarge

if TYPE_CHECKING:
    from wire.conftest import Keeper, Play, Rig, Wire

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def coded(coding: bytes, body: bytes) -> bytes:
    """An answer in a content coding."""
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\ncontent-length: %d\r\n\r\n"
    return head % (coding, len(body)) + body


async def always_ok(wire: Wire) -> None:
    while await wire.request():
        await wire.send(OK)


BODIES = {
    "content-length": (OK, b"hello"),
    "no body": (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
    "chunked": (CHUNKED + b"5\r\nhello\r\n1;x=1\r\n!\r\n0\r\n\r\n", b"hello!"),
    "trailers": (CHUNKED + b"2\r\nok\r\n0\r\nx-late: 1\r\ncontent-encoding: br\r\n\r\n", b"ok"),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: a\r\n\r\n" + OK,
        b"hello",
    ),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "304": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", b""),
    "identity": (OK.replace(b"content", b"content-encoding: identity\r\ncontent", 1), b"hello"),
    "gzip": (coded(b"gzip", gzip.compress(b"hello")), b"hello"),
    "x-gzip": (coded(b"X-GZIP", gzip.compress(b"hello")), b"hello"),
    "two gzips": (coded(b"gzip", gzip.compress(b"hel") + gzip.compress(b"lo")), b"hello"),
    "deflate": (coded(b"deflate", zlib.compress(b"hello")), b"hello"),
    "bare deflate": (coded(b"deflate", zlib.compress(b"hello", wbits=-15)), b"hello"),
    "nothing in gzip": (coded(b"gzip", b""), b""),
    "a refusal in br": (coded(b"br", b"hello").replace(b"200 OK", b"429 No"), b""),
}


@pytest.mark.parametrize("name", BODIES)
def test_whole_answers_keep_their_connection(play: Play, name: str) -> None:
    raw, body = BODIES[name]

    async def script(wire: Wire) -> None:
        while await wire.request():
            await wire.send(raw)

    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(script)
        for _ in range(3):
            kept = await rig.ask(client, server.origin)
            assert kept.body == body
            assert kept.log == ["sent", "head", *(["body"] if body else []), "end"]
            assert all(header[0] not in {b"x-late", b"link"} for header in kept.headers)
        assert len(server.wires) == 1
        assert client.open_connections == 1

    play(scene)


def test_blanks_around_a_value_are_not_part_of_it(play: Play) -> None:
    async def script(wire: Wire) -> None:
        await wire.answer(b"HTTP/1.1 204 No\r\nX-Name: \t a b \t\r\nx-none: \r\n\r\n")

    async def scene(rig: Rig) -> None:
        kept = await rig.ask(rig.client(), rig.serve(script).origin)
        assert kept.headers == [(b"x-name", b"a b"), (b"x-none", b"")]

    play(scene)


def test_byte_by_byte(play: Play) -> None:
    raw = BODIES["interim"][0].removesuffix(OK) + BODIES["trailers"][0]

    async def script(wire: Wire) -> None:
        await wire.request()
        for i in range(len(raw)):
            await wire.send(raw[i : i + 1])
            await asyncio.sleep(0)
        await wire.receive()

    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(script)
        kept = await rig.ask(client, server.origin)
        assert (kept.status, kept.body) == (200, b"ok")
        assert kept.headers == [(b"transfer-encoding", b"chunked")]

    play(scene)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello",
    ],
)
def test_an_answer_that_ends_with_its_connection(play: Play, raw: bytes) -> None:
    async def script(wire: Wire) -> None:
        await wire.answer(raw)
        wire.sock.close()

    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(script)
        for _ in range(2):
            assert (await rig.ask(client, server.origin)).body == b"hello"
        assert len(server.wires) == 2
        assert client.open_connections == 0

    play(scene)


def test_connection_close_is_honoured(play: Play) -> None:
    async def script(wire: Wire) -> None:
        await wire.answer(OK.replace(b"content", b"connection: close\r\ncontent", 1))
        await wire.receive()

    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(script)
        assert (await rig.ask(client, server.origin)).body == b"hello"
        assert client.open_connections == 0
        assert (await rig.ask(client, server.origin)).body == b"hello"
        assert len(server.wires) == 2

    play(scene)


BROKEN = {
    "garbage": b"\x00\x01\x02garbage that goes on and on",
    "html": b"<!doctype html><html><body>wrong port</body></html>",
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "tls alert": b"\x15\x03\x01\x00\x02\x02\x16",
    "http/2": b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    "http/0.9": b"HTTP/0.9 200 OK\r\ncontent-length: 0\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\ncontent-length: 0\n\n",
    "status 99": b"HTTP/1.1 099 Low\r\ncontent-length: 5\r\n\r\nhello",
    "status 101": b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n\x00",
    "bad header": b"HTTP/1.1 200 OK\r\nbad header: 1\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
    "length and chunks": CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-length: 5\r\n\r\n")
    + b"0\r\n\r\n",
    "negative length": b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
    "length too short": b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhello",
    "second answer": OK + OK,
    "bytes after close": b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\nhello",
    "body of a 204": b"HTTP/1.1 204 No\r\ncontent-length: 5\r\n\r\nhello",
    "bad chunk size": CHUNKED + b"5\r\nhello\r\nxyz\r\n",
    "chunk size too large": CHUNKED + b"fffffffffffffffff\r\nhello",
    "chunk without end": CHUNKED + b"5\r\nhello5\r\nhello\r\n0\r\n\r\n",
    "chunk with a bare line feed": CHUNKED + b"5\nhello\r\n0\r\n\r\n",
    "no gzip": coded(b"gzip", b"hello"),
    "no deflate": coded(b"deflate", b"hello"),
    "half a gzip": coded(b"gzip", gzip.compress(b"hello")[:-4]),
    "gzip in gzip": coded(b"gzip\r\ncontent-encoding: gzip", gzip.compress(b"hello")),
    "br": coded(b"br", b"hello"),
    "second encoding": OK.replace(
        b"content", b"content-encoding: identity\r\ncontent-encoding: br\r\ncontent", 1
    ),
    "gzip transfer": CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n",
    "unknown transfer": CHUNKED.replace(b"chunked", b"gzip") + b"hello",
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_answers_are_malformed(play: Play, name: str) -> None:
    async def script(wire: Wire) -> None:
        await wire.answer(BROKEN[name])
        await wire.receive()

    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(script)
        error = await rig.fails(client, server.origin)
        assert type(error) is Malformed
        speaks = name in {"garbage", "html", "ssh", "tls alert", "http/2", "http/0.9"}
        assert ("does not speak HTTP/1.1" in error.message) is speaks
        assert len(server.requests) == 1

    play(scene)


def test_what_came_before_the_break_is_handed_on(play: Play) -> None:
    async def script(wire: Wire) -> None:
        await wire.answer(BROKEN["bad chunk size"])

    async def scene(rig: Rig) -> None:
        keeper = rig.keeper()
        await rig.fails(rig.client(), rig.serve(script).origin, keeper=keeper)
        assert keeper.log == ["sent", "head", "body"]
        assert keeper.body == b"hello"

    play(scene)


LARGE = {
    "one read": b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000 + b"\r\n\r\n",
    "without end": b"HTTP/1.1 200 OK\r\nx: " + b"a" * 300_000,
    "many": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
    "interim": b"HTTP/1.1 103 Hints\r\nlink: a\r\n\r\n" * 10_000,
    "trailers": CHUNKED + b"1\r\na\r\n0\r\nx: " + b"a" * 400_000,
    "chunk extension": CHUNKED + b"1;" + b"a" * 400_000,
}


@pytest.mark.parametrize("name", LARGE)
def test_heads_and_trailers_have_a_limit(play: Play, name: str) -> None:
    async def script(wire: Wire) -> None:
        await wire.answer(LARGE[name])
        await wire.receive()

    async def scene(rig: Rig) -> None:
        error = await rig.fails(rig.client(), rig.serve(script).origin)
        assert type(error) is TooLarge
        assert "65536" in error.message

    play(scene)


def test_a_head_of_60_kib_is_taken(play: Play) -> None:
    async def script(wire: Wire) -> None:
        await wire.answer(OK.replace(b"content", b"x: " + b"a" * 60_000 + b"\r\ncontent", 1))

    async def scene(rig: Rig) -> None:
        assert (await rig.ask(rig.client(), rig.serve(script).origin)).body == b"hello"

    play(scene)


CUT = {
    "nothing": (b"", True),
    "half a status line": (b"HTTP/1.", False),
    "half a head": (b"HTTP/1.1 200 OK\r\nx: y\r\n", False),
    "only an interim answer": (b"HTTP/1.1 100 Continue\r\n\r\n", False),
    "length too long": (OK.replace(b"5", b"6", 1), False),
    "half a chunk": (CHUNKED + b"5\r\nhel", False),
    "no last chunk": (CHUNKED + b"5\r\nhello\r\n", False),
}


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("name", CUT)
def test_a_connection_that_breaks(play: Play, name: str, how: str) -> None:
    raw, early = CUT[name]

    async def scene(rig: Rig) -> None:
        keeper = rig.keeper()

        async def script(wire: Wire) -> None:
            await wire.answer(raw)
            if how == "close":
                wire.sock.close()
                return
            # A RST throws away what the client has not read yet.
            await rig.until(lambda: bytes_in(keeper) == len(raw))
            wire.reset()

        client, server = rig.client(), rig.serve(script)
        error = await rig.fails(client, server.origin, keeper=keeper)
        assert type(error) is PeerReset
        assert error.early is early
        assert len(server.wires) == 1  # a fresh connection is never resent

    play(scene)


def bytes_in(keeper: Keeper) -> int:
    return keeper.trip.bytes_in if keeper.trip is not None else -1


def test_a_reset_is_not_the_end_of_a_body_without_length(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        keeper = rig.keeper()

        async def script(wire: Wire) -> None:
            await wire.answer(b"HTTP/1.1 200 OK\r\n\r\nhello")
            await rig.until(lambda: keeper.body == b"hello")
            wire.reset()

        error = await rig.fails(rig.client(), rig.serve(script).origin, keeper=keeper)
        assert type(error) is PeerReset
        assert not error.early

    play(scene)


def test_the_stamps_are_in_order_and_only_where_things_happened(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        keeper = rig.keeper()

        async def script(wire: Wire) -> None:
            while await wire.request():
                await wire.send(CHUNKED)
                await rig.until(lambda: keeper.log[-1] == "head")
                await wire.send(b"1\r\na\r\n")
                await rig.until(lambda: len(keeper.parts) == 1)
                await wire.send(b"1\r\nb\r\n")
                await rig.until(lambda: len(keeper.parts) == 2)
                await wire.send(b"0\r\n\r\n")

        client, server = rig.client(), rig.serve(script)
        for turn in range(2):
            keeper = rig.keeper()
            before = time.monotonic_ns()
            await rig.ask(client, server.origin, keeper=keeper)
            assert [name for name, _ in keeper.stamps] == ["sent", "head", "body", "body", "end"]
            instants = [stamp for _, stamp in keeper.stamps]
            assert before <= instants[0]
            assert instants[1:] == sorted(instants[1:])
            bodies = [stamp for name, stamp in keeper.stamps if name == "body"]
            assert all(a <= b for a, b in zip(keeper.sinces, bodies, strict=True))
            assert (keeper.marks.tcp_ns is not None) is (turn == 0)
            assert keeper.marks.dns_ns is None  # an address needs no look-up
            assert keeper.marks.tls_ns is None
            assert keeper.marks.pool_wait_ns is None
            assert not keeper.marks.resent

    play(scene)


def test_thousands_of_requests_on_one_connection(play: Play) -> None:
    async def scene(rig: Rig) -> None:
        client, server = rig.client(), rig.serve(always_ok)
        await rig.ask(client, server.origin)
        open_before, tasks_before = rig.sockets(), len(asyncio.all_tasks())
        for _ in range(1000):
            kept = await rig.ask(client, server.origin)
            assert kept.body == b"hello"
        assert len(server.wires) == 1
        assert client.open_connections == 1
        assert rig.sockets() == open_before
        assert len(asyncio.all_tasks()) == tasks_before

    play(scene)
