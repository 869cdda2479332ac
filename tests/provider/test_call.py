from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
import pytest

from lightgate.clock import timing
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.dialect import kinds
from lightgate.errors import (
    ConnectionFailed,
    DeadlineMissed,
    EmptyAnswer,
    HttpRefused,
    Malformed,
    NameUnknown,
    PeerReset,
    RateLimited,
    StreamError,
    TooLarge,
    Truncated,
)
from lightgate.provider.call import Call, Called, call
from lightgate.provider.prepare import prepare
from lightgate.provider.secret import Secret
from lightgate.wire.client.roundtrip import Deadlines
from provider.conftest import QUICK, REQUEST, read_request, serving, target_at

if TYPE_CHECKING:
    from lightgate.wire.client.client import Client

Answer = Callable[..., Awaitable[tuple[Called, Marks]]]
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def chunk(**delta: object) -> bytes:
    body = {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


FINISH = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"


async def test_a_stream_is_clocked(answer: Answer) -> None:
    called, marks = await answer(
        [
            SSE,
            chunk(role="assistant"),
            chunk(content="Hel"),
            chunk(content="lo"),
            FINISH,
            USAGE,
            DONE,
        ]
    )
    assert called.outcome is Outcome.OK, called.error
    assert called.streamed
    assert called.tokens.out == 2
    assert called.tokens.tokens_in == 3
    assert called.tokens.source == "usage"
    assert called.finish_reason == "stop"
    assert called.first_kinds == kinds.TEXT
    assert marks.send is not None
    assert marks.headers is not None
    assert marks.first is not None
    assert marks.end is not None
    assert marks.send <= marks.headers <= marks.first <= marks.end
    assert marks.answer == marks.first
    assert sum(marks.burst_pieces) == 2
    assert marks.tcp_ns is not None
    assert marks.tls_ns is None


async def test_a_role_chunk_is_an_event_but_no_token(client: Client) -> None:
    role_seen = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(SSE + chunk(role="assistant", content=""))
        await role_seen.wait()
        writer.write(chunk(reasoning_content="hm") + chunk(content="yes") + FINISH + DONE)
        await writer.drain()

    async with serving(script) as port:
        marks = Marks()
        task = asyncio.create_task(call(target_at(port), REQUEST, marks, client=client))
        while marks.event is None:
            await asyncio.sleep(0)
        before = list(marks.burst_ns)
        role_seen.set()
        called = await task
    assert called.outcome is Outcome.OK, called.error
    assert called.first_kinds & kinds.REASONING
    assert before == []
    assert marks.burst_ns[0] > marks.event


async def test_a_missing_terminal_marker_is_a_truncation(answer: Answer) -> None:
    called, _ = await answer([SSE, chunk(content="Hel")])
    assert called.outcome is Outcome.TRUNCATED
    assert isinstance(called.error, Truncated)


@pytest.mark.parametrize("body", [b"", b": ping\n\n"])
async def test_a_stream_without_any_event_is_empty(answer: Answer, body: bytes) -> None:
    called, _ = await answer([SSE + body])
    assert called.outcome is Outcome.EMPTY
    assert isinstance(called.error, EmptyAnswer)


async def test_an_answer_that_breaks_off_after_its_marker_is_whole(answer: Answer) -> None:
    chunked = SSE.replace(b"connection: close", b"transfer-encoding: chunked")
    body = chunk(content="Hi") + FINISH + DONE
    called, _ = await answer(chunked + b"%x\r\n%s\r\n" % (len(body), body))  # no last chunk
    assert called.outcome is Outcome.OK, called.error


async def test_a_break_in_the_middle_is_a_reset(answer: Answer) -> None:
    chunked = SSE.replace(b"connection: close", b"transfer-encoding: chunked")
    body = chunk(content="Hi")
    called, _ = await answer(chunked + b"%x\r\n%s\r\n" % (len(body), body))
    assert called.outcome is Outcome.RESET
    assert isinstance(called.error, PeerReset)
    assert not called.error.early


async def test_an_error_inside_the_stream_is_an_error(answer: Answer) -> None:
    called, _ = await answer(
        [SSE, chunk(content="Hi"), b'data: {"error":{"message":"overloaded","code":529}}\n\n']
    )
    assert called.outcome is Outcome.STREAM_ERROR
    assert isinstance(called.error, StreamError)
    assert "overloaded" in called.error.message


async def test_nothing_but_a_role_is_empty(answer: Answer) -> None:
    called, _ = await answer([SSE, chunk(role="assistant"), FINISH, DONE])
    assert called.outcome is Outcome.EMPTY


REASONED = b'"usage":{"prompt_tokens":3,"completion_tokens":64,"completion_tokens_details":%b}' % (
    b'{"reasoning_tokens":64}'
)


@pytest.mark.parametrize(
    ("finish", "outcome"),
    [
        (b'"length"', Outcome.OK),
        (b'"content_filter"', Outcome.OK),
        (b'"tool_calls"', Outcome.OK),
        (b'"stop"', Outcome.EMPTY),
        (b'"eos"', Outcome.EMPTY),
        (b"null", Outcome.EMPTY),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_reason_explains_an_answer_without_a_token(
    answer: Answer, finish: bytes, outcome: Outcome, *, streamed: bool
) -> None:
    choice = b'{"index":0,"%b":{"content":null},"finish_reason":%b}'
    if streamed:
        last = b'data: {"choices":[%b],%b}\n\n' % (choice % (b"delta", finish), REASONED)
        called, marks = await answer([SSE, chunk(role="assistant", content=""), last, DONE])
    else:
        body = b'{"choices":[%b],%b}' % (choice % (b"message", finish), REASONED)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        called, marks = await answer(head % len(body) + body)
    assert called.outcome is outcome
    assert called.streamed is streamed
    assert (called.tokens.out, called.tokens.reasoning) == (64, 64)
    assert (marks.first, marks.last) == (None, None)
    assert marks.end is not None
    if outcome is Outcome.OK:
        assert called.finish_reason == finish.strip(b'"').decode()
        assert called.end == ("marker" if streamed else "finish")


async def test_a_rate_limit_says_how_long(answer: Answer) -> None:
    body = b'{"error":{"message":"slow down"}}'
    called, _ = await answer(
        b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: %d\r\n\r\n%s"
        % (len(body), body)
    )
    assert called.outcome is Outcome.RATE_LIMITED
    assert isinstance(called.error, RateLimited)
    assert called.error.retry_after_s == 7
    assert "slow down" in called.error.message


@pytest.mark.parametrize("status", [301, 400, 401, 404, 500, 529])
async def test_a_refusal_is_one_sentence(answer: Answer, status: int) -> None:
    called, _ = await answer(
        b"HTTP/1.1 %d No\r\ncontent-length: 0\r\nlocation: http://127.0.0.1:1/\r\n\r\n" % status
    )
    assert called.outcome is Outcome.HTTP_ERROR
    assert isinstance(called.error, HttpRefused)
    assert called.error.code == status
    assert "\n" not in called.error.message


async def test_html_with_200_is_not_an_answer(answer: Answer) -> None:
    page = b"<!doctype html><html><title>Welcome to nginx!</title></html>"
    called, _ = await answer(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n%s"
        % (len(page), page)
    )
    assert called.outcome is Outcome.STREAM_ERROR
    assert isinstance(called.error, Malformed)
    assert "base URL" in called.error.hint


async def test_what_is_not_http_is_said(answer: Answer) -> None:
    called, _ = await answer(b"SSH-2.0-OpenSSH_9.2\r\n")
    assert isinstance(called.error, Malformed)
    assert "does not speak HTTP/1.1" in called.error.message


async def test_a_json_answer_to_a_stream_request_is_taken_whole(answer: Answer) -> None:
    body = (
        b'{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":1}}'
    )
    called, marks = await answer(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
        % (len(body), body)
    )
    assert called.outcome is Outcome.OK, called.error
    assert not called.streamed
    assert called.tokens.out == 1
    numbers = timing.Timing.of(marks, called.tokens, streamed=called.streamed)
    assert numbers.ttft_ms is None
    assert numbers.e2e_ms is not None


async def test_an_endless_line_ends_at_the_limit(client: Client) -> None:
    sent = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(SSE + b"data: ")
        for _ in range(1600):  # 100 MiB, if it is let
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with serving(script) as port:
        called = await call(target_at(port), REQUEST, Marks(), client=client, deadlines=QUICK)
    assert isinstance(called.error, TooLarge)
    assert called.bytes_in < 8 * 1024 * 1024
    assert sent < 100 * 1024 * 1024


async def test_silence_ends_at_its_deadline(client: Client) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await reader.read()  # until the client gives up

    async with serving(script) as port:
        deadlines = Deadlines(first_byte_s=0.05)
        called = await call(target_at(port), REQUEST, Marks(), client=client, deadlines=deadlines)
    assert called.outcome is Outcome.TIMEOUT
    assert isinstance(called.error, DeadlineMissed)
    assert called.error.phase == "first_byte"


async def test_a_closed_port_is_one_sentence(client: Client) -> None:
    async with serving(lambda _r, _w: asyncio.sleep(0)) as port:
        pass
    called = await call(target_at(port), REQUEST, Marks(), client=client, deadlines=QUICK)
    assert called.outcome is Outcome.RESET
    assert isinstance(called.error, ConnectionFailed)
    assert called.error.exit_code == 4
    assert called.status is None


async def test_an_unknown_name_is_one_sentence(client: Client) -> None:
    target = msgspec.structs.replace(target_at(1), base_url="http://no-such-host.invalid/v1")
    called = await call(target, REQUEST, Marks(), client=client, deadlines=QUICK)
    assert isinstance(called.error, NameUnknown)


async def test_cancel_closes_the_socket_in_the_same_turn(client: Client) -> None:
    gone = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(SSE + chunk(content="Hi"))
        await writer.drain()
        try:
            await reader.read()
        finally:
            gone.set()

    async with serving(script) as port:
        marks = Marks()
        attempt = Call(prepare(target_at(port), REQUEST), marks)
        task = asyncio.create_task(attempt.run(client, QUICK))
        while marks.first is None:
            await asyncio.sleep(0)
        attempt.cancel()
        called = await task
        await gone.wait()
    assert called.outcome is Outcome.CANCELLED
    assert client.open_connections == 0


async def test_cancel_while_connecting_ends_the_call_and_not_its_task(client: Client) -> None:
    attempt = Call(prepare(target_at(9), REQUEST), Marks())
    waiting = asyncio.Event()

    async def never(host: str, port: int) -> list[object]:
        waiting.set()
        return await asyncio.Event().wait()  # type: ignore[return-value] # it never returns

    client._dialer._resolver._lookup = never  # type: ignore[assignment] # a resolver that hangs
    prepared = msgspec.structs.replace(
        attempt.prepared, origin=attempt.prepared.origin._replace(host="a.invalid")
    )
    attempt = Call(prepared, Marks())

    async def owner() -> str:
        called = await attempt.run(client, QUICK)
        await asyncio.sleep(0)  # the owner's task goes on
        return str(called.outcome)

    task = asyncio.create_task(owner())
    await waiting.wait()
    attempt.cancel()
    assert await task == "cancelled"


async def test_a_call_leaks_nothing(client: Client) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(SSE + chunk(content="Hi") + FINISH + DONE)
        await writer.drain()

    async with serving(script) as port:
        await call(target_at(port), REQUEST, Marks(), client=client, deadlines=QUICK)
        before, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
        for _ in range(20):
            await call(target_at(port), REQUEST, Marks(), client=client, deadlines=QUICK)
        while len(asyncio.all_tasks()) > tasks:  # the server's own handlers
            await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) <= before
    assert client.open_connections == 0


async def test_a_late_dispatch_is_noted(answer: Answer, client: Client) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(SSE + chunk(content="Hi") + FINISH + DONE)
        await writer.drain()

    async with serving(script) as port:
        marks = Marks(plan=time.monotonic_ns() - 50_000_000)
        await call(target_at(port), REQUEST, marks, client=client, deadlines=QUICK)
    assert marks.dispatch_lag_ns >= 50_000_000


async def test_a_key_that_the_provider_repeats_is_masked(client: Client) -> None:
    key = "canary-0123"
    body = b'{"error":{"message":"Incorrect API key provided: canary-0123"}}'

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert key.encode() in await read_request(reader)
        writer.write(b"HTTP/1.1 401 No\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    async with serving(script) as port:
        plain = target_at(port)
        provider = msgspec.structs.replace(plain.provider, auth="bearer")
        target = msgspec.structs.replace(plain, provider=provider, api_key=Secret(key))
        called = await call(target, REQUEST, Marks(), client=client, deadlines=QUICK)
    assert called.error is not None
    assert "Incorrect API key" in called.error.message
    assert key not in called.error.message
