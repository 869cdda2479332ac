from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import own_time
from lightgate.clock.source import SYSTEM
from lightgate.wire.link.timers import best_alarm
from own_time import LOOK_NS, TURNS, OwnTime, Waits

if TYPE_CHECKING:
    import pytest

MS = 1_000_000


def test_time_passes_in_waits_and_a_little_at_each_look() -> None:
    own = OwnTime(50 * MS, 900 * MS)
    assert own.now_ns() == 50 * MS + LOOK_NS
    assert own.now_ns() == 50 * MS + 2 * LOOK_NS
    assert own.wait(0.02) == 20 * MS
    assert own.wait(-1) == 0
    assert own.now() == 0.070003
    assert own.wall_ns() == 920 * MS + 4 * LOOK_NS


class Sockets:
    """What a selector is asked, and what it finds."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.asked: list[float | None] = []

    def select(self, timeout: float | None) -> list[Any]:
        self.asked.append(timeout)
        return self.found


def test_what_is_there_comes_before_any_wait() -> None:
    own, sockets = OwnTime(), Sockets()
    waits = Waits(own, sockets.select, lambda: 1.0)
    sockets.found = ["read"]
    assert waits.select(5) == ["read"]
    assert own.now_ns() == LOOK_NS
    sockets.found = []
    assert waits.select(0.05) == []
    assert own.now_ns() == 50 * MS + 2 * LOOK_NS
    assert sockets.asked == [0, 0]  # nothing was slept


def test_a_long_silence_leaves_the_kernel_a_real_moment() -> None:
    own, sockets = OwnTime(), Sockets()
    waits = Waits(own, sockets.select, lambda: 1.0)
    assert [waits.select(5) for _ in range(3)] == [[], [], []]
    assert own.now_ns() == 300 * MS + LOOK_NS  # in steps: the loop asks again
    assert sockets.asked == [0, 0, 0.001, 0, 0.001]


def test_a_loop_that_turns_and_turns_waits_for_a_timer() -> None:
    own, sockets = OwnTime(), Sockets()
    waits = Waits(own, sockets.select, lambda: 0.03)
    for _ in range(TURNS - 1):
        waits.select(0)
    assert own.now_ns() == LOOK_NS
    waits.select(0)
    assert own.now_ns() == 30 * MS + 2 * LOOK_NS


def test_threads_have_real_time() -> None:
    own, sockets = OwnTime(), Sockets()
    waits = Waits(own, sockets.select, lambda: 0.03)
    waits.elsewhere = 1
    waits.select(5)
    assert (own.now_ns(), sockets.asked) == (LOOK_NS, [0, 0.001])


async def test_a_day_is_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.monotonic()
    with own_time.kept(asyncio.get_running_loop(), monkeypatch):
        before, wall = SYSTEM.now_ns(), SYSTEM.wall_ns()
        rung = asyncio.Event()
        alarm = best_alarm(rung.set)
        alarm.set(before + 7 * MS)
        await rung.wait()
        alarm.close()
        assert before + 7 * MS <= SYSTEM.now_ns() < before + 8 * MS
        assert await asyncio.to_thread(lambda: 5) == 5
        assert SYSTEM.now_ns() < before + 8 * MS
        await asyncio.sleep(30)
        assert 30_007 * MS <= SYSTEM.now_ns() - before < 30_009 * MS
        assert 30_007 * MS <= SYSTEM.wall_ns() - wall < 30_009 * MS
    assert time.monotonic() >= real
