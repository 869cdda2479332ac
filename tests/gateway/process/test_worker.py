"""One worker in this process: what it does once a second, with a new snapshot and at its end."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from full_disk import full_disk
from lightgate.clock.source import SYSTEM
from lightgate.config.load import parse_config
from lightgate.gateway.cache.disk import DiskCache
from lightgate.gateway.process import worker as module
from lightgate.gateway.process.gauges import read_gauges
from lightgate.gateway.process.probe import Prober
from lightgate.gateway.process.sharing import SHARE_TICKS
from lightgate.gateway.process.worker import TOO_LARGE, Worker, WorkerOptions, read_options
from lightgate.gateway.served.inner import CONSOLE_ENV, SECRET_ENV
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import (
    FILE,
    LoadTerms,
    SnapshotFailed,
    put_snapshot,
    read_snapshot,
)
from lightgate.gateway.shared.answers import SharedAnswerStore
from lightgate.gateway.shared.counters import SharedCounters
from lightgate.gateway.shared.store import SharedStore
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.ledger.journal.journal import alive
from lightgate.ledger.store.keys import KeyTerms, new_key
from lightgate.provider import engine_follower
from sim.conftest import Line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lightgate.gateway.served.snapshot import Snapshot

    Make = Callable[..., Worker]

PROVIDER = '[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "none"\n'
MODEL = '[models.{}]\ntargets = ["lab/m"]\n'
CACHED = MODEL + '[models.{}.cache]\nmode = "{}"\nstore = "{}"\n'


def snapshot(text: str = "", **terms: Any) -> Snapshot:
    made = make_snapshot(parse_config(PROVIDER + text), (), {})
    return msgspec.structs.replace(made, terms=msgspec.structs.replace(made.terms, **terms))


@pytest.fixture
async def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    made: list[Worker] = []

    def worker(shown: Snapshot | None = None, **more: Any) -> Worker:
        put_snapshot(tmp_path, shown or snapshot())
        options = {"data": tmp_path, "index": 3, "host": "127.0.0.1", "port": 0, **more}
        made.append(Worker(WorkerOptions(**options)))
        return made[-1]

    monkeypatch.setattr(gc, "freeze", lambda: None)  # this process goes on
    yield worker
    for one in made:
        if one._stop.is_set() and one.state.turns._stop.is_set():
            continue  # it has ended by itself
        if one.state.spend is not None:
            one.state.spend.close()
        one.state.journal.close()
        await one.client.close()
        if one._disk is not None:
            one._disk.close()


async def test_a_worker_takes_its_limits_from_the_snapshot(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = LoadTerms(connections=7, connections_per_address=5, body_bytes=900)
    worker = make(snapshot(limits=limits, max_body_bytes=123))
    found = worker._door.crowd._limits
    assert (found.connections, found.connections_per_address) == (7, 5)
    assert found.body_bytes == 900
    assert (worker._door._limits.body_bytes, worker._door._limits.body_hint) == (123, TOO_LARGE)
    assert worker.state.worker == 3
    assert worker.state.journal.place()[0].startswith("3-")
    monkeypatch.setattr(module, "most_connections", lambda: 77)
    assert make(index=4)._door.crowd._limits.connections == 77


async def test_once_a_second_gauges_form_and_wants_are_told(make: Make, tmp_path: Path) -> None:
    worker = make()
    names = [getattr(one, "__name__", "") for one in worker.state.each_second]
    told = ["_tell_shortage", "_show_gauges", "_share", "_want_lists", "_follow_engines"]
    assert names == ["keep_in_place", "_keep_counters", "look", *told]
    worker.state.second()
    first = (worker._gauging, worker._keeping)
    worker.state.second()  # the disk has not taken the last ones yet
    assert (worker._gauging, worker._keeping) == first
    assert first[0] is not None
    assert first[1] is not None
    await asyncio.gather(*[one for one in first if one is not None])
    ((_, gauges),) = read_gauges(tmp_path)
    assert (gauges.worker, gauges.pid) == (3, os.getpid())
    assert (tmp_path / "form" / "3.json").exists()
    worker.state.second()
    assert worker._gauging is not first[0]
    assert worker._keeping is first[1]  # no news
    assert worker._gauging is not None
    await worker._gauging
    wanted = tmp_path / "models.wanted"
    assert not wanted.exists()
    worker.state.served.names.missed = True
    worker._want_lists()
    assert wanted.stat().st_mode & 0o777 == 0o600
    assert not worker.state.served.names.missed
    wanted.unlink()
    worker._want_lists()
    assert not wanted.exists()


async def test_a_worker_without_descriptors_goes_on(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The look for other workers' form ended all that is done once a second: it was killed."""
    beats: list[int] = []
    monkeypatch.setattr(module, "beat", lambda: beats.append(1))
    worker = make(supervised=True)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open("/dev/null", os.O_RDONLY)
        for _ in range(SHARE_TICKS):
            worker.state.second()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(beats) == SHARE_TICKS
    assert "once a second failed" not in caplog.text


async def test_what_fails_once_a_second_is_said_and_stops_nothing_else(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[int] = []

    def broken() -> None:
        raise RuntimeError("a defect")

    state = make().state
    state.each_second[:] = [broken, lambda: done.append(1)]
    state.second()
    state.second()
    assert done == [1, 1]
    (said,) = [one.message for one in caplog.records if "once a second" in one.message]
    assert "broken" in said


async def test_a_supervised_worker_beats_and_a_prober_probes(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[int] = []
    monkeypatch.setattr(module, "beat", lambda: beats.append(1))
    looks: list[int] = []
    monkeypatch.setattr(Prober, "look", lambda _: looks.append(1))
    worker = make(supervised=True, probes=True)
    worker._show_gauges = worker._share = lambda: None  # type: ignore[method-assign]
    for each in worker.state.each_second[3:]:
        each()
    assert (beats, looks) == ([1], [1])
    worker._retire()
    for each in worker.state.each_second[3:]:
        each()
    assert (beats, looks) == ([1, 1], [1])  # its successor asks
    assert worker._stop.is_set()


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("", False),
        (MODEL.format("a"), False),
        (CACHED.format("a", "a", "exact", "memory"), False),
        (CACHED.format("a", "a", "exact", "ledger"), True),
        (CACHED.format("a", "a", "off", "ledger"), False),
        (MODEL.format("b") + CACHED.format("a", "a", "exact", "ledger"), True),
    ],
)
async def test_the_second_tier_is_opened_once_some_model_needs_it(
    make: Make, monkeypatch: pytest.MonkeyPatch, text: str, needed: bool
) -> None:
    started: list[int] = []
    monkeypatch.setattr(DiskCache, "start", lambda _: started.append(1))
    worker = make(snapshot(text))
    assert (worker._disk is not None) is needed
    assert worker.state.cache.memory.second_tier is worker._disk
    worker._keep_answers(worker.state.served)
    assert started == ([1] if needed else [])
    ledger = worker._ledger()
    assert not ledger.moved()
    ledger.close()


async def test_a_new_snapshot_is_taken_in_and_a_broken_one_is_not(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make()
    waits: list[float] = []
    real = asyncio.timeout

    def timeout(seconds: float) -> asyncio.Timeout:
        waits.append(seconds)
        return real(0.0 if len(waits) < 4 else 60)

    monkeypatch.setattr(asyncio, "timeout", timeout)
    watching = asyncio.create_task(worker._watch())

    async def looked(count: int) -> None:
        while len(waits) < count:
            await asyncio.sleep(0)

    before = worker.state.served
    await looked(4)
    assert worker.state.served is before  # the file is the same
    put_snapshot(tmp_path, snapshot(MODEL.format("fresh")))
    worker._look.set()
    await looked(5)
    assert [alias.name for alias in worker.state.served.snapshot.aliases] == ["fresh"]
    after = worker.state.served
    (tmp_path / FILE).write_bytes(b"{")
    worker._look.set()
    await looked(6)
    assert worker.state.served is after
    assert caplog.messages[-1].startswith("the snapshot is not taken in: ")
    assert set(waits) == {0.5}
    watching.cancel()


async def test_a_deleted_snapshot_is_written_again(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make(snapshot(MODEL.format("kept")))
    inside = worker.state.served.snapshot
    (tmp_path / FILE).unlink()

    def refused(_data: Path, _snapshot: Snapshot) -> bool:
        raise SnapshotFailed("There is no room.")

    with monkeypatch.context() as patched:
        patched.setattr(module, "put_back", refused)
        for _ in range(3):
            await worker._put_back()
    for _ in range(2):
        await worker._put_back()
    assert caplog.messages == [
        "the snapshot was deleted: There is no room.",
        "the snapshot was deleted while the gateway ran; it was written again",
    ]
    assert read_snapshot(tmp_path) == inside
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / FILE).unlink()
    watching = asyncio.create_task(worker._watch())
    while not (tmp_path / FILE).exists():
        worker._look.set()
        await asyncio.sleep(0)
    watching.cancel()


async def test_deleted_counters_are_written_again(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make()
    (tmp_path / "spend").unlink()
    with monkeypatch.context() as patched:
        full_disk(patched)
        for _ in range(3):
            worker._keep_counters()
    for _ in range(2):
        worker._keep_counters()
    said = "the counters of budgets were deleted or damaged"
    assert [message.partition(" cannot")[0] for message in caplog.messages] == [
        f"{said}: The counter file {tmp_path / 'spend'}",
        f"{said} while the gateway ran; they were written again",
    ]
    assert (tmp_path / "spend").exists()


async def test_it_serves_from_sockets_that_were_handed_to_it_and_ends_in_order(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    worker = make(fds=(listening.detach(),), drain_s=5.0)
    others: Any = SimpleNamespace(run=AsyncMock(), leave=AsyncMock())
    worker._live = others  # what other machines are told
    running = asyncio.create_task(worker.run())
    while not (said := capsys.readouterr().out):
        await asyncio.sleep(0.001)
    assert json.loads(said) == {"ready": True, "port": port}
    line = Line(*await asyncio.open_connection("127.0.0.1", port))
    assert (await line.ask("GET", "/health/ready", b"", {})).status == 200
    await line.close()
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    assert worker.state.draining
    assert (others.run.await_count, others.leave.await_count) == (1, 1)
    assert worker.state.turns._stop.is_set()
    assert not alive(next((tmp_path / "journal").glob("3-*.lgj")))
    ((_, gauges),) = read_gauges(tmp_path)
    assert gauges.connections == 0
    assert (tmp_path / "form" / "3.json").exists()
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_worker_with_a_successor_goes_on_as_it_was_until_it_is_drained(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = make()
    running = asyncio.create_task(worker.run())
    while not (said := capsys.readouterr().out):
        await asyncio.sleep(0.001)
    port = json.loads(said)["port"]
    assert port > 0
    line = Line(*await asyncio.open_connection("127.0.0.1", port))
    os.kill(os.getpid(), signal.SIGUSR1)
    while not worker._stop.is_set():
        await asyncio.sleep(0.001)
    answer = await line.ask("GET", "/health/ready", b"", {})
    assert (answer.status, answer.json) == (200, {"status": "ready"})
    assert not worker.state.draining
    await line.close()
    await running


def test_what_an_earlier_life_had_reserved_counts_as_spent(tmp_path: Path) -> None:
    _, key = new_key(KeyTerms(name="me", budget_usd=Decimal(1), tpm=1000))
    options = WorkerOptions(data=tmp_path, index=1, host="h", port=0)
    served: Any = SimpleNamespace(snapshot=SimpleNamespace(keys=(key,)))
    with SpendCounters.open(tmp_path / "spend", 1, (key,)) as first:
        assert first.admit(key, SYSTEM.wall_ns(), 40, 7_000) is None
    counters = module._counters(options, served)
    standing = counters.standing(key.id)
    assert standing is not None
    assert (standing.spent_nano, standing.held_nano, standing.tokens) == (7_000, 0, 40)
    assert counters.clear_worker(1) == {}
    counters.close()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"index": 0, "host": "127.0.0.1", "port": 0, "drain_s": 30.0, "fds": ()}),
        (
            ["--index", "2", "--host", "::1", "--port", "8", "--drain-s", "1.5", "--fds", "3,4"],
            {"index": 2, "host": "::1", "port": 8, "drain_s": 1.5, "fds": (3, 4)},
        ),
        (["--probes"], {"probes": True}),
        (["--index", "3", "--place", "1"], {"index": 3, "place": 1}),
    ],
)
def test_the_command_line_of_a_worker(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    expected: dict[str, Any],
) -> None:
    given: list[WorkerOptions] = []

    class Stub:
        def __init__(self, options: WorkerOptions) -> None:
            given.append(options)

        async def run(self) -> None:
            return

    monkeypatch.setattr(module, "Worker", Stub)
    monkeypatch.setattr(module, "start_child", lambda *_, **__: None)
    monkeypatch.setattr(module, "end_with_parent", lambda _: bool(arguments))
    assert module.main(["--data", str(tmp_path), *arguments]) == 0
    (options,) = given
    assert options.data == tmp_path
    assert options.supervised is bool(arguments)
    assert {name: getattr(options, name) for name in expected} == expected
    assert options.probes is ("--probes" in arguments)


def test_a_worker_that_cannot_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets: list[Any] = []
    monkeypatch.setattr(
        module, "start_child", lambda _, secrets_=secrets, **more: secrets_.append(more)
    )
    monkeypatch.setattr(module, "end_with_parent", lambda _: False)
    code = module.main(["--data", str(tmp_path / "none")])
    assert code != 0
    assert str(tmp_path / "none") in capsys.readouterr().err
    assert module._key_variables(tmp_path / "none") == [SECRET_ENV, CONSOLE_ENV]
    config = '[providers.lab]\nbase_url = "http://h/v1"\napi_key = "env:LAB_KEY"\n'
    put_snapshot(tmp_path, make_snapshot(parse_config(config), (), {"LAB_KEY": "sk-1"}))
    assert module._key_variables(tmp_path) == [SECRET_ENV, CONSOLE_ENV, "LAB_KEY"]


async def test_engines_are_asked_for_their_load_while_there_is_traffic(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, asked = b"tgi_batch_current_size 3\ntgi_queue_size 4\n", asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(page), page))
        writer.close()

    monkeypatch.setattr(engine_follower, "EVERY_S", 0.0)
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        text = f'engine_metrics = "http://127.0.0.1:{port}/metrics"\n' + MODEL.format("m")
        worker = make(snapshot(text))
        told: asyncio.Future[tuple[str, int]] = worker.state.loop.create_future()
        monkeypatch.setattr(
            worker._engines,
            "_tell",
            lambda target, busy, at_ns: None if told.done() else told.set_result((target, busy)),
        )
        worker.state.second()
        for _ in range(50):
            await asyncio.sleep(0)
        assert not asked.is_set()  # nobody has asked for anything
        worker.state.learned.asked_ns = worker.state.now_ns()
        assert await told == ("lab/m", 7)
        await worker._engines.close()


async def test_what_an_engine_says_reaches_the_form_of_its_targets(make: Make) -> None:
    worker = make(snapshot(MODEL.format("m")))
    assert worker._engines._tell == worker.state.learned.forms.engine
    assert worker._follow_engines in worker.state.each_second
    assert not worker._has_traffic()
    worker.state.learned.asked_ns = worker.state.now_ns()
    assert worker._has_traffic()


def test_a_worker_loads_no_library_that_it_does_not_need() -> None:
    unneeded = {
        "argparse", "configparser", "difflib", "email", "html", "importlib.metadata",
        "importlib.resources", "pydantic", "sqlalchemy", "sqlite3", "zipfile",
    }  # fmt: skip
    script = f"import sys; import {module.__name__}; print(*({unneeded} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.split() == []


def test_the_options_of_a_worker_are_flags_named_by_their_fields() -> None:
    assert read_options(["--data", "/d"]) == WorkerOptions(data=Path("/d"))
    words = "--data d --host :: --port 80 --console u --index 3 --drain-s 1.5 --probes --flying 7"
    assert read_options([*words.split(), "--fds", "4,5"]) == WorkerOptions(
        data=Path("d"), host="::", port=80, console="u", index=3, drain_s=1.5, probes=True,
        flying=7, fds=(4, 5),
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    ["", "--data", "--data d --port x", "--data d --fds 1,x", "--data d --prot 1", "--data d x 1"],
)
def test_a_worker_that_cannot_be_started_says_why(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert module.main(words.split()) == 2
    assert capsys.readouterr().err.startswith("A worker cannot be started so: ")


def test_the_snapshot_of_a_start_is_made_without_the_dialects() -> None:
    script = "import sys; import lightgate.gateway.served.resolve; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=100
    )
    assert "lightgate.dialect.registry" not in done.stdout.split()


async def test_what_machines_share_is_told_to_all_who_count(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = make()
    assert (alone.state.store, alone.state.shared_spend, alone._live) == (None, None, None)
    assert alone.state.cache.memory.shared_tier is None
    store = SharedStore("redis://127.0.0.1:1", "m", 4, SYSTEM.now_ns)
    given: list[Any] = []

    def found(*told: Any) -> SharedStore:
        given.append(told[1:3])
        return store

    monkeypatch.setattr(SharedStore, "of_process", found)
    worker = make(index=4)
    state = worker.state
    assert given == [(tmp_path, 4)]
    assert isinstance(state.spend, SharedCounters)
    assert (state.store, state.shared_spend) == (store, state.spend)
    assert worker._live is not None
    assert isinstance(state.cache.memory.shared_tier, SharedAnswerStore)


async def test_a_worker_does_not_watch_how_late_its_stamps_are(make: Make) -> None:
    assert make().client.stamper._lag is None  # the kernel stamps, or it is not worth its cost


async def test_every_tenth_second_the_dead_are_looked_for(make: Make) -> None:
    worker = make()
    looks, spend = list[int](), worker.state.spend
    worker.state.spend = SimpleNamespace(charge_dead=lambda: looks.append(worker._ticks))  # type: ignore[assignment]
    worker._sharing = SimpleNamespace(news=lambda: None, adopt=lambda: None)  # type: ignore[assignment]
    for _ in range(25):
        worker._share()
    assert looks == [10, 20]
    worker.state.spend = None
    for _ in range(10):
        worker._share()
    worker.state.spend = spend
