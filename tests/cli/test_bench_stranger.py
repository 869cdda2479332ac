"""`lightgate bench` against an OpenAI-compatible server that nobody here wrote the HTTP of."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from lightgate.ledger.runs.folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from cli.conftest import Run

    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """A small chat endpoint with a tokenizer of its own: a word and a third, and a template."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    asked = json.loads(body)
    words = sum(len(str(message["content"]).split()) for message in asked["messages"])
    usage = {"prompt_tokens": words * 4 // 3 + 9, "completion_tokens": asked["max_tokens"]}
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def event(data: str) -> None:
        text = f"data: {data}\n\n".encode()
        await send({"type": "http.response.body", "body": text, "more_body": True})

    for number in range(asked["max_tokens"]):
        delta = {"role": "assistant"} if number == 0 else {}
        choice = {"index": 0, "delta": delta | {"content": f" word{number}"}, "finish_reason": None}
        await event(json.dumps({"id": "s", "object": "chat.completion.chunk", "choices": [choice]}))
        await asyncio.sleep(0.001)
    last = {"index": 0, "delta": {}, "finish_reason": "length"}
    await event(json.dumps({"id": "s", "choices": [last], "usage": usage}))
    await event("[DONE]")
    await send({"type": "http.response.body", "body": b""})


async def test_a_stranger_is_measured(run: Run, tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    out = tmp_path / "run"
    load = ("--concurrency", "1,4", "--requests", "8")
    sizes = ("--prompt-tokens", "200", "--max-tokens", "6")
    try:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        ran = await run("bench", f"stranger={url}#m", *load, *sizes, "--out", str(out))
    finally:
        server.should_exit = True
        await task
    assert ran.code == 0, ran.err
    attempts = [a for a in RunFolder(out).attempts() if a.outcome != "cut"]
    assert {attempt.outcome for attempt in attempts} == {"ok"}
    assert {attempt.tokens_out for attempt in attempts} == {6}
    counted = [attempt.tokens_in for attempt in attempts if attempt.tokens_in is not None]
    assert all(abs(tokens - 200) <= 2 for tokens in counted), counted
