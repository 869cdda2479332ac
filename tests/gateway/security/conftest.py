"""A provider that says what it is told to, and a gateway as a process that is watched."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from lightgate.config.load import parse_config
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.ledger.store.keys import KeyTerms, new_key
from sim.conftest import SAY, Answer, Line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from gateway.conftest import Rig, Start

    Script = Callable[["Heard"], AsyncIterator[bytes]]
    Behind = Callable[..., Awaitable[Rig]]
    Spawn = Callable[..., Awaitable["Worker"]]

WATCHER = Path(__file__).with_name("watched_worker.py")
JSON = b"content-type: application/json\r\n"
SSE = b"content-type: text/event-stream\r\n"
PROVIDER_KEY = "canary-provider-raw-7d1f"  # looks like no key: nothing but its value is known


class Heard(NamedTuple):
    """One request as it came to the provider."""

    head: bytes
    body: bytes

    @property
    def line(self) -> bytes:
        return self.head.partition(b"\r\n")[0]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Names as they were written."""
        lines = self.head.split(b"\r\n")[1:]
        pairs = (line.partition(b":") for line in lines if line)
        return [(name, value.strip()) for name, _, value in pairs]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Upstream:
    """A provider in this process; `script` yields the bytes of an answer, then it closes."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.raw = b""  # every byte that came
        self.open = 0  # answers that are under way
        self.left = 0  # answers whose reader went away before their end
        self.script: Script = chat_stream()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.raw += head
            length = next(
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            )
            body = await reader.readexactly(length)
            self.raw += body
            heard = Heard(head[:-4], body)
            self.heard.append(heard)
            await self._answer(heard, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            self.left += 1
        finally:
            self.open -= 1
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(
        self, heard: Heard, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Write the script; stop as soon as the other side has gone."""
        gone = asyncio.ensure_future(reader.read(1))
        telling = asyncio.ensure_future(self._tell(heard, writer))
        await asyncio.wait({gone, telling}, return_when="FIRST_COMPLETED")
        if telling.done():
            gone.cancel()
            telling.result()
            return
        telling.cancel()
        raise ConnectionResetError

    async def _tell(self, heard: Heard, writer: asyncio.StreamWriter) -> None:
        async for piece in self.script(heard):
            writer.write(piece)
            await writer.drain()


def whole(
    body: bytes, *, status: bytes = b"200 OK", fields: bytes = JSON, length: int | None = None
) -> Script:
    """An answer of one piece."""

    async def told(_: Heard) -> AsyncIterator[bytes]:
        size = len(body) if length is None else length
        head = b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\nconnection: close\r\n\r\n"
        yield head % (status, fields, size) + body

    return told


def events(*pieces: bytes, fields: bytes = b"") -> Script:
    """A stream of these bytes, each in a write of its own."""

    async def told(_: Heard) -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n%b%bconnection: close\r\n\r\n" % (SSE, fields)
        for piece in pieces:
            yield piece

    return told


def chunk(text: str | None = None, **more: Any) -> bytes:
    """One event of a chat stream."""
    delta = {"role": "assistant"} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": None} | more.pop("choice", {})
    return b"data: %b\n\n" % json.dumps({"id": "c", "choices": [choice], **more}).encode()


END = chunk("", choice={"finish_reason": "stop"}) + b"data: [DONE]\n\n"


def chat_stream(*texts: str, fields: bytes = b"") -> Script:
    """A complete chat stream."""
    return events(*(chunk(text) for text in texts or ("Hello",)), END, fields=fields)


def chat_body(text: str = "Hello", **more: Any) -> bytes:
    """A whole chat completion."""
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return json.dumps({"id": "c", "choices": choices, **more}).encode()


def providers(port: int) -> str:
    """The configuration of a provider in each dialect, all of them at this port."""
    return f"""
[providers.raw]
base_url = "http://127.0.0.1:{port}/v1"
api_key = "env:RAW_KEY"
abort_stops_billing = true
[providers.rawgem]
base_url = "http://127.0.0.1:{port}/v1beta"
dialect = "gemini"
api_key = "env:GEM_KEY"
[providers.rawant]
base_url = "http://127.0.0.1:{port}/v1"
dialect = "anthropic"
api_key = "env:ANT_KEY"
[prices."raw/m"]
input = 1
output = 2
[prices."rawgem/m"]
input = 1
output = 2
"""


ENV = {
    "RAW_KEY": PROVIDER_KEY,
    "GEM_KEY": "canary-provider-gem-90aa",
    "ANT_KEY": "canary-provider-ant-3c5e",
}


@pytest.fixture
def behind(start: Start, upstream: Upstream) -> Behind:
    """Starts a gateway in this process in front of the scripted provider."""

    async def begin(models: str = "", **more: Any) -> Rig:
        return await start(providers(upstream.port) + models, **{"env": ENV, **more})

    return begin


class Worker:
    """A gateway in a process of its own; every name, file and socket that it touches is noted."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, data: Path) -> None:
        self.process = process
        self.port = port
        self.data = data
        self.keys: dict[str, str] = {}

    @property
    def notes(self) -> Path:
        return self.data.parent / f"{self.data.name}.audit"

    @property
    def errors(self) -> str:
        """All that the process has said on stderr, but that the machine was busy."""
        lines = (self.data.parent / f"{self.data.name}.stderr").read_text().splitlines(True)
        return "".join(line for line in lines if '"gateway.aside.turns"' not in line)

    @property
    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    @property
    def cpu_s(self) -> float:
        """Seconds that a processor has worked for it."""
        return time.clock_gettime(~self.process.pid << 3 | 2)  # the clock of another process

    def audited(self, event: str) -> list[str]:
        """What an audit hook was told, one line each."""
        lines = (json.loads(line) for line in self.notes.read_text().splitlines())
        return [str(what) for name, what in lines if name == event]

    async def raw(self, data: bytes) -> bytes:
        """Send bytes and read until the end."""
        return await say(self.port, data)

    async def ask(self, path: str, body: Any = None, **headers: str) -> Answer:
        line = Line(*await asyncio.open_connection("127.0.0.1", self.port))
        raw = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await line.ask("GET" if body is None else "POST", path, raw, named)
        await line.close()
        return answer

    async def chat(self, model: str, **fields: Any) -> Answer:
        headers = fields.pop("headers", {})
        body = {"model": model, "messages": SAY, "max_tokens": 12, "stream": True} | fields
        return await self.ask("/v1/chat/completions", body, **headers)


async def say(port: int, data: bytes) -> bytes:
    """Send bytes on a fresh connection and read until the other side ends it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        await writer.drain()
    got = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65536):
            got += piece
    writer.close()
    return got


@pytest.fixture
async def spawn(tmp_path: Path, upstream: Upstream) -> AsyncIterator[Spawn]:
    """Starts a worker process in front of the scripted provider."""
    workers: list[Worker] = []

    async def begin(models: str = "", *, terms: dict[str, KeyTerms] | None = None) -> Worker:
        data = tmp_path / f"worker{len(workers)}"
        made = {name: new_key(t) for name, t in (terms or {}).items()}
        keys = tuple(record for _, record in made.values())
        put_snapshot(
            data, make_snapshot(parse_config(providers(upstream.port) + models), keys, ENV)
        )
        stderr = (tmp_path / f"{data.name}.stderr").open("wb")
        audit = tmp_path / f"{data.name}.audit"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(WATCHER), str(audit), "--data", str(data), "--drain-s", "1"),
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **ENV},
        )
        stderr.close()
        assert process.stdout is not None
        ready = json.loads(await process.stdout.readline())
        worker = Worker(process, ready["port"], data)
        worker.keys = {name: secret for name, (secret, _) in made.items()}
        workers.append(worker)
        return worker

    yield begin
    for worker in workers:
        if worker.process.returncode is None:
            worker.process.send_signal(signal.SIGTERM)
        await worker.process.wait()
