"""What one worker has learned of a target, the others and the next lives know."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gateway.workers import Workers
from lightgate.gateway.exchange.state import TICK_S
from lightgate.gateway.process.sharing import FOLDER, SHARE_TICKS, FormSharing
from lightgate.route.form.forms import Forms
from lightgate.route.form.state import FormState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sim.conftest import Line

SLOW, QUICK = "lab/plain!silence:0.2", "lab/plain"
SURE = 6  # answers of the quick one, after which it is no near thing which one is quick
# Whoever has not seen them takes the slow one for the better one.
MODELS = f"""
[models.both]
targets = ["{SLOW}", "{QUICK}"]
policy = "voice"
hedge = "off"
[priors."{SLOW}"]
ttft = "1ms"
speed = 100
[priors."{QUICK}"]
ttft = "50ms"
speed = 100
"""


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[Workers]:
    opened = await Workers.open(tmp_path, MODELS)
    yield opened
    await opened.close()


async def ask(workers: Workers, line: Line, model: str = "both") -> dict[str, str]:
    """The headers of an answer on a connection, which is one worker's for as long as it lives."""
    workers.send(line, model)
    answer = await line.answer()
    assert answer.status == 200
    line.reuse()
    return answer.headers


async def target(workers: Workers, line: Line) -> str:
    return (await ask(workers, line))["x-lightgate-target"]


async def line_to(workers: Workers, index: int) -> Line:
    """A connection to one of the workers that share the port."""
    for _ in range(64):
        line = await workers.line()
        wanted = (await ask(workers, line, "lab/think"))["x-request-id"]
        if await served_by(workers, wanted) == index:
            return line
        await line.close()
    raise AssertionError("the kernel never chose that worker")


async def served_by(workers: Workers, request_id: str) -> int:
    async with asyncio.timeout(100):
        while True:
            for note in workers.settled():
                if note.exchange.request_id == request_id:
                    return note.exchange.worker
            await asyncio.sleep(0.01)


async def learn(workers: Workers, line: Line) -> int:
    """Ask until the quick one is known to be quick; an instant before it was asked last."""
    assert await target(workers, line) == SLOW
    quick = 0
    for _ in range(10 * SURE):
        now = time.monotonic_ns()
        quick += await target(workers, line) == QUICK
        if quick == SURE:
            return now
    raise AssertionError("the slow one was never left")


async def written(workers: Workers, index: int, since_ns: int) -> None:
    """Wait until a worker has written down what the quick one did after an instant."""
    path = workers.data / FOLDER / f"{index}.json"
    async with asyncio.timeout(100):
        while True:
            if path.exists():
                known = msgspec.json.decode(path.read_bytes(), type=FormState).targets.get(QUICK)
                if known is not None and known.last_ns > since_ns:
                    return
            await asyncio.sleep(0.02)


async def test_the_other_worker_knows(workers: Workers) -> None:
    await workers.start(0)
    await workers.start(1)
    first, second = await line_to(workers, 0), await line_to(workers, 1)
    await written(workers, 1, await learn(workers, first))
    assert await target(workers, second) == QUICK
    assert 2 * SHARE_TICKS * TICK_S <= 2.0  # written within one tick, read within another


async def test_the_next_life_knows_even_after_a_kill(workers: Workers) -> None:
    killed = await workers.start(0)
    await written(workers, 0, await learn(workers, await workers.line()))
    killed.kill()
    await killed.wait()
    await workers.start(0)
    assert await target(workers, await workers.line()) == QUICK


def test_a_file_of_another_version_teaches_nothing(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    forms = Forms({})
    forms.first("a/m", 0, 1_000_000_000, 1_000_000)
    state: dict[str, Any] = msgspec.to_builtins(forms.export())
    state["targets"]["a/m"][0] = state["targets"]["a/m"][0][:1]  # sizes that we do not have
    (tmp_path / FOLDER / "1.json").write_bytes(msgspec.json.encode(state))
    fresh = Forms({})
    assert FormSharing(tmp_path, 0, fresh, lambda: 1_000_000_000).adopt() == 0
    assert fresh.by_target == {}


def test_a_form_that_cannot_be_written_is_told_once_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    forms = Forms({})
    forms.first("a/m", 0, 1_000_000_000, 1_000_000)
    sharing = FormSharing(tmp_path / "data", 0, forms, lambda: 1_000_000_000)
    in_the_way = tmp_path / "data"
    for told in (1, 2):
        in_the_way.touch()
        sharing.share()
        sharing.share()
        assert (
            caplog.messages
            == ["the form of targets cannot be written for other workers: Not a directory"] * told
        )
        in_the_way.unlink()
        content = sharing.news()
        assert content is not None
        sharing.share()
        assert (in_the_way / FOLDER / "0.json").read_bytes() == content
        assert sharing.news() is None
        sharing._written = b""
        (in_the_way / FOLDER / "0.json").unlink()
        (in_the_way / FOLDER).rmdir()
        in_the_way.rmdir()
