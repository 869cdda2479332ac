"""Alarms and deadlines: they wake at their instant, once, and not after they were cleared."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

from lightgate.wire.link.timers import (
    _SPEC,
    EARLY_NS,
    Alarm,
    Deadline,
    KernelAlarm,
    LoopAlarm,
    best_alarm,
)

MS = 1_000_000


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000

    def now_ns(self) -> int:
        return self.ns

    def wall_ns(self) -> int:
        return self.ns


class Bell:
    """An alarm, and whether it has rung; as its owners do, it is cleared when it wakes."""

    def __init__(self, kind: type[KernelAlarm | LoopAlarm]) -> None:
        self.rung = asyncio.Event()
        self.alarm: Alarm = kind(self._wake)

    def _wake(self) -> None:
        self.alarm.clear()
        self.rung.set()

    async def woken(self) -> int:
        async with asyncio.timeout(20):
            await self.rung.wait()
        self.rung.clear()
        return time.monotonic_ns()

    async def silent(self) -> bool:
        """Whether it does not ring in twenty times the time that it had."""
        await asyncio.sleep(0.02)
        return not self.rung.is_set()


def timers() -> int:
    links = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(one.readlink().name)
    return links.count("anon_inode:[timerfd]")


both = pytest.mark.parametrize("kind", [KernelAlarm, LoopAlarm])


@both
async def test_an_alarm_wakes_at_its_instant_and_not_before(kind: Any) -> None:
    bell = Bell(kind)
    due = time.monotonic_ns() + 5 * MS
    bell.alarm.set(due)
    assert await bell.woken() >= due
    for past in (1, 0, -5):
        bell.alarm.set(past)
        await bell.woken()
    bell.alarm.close()
    bell.alarm.close()


@both
async def test_the_last_order_holds(kind: Any) -> None:
    bell = Bell(kind)
    far = time.monotonic_ns() + 3600 * 1000 * MS
    bell.alarm.set(far)
    bell.alarm.set(time.monotonic_ns() + MS)
    await bell.woken()
    bell.alarm.set(time.monotonic_ns() + MS)
    bell.alarm.set(far)
    assert await bell.silent()
    bell.alarm.set(time.monotonic_ns() + MS)
    bell.alarm.clear()
    assert await bell.silent()
    bell.alarm.set(time.monotonic_ns() + MS)
    bell.alarm.close()
    assert await bell.silent()


async def test_a_kernel_alarm_gives_its_descriptor_back() -> None:
    before = timers()
    alarm = best_alarm(lambda: None)
    assert isinstance(alarm, KernelAlarm)
    assert timers() == before + 1
    alarm.close()
    assert timers() == before


async def test_the_loops_alarm_waits_the_last_turns_without_sleep() -> None:
    clock, rung = Hand(), asyncio.Event()
    alarm = LoopAlarm(rung.set, clock)
    alarm.set(clock.ns + EARLY_NS)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not rung.is_set()  # it is not yet time, however often the loop turns
    clock.ns += EARLY_NS - 1
    for _ in range(5):
        await asyncio.sleep(0)
    assert not rung.is_set()
    clock.ns += 1
    for _ in range(5):
        await asyncio.sleep(0)
    assert rung.is_set()
    rung.clear()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not rung.is_set()  # once
    alarm.set(clock.ns + EARLY_NS + 20 * MS)
    for _ in range(5):
        await asyncio.sleep(0)
    assert isinstance(alarm._handle, asyncio.TimerHandle)  # the loop sleeps until then
    assert alarm._handle.when() == pytest.approx(asyncio.get_running_loop().time() + 0.02, abs=0.02)
    alarm.clear()
    assert alarm._handle is None


class Loop:
    """A loop whose timers are called by the test."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, object, list[bool]]] = []

    def call_later(self, seconds: float, call: object) -> object:
        live = [True]
        self.timers.append((seconds, call, live))

        class Handle:
            def cancel(self) -> None:
                live[0] = False

        return Handle()

    def fire(self) -> None:
        (call,) = [one for _, one, live in self.timers if live[0]]
        self.timers.clear()
        call()  # type: ignore[operator]


class Moment:
    """The monotonic clock of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 50_000_000_000
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.ns)


def test_a_deadline_that_is_met_calls_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, loop, passed = Moment(monkeypatch), Loop(), []
    deadline = Deadline(loop, lambda: passed.append(now.ns))  # type: ignore[arg-type] # enough of one
    assert (deadline.pending, deadline.ticking) == (False, False)
    deadline.set(2.0)
    assert (deadline.pending, deadline.ticking) == (True, True)
    assert deadline.due_ns == now.ns + 2_000_000_000
    assert [seconds for seconds, _, _ in loop.timers] == [2.0]
    now.ns += 2_000_000_000
    loop.fire()
    assert passed == [now.ns]
    assert (deadline.pending, deadline.ticking) == (False, False)


def test_a_deadline_that_moves_away_costs_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    now, loop, passed = Moment(monkeypatch), Loop(), []
    deadline = Deadline(loop, lambda: passed.append(now.ns))  # type: ignore[arg-type] # enough of one
    deadline.set(2.0)
    now.ns += 1_000_000_000
    deadline.set(3.0)
    deadline.set(1.0)  # the instant of the timer
    assert len(loop.timers) == 1
    deadline.set(3.0)
    now.ns += 1_000_000_000
    loop.fire()  # too early: another timer for the rest
    assert passed == []
    assert [seconds for seconds, _, _ in loop.timers] == [2.0]
    now.ns += 2_000_000_000
    loop.fire()
    assert passed == [now.ns]


def test_a_deadline_that_comes_nearer_has_a_new_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    Moment(monkeypatch)
    loop = Loop()
    deadline = Deadline(loop, lambda: None)  # type: ignore[arg-type] # enough of one
    deadline.set(2.0)
    deadline.set(1.0)
    assert [(seconds, live[0]) for seconds, _, live in loop.timers] == [(2.0, False), (1.0, True)]


def test_a_cleared_deadline_calls_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    now, loop, passed = Moment(monkeypatch), Loop(), []
    deadline = Deadline(loop, lambda: passed.append(now.ns))  # type: ignore[arg-type] # enough of one
    deadline.set(2.0)
    deadline.due_ns = 0
    assert (deadline.pending, deadline.ticking) == (False, True)
    now.ns += 5_000_000_000
    loop.fire()
    assert (passed, deadline.ticking, loop.timers) == ([], False, [])
    deadline.set(2.0)
    deadline.close()
    assert (deadline.pending, deadline.ticking) == (False, False)
    assert [live[0] for _, _, live in loop.timers] == [False]
    deadline.close()


async def test_a_kernel_alarm_is_disarmed_by_zeros() -> None:
    """The interval and the expiry: any other number would wake once more."""
    alarm = KernelAlarm(lambda: None)
    orders: list[Any] = []
    alarm._settime = lambda fd, absolute, spec, old: orders.append(  # type: ignore[assignment]
        (fd == alarm._fd, absolute, *_SPEC.unpack(spec.raw), old)
    )
    alarm.set(3_000_000_007)
    alarm.set(-1)
    alarm.clear()
    assert orders == [(True, 1, 0, 0, 3, 7, None), (True, 1, 0, 0, 0, 1, None),
                      (True, 1, 0, 0, 0, 0, None)]  # fmt: skip
    alarm.close()
