"""Real processes, killed with -9 in the middle of a batch: every line has exactly one result."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from gateway.conftest import PROVIDERS
from lightgate.config.load import parse_config
from lightgate.gateway.batches.records import INPUT, BatchJob, StoredFile, new_id
from lightgate.gateway.batches.store import PART, BatchStore
from lightgate.gateway.served.inner import SECRET_ENV
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import BatchTerms, put_snapshot
from lightgate.ledger.journal.journal import read_frames
from lightgate.ledger.journal.notes import Settled
from lightgate.sim.server.server import SimServer
from lightgate.sim.world_file import parse

if TYPE_CHECKING:
    from pathlib import Path

LINES = 60
SLOW = {
    "name": "slow", "title": "Slow enough to be killed in", "source": "the tests",
    "providers": {"lab": {"models": {"plain": {"exact": {"ttft_ms": 40, "gap_ms": 0}}}}},
}  # fmt: skip
WITHIN_S = 120.0


class Killed:
    """A worker and the process of batches, which are started again after their deaths."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.store = BatchStore(data)
        self.children: list[asyncio.subprocess.Process] = []
        self.port = 0

    async def start(self, module: str, *arguments: str) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, "--data", str(self.data), *arguments,
            stdout=asyncio.subprocess.PIPE, env={**os.environ, SECRET_ENV: "5ecret"},
        )  # fmt: skip
        self.children.append(child)
        assert child.stdout is not None
        told = json.loads(await child.stdout.readline())
        self.port = told.get("port", self.port)
        return child

    async def worker(self) -> asyncio.subprocess.Process:
        where = ("--port", str(self.port), "--drain-s", "1")
        return await self.start("lightgate.gateway.process.worker", *where)

    async def runner(self) -> asyncio.subprocess.Process:
        return await self.start(
            "lightgate.gateway.runner", "--url", f"http://127.0.0.1:{self.port}"
        )

    def leave(self) -> BatchJob:
        url = "/v1/chat/completions"
        body = {"model": "lab/plain", "messages": [{"role": "user", "content": "Hi"}]}
        rows = [
            {"custom_id": f"a{n}", "method": "POST", "url": url, "body": body} for n in range(LINES)
        ]
        text, now = "\n".join(map(json.dumps, rows)).encode(), self.store.now_s
        file = StoredFile(
            id=new_id("file-"), owner="", purpose=INPUT, filename="a", size=len(text),
            created_s=now, digest="d",
        )  # fmt: skip
        part = self.store.path(file.id + PART)
        part.parent.mkdir(parents=True)
        part.write_bytes(text)
        self.store.add_file(file, BatchTerms())
        job = BatchJob(
            id=new_id("batch_"), owner="", kind="openai", endpoint=url, input_file=file.id,
            output_file=new_id("file-"), error_file=new_id("file-"), created_s=now,
            expires_s=now + 86_400, keep_s=86_400, digest="d",
        )  # fmt: skip
        return self.store.add_job(job, BatchTerms(), repeated=False)

    def results(self, file_id: str) -> list[dict[str, Any]]:
        path = self.store.path(file_id)
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        return [json.loads(line) for line in whole.splitlines()]

    async def close(self) -> None:
        for child in self.children:
            if child.returncode is None:
                child.kill()
            await child.wait()
            child._transport.close()  # type: ignore[attr-defined] # or it complains when collected
        self.store.close()


async def kill(child: asyncio.subprocess.Process) -> None:
    child.send_signal(signal.SIGKILL)
    await child.wait()


async def test_every_line_has_one_result(tmp_path: Path) -> None:
    sim = SimServer(parse(SLOW, "slow"), seed=7)
    config = parse_config(PROVIDERS.format(port=await sim.start()))
    put_snapshot(tmp_path, make_snapshot(config, (), {}))
    killed = Killed(tmp_path)
    try:
        async with asyncio.timeout(WITHIN_S):
            job = killed.leave()
            worker, runner = await killed.worker(), await killed.runner()
            for share in (0.1, 0.3, 0.5):
                while len(killed.results(job.output_file)) < share * LINES:
                    await asyncio.sleep(0.005)
                await kill(runner)
                if share == 0.3:
                    await kill(worker)
                    worker = await killed.worker()
                runner = await killed.runner()
            while (now := killed.store.job("", job.id, "openai")) and now.active:
                await asyncio.sleep(0.01)
        assert now is not None
        assert (now.state, now.total, now.completed, now.failed) == ("completed", LINES, LINES, 0)
        rows = killed.results(job.output_file)
        assert sorted(row["custom_id"] for row in rows) == sorted(f"a{n}" for n in range(LINES))
        assert killed.results(job.error_file) == []
        # What was answered was paid for once; only lines that were under way at a death may be
        # in the ledger twice.
        files = sorted((tmp_path / "journal").glob("*.lgj"))
        notes = [note for path in files for note, _ in read_frames(path)]
        answered = {note.exchange.request_id for note in notes if isinstance(note, Settled)}
        assert {row["id"] for row in rows} <= answered
    finally:
        await killed.close()
        await sim.close()
