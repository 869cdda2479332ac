"""A small world without waiting, and a client that is nobody's but these tests'."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import TYPE_CHECKING, Any

import h11
import pytest

from lightgate.sim.server.server import SimServer
from lightgate.sim.world_file import parse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from lightgate.sim.world import World

    Serve = Callable[..., Awaitable["Sim"]]

QUICK: dict[str, Any] = {
    "name": "quick",
    "title": "Answers at once",
    "source": "the tests",
    "providers": {
        "lab": {
            "models": {
                "plain": {"exact": {"ttft_ms": 1, "gap_ms": 0}, "shape": {"role_ms": 0}},
                "think": {"exact": {"ttft_ms": 1, "gap_ms": 0}, "shape": {"reasoning": 0.4}},
                "tool": {"exact": {"ttft_ms": 1, "gap_ms": 0}, "shape": {"answer": "tool"}},
                "mixed": {"exact": {"ttft_ms": 1, "gap_ms": 0}, "shape": {"answer": "mixed"}},
                "hidden": {"exact": {"ttft_ms": 1, "gap_ms": 0}, "shape": {"hidden": 0.4}},
                "far": {"exact": {"ttft_ms": 60_000, "gap_ms": 0}},  # for those who leave before
                "rough": {
                    "exact": {"ttft_ms": 1, "gap_ms": 0},
                    "shape": {
                        "events": 2,
                        "comments": True,
                        "line_end": "crlf",
                        "wide": True,
                        "split_ms": 0.1,
                    },
                },
            }
        },
        "anthropic": {"like": "lab", "dialect": "anthropic"},
        "gemini": {"like": "lab", "dialect": "gemini"},
    },
}
for _model in QUICK["providers"]["lab"]["models"].values():
    # The length that a test asks for is the answer's own.
    _model["shape"] = {"ends": "stop", **_model.get("shape", {})}
SAY = [{"role": "user", "content": "Say something."}]


class Answer:
    """What came back: the status, the pieces of the body, and how it ended."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.end = "open"  # complete | cut | reset | malformed

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, str]]:
        """(name, data) of every event, read as the specification of SSE says."""
        text = self.body.decode().removeprefix("\ufeff")
        out, name, data = [], "", []
        for line in re.split(r"\r\n|\n|\r", text):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                data.append(value)
            elif line == "":
                if data:
                    out.append((name, "\n".join(data)))
                name, data = "", []
        return out

    @property
    def chunks(self) -> list[Any]:
        """The events' JSON, without the terminal marker of OpenAI."""
        return [json.loads(data) for _, data in self.events if data != "[DONE]"]


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._machine = h11.Connection(h11.CLIENT)

    @property
    def port(self) -> int:
        """Our own end's."""
        return int(self._writer.get_extra_info("sockname")[1])

    async def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """Send a request and read its answer to whatever end it has."""
        self.send(method, path, body, headers)
        return await self.answer()

    def send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        fields = {"host": "sim", "content-length": str(len(body)), **headers}
        request = h11.Request(method=method, target=path, headers=list(fields.items()))
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            self._writer.write(self._machine.send(event))

    async def answer(self) -> Answer:
        answer = Answer()
        try:
            await self._read(answer)
        except h11.RemoteProtocolError as error:
            cut = "closed" in str(error).lower()
            answer.end = "cut" if cut else "malformed"
        except ConnectionResetError:
            answer.end = "reset"
        return answer

    async def _read(self, answer: Answer) -> None:
        while True:
            event = self._machine.next_event()
            if event is h11.NEED_DATA:
                self._machine.receive_data(await self._reader.read(65536))
            elif isinstance(event, h11.Response):
                answer.status = event.status_code
                answer.headers = {k.decode(): v.decode() for k, v in event.headers}
            elif isinstance(event, h11.Data):
                answer.pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                answer.end = "complete"
                return

    def reuse(self) -> None:
        """Get ready for another request on the same connection."""
        self._machine.start_next_cycle()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Sim:
    """A simulator in this process."""

    def __init__(self, server: SimServer, port: int) -> None:
        self.server = server
        self.port = port

    async def line(self, port: int | None = None) -> Line:
        return Line(*await asyncio.open_connection("127.0.0.1", port or self.port))

    async def ask(self, path: str, body: Any = None, **headers: str) -> Answer:
        """POST a body, or GET without one, on a fresh connection."""
        line = await self.line()
        method = "GET" if body is None else "POST"
        raw = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await line.ask(method, path, raw, named)
        await line.close()
        return answer

    async def chat(self, model: str = "plain", *, fault: str = "", **fields: Any) -> Answer:
        """A chat completion of twelve tokens, streamed unless said otherwise."""
        body = {"model": model, "messages": SAY, "max_tokens": 12, "stream": True} | fields
        headers = {"x_sim_fault": fault} if fault else {}
        return await self.ask("/lab/v1/chat/completions", body, **headers)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Let the loop turn until something has happened."""
        async with asyncio.timeout(20):
            while not happened():
                await asyncio.sleep(0)


@pytest.fixture
def quick_world() -> World:
    return parse(QUICK, "quick")


@pytest.fixture
async def serve(quick_world: World) -> AsyncIterator[Serve]:
    """Serves the small world, or another, with other settings of its provider `lab`."""
    servers = []

    async def start(world: World | None = None, lab: Any = None, **settings: Any) -> Sim:
        if lab is not None:
            tree = json.loads(json.dumps(QUICK))
            tree["providers"]["lab"] |= lab
            world = parse(tree, "quick")
        server = SimServer(world or quick_world, **{"seed": 7, **settings})
        servers.append(server)
        return Sim(server, await server.start())

    yield start
    for server in servers:
        await server.close()


@pytest.fixture
async def sim(serve: Serve) -> Sim:
    """The small world, served."""
    return await serve()
