"""T9, T11, T26: bodies that are too large, too deep, compressed or made to be slow."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.security.conftest import chat_body, say, whole
from lightgate.ledger.store.keys import KeyTerms
from sim.conftest import SAY

if TYPE_CHECKING:
    from gateway.security.conftest import Behind, Spawn, Upstream, Worker

PATH = b"/v1/chat/completions"
MIB = 1 << 20
LAG_S = 2.0  # of the worker's own work, whatever else the machine does


def post(body: bytes, *, fields: bytes = b"") -> bytes:
    head = b"POST %b HTTP/1.1\r\nhost: a\r\nconnection: close\r\n%bcontent-length: %d\r\n\r\n"
    return head % (PATH, fields, len(body)) + body


def call(**fields: Any) -> bytes:
    return json.dumps({"model": "raw/m", "messages": SAY, **fields}).encode()


def deep(depth: int, left: bytes, right: bytes) -> bytes:
    return b'{"model":"raw/m","messages":%b1%b}' % (left * depth, right * depth)


PATHOLOGICAL = {
    "deep lists": deep(100_000, b"[", b"]"),
    "deep objects": deep(100_000, b'{"a":', b"}"),
    "deep and open": b'{"model":' + b"[" * 1_000_000,
    "deep in what is read": b'{"model":"raw/m","n":%b%b}' % (b"[" * 99_999, b"]" * 99_999),
    "many keys": b"{" + b",".join(b'"%d":1' % n for n in range(900_000)) + b"}",
    "many keys inside": b'{"x":{%b}}' % b",".join(b'"%d":1' % n for n in range(700_000)),
    "one key again and again": b"{" + b'"model":"raw/m",' * 500_000 + b'"model":"raw/m"}',
    "long number": b'{"model":"raw/m","messages":[],"seed":%b}' % (b"9" * 5_000_000),
    "long fraction": b'{"model":"raw/m","messages":[],"seed":0.%b}' % (b"9" * 5_000_000),
    "huge max_tokens": b'{"model":"raw/m","messages":[],"max_tokens":%b}' % (b"9" * 4_000),
    "escapes": b'{"model":"raw/m","messages":"%b"}' % (b"\\u0000" * 1_500_000),
    "quotes": b'{"model":"raw/m","messages":"%b"}' % (b'\\"' * 4_000_000),
    "open string": b'{"model":"' + b"a" * 9_000_000,
    "white space": b" " * 9_000_000 + b"{}",
    "long model": b'{"model":"raw/%b"}' % (b"m" * 9_000_000),
    "model like many": b'{"model":"%b"}' % (b"rawm" * 60),
    "emoji": b'{"model":"raw/m","messages":"%b"}' % ("\U0001f600" * 2_000_000).encode(),
    "not UTF-8": b'{"model":"raw/m","messages":"%b"}' % (b"\xc3\x28" * 1_000_000),
    "bad at its end": b'{"model":"raw/m","messages":"%b\xff"}' % (b"a" * 9_000_000),
    "many prompts": b'{"model":"raw/m","prompt":[%b""]}' % (b'"",' * 2_000_000),
}  # fmt: skip


async def test_pathological_bodies_get_an_answer_and_stop_nobody(
    spawn: Spawn, upstream: Upstream
) -> None:
    upstream.script = whole(chat_body())
    worker = await spawn()
    await worker.chat("raw/m", stream=False)
    at_first = worker.rss_mib
    for name, body in PATHOLOGICAL.items():
        asking = asyncio.ensure_future(worker.raw(post(body)))
        worst = await _worst_ping(worker, asking)
        got = await asking
        assert got[:9] == b"HTTP/1.1 ", name
        status = int(got.split(b" ")[1])
        assert status in {200, 400, 404, 413}, (name, got[:300])
        assert worst < LAG_S, (name, worst)
    got = await worker.raw(post(PATHOLOGICAL["many prompts"]).replace(PATH, b"/v1/completions", 1))
    assert got.startswith(b"HTTP/1.1 400")
    assert worker.process.returncode is None
    assert worker.errors == ""
    assert worker.rss_mib - at_first < 500
    assert (await worker.chat("raw/m", stream=False)).status == 200


async def _worst_ping(worker: Worker, during: asyncio.Future[bytes]) -> float:
    """The most that the worker does meanwhile before another client has its answer."""
    worst = 0.0
    ping = b"GET /health/live HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    while True:
        began = worker.cpu_s
        assert (await worker.raw(ping)).startswith(b"HTTP/1.1 200")
        worst = max(worst, worker.cpu_s - began)
        if during.done():
            return worst


@pytest.mark.parametrize("framing", ["length", "chunks", "one chunk"])
async def test_a_body_of_64_mib_ends_at_the_cap(
    spawn: Spawn, upstream: Upstream, framing: str
) -> None:
    worker = await spawn()
    before = worker.rss_mib
    head = b"POST %b HTTP/1.1\r\nhost: a\r\n" % PATH
    piece = b"x" * MIB
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.port)
    if framing == "length":
        writer.write(head + b"content-length: %d\r\n\r\n" % (64 * MIB))
    else:
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n")
        if framing == "one chunk":
            writer.write(b"%x\r\n" % (64 * MIB))
    sent = 0
    try:
        while sent < 64 and not reader.at_eof():
            writer.write(b"%x\r\n%b\r\n" % (MIB, piece) if framing == "chunks" else piece)
            await asyncio.wait_for(writer.drain(), 5)
            sent += 1
            await asyncio.sleep(0)
    except (ConnectionError, TimeoutError):
        pass
    got = await reader.read(65536)
    writer.close()
    assert got.startswith(b"HTTP/1.1 413 "), got
    assert b"connection: close" in got
    assert worker.rss_mib - before < 40
    assert upstream.heard == []


@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"br", b"zstd", b"identity", b"x"])
async def test_a_compressed_request_is_refused(
    behind: Behind, upstream: Upstream, coding: bytes
) -> None:
    rig = await behind()
    body = gzip.compress(call())
    got = await say(rig.port, post(body, fields=b"content-encoding: %b\r\n" % coding))
    assert got.startswith(b"HTTP/1.1 415 ")
    assert upstream.heard == []


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b'"x"', b"1", b"{", b"{}", b'{"model":1}', b'{"model":null}',
        b'{"model":""}', b'{"model":"a\\u0000b"}', b'{"model":["raw/m"]}', b"\xef\xbb\xbf{}",
        b'{"model":"raw/m",}', b"{'model':'raw/m'}", b'{"model":"raw/m"} x', b"NaN",
        b'{"model":"raw/m","stream":"yes"}', b'{"model":"raw/m","max_tokens":-1}',
        b'{"model":"raw/m","max_tokens":0}', b'{"model":"raw/m","max_tokens":1e3}',
        b'{"model":"raw/m","max_tokens":1.5}', b'{"model":"raw/m","max_tokens":"9"}',
        b'{"model":"raw/m","max_tokens":99999999999999999999999}',
        b'{"model":"raw/m","max_tokens":18446744073709551616}',
        b'{"model":"raw/m","n":0}', b'{"model":"raw/m","n":99999999999}',
        b'{"model":"raw/m","n":"2"}',
        b'{"model":"raw/m","stream_options":7}', b'{"model":"raw/m","MODEL":"raw/other"}',
        b'{"model":"raw/m","Max_Tokens":9}', b'{"model":"raw/m","max_to\xe2\x84\xaaens":9}',
        b'{"model":"raw/m","\xc5\xbftream":true}',
    ],
)  # fmt: skip
async def test_a_body_that_says_nothing_sound_is_400(
    behind: Behind, upstream: Upstream, body: bytes
) -> None:
    rig = await behind(terms={"me": KeyTerms(name="me", tpm=10**9)})
    answer = await rig.ask("/v1/chat/completions", body, x_api_key=rig.keys["me"])
    assert answer.status == (401 if not rig.keys else 400), answer.body
    assert answer.json["error"]["message"]
    assert upstream.heard == []
    assert rig.state.spend is not None
    standing = rig.state.spend.standing(rig.state.served.snapshot.keys[0].id)
    assert standing is not None
    assert standing.held_tokens == 0, "a reservation was left behind"


async def test_what_is_routed_on_is_what_the_provider_gets(
    behind: Behind, upstream: Upstream
) -> None:
    upstream.script = whole(chat_body())
    rig = await behind(terms={"me": KeyTerms(name="me", max_tokens=50)})
    head = {"x_api_key": rig.keys["me"]}
    twice = (
        b'{"model":"nobody","model":"raw/m","m\\u006fdel":"raw/m","max_tokens":9999,"max_tokens":7}'
    )
    assert (await rig.ask("/v1/chat/completions", twice, **head)).status == 200
    both = b'{"model":"raw/m","max_tokens":99999,"max_completion_tokens":7}'
    assert (await rig.ask("/v1/chat/completions", both, **head)).status == 200
    escaped = b'{"model":"raw/m","max_\\u0074okens":99999}'
    assert (await rig.ask("/v1/chat/completions", escaped, **head)).status == 200
    first, second, third = (heard.body for heard in upstream.heard)
    assert first.count(b'"model"') == first.count(b'"max_tokens"') == 1
    assert json.loads(first) == {"model": "m", "max_tokens": 7}
    assert json.loads(second) == {"model": "m", "max_tokens": 50, "max_completion_tokens": 50}
    assert json.loads(third) == {"model": "m", "max_tokens": 50}


@pytest.mark.parametrize("count", [b"0", b"-7", b"1025", b"1" + b"0" * 18, b"9" * 60, b"1.5"])
async def test_a_gemini_request_asks_for_so_many_answers_as_others_may(
    behind: Behind, upstream: Upstream, count: bytes
) -> None:
    rig = await behind(terms={"me": KeyTerms(name="me", rpm=10)})
    body = b'{"contents":[],"generationConfig":{"candidateCount":%b}}' % count
    answer = await rig.ask(
        "/v1beta/models/rawgem/m:generateContent", body, x_api_key=rig.keys["me"]
    )
    assert answer.status == 400, answer.body
    assert upstream.heard == []


async def test_answers_without_end_are_asked_for_and_written_down(
    behind: Behind, upstream: Upstream
) -> None:
    """Each of these numbers is within its limit, and what they come to in no 64 bits."""
    upstream.script = whole(chat_body())
    rig = await behind(terms={"me": KeyTerms(name="me", rpm=10)})
    prompts = json.dumps(["x"] * 40_000).encode()
    body = b'{"model":"raw/m","n":1024,"max_tokens":2147483648,"prompt":%b}' % prompts
    answer = await rig.ask("/v1/completions", body, x_api_key=rig.keys["me"])
    assert answer.status != 500, answer.body
    assert len(upstream.heard) == 1
    assert rig.reserved()[0].nano_usd == 2**50


@pytest.mark.parametrize(
    ("config", "given"),
    [
        (b'"generationConfig":{"maxOutputTokens":7},"generationConfig":{"maxOutputTokens":9}', 9),
        (b'"generationConfig":{"maxOutputTokens":7,"maxOutputTokens":99999}', 50),
        (b'"generationConfig":{"maxOutputTokens":99999,"maxOutputTokens":7}', 7),
        (b'"generation_config":{"max_output_tokens":99999}', 50),
        (b'"generation_config":{"maxOutputTokens":7}', 7),
        (b'"generationConfig":{"max_output_tokens":99999}', 50),
        (b'"generationConfig":{"maxOutputTokens":7,"max_output_tokens":99999}', None),
        (b'"generationConfig":{"maxOutputTokens":7},"generation_config":{}', None),
        (b'"generationConfig":null', 50),
        (b'"x":1', 50),
    ],
)
async def test_a_gemini_limit_has_one_spelling(
    behind: Behind, upstream: Upstream, config: bytes, given: int | None
) -> None:
    upstream.script = whole(
        b'{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}]}'
    )
    rig = await behind(terms={"me": KeyTerms(name="me", max_tokens=50)})
    body = b'{"contents":[],%b}' % config
    answer = await rig.ask(
        "/v1beta/models/rawgem/m:generateContent", body, x_api_key=rig.keys["me"]
    )
    if given is None:
        assert answer.status == 400
        assert upstream.heard == []
        return
    assert answer.status == 200, answer.body
    [heard] = upstream.heard
    assert heard.json["generationConfig"] == {"maxOutputTokens": given}
    assert heard.body.count(b"utputTokens") == 1
    assert b"output_tokens" not in heard.body
    assert heard.body.count(b"onfig") == 1
