"""Answers whose bytes are not what they should be: no UTF-8, or compressed without being asked."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import TYPE_CHECKING

import pytest

from gateway.faulted import Field, last_error, model, said
from gateway.security.conftest import ENV, JSON, SSE, chat_body, chunk, events, providers, whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.conftest import Start
    from gateway.security.conftest import Heard, Script, Upstream

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
END = chunk("", choice={"finish_reason": "stop"}) + b"data: [DONE]\n\n"
CUT = "Grüße".encode()[:3]  # ends within a character
USED = {"usage": {"prompt_tokens": 5, "completion_tokens": 2000, "total_tokens": 2005}}


def named(text: str, raw: bytes) -> bytes:
    """An event in which these bytes stand for the text."""
    return chunk(text).replace(text.encode(), raw)


async def opened(start: Start, upstream: Upstream, *targets: str, more: str = "") -> Field:
    alias = model("m", ["raw/m", *targets], more).replace(
        '[prices."raw/m"]\ninput = 1\noutput = 2', ""
    )
    return await Field.open(start, providers(upstream.port) + alias, env=ENV)


BEFORE = {
    "first": (named("Hello", b"Hel" + CUT), END),
    "in the role": (named("assistant", b"assis\xfftant"), chunk("Hello"), END),
    "in a name": (b"event: \xff\n" + chunk("Hello"), END),
    "lone continuation": (named("Hello", b"\x80"), END),
    "overlong": (named("Hello", b"\xc0\xaf"), END),
    "surrogate": (named("Hello", b"\xed\xa0\x80"), END),
}


@pytest.mark.parametrize("name", BEFORE)
async def test_before_the_first_token_the_next_target_answers(
    start: Start, upstream: Upstream, name: str
) -> None:
    field = await opened(start, upstream, "lab/plain")
    upstream.script = events(*BEFORE[name])
    answer, settled, _ = await field.fly("m")
    assert answer.status == 200
    assert answer.body.decode()
    assert answer.headers["x-lightgate-target"] == "lab/plain"
    assert [note.outcome for note in settled.attempts] == ["stream_error", "ok"]


async def test_a_whole_answer_goes_to_the_next_target(start: Start, upstream: Upstream) -> None:
    field = await opened(start, upstream, "lab/plain")
    upstream.script = whole(chat_body().replace(b"Hello", CUT))
    answer, settled, _ = await field.fly("m", stream=False)
    assert said(answer, stream=False)
    assert [note.outcome for note in settled.attempts] == ["stream_error", "ok"]


@STREAMED
async def test_alone_it_is_refused(start: Start, upstream: Upstream, stream: bool) -> None:
    field = await opened(start, upstream)
    broken = named("Hello", CUT)
    upstream.script = events(broken, END) if stream else whole(chat_body().replace(b"Hello", CUT))
    answer, settled, _ = await field.fly("m", stream=stream)
    assert answer.status == settled.exchange.status == 502
    assert "sent bytes that are not UTF-8" in answer.json["error"]["message"]


@pytest.mark.parametrize("fast", [True, False])
async def test_after_the_first_token_the_stream_ends_with_an_error(
    start: Start, upstream: Upstream, fast: bool
) -> None:
    field = await opened(start, upstream, "lab/plain")
    broken = named("there", b"the" + CUT)
    tail = (broken, END) if fast else (broken + END,)
    upstream.script = events(chunk("Hello "), chunk("you "), chunk("out "), *tail)
    answer, settled, _ = await field.fly("m")
    assert answer.status == 200
    assert "not UTF-8" in last_error(answer)["message"]
    assert b"[DONE]" not in answer.body
    assert b"Hello" in answer.body
    assert b"the" not in answer.body.split(b"error")[0].split(b"out")[1]
    assert settled.exchange.outcome == "stream_error"


async def test_characters_may_be_split_over_reads(start: Start, upstream: Upstream) -> None:
    field = await opened(start, upstream)
    text = "Grüße, 世界 \N{GRINNING FACE}"
    raw = b"".join(chunk(c).replace(json.dumps(c).encode(), f'"{c}"'.encode()) for c in text)
    upstream.script = events(*(raw[i : i + 1] for i in range(len(raw))), END)
    answer, settled, _ = await field.fly("m")
    assert said(answer, stream=True) == text
    assert settled.exchange.outcome == "ok"


def packed(coding: bytes, stream: bool) -> Script:
    """A compressed answer; of a stream, each event is flushed as it comes."""
    pieces = [chunk("Hello "), chunk("there"), chunk("", choice={"finish_reason": "stop"}, **USED)]
    pieces = [*pieces, b"data: [DONE]\n\n"] if stream else [chat_body(usage=USED["usage"])]
    pack = zlib.compressobj(wbits={b"gzip": 31, b"deflate": 15}[coding])

    async def told(_: Heard) -> AsyncIterator[bytes]:
        kind = SSE if stream else JSON
        yield b"HTTP/1.1 200 OK\r\n%bcontent-encoding: %b\r\n" % (kind, coding)
        yield b"connection: close\r\n\r\n"
        for piece in pieces:
            yield pack.compress(piece) + pack.flush(zlib.Z_SYNC_FLUSH)
            await asyncio.sleep(0.02)  # of the test's own time
        yield pack.flush()

    return told


@STREAMED
@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
async def test_a_compressed_answer_is_read(
    start: Start, upstream: Upstream, stream: bool, coding: bytes
) -> None:
    field = await opened(start, upstream)
    upstream.script = packed(coding, stream)
    answer, settled, _ = await field.fly("m", stream=stream, max_tokens=4000)
    assert said(answer, stream=stream).startswith("Hello")
    assert "content-encoding" not in answer.headers
    [note] = settled.attempts
    assert note.outcome == "ok"
    assert note.tokens_out == 2000  # more than the compressed answer has bytes
    assert note.tokens_source == "usage"


async def test_the_first_token_of_a_compressed_stream_is_stamped_when_it_came(
    start: Start, upstream: Upstream
) -> None:
    """The stamp is that of the read which held the token, not of the end of the answer."""
    field = await opened(start, upstream)
    upstream.script = packed(b"gzip", stream=True)
    _, settled, _ = await field.fly("m")
    [note] = settled.attempts
    assert note.send is not None
    assert note.first is not None
    assert note.last is not None
    assert note.send < note.first < note.last


async def test_an_unknown_coding_goes_to_the_next_target(start: Start, upstream: Upstream) -> None:
    field = await opened(start, upstream, "lab/plain")
    upstream.script = whole(chat_body(), fields=JSON + b"content-encoding: br\r\n")
    answer, settled, _ = await field.fly("m", stream=False)
    assert answer.headers["x-lightgate-target"] == "lab/plain"
    assert [note.outcome for note in settled.attempts] == ["stream_error", "ok"]


async def test_a_compressed_refusal_says_what_it_says(start: Start, upstream: Upstream) -> None:
    field = await opened(start, upstream)
    body = json.dumps({"error": {"message": "No such temperature.", "code": "hot"}}).encode()
    fields = JSON + b"content-encoding: gzip\r\n"
    upstream.script = whole(gzip.compress(body), status=b"422 No", fields=fields)
    answer, _, _ = await field.fly("m")
    assert answer.status == 422
    assert "No such temperature." in answer.json["error"]["message"]
