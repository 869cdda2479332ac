"""T10: who drips, stalls or does not read is cut off, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING

import pytest

from gateway.security.conftest import chat_body, chat_stream, chunk, whole
from lightgate.wire.door.door import DoorLimits
from lightgate.wire.door.reply import Reply
from sim.conftest import SAY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.security.conftest import Behind, Heard, Upstream

CROWD = 1_000
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n"
DRIPS = {
    "nothing at all": b"",
    "half a head": HEAD + b"x-slow: ",
    "half a body": HEAD + b"content-length: 900\r\n\r\n{",
    "half a chunk": HEAD + b"transfer-encoding: chunked\r\n\r\n9\r\n{",
}


@pytest.mark.parametrize("drip", DRIPS)
async def test_a_crowd_that_drips_delays_nobody_and_is_sent_away(
    behind: Behind, upstream: Upstream, drip: str
) -> None:
    upstream.script = whole(chat_body())
    rig = await behind(limits=DoorLimits(idle_s=1.0, head_s=1.0, body_s=1.0, linger_s=0.1))
    crowd = [await _one(rig.port, DRIPS[drip]) for _ in range(CROWD)]
    dripping = asyncio.ensure_future(_drip(crowd, DRIPS[drip]))
    # A byte that comes after the end is answered with a reset, and a reset takes unread bytes away.
    reading = [asyncio.ensure_future(_rest(reader)) for reader, _ in crowd]
    for _ in range(5):
        async with asyncio.timeout(5):
            assert (await rig.chat("raw/m", stream=False)).status == 200
    answers = await asyncio.wait_for(asyncio.gather(*reading), 20)
    dripping.cancel()
    for _, writer in crowd:
        writer.close()
    wanted = b"" if not DRIPS[drip] else b"HTTP/1.1 408 "
    assert all(answer.startswith(wanted) for answer in answers)
    assert not any(answer for answer in answers) or DRIPS[drip]
    await rig.until(lambda: rig.door.connections == 0)
    assert len(upstream.heard) == 5


async def _one(port: int, begun: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begun)
    return reader, writer


async def _drip(
    crowd: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]], begun: bytes
) -> None:
    """One byte each, again and again: a timer that every byte winds up would never run out."""
    while begun:
        await asyncio.sleep(0.2)
        for _, writer in crowd:
            writer.write(b"x")


async def _rest(reader: asyncio.StreamReader) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(4096):
            got += piece
    return got


async def test_a_client_that_does_not_read_is_cut_and_its_call_ended(
    behind: Behind, upstream: Upstream
) -> None:
    async def endless(_: Heard) -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        while True:
            yield chunk("x" * 10_000)

    upstream.script = endless
    rig = await behind(limits=DoorLimits(write_s=0.4))
    body = json.dumps({"model": "raw/m", "messages": SAY, "stream": True}).encode()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", rig.port))
    await loop.sock_sendall(sock, HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body))
    await rig.until(lambda: any(exchange.reply.crowded for exchange in rig.exchanges))
    [exchange] = rig.exchanges
    assert isinstance(exchange.reply, Reply)
    assert exchange.reply.link.unsent < 1 << 20  # what waits for it is bounded
    await rig.until(lambda: rig.upstream == 0, within_s=5)
    await rig.until(lambda: upstream.left == 1, within_s=5)
    await rig.until(lambda: bool(rig.settled()), within_s=5)
    assert rig.settled()[0].exchange.outcome == "cancelled"
    sock.close()
    upstream.script = chat_stream()
    assert (await rig.chat("raw/m")).status == 200
