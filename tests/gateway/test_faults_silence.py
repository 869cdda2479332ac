"""Silence before the first token: comments keep the line alive and end no right to fail over."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.faulted import SHORT, Field, last_error, model, said
from lightgate.gateway.exchange import state

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from gateway.conftest import Start

    Open = Callable[[str], Awaitable[Field]]

COMMENT = b": keep-alive\n"
DELTAS: tuple[tuple[dict[str, str], str | None], ...] = (
    ({"role": "assistant"}, None),
    ({"content": "Hello"}, None),
    ({}, "stop"),
)


@pytest.fixture
async def talking(start: Start, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """Opens a field whose gateway says something after 50 ms without a word."""
    monkeypatch.setattr(state, "TICK_S", 0.05)
    tasks: list[asyncio.Task[None]] = []

    async def begin(models: str) -> Field:
        field = await Field.open(start, '[gateway]\nkeep_alive = "50ms"\n' + models)
        tasks.append(asyncio.create_task(field.rig.state.tick()))
        field.expects(tasks[-1])
        return field

    yield begin
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def events_of_openai(body: bytes) -> list[str]:
    """As the official SDK reads: what stands between blank lines is an event, whatever it holds."""
    out = []
    for block in body.decode().split("\n\n"):
        lines = block.split("\n")
        if lines == [""]:
            continue
        out.append("\n".join(line[6:] for line in lines if line.startswith("data: ")))
    return out


async def test_a_comment_is_one_line_and_no_event(talking: Open) -> None:
    field = await talking(model("m", ["lab/plain!silence:0.4"]))
    answer, settled, _ = await field.fly("m")
    assert answer.status == 200
    assert answer.body.startswith(COMMENT)
    assert answer.body.count(COMMENT) >= 2
    assert COMMENT + b"\n" not in answer.body
    found = events_of_openai(answer.body)
    assert found[-1] == "[DONE]"
    assert all(json.loads(event)["choices"] for event in found[:-1])  # no empty event
    assert said(answer, stream=True).strip()
    assert settled.exchange.outcome == "ok"
    ttft_ms = settled.exchange.record(1).ttft_ms
    assert ttft_ms is not None
    assert ttft_ms >= 400  # a comment is no token


async def test_after_comments_another_target_may_still_answer(talking: Open) -> None:
    field = await talking(model("m", ["lab/plain!hang", "lab/plain"], ttft=SHORT))
    answer, settled, _ = await field.fly("m")
    assert answer.status == 200
    assert answer.body.startswith(COMMENT)
    assert answer.events[-1] == ("", "[DONE]")
    assert settled.exchange.winner == "lab/plain"
    assert [note.outcome for note in settled.attempts] == ["timeout", "ok"]


@pytest.mark.parametrize("second", ["lab/plain!hang", "lab/plain!silence:0.3", "lab/plain!reset:0"])
async def test_after_comments_a_failure_is_told_in_band(talking: Open, second: str) -> None:
    targets = ["lab/far", second]
    if second == "lab/plain!silence:0.3":
        targets = [second, "lab/far"]
    field = await talking(model("m", targets, ttft=SHORT))
    answer, settled, _ = await field.fly("m")
    assert answer.status == 200
    assert answer.end == "complete"
    assert answer.body.startswith(COMMENT)
    assert last_error(answer)["message"].startswith("No target could answer.")
    assert b"[DONE]" not in answer.body
    assert len(answer.events) == 1
    assert settled.exchange.outcome == ("reset" if "reset" in second else "timeout")
    assert settled.exchange.status in {502, 504}


async def test_an_answer_that_comes_in_one_piece_after_comments_is_whole(talking: Open) -> None:
    """Its first token and its end are one read: the head is out already, the text is not."""
    release = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        chunks = [{"choices": [{"delta": delta, "finish_reason": end}]} for delta, end in DELTAS]
        body = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks)
        body += b"data: [DONE]\n\n"
        await release.wait()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    raw = f'[providers.raw]\nbase_url = "http://127.0.0.1:{port}/v1"\napi_key = "none"\n'
    field = await talking(raw + 'dialect = "openai"\n' + model("m", ["raw/plain"]))
    asking: asyncio.Task[Any] = asyncio.create_task(field.rig.chat("m", headers=field.headers))
    await field.rig.until(lambda: any(exchange.reply.started for exchange in field.rig.exchanges))
    release.set()
    answer = await asking
    server.close()
    assert said(answer, stream=True) == "Hello"
    assert answer.events[-1] == ("", "[DONE]")
    assert field.rig.settled()[-1].exchange.outcome == "ok"


async def test_a_whole_answer_gets_no_comments(talking: Open) -> None:
    field = await talking(model("m", ["lab/plain!silence:0.4"]))
    answer, _, _ = await field.fly("m", stream=False)
    assert answer.json["usage"]["completion_tokens"] == 12
