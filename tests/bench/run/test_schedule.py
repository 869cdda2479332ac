from __future__ import annotations

import asyncio
import json
import stat
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from bench.test_rules import worked
from lightgate.bench.run.schedule import (
    FILE,
    Schedule,
    Scheduler,
    SchedulerEffects,
    Schedules,
    check_webhook,
    new_schedule,
    next_due,
    post,
    shown,
    unix_ns,
)
from lightgate.clock.attempt import wall_time
from lightgate.clock.source import ManualClock
from lightgate.errors import ConfigError, ConnectionFailed, HttpRefused, UsageError
from lightgate.ledger.runs.folder import RunFolder
from lightgate.ledger.runs.history import HISTORY, History
from lightgate.ledger.runs.run import Run
from lightgate.wire.client.client import Client

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.conftest import Serve

HOUR = 3_600_000_000_000
NOW = 1_700_000_000_000_000_000
ARGUMENTS = ("lab/s1", "--requests", "6")


def made(name: str = "nightly", **changes: Any) -> Schedule:
    wanted: dict[str, Any] = {"every": "6h", "now_ns": NOW} | changes
    return new_schedule(name, ARGUMENTS, **wanted)


class World:
    """A scheduler's outside, with everything that it did."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.clock = ManualClock(wall_ns=NOW)
        self.ran: list[tuple[tuple[str, ...], Path]] = []
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.said: list[str] = []
        self.slept: list[float] = []
        self.scale = 1.0
        self.code = 0
        self.writes = True
        self.webhook_down = False

    async def run(self, arguments: Sequence[str], folder: Path) -> int:
        number = len(self.ran)
        self.ran.append((tuple(arguments), folder))
        if self.writes:
            files = RunFolder.create(folder)
            for at in range(8):
                pair = worked(f"{number}-{at}", scale=self.scale * (1 + 0.002 * (number % 3)))
                files.append(*pair)
            files.write_run(Run(id=f"r-{number:03}", started=wall_time(self.clock.wall_ns())))
        return self.code

    async def post(self, url: str, body: bytes) -> None:
        if self.webhook_down:
            raise ConnectionFailed("x.example refused the connection.")
        self.posted.append((url, json.loads(body)))

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(round(seconds * 1e9))
        if len(self.slept) >= 3:
            raise asyncio.CancelledError

    def scheduler(self) -> Scheduler:
        return Scheduler(
            self.data,
            SchedulerEffects(
                run=self.run, post=self.post, say=self.said.append, chance=lambda: 0.5,
                sleep=self.sleep, clock=self.clock,
            ),
        )  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "data")


def test_add_list_and_remove(tmp_path: Path) -> None:
    schedules = Schedules(tmp_path / "new" / "data")
    assert schedules.all() == ()
    schedules.add(made())
    schedules.add(made("weekly", every="7d", jitter="1h"))
    assert [schedule.name for schedule in schedules.all()] == ["nightly", "weekly"]
    with pytest.raises(UsageError, match="already"):
        schedules.add(made())
    schedules.remove("nightly")
    assert [schedule.name for schedule in schedules.all()] == ["weekly"]
    with pytest.raises(UsageError, match="no schedule 'nightly'"):
        schedules.remove("nightly")


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    Schedules(tmp_path).add(made(webhook="https://x.example/secret"))
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    Schedules(tmp_path / "data").add(made())
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


@pytest.mark.parametrize("text", ["{", '{"schedules": 3}', '{"version": 99}'])
def test_a_broken_file_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ConfigError, match=FILE):
        Schedules(tmp_path).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "../x"}, "cannot name"),
        ({"name": ""}, "cannot name"),
        ({"every": "6"}, "--every"),
        ({"every": "10s"}, "too often"),
        ({"jitter": "7h"}, "not shorter"),
        ({"jitter": "soon"}, "--jitter"),
        ({"webhook": "http://x.example/hook"}, "not https"),
        ({"webhook": "ftp://x.example"}, "http:// or https://"),
        ({"webhook": "https://u:p@x.example/"}, "credentials"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_said(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        made(**changes)


@pytest.mark.parametrize(
    "arguments", [(), ("--requests",), ("a/b", "--out", "x"), ("a/b", "--out=x")]
)
def test_what_is_wrong_with_the_arguments_is_said(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        new_schedule("x", arguments, every="6h", now_ns=NOW)


@pytest.mark.parametrize(
    "url", ["https://x.example/a?b=c", "http://127.0.0.1:9/x", "http://[::1]/", "http://localhost/"]
)
def test_webhooks_that_may_be(url: str) -> None:
    check_webhook(url)


def test_a_webhooks_path_is_not_shown() -> None:
    assert shown("https://hooks.example/services/T0/SECRET") == "https://hooks.example"
    assert shown("") == ""


def test_the_next_time_is_a_period_later_and_jitter_by_chance() -> None:
    plain = made()
    assert next_due(plain, NOW, lambda: 0.9) == NOW + 6 * HOUR
    assert next_due(made(jitter="1h"), NOW, lambda: 0.5) == NOW + 6 * HOUR + HOUR // 2
    # Three days asleep: one run now, then on the old beat.
    assert next_due(plain, NOW + 72 * HOUR + 5, lambda: 0.0) == NOW + 78 * HOUR


def test_a_due_schedule_is_claimed_once(tmp_path: Path) -> None:
    first, second = Schedules(tmp_path), Schedules(tmp_path)
    first.add(made())
    assert [schedule.name for schedule in first.claim(NOW, lambda: 0.0)] == ["nightly"]
    assert second.claim(NOW, lambda: 0.0) == []
    (kept,) = second.all()
    assert (unix_ns(kept.due), kept.last_started) == (NOW + 6 * HOUR, wall_time(NOW))


async def test_a_due_run_goes_into_the_history(world: World) -> None:
    Schedules(world.data).add(made())
    assert await world.scheduler().once() == []
    ((arguments, folder),) = world.ran
    assert arguments == ARGUMENTS
    assert folder.name == "nightly-20231114221320000"
    with History(world.data / HISTORY) as history:
        assert [run.id for run in history.runs(schedule="nightly")] == ["r-000"]
        assert len(history.attempts(run_id="r-000")) == 8
    (kept,) = Schedules(world.data).all()
    assert (kept.last_result, kept.last_run) == ("steady", str(folder))
    assert await world.scheduler().once() == []
    assert len(world.ran) == 1


async def repeat(world: World, times: int) -> list[Any]:
    alerts: list[Any] = []
    for _ in range(times):
        alerts = await world.scheduler().once()
        world.clock.advance(6 * HOUR)
    return alerts


async def test_drift_is_told_by_line_and_webhook(world: World) -> None:
    Schedules(world.data).add(made(webhook="https://x.example/hook"))
    assert await repeat(world, 8) == []
    world.scale = 1.5
    alerts = await repeat(world, 1)
    assert {alert.metric for alert in alerts} == {"ttft_ms", "speed_tps", "e2e_ms"}
    assert {alert.kind for alert in alerts} == {"drift"}
    first = alerts[0]
    assert first.drift.call == "slower"
    assert first.drift.ratio == pytest.approx(1.5, rel=0.02)
    assert "1.50 times as long" in first.sentence
    assert any(
        line.startswith("ALERT nightly: lab/s1 c=1: ttft_ms is slower") for line in world.said
    )
    assert {url for url, _ in world.posted} == {"https://x.example/hook"}
    body = world.posted[0][1]
    assert (body["schedule"], body["target"], body["load"]) == ("nightly", "lab/s1", "c=1")
    assert body["drift"]["interval"]["low"] > 1.05
    (kept,) = Schedules(world.data).all()
    assert "slower" in kept.last_result


async def test_a_dead_webhook_is_said_and_nothing_else(world: World) -> None:
    Schedules(world.data).add(made(webhook="https://x.example/hook"))
    await repeat(world, 8)
    world.scale, world.webhook_down = 1.5, True
    assert len(await repeat(world, 1)) == 3
    assert sum("webhook was not reached" in line for line in world.said) == 3
    assert not any("/hook" in line for line in world.said)


async def test_a_failed_benchmark_is_told_and_keeps_what_it_measured(world: World) -> None:
    Schedules(world.data).add(made())
    world.code = 4
    (alert,) = await repeat(world, 1)
    assert (alert.kind, alert.exit_code) == ("failed", 4)
    with History(world.data / HISTORY) as history:
        assert len(history.runs()) == 1
    world.writes = False
    (alert,) = await repeat(world, 1)
    assert alert.kind == "failed"


async def test_a_schedule_that_was_removed_meanwhile(world: World) -> None:
    Schedules(world.data).add(made())
    run = world.run

    async def removing(arguments: Sequence[str], folder: Path) -> int:
        Schedules(world.data).remove("nightly")
        return await run(arguments, folder)

    world.run = removing  # type: ignore[method-assign] # a test's outside
    assert await world.scheduler().once() == []
    assert Schedules(world.data).all() == ()


async def test_for_ever_waits_until_something_is_due(world: World) -> None:
    Schedules(world.data).add(made(every="1m"))
    with pytest.raises(asyncio.CancelledError):
        await world.scheduler().forever(lambda alert: None)
    assert world.slept == [60.0, 60.0, 60.0]
    assert len(world.ran) == 3


async def test_without_schedules_it_looks_again_now_and_then(world: World) -> None:
    with pytest.raises(asyncio.CancelledError):
        await world.scheduler().forever(lambda alert: None)
    assert world.slept == [60.0] * 3


@pytest.mark.parametrize("status", [204, 302, 500])
async def test_post(serving: Serve, status: int) -> None:
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head + await reader.readexactly(11))
        writer.write(b"HTTP/1.1 %d X\r\nlocation: http://x/\r\ncontent-length: 0\r\n\r\n" % status)
        await writer.drain()

    client = Client(watch_lag=False)
    try:
        async with serving(answer) as port:
            work = post(client, f"http://127.0.0.1:{port}/hook?x=1", b'{"ok":true}')
            if status == 204:
                await work
            else:
                with pytest.raises(HttpRefused, match=str(status)):
                    await work
    finally:
        await client.close()
    (request,) = seen
    assert request.startswith(b"POST /hook?x=1 HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"content-type: application/json" in request
    assert request.endswith(b'\r\n\r\n{"ok":true}')
    assert b"authorization" not in request.lower()


async def test_post_checks_the_address_itself() -> None:
    client = Client(watch_lag=False)
    try:
        with pytest.raises(UsageError, match="not https"):
            await post(client, "http://x.example/", b"{}")
    finally:
        await client.close()


def test_times_are_utc() -> None:
    at = datetime.fromisoformat(wall_time(NOW))
    assert at.utcoffset() == timedelta(0)
    assert unix_ns(wall_time(NOW)) == NOW


def test_a_schedule_is_plain_json() -> None:
    encoded = msgspec.json.encode(made(webhook="https://x.example/"))
    assert msgspec.json.decode(encoded, type=Schedule).arguments == ARGUMENTS
