"""A worker that is told to stop while it serves, and one whose disk takes no more."""

from __future__ import annotations

import asyncio
import json
import resource
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from gateway.workers import Workers
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.ledger.journal.journal import SPARE_BYTES
from sim.conftest import Answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Open = Callable[..., Awaitable[Workers]]


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[Open]:
    opened: list[Workers] = []

    async def begin(models: str = "", **more: object) -> Workers:
        opened.append(await Workers.open(tmp_path / "data", models, **more))  # type: ignore[arg-type]
        return opened[-1]

    yield begin
    for one in opened:
        await one.close()


def tokens(answer: Answer) -> int:
    return sum(
        bool(c["choices"][0]["delta"].get("content")) for c in answer.chunks if "choices" in c
    )


async def test_a_drain_lets_streams_finish(workers: Open) -> None:
    """F34: forty streams under SIGTERM, and a worker that waits for no longer than they take."""
    gateway = await workers()
    child = await gateway.start(drain_s=60.0)
    lines = [await gateway.line() for _ in range(40)]
    probe = await gateway.line()
    probe._writer.write(b"GET /health/ready HTTP/1.1\r\nhost: g\r\n")  # a request that has begun
    for line in lines:
        gateway.send(line, "lab/plain!drip:0.05")
    async with asyncio.timeout(100):
        while len(gateway.reserved()) < len(lines):
            await asyncio.sleep(0.01)
        child.terminate()
        while True:  # no new connections from the moment that it drains
            try:
                late = await gateway.line()
            except ConnectionError:
                break
            await late.close()
        probe._writer.write(b"\r\n")
        assert b" 503 " in await probe._reader.readuntil(b"\r\n")
        answers = await asyncio.gather(*(line.answer() for line in lines))
        assert await child.wait() == 0
    for answer in answers:
        assert answer.end == "complete"
        assert answer.events[-1] == ("", "[DONE]")
        assert tokens(answer) == 12
    balanced(gateway, {"ok": 40})
    assert not any(entry.gone for entry in gateway.sim.log.entries)


async def test_a_drain_tells_those_who_would_never_finish(workers: Open) -> None:
    """F34: eight streams that have begun, and two answers without a token when the time is up."""
    gateway = await workers()
    child = await gateway.start(drain_s=1.0)
    stuck = [(await gateway.line(), Answer()) for _ in range(8)]
    unborn = [(await gateway.line(), Answer()) for _ in range(2)]
    for lines, model in ((stuck, "stall:3"), (unborn, "hang")):
        for place, (line, _) in enumerate(lines):
            gateway.send(line, f"lab/plain!{model}", stream=lines is stuck or place > 0)
    reading = asyncio.gather(*(line._read(answer) for line, answer in (*stuck, *unborn)))
    async with asyncio.timeout(100):
        while len(gateway.reserved()) < 10 or any(tokens(answer) < 3 for _, answer in stuck):
            await asyncio.sleep(0.01)
        child.terminate()
        await reading
        assert await child.wait() == 0
        while sum(entry.gone for entry in gateway.sim.log.entries) < 10:
            await asyncio.sleep(0.01)
    for _, answer in stuck:
        assert answer.end == "complete"
        assert "stopping" in json.loads(answer.events[-1][1])["error"]["message"]
        assert tokens(answer) == 3
    for _, answer in unborn:
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert "stopping" in answer.json["error"]["message"]
    balanced(gateway, {"cancelled": 10})


def balanced(gateway: Workers, outcomes: dict[str, int]) -> None:
    """All ended in these ways, and what was announced is settled."""
    settled = gateway.settled()
    assert Counter(note.exchange.outcome for note in settled) == outcomes
    assert Counter(note.exchange_id for note in gateway.reserved()) == Counter(
        note.exchange.id for note in settled
    )


async def test_on_a_full_disk_nothing_is_lost_and_then_refused(workers: Open) -> None:
    """F29: a worker that is killed on a full disk has written down all that it answered."""
    gateway = await workers()
    SpendCounters.open(gateway.data / "spend", 0, ()).close()  # larger than the limit
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SPARE_BYTES // 2 + 65536, most))  # the child's too
    try:
        child = await gateway.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    line = await gateway.line()
    answers = []
    for _ in range(400):
        gateway.send(line, "lab/plain", stream=False)
        answers.append(await line.answer())
        if answers[-1].status != 200:
            break
        line.reuse()
    refused = answers.pop()
    assert refused.status == 503
    assert refused.json["error"]["code"] == "journal"
    assert int(refused.headers["retry-after"]) >= 1
    assert len(answers) > 20
    live = await gateway.line()  # it is alive, and answers what need not be written down
    assert (await live.ask("GET", "/health/live", b"", {})).status == 200
    child.kill()
    async with asyncio.timeout(100):
        await child.wait()
    seen = [answer.headers["x-lightgate-id"] for answer in answers]
    assert Counter(seen) == Counter(note.exchange.id for note in gateway.settled())
