"""All batches of a gateway: which run side by side, which rest, and how the process ends."""

from __future__ import annotations

import asyncio
import os
import stat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.source import ManualClock
from lightgate.errors import LightgateError
from lightgate.gateway.runner import __main__ as process
from lightgate.gateway.runner import runner as module
from lightgate.gateway.runner.runner import AT_ONCE, AT_ONCE_PER_OWNER, REST_NS, BatchRunner
from lightgate.gateway.served.inner import SECRET_ENV
from lightgate.gateway.served.snapshot import BatchTerms, SnapshotFailed

if TYPE_CHECKING:
    from pathlib import Path


class PlayedRun:
    """A batch that runs until the test lets it end."""

    def __init__(self, job: Any, _tools: Any) -> None:
        self.job = job
        self.may_end = asyncio.Event()
        self.heard: list[Any] = []
        self.error: Exception | None = None

    async def run(self) -> None:
        await self.may_end.wait()
        if self.error is not None:
            raise self.error

    def told(self, job: Any) -> None:
        self.heard.append(job)

    def stop(self) -> None:
        self.heard.append("stop")


class PlayedStore:
    """A store with the batches that the test names."""

    def __init__(self) -> None:
        self.exists = True
        self.jobs: list[Any] = []
        self.said: list[str] = []

    def active(self) -> list[Any]:
        return list(self.jobs)

    def sweep(self) -> None:
        self.said.append("sweep")

    def close(self) -> None:
        self.said.append("close")


def jobs(*names: str) -> list[Any]:
    """Batches, whose owner is the first letter of their name."""
    return [SimpleNamespace(id=name, owner=name[0]) for name in names]


class Bench:
    """A runner whose batches are played."""

    def __init__(self) -> None:
        self.clock = ManualClock(7)
        self.store = PlayedStore()
        store: Any = self.store
        self.runner = BatchRunner(store, None, BatchTerms(), self.clock.now_ns)  # type: ignore[arg-type]

    @property
    def running(self) -> list[str]:
        return list(self.runner._runs)

    def run_of(self, name: str) -> Any:
        return self.runner._runs[name][0]

    async def end(self, name: str, error: Exception | None = None) -> None:
        run, task = self.runner._runs[name]
        run.error = error  # type: ignore[attr-defined]
        run.may_end.set()  # type: ignore[attr-defined]
        await asyncio.wait({task})


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "JobRun", PlayedRun)
    made = Bench()
    yield made
    for _, task in tuple(made.runner._runs.values()):
        task.cancel()
    made.runner._pool.shutdown()


async def test_an_owner_has_so_many_batches_side_by_side_and_all_have_more(bench: Bench) -> None:
    bench.store.jobs = jobs("a1", "a2", "a3", *[f"{letter}1" for letter in "bcdefghijklmnopqr"])
    await bench.runner.look()
    assert AT_ONCE_PER_OWNER == 2
    assert bench.running == ["a1", "a2", *[f"{letter}1" for letter in "bcdefghijklmno"]]
    assert len(bench.running) == AT_ONCE
    await bench.end("a1")
    bench.store.jobs = bench.store.jobs[1:]
    await bench.runner.look()
    assert "a3" in bench.running
    assert len(bench.running) == AT_ONCE
    assert [job.id for job in bench.run_of("a2").heard] == ["a2"]


async def test_nothing_is_opened_where_nobody_has_left_anything(bench: Bench) -> None:
    bench.store.exists = False
    await bench.runner.look()
    assert bench.store.said == []
    bench.store.exists = True
    for _ in range(module.SWEEP_LOOKS + 1):
        await bench.runner.look()
    assert bench.store.said == ["sweep", "sweep"]  # by the first look, and a minute later


async def test_a_batch_that_broke_off_rests_and_is_begun_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.store.jobs = jobs("a1")
    await bench.runner.look()
    await bench.end("a1", OSError("full"))
    assert "A batch broke off" in caplog.text
    bench.clock.advance(REST_NS - 1)
    await bench.runner.look()
    assert bench.running == []
    bench.clock.advance(1)
    await bench.runner.look()
    assert bench.running == ["a1"]
    await bench.end("a1")
    await bench.runner.look()
    assert bench.running == ["a1"]  # one that ended well does not rest


async def test_other_terms_hold_at_once(bench: Bench) -> None:
    runner = bench.runner
    runner.window.width = 9.0
    runner.use(BatchTerms(at_once=5, max_lines=3))
    assert (runner.window.most, runner.window.width, runner.tools.max_lines) == (5.0, 5.0, 3)
    runner.use(BatchTerms(at_once=8))
    assert (runner.window.most, runner.window.width) == (8.0, 5.0)


async def test_the_end_waits_for_lines_under_way_and_cancels_the_late_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "END_S", 0)
    bench.store.jobs = jobs("a1", "b1")
    await bench.runner.look()
    runs, tasks = zip(*bench.runner._runs.values(), strict=True)
    await asyncio.sleep(0)
    runs[0].may_end.set()
    await bench.runner.end()
    assert [run.heard for run in runs] == [["stop"], ["stop"]]
    assert all(task.done() for task in tasks)
    assert tasks[1].cancelled()
    assert bench.store.said == ["sweep", "close"]


async def test_a_store_that_cannot_be_read_is_said_and_looked_at_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop, looks = asyncio.Event(), []

    async def look() -> None:
        looks.append("look")
        if len(looks) == 2:
            stop.set()
        raise OSError("gone")

    monkeypatch.setattr(bench.runner, "look", look)
    monkeypatch.setattr(module, "LOOK_S", 0)
    await bench.runner.run(stop)
    assert len(looks) == 2
    assert "The store of batches cannot be read: gone" in caplog.text
    assert bench.store.said == ["close"]


# The process


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the process does before its work, which is not done."""
    did: dict[str, Any] = {}

    def work(coroutine: Any) -> None:
        coroutine.close()
        if "fails" in did:
            raise did["fails"]

    monkeypatch.setenv(SECRET_ENV, "a-secret-of-the-gateway")
    monkeypatch.setattr(process, "end_with_parent", lambda env: did.update(parent=env))
    monkeypatch.setattr(process, "start_child", lambda env, secrets: did.update(masked=secrets))
    monkeypatch.setattr("uvloop.run", work)
    monkeypatch.setattr("os.nice", lambda by: did.update(nice=by))
    return did


def test_the_process_masks_its_secret_and_hands_it_to_nobody(started: dict[str, Any]) -> None:
    assert process.main(["--data", "d", "--url", "http://127.0.0.1:1"]) == 0
    assert "a-secret-of-the-gateway" in started["masked"]
    assert SECRET_ENV not in os.environ
    assert started["parent"] is os.environ
    assert started["nice"] == process.NICE


def test_the_process_says_why_it_could_not_work(
    started: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    started["fails"] = LightgateError("The folder cannot be written.")
    code = process.main(["--data", "d", "--url", "http://127.0.0.1:1"])
    assert code == LightgateError("x").exit_code != 0
    assert capsys.readouterr().err == "The folder cannot be written.\n"


async def test_one_process_at_a_time_works_on_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LOOK_S", 0)
    stop, folder = asyncio.Event(), tmp_path / "batches"
    second = process._alone(folder, stop)
    async with process._alone(folder, stop):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / process.LOCK).stat().st_mode) == 0o600
        waiting = asyncio.create_task(second.__aenter__())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
    await waiting
    third = process._alone(folder, stop)
    waiting = asyncio.create_task(third.__aenter__())
    await asyncio.sleep(0)
    stop.set()
    await waiting  # told to stop, it waits no longer
    await second.__aexit__()
    await third.__aexit__()


async def test_terms_are_those_of_the_snapshot_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = [SnapshotFailed("none"), "first", SnapshotFailed("torn"), "second"]
    naps: list[float] = []
    used: list[Any] = []
    made: Any = process.RunnerProcess(tmp_path, "http://127.0.0.1:1", "s")

    def terms() -> Any:
        found = told.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(used) == 1 or len(naps) > 9:
            raise asyncio.CancelledError

    monkeypatch.setattr(made, "_terms", terms)
    monkeypatch.setattr("asyncio.sleep", sleep)
    assert await made._first_terms() == "first"
    with pytest.raises(asyncio.CancelledError):
        await made._follow(SimpleNamespace(use=used.append))
    assert (used, naps) == (["second"], [process.LOOK_S, *[process.BEAT_S] * 3])
    made._stop.set()
    assert await made._first_terms() is None
