"""Real worker processes in front of a simulator in this one."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, Self

from gateway.conftest import PROVIDERS
from lightgate.config.load import parse_config
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.ledger.journal.journal import read_frames
from lightgate.ledger.journal.notes import Reserved, Settled
from lightgate.ledger.store.keys import new_key
from lightgate.sim.server.server import SimServer
from lightgate.sim.world_file import parse
from sim.conftest import QUICK, SAY, Line

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.ledger.store.keys import KeyRecord, KeyTerms
    from sim.conftest import Answer

READY_S = 100.0


class Workers:
    """A data folder, the simulator that its targets are on, and worker processes that serve it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.sim = SimServer(parse(json.loads(json.dumps(QUICK)), "quick"), seed=7)
        self.secret = ""
        self.keys: tuple[KeyRecord, ...] = ()
        self.port = 0
        self._children: list[asyncio.subprocess.Process] = []
        self._lines: list[Line] = []

    @classmethod
    async def open(cls, data: Path, models: str, terms: KeyTerms | None = None) -> Self:
        workers = cls(data)
        port = await workers.sim.start()
        if terms is not None:
            workers.secret, record = new_key(terms)
            workers.keys = (record,)
        config = parse_config((PROVIDERS + models).format(port=port))
        put_snapshot(data, make_snapshot(config, workers.keys, {}))
        return workers

    async def start(self, index: int = 0, *, drain_s: float = 5.0) -> asyncio.subprocess.Process:
        """Start a worker; the first one chooses the port that all of them share."""
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "lightgate.gateway.process.worker",
            "--data", str(self.data), "--index", str(index), "--port", str(self.port),
            "--drain-s", str(drain_s), stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._children.append(child)
        assert child.stdout is not None
        async with asyncio.timeout(READY_S):
            told = json.loads(await child.stdout.readline())
        self.port = told["port"]
        return child

    async def line(self) -> Line:
        """A connection; it is closed at the end."""
        line = Line(*await asyncio.open_connection("127.0.0.1", self.port))
        self._lines.append(line)
        return line

    def send(self, line: Line, model: str, **fields: Any) -> None:
        """Ask for a chat completion of twelve tokens, streamed unless said otherwise."""
        body = {"model": model, "messages": SAY, "max_tokens": 12, "stream": True} | fields
        headers = {"authorization": f"Bearer {self.secret}"} if self.secret else {}
        line.send("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)

    async def chat(self, model: str, **fields: Any) -> Answer:
        line = await self.line()
        self.send(line, model, **fields)
        answer = await line.answer()
        await line.close()
        return answer

    def settled(self) -> list[Settled]:
        return [note for note in self.notes() if isinstance(note, Settled)]

    def reserved(self) -> list[Reserved]:
        return [note for note in self.notes() if isinstance(note, Reserved)]

    def notes(self) -> list[Any]:
        files = sorted((self.data / "journal").glob("*.lgj"))
        return [note for file in files for note, _ in read_frames(file)]

    async def close(self) -> None:
        for line in self._lines:
            await line.close()
        for child in self._children:
            if child.returncode is None:
                child.kill()
            await child.wait()
            child._transport.close()  # type: ignore[attr-defined] # or it complains when collected
        await self.sim.close()
