"""A child process and its lives, with processes that the test plays and a clock of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.source import ManualClock
from lightgate.errors import ConfigError, LightgateError, UsageError
from lightgate.gateway.process import child as module
from lightgate.gateway.process.child import (
    FIRST_PAUSE_S,
    KILLED_STARTS,
    Backoff,
    Child,
    ChildSpec,
    beat,
    end_with_parent,
)
from lightgate.gateway.process.lock import PARENT_DEATH_ENV

if TYPE_CHECKING:
    from own_time import OwnTime

READY = b'{"ready": true, "port": 7}\n'


class Stdin:
    closed = False

    def close(self) -> None:
        self.closed = True


class Played:
    """A process that does what the test says."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = asyncio.StreamReader()
        self.stdin = Stdin()
        self.signals: list[int] = []
        self.deaf = False
        self._gone = asyncio.Event()

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        if number == signal.SIGKILL or not self.deaf:
            self.end(-number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        await self._gone.wait()
        assert self.returncode is not None
        return self.returncode

    def end(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self.stdout.feed_eof()
            self._gone.set()


class Sockets:
    """Listening sockets of a worker."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def open(self) -> tuple[int, ...]:
        self.log.append("open")
        return (5, 6)

    def close(self) -> None:
        self.log.append("close")


class Stage:
    """A child whose processes are played, and everything that was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, restarts: int = 0, **more: Any) -> None:
        self.lives: list[Played] = []
        self.started: list[dict[str, Any]] = []
        self.changes = 0
        self.fails: OSError | None = None
        self.clock = ManualClock()

        async def spawn(*argv: str, **given: Any) -> Played:
            if self.fails is not None:
                raise self.fails
            self.started.append({"argv": argv, **given})
            self.lives.append(Played(100 + len(self.lives)))
            return self.lives[-1]

        monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)
        self.spec = ChildSpec(**{"name": "worker-0", "argv": ("python", "-m", "x"), **more})
        self.child = Child(self.spec, self._changed, self.clock, restarts=restarts)

    def _changed(self) -> None:
        self.changes += 1

    async def life(self, number: int, *, ready: bool = True) -> Played:
        """Wait for a life to begin, and let it say that it serves."""
        while len(self.lives) <= number:
            await asyncio.sleep(0.01)
        one = self.lives[number]
        if ready:
            one.stdout.feed_data(READY)
            while not self.child.ready:
                await asyncio.sleep(0.01)
        return one

    async def until_lives(self, count: int) -> None:
        while len(self.lives) < count:
            await asyncio.sleep(0.01)


async def test_a_child_is_started_with_its_own_session_and_environment(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    monkeypatch.setenv("KEPT", "1")
    sockets: Any = Sockets()
    stage = Stage(
        monkeypatch, sockets=sockets, env={"OWN": "2"}, without=frozenset({"A_KEY"}), ready_s=4.0
    )
    assert (stage.child.pid, stage.child.ready, stage.child.hand()) == (None, False, None)
    one = await stage.life(0)
    (given,) = stage.started
    assert given["argv"] == ("python", "-m", "x", "--fds", "5,6")
    assert given["pass_fds"] == (5, 6)
    assert given["stdin"] == given["stdout"] == asyncio.subprocess.PIPE
    assert given["start_new_session"] is True
    assert given["limit"] == 1 << 20
    assert "A_KEY" not in given["env"]
    assert (given["env"]["KEPT"], given["env"]["OWN"]) == ("1", "2")
    assert given["env"][PARENT_DEATH_ENV] == "1"
    state = stage.child.state()
    assert (state.name, state.pid, state.ready, state.restarts) == ("worker-0", 100, True, 0)
    assert await stage.child.first == {"ready": True, "port": 7}
    assert stage.changes == 2
    stage.child.signal(signal.SIGHUP)
    assert one.signals == [signal.SIGHUP]
    await stage.child.stop(1.0)
    assert (stage.child.pid, stage.child.ready, one.stdin.closed) == (None, False, True)
    assert stage.child.ended.done()
    assert stage.changes == 3


async def test_a_child_without_sockets_gets_none(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch)
    await stage.life(0)
    assert (stage.started[0]["argv"], stage.started[0]["pass_fds"]) == (("python", "-m", "x"), ())
    await stage.child.stop(1.0)


async def test_a_child_that_ended_is_started_again_after_longer_and_longer_pauses(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sockets = Sockets()
    given: Any = sockets
    stage = Stage(monkeypatch, sockets=given)
    pauses = []
    for number in range(6):
        one = await stage.life(number)
        assert stage.child.restarts == number
        before = own.now()
        one.end(3)
        await stage.until_lives(number + 2)
        pauses.append(own.now() - before)
    assert [round(pause, 1) for pause in pauses] == pytest.approx(
        [0.1, 0.2, 0.4, 0.8, 1.6, 3.2], abs=0.03
    )
    assert sockets.log == ["open"] * 5 + ["close", "open", "close", "open"]  # from a second on
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["worker-0 ended by itself and is started again"] * 6
    told = [record.__dict__["fields"] for record in caplog.records]
    assert {(one["child"], one["code"]) for one in told} == {("worker-0", 3)}
    assert [one["pause_s"] for one in told] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    last = await stage.life(6)
    stage.clock.advance(60 * 10**9)  # a healthy life
    last.end(3)
    before = own.now()
    await stage.until_lives(8)
    assert own.now() - before == pytest.approx(FIRST_PAUSE_S, abs=0.03)
    await stage.life(7)
    await stage.child.stop(1.0)
    assert stage.child.restarts == 7


def test_a_life_is_healthy_from_a_minute_on() -> None:
    backoff = Backoff()
    assert [backoff.after(0.0) for _ in range(3)] == [0.1, 0.2, 0.4]
    assert backoff.after(59.9) == 0.8
    assert backoff.after(60.0) == 0.1
    assert [backoff.after(0.0) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


@pytest.mark.parametrize(
    ("code", "kind"),
    [(1, LightgateError), (2, UsageError), (3, ConfigError), (127, LightgateError)],
)
async def test_a_child_that_never_served_is_not_started_again(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[LightgateError]
) -> None:
    stage = Stage(monkeypatch)
    one = await stage.life(0, ready=False)
    one.end(code)
    with pytest.raises(kind, match=rf"worker-0 did not start \(code {code}\); its reason is above"):
        await stage.child.first
    await stage.child.ended
    assert len(stage.lives) == 1
    assert type(stage.child.first.exception()) is kind


async def test_a_child_that_is_killed_while_it_starts_has_a_few_more_starts(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch)
    for number in range(KILLED_STARTS + 1):
        (await stage.life(number, ready=False)).end(-9)
    await stage.child.ended
    assert len(stage.lives) == KILLED_STARTS + 1
    with pytest.raises(LightgateError, match="code -9"):
        await stage.child.first


async def test_a_successor_goes_on_with_the_count_and_has_as_many_starts(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch, restarts=7)
    assert stage.child.state().restarts == 7
    for number in range(KILLED_STARTS + 1):
        (await stage.life(number, ready=False)).end(-9)
    await stage.child.ended
    assert len(stage.lives) == KILLED_STARTS + 1
    assert stage.child.state().restarts == 7 + KILLED_STARTS


async def test_a_child_that_insists_is_started_until_it_serves(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch, insists=True)
    for number in range(2 * KILLED_STARTS):
        (await stage.life(number, ready=False)).end(-9 if number % 2 else 1)
    await stage.life(2 * KILLED_STARTS)
    assert stage.child.first.done()
    await stage.child.stop(1.0)


@pytest.mark.parametrize(("code", "kind"), [(2, UsageError), (3, ConfigError)])
async def test_a_child_that_insists_cannot_mend_its_owners_mistake(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[LightgateError]
) -> None:
    stage = Stage(monkeypatch, insists=True)
    (await stage.life(0, ready=False)).end(code)
    await stage.child.ended
    assert len(stage.lives) == 1
    assert type(stage.child.first.exception()) is kind


async def test_a_child_that_may_live_once(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(monkeypatch, restart="never")
    (await stage.life(0)).end(0)
    await stage.child.ended
    assert len(stage.lives) == 1
    assert [record.getMessage() for record in caplog.records] == ["worker-0 ended by itself"]
    assert caplog.records[0].__dict__["fields"] == {"child": "worker-0", "code": 0}


async def test_a_program_that_cannot_be_started(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(monkeypatch)
    stage.fails = OSError(2, "No such file")
    with pytest.raises(LightgateError, match="code 127"):
        await stage.child.first
    assert caplog.messages == ["worker-0 cannot be started: No such file"]
    assert caplog.records[0].__dict__["fields"] == {"child": "worker-0"}
    assert stage.changes == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"hello\n", "worker-0 did not say that it is ready"),
        (b"[1]\n", "worker-0 did not say that it is ready"),
        (b"x" * (1 << 17) + b"\n", "worker-0 was not ready in time"),
    ],
)
async def test_a_first_line_that_is_no_ready_line(
    own: OwnTime,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    line: bytes,
    said: str,
) -> None:
    stage = Stage(monkeypatch)
    one = await stage.life(0, ready=False)
    one.deaf = True
    before = own.now()
    one.stdout.feed_data(line)
    await stage.until_lives(2)
    assert caplog.messages[0] == said
    # a moment to end by itself, then the kill, then the pause
    assert own.now() - before == pytest.approx(1.0 + FIRST_PAUSE_S, abs=0.05)
    assert one.signals == [signal.SIGKILL]
    two = await stage.life(1, ready=False)
    two.stdout.feed_data(line)
    two.end(3)  # in time, with its own code
    with pytest.raises(ConfigError, match="code 3"):
        await stage.child.first


async def test_a_child_that_is_late_is_killed(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(monkeypatch, ready_s=4.0)
    before = own.now()
    one = await stage.life(0, ready=False)
    while not caplog.messages:
        await asyncio.sleep(0.01)
    assert own.now() - before == pytest.approx(4.0, abs=0.05)
    assert caplog.messages == ["worker-0 was not ready in time"]
    assert caplog.records[0].__dict__["fields"] == {"child": "worker-0", "ready_s": 4.0}
    stage.child.kill()
    await stage.child.ended
    assert signal.SIGKILL in one.signals


async def test_a_child_that_falls_silent_is_killed(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(monkeypatch, silent_s=3)
    one = await stage.life(0)
    for _ in range(4):  # an empty line keeps it alive
        await asyncio.sleep(2.5)
        one.stdout.feed_data(b"\n")
    assert one.signals == []
    before = own.now()
    await stage.until_lives(2)
    assert own.now() - before == pytest.approx(3.1, abs=0.1)
    assert one.signals == [signal.SIGKILL]
    assert caplog.messages[0] == "worker-0 was silent for 3 s and is killed"
    patient = Stage(monkeypatch)
    quiet = await patient.life(0)
    await asyncio.sleep(30)
    assert quiet.signals == []
    await patient.child.stop(1.0)
    await stage.child.stop(1.0)


async def test_a_child_that_is_told_to_stop_is_not_called_silent(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(monkeypatch, silent_s=2)
    one = await stage.life(0)
    one.deaf = True
    before = own.now()
    await stage.child.stop(5.0)
    assert own.now() - before == pytest.approx(5.0, abs=0.1)
    assert one.signals == [signal.SIGTERM, signal.SIGKILL]
    assert caplog.messages == ["worker-0 did not end in time and is killed"]


async def test_the_signal_that_stops_and_one_that_comes_before_it_serves(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch, stop_signal=signal.SIGINT)
    one = await stage.life(0, ready=False)
    stage.child.signal(signal.SIGHUP)  # it may not know it yet
    assert one.signals == []
    await stage.child.stop(1.0)
    assert one.signals == [signal.SIGINT]
    with pytest.raises(asyncio.CancelledError):
        await stage.child.first
    other = Stage(monkeypatch)
    two = await other.life(0)
    await other.child.stop(1.0, signal.SIGUSR1)
    assert two.signals == [signal.SIGUSR1]
    other.child.kill()
    assert two.signals == [signal.SIGUSR1]  # it is gone


async def test_a_stop_in_a_pause_is_the_end_of_the_pause(
    own: OwnTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(monkeypatch)
    (await stage.life(0)).end(1)
    await asyncio.sleep(0.01)
    before = own.now()
    await stage.child.stop(5.0)
    assert own.now() - before < 0.05
    assert len(stage.lives) == 1


def test_a_beat_is_an_empty_line_and_a_closed_pipe_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(module, "_STDOUT", writer)
    beat()
    assert os.read(reader, 10) == b"\n"
    os.close(reader)
    beat()
    os.close(writer)
    beat()


def test_only_a_process_that_was_asked_ends_with_its_parent(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    begun: list[dict[str, Any]] = []
    usual = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGUSR2)}
    request.addfinalizer(lambda: [signal.signal(*one) for one in usual.items()])

    class Thread:
        def __init__(self, **given: Any) -> None:
            begun.append(given)

        def start(self) -> None:
            begun[-1]["started"] = True

    monkeypatch.setattr(threading, "Thread", Thread)
    for wrong in ({}, {PARENT_DEATH_ENV: "0"}, {PARENT_DEATH_ENV: ""}):
        env = dict(wrong)
        assert end_with_parent(env) is False
        assert env == {}
    env = {PARENT_DEATH_ENV: "1", "OTHER": "x"}
    signal.pthread_sigmask(signal.SIG_BLOCK, usual)  # as it was started
    assert end_with_parent(env, grace_s=0.5) is True
    assert env == {"OTHER": "x"}
    (given,) = begun
    assert (given["args"], given["daemon"], given["started"]) == ((0.5,), True, True)
    assert given["target"] is module._wait_for_end
    for number in usual:
        signal.raise_signal(number)  # an order for the parent: it would have ended this process
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(usual)


def test_a_child_whose_parent_did_not_ask_keeps_its_signals() -> None:
    before = signal.getsignal(signal.SIGHUP)
    assert end_with_parent({}) is False
    assert signal.getsignal(signal.SIGHUP) is before


def test_the_parents_death_is_the_end_of_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    reads: list[Any] = [b"x", InterruptedError(), b""]

    def read(fd: int, size: int) -> bytes:
        assert fd == 0
        assert size > 0
        found = reads.pop(0)
        if isinstance(found, BaseException):
            raise found
        return bytes(found)

    monkeypatch.setattr(os, "read", read)
    monkeypatch.setattr(os, "kill", lambda pid, number: done.append((pid, number)))
    monkeypatch.setattr(os, "_exit", done.append)
    monkeypatch.setattr(time, "sleep", lambda seconds: done.append(f"{seconds} s"))
    module._wait_for_end(1.5)
    assert done == [(os.getpid(), signal.SIGTERM), "1.5 s", 1]
    reads.append(OSError())
    module._wait_for_end(0.0)
    assert done[3:] == [(os.getpid(), signal.SIGTERM), "0.0 s", 1]
