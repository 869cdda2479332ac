"""provider.call against a server that nobody here wrote."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.provider.call import call
from provider.conftest import QUICK, REQUEST, target_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lightgate.wire.client.client import Client

WORDS = ["Speed", " is", " a", " feature", "."]


Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    assert scope["type"] == "http"
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    asked = json.loads(body)
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for word in WORDS:
        choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
        event = {"id": "u", "model": asked["model"], "choices": [choice]}
        data = f"data: {json.dumps(event)}\r\n\r\n".encode()
        await send({"type": "http.response.body", "body": data, "more_body": True})
        await asyncio.sleep(0)
    usage = {"prompt_tokens": 9, "completion_tokens": len(WORDS)}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
    tail = f"data: {json.dumps(last)}\r\n\r\ndata: [DONE]\r\n\r\n".encode()
    await send({"type": "http.response.body", "body": tail})


@pytest.fixture(params=["h11", "httptools"])
async def port(request: pytest.FixtureRequest) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=request.param, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined] # none of its business here
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0)
    yield listener.getsockname()[1]
    server.should_exit = True
    await task


async def test_a_stream_from_uvicorn(client: Client, port: int) -> None:
    for reused in (False, True):
        marks = Marks()
        called = await call(target_at(port), REQUEST, marks, client=client, deadlines=QUICK)
        assert called.outcome is Outcome.OK, called.error
        assert called.tokens.out == len(WORDS)
        assert called.tokens.source == "usage"
        assert sum(marks.burst_pieces) == len(WORDS)
        assert marks.first is not None
        assert (marks.tcp_ns is None) is reused
    assert client.open_connections == 1
