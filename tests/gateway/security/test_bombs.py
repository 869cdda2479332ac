"""T11, T12: an upstream that sends too much: refused, with little memory, and alone."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest

from gateway.security.conftest import SSE, chat_body, chat_stream, chunk, whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.security.conftest import Behind, Heard, Script, Spawn, Upstream

MIB = 1 << 20
OK = b"HTTP/1.1 200 OK\r\n"


def stream_of(piece: bytes, times: int, *, begin: bytes = b"", fields: bytes = SSE) -> Script:
    async def told(_: Heard) -> AsyncIterator[bytes]:
        yield OK + fields + b"\r\n" + begin
        for _place in range(times):
            yield piece

    return told


TOO_MUCH: dict[str, Script] = {
    "line without end": stream_of(b"x" * MIB, 100, begin=b"data: "),
    "event without end": stream_of(b"data: %b\n" % (b"x" * MIB), 100),
    "name without end": stream_of(b"x" * MIB, 100, begin=b"event: "),
    "comment without end": stream_of(b"x" * MIB, 100, begin=b": "),
    "after a token": stream_of(b"x" * MIB, 100, begin=chunk("Hello") + b"data: "),
    "comments for ever": stream_of(b": keep-alive\n" * 80_000, 20),
    "empty events": stream_of(chunk("") * 10_000, 5),
    "role chunks": stream_of(chunk(None) * 10_000, 5),
    "fields without end": stream_of(b"x-a: %b\r\n" % (b"y" * MIB), 100, fields=b"x: y"),
    "body without end": stream_of(b"x" * MIB, 100, fields=b"content-type: application/json\r\n"),
    "refusal without end": stream_of(b"x" * MIB, 100, fields=b"", begin=b""),
    "trailers without end": stream_of(
        b"x: %b\r\n" % (b"y" * MIB), 100,
        begin=b"0\r\n", fields=SSE + b"transfer-encoding: chunked\r\n",
    ),
    "chunk sizes without end": stream_of(
        b"0" * MIB, 100, fields=SSE + b"transfer-encoding: chunked\r\n"
    ),
}  # fmt: skip


async def test_an_upstream_without_end_is_an_error_and_costs_little(
    spawn: Spawn, upstream: Upstream
) -> None:
    worker = await spawn('[models.quick]\ntargets = ["raw/m"]\ntimeout = "8s"\n')
    by_model: dict[str, Script] = {"m": chat_stream("fine"), **TOO_MUCH}

    async def by_name(heard: Heard) -> AsyncIterator[bytes]:
        async for piece in by_model[heard.json["user"]](heard):
            yield piece

    upstream.script = by_name
    assert (await worker.chat("raw/m", user="m")).status == 200
    before = worker.rss_mib
    for name in TOO_MUCH:
        for stream in (True, False):
            bad = asyncio.ensure_future(worker.chat("quick", user=name, stream=stream))
            good = await worker.chat("raw/m", user="m")
            assert good.status == 200, name
            assert b"fine" in good.body, name
            answer = await asyncio.wait_for(bad, 10)
            began = answer.status == 200 and name == "after a token"
            assert began or 500 <= answer.status < 600, (name, answer.status, answer.body[:200])
            assert "error" in answer.body.decode()[-600:], name
    assert worker.rss_mib - before < 120
    assert worker.errors == ""


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("coding", [b"br", b"zstd", b"gzip, identity", b"x"])
async def test_an_answer_in_an_unknown_coding_is_refused(
    behind: Behind, upstream: Upstream, coding: bytes, stream: bool
) -> None:
    rig = await behind()
    kind = SSE if stream else b"content-type: application/json\r\n"
    upstream.script = whole(chat_body(), fields=kind + b"content-encoding: %b\r\n" % coding)
    answer = await rig.chat("raw/m", stream=stream)
    assert answer.status == 502
    known = coding in {b"br", b"zstd"}
    said = f"as '{coding.decode()}'" if known else "in an unknown way"
    assert f"compressed its answer {said}" in answer.body.decode()
    [heard] = upstream.heard
    assert dict(heard.headers)[b"accept-encoding"] == b"identity"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
async def test_a_compressed_bomb_is_refused(
    behind: Behind, upstream: Upstream, coding: bytes, stream: bool
) -> None:
    rig = await behind()
    bomb = chunk("Hello") + b": %b\n\n" % (b"0" * 50 * MIB) if stream else b"0" * 50 * MIB
    packed = zlib.compress(bomb) if coding == b"deflate" else gzip.compress(bomb)
    kind = SSE if stream else b"content-type: application/json\r\n"
    upstream.script = whole(packed, fields=kind + b"content-encoding: %b\r\n" % coding)
    tracemalloc.start()
    answer = await rig.chat("raw/m", stream=stream)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if stream:  # its first token was handed on before the rest was unpacked
        assert answer.status == 200
        [*_, (_, last)] = answer.events
        assert "larger than 4194304 bytes" in json.loads(last)["error"]["message"]
    else:
        assert answer.status == 502
        assert "100 times as large" in answer.body.decode()
    assert most < 40 * MIB


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
async def test_a_compressed_bomb_of_many_lines_breaks_a_stream_off(
    behind: Behind, upstream: Upstream, coding: bytes
) -> None:
    rig = await behind()
    bomb = chunk("Hello") + b":\n" * 25 * MIB
    packed = zlib.compress(bomb) if coding == b"deflate" else gzip.compress(bomb)
    upstream.script = whole(packed, fields=SSE + b"content-encoding: %b\r\n" % coding)
    answer = await rig.chat("raw/m", stream=True)
    assert answer.status == 200
    [*_, (_, last)] = answer.events
    assert "100 times as large" in json.loads(last)["error"]["message"]


@pytest.mark.parametrize("size", [MIB, 3 * MIB])
async def test_a_large_event_within_the_limit_passes(
    behind: Behind, upstream: Upstream, size: int
) -> None:
    rig = await behind()
    upstream.script = chat_stream("Hello", "x" * size)
    answer = await rig.chat("raw/m")
    assert answer.status == 200
    assert sum(len(c["choices"][0]["delta"].get("content", "")) for c in answer.chunks) == size + 5
