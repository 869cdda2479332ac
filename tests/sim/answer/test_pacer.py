from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import uvloop

from lightgate.clock.source import SYSTEM, ManualClock
from lightgate.sim.answer.pacer import SimPacer
from lightgate.wire.link.timers import Alarm, KernelAlarm, LoopAlarm, best_alarm

if TYPE_CHECKING:
    from collections.abc import Callable


class StubAlarm:
    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.due: int | None = None

    def set(self, due_ns: int) -> None:
        self.due = due_ns

    def clear(self) -> None:
        self.due = None

    def close(self) -> None:
        self.due = None


class Beats:
    """Notes when it was fired."""

    def __init__(self, name: str, dues: list[int], seen: list[tuple[str, int]]) -> None:
        self.name = name
        self.dues = dues
        self.seen = seen

    def fire(self, now_ns: int) -> int | None:
        self.seen.append((self.name, now_ns))
        self.dues.pop(0)
        return self.dues[0] if self.dues else None


class Stage:
    """A pacer on a clock that moves only when told."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.alarms: list[StubAlarm] = []
        self.pacer = SimPacer(self.clock, self._alarm, spin_ns=0)
        self.seen: list[tuple[str, int]] = []

    def _alarm(self, wake: Callable[[], None]) -> Alarm:
        self.alarms.append(StubAlarm(wake))
        return self.alarms[-1]

    @property
    def due(self) -> int | None:
        return self.alarms[0].due

    def run_until(self, instant: int) -> None:
        """Move the clock from alarm to alarm."""
        while self.due is not None and self.due <= instant:
            self.clock.advance(max(self.due - self.clock.now_ns(), 0))
            self.alarms[0].wake()


def test_everything_fires_at_its_instant_in_order() -> None:
    stage = Stage()
    stage.pacer.add(30, Beats("b", [30, 60], stage.seen))
    stage.pacer.add(10, Beats("a", [10, 30, 50], stage.seen))
    assert stage.due == 10
    stage.run_until(100)
    assert stage.seen == [("a", 10), ("b", 30), ("a", 30), ("a", 50), ("b", 60)]
    assert len(stage.pacer) == 0
    assert stage.due is None


def test_what_is_overdue_fires_at_once() -> None:
    stage = Stage()
    stage.clock.advance(100)
    stage.pacer.add(90, Beats("a", [90, 95, 120], stage.seen))
    assert stage.seen == [("a", 100), ("a", 100)]
    assert stage.due == 120


def test_a_dropped_ticket_never_fires() -> None:
    stage = Stage()
    ticket = stage.pacer.add(10, Beats("a", [10], stage.seen))
    stage.pacer.add(20, Beats("b", [20], stage.seen))
    ticket.drop()
    stage.run_until(100)
    assert stage.seen == [("b", 20)]


def test_one_that_fails_does_not_stop_the_others() -> None:
    class Broken:
        def fire(self, now_ns: int) -> int | None:
            raise ValueError("broken")

    stage = Stage()
    stage.pacer.add(10, Broken())
    stage.pacer.add(20, Beats("a", [20], stage.seen))
    with pytest.raises(ValueError, match="broken"):
        stage.run_until(10)
    stage.run_until(100)
    assert stage.seen == [("a", 20)]


def test_one_that_adds_another_while_it_fires() -> None:
    stage = Stage()

    class Parent:
        def fire(self, now_ns: int) -> int | None:
            stage.seen.append(("parent", now_ns))
            stage.pacer.add(5, Beats("child", [5], stage.seen))
            return None

    stage.pacer.add(10, Parent())
    stage.run_until(100)
    assert stage.seen == [("parent", 10), ("child", 10)]


def test_a_backlog_leaves_the_loop_a_turn() -> None:
    stage = Stage()

    class Slow:
        def fire(self, now_ns: int) -> int | None:
            stage.seen.append(("slow", now_ns))
            stage.clock.advance(1_500_000)
            return None

    for _ in range(3):
        stage.pacer.add(10, Slow())
    stage.clock.advance(10)
    stage.alarms[0].wake()
    assert len(stage.seen) == 2
    assert stage.due == 10


def test_a_closed_pacer_is_silent() -> None:
    stage = Stage()
    stage.pacer.add(10, Beats("a", [10], stage.seen))
    stage.pacer.close()
    stage.alarms[0].wake()
    assert stage.seen == []


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("kind", [KernelAlarm, LoopAlarm, best_alarm])
def test_real_alarms_ring_once_and_never_early(
    factory: Callable[[], asyncio.AbstractEventLoop], kind: Callable[[Callable[[], None]], Alarm]
) -> None:
    async def scene() -> None:
        rung: asyncio.Queue[int] = asyncio.Queue()
        alarm: Alarm

        def wake() -> None:
            alarm.clear()
            rung.put_nowait(SYSTEM.now_ns())

        alarm = kind(wake)
        for wait_ns in (3_000_000, 200_000, -5_000_000):
            due = SYSTEM.now_ns() + wait_ns
            alarm.set(SYSTEM.now_ns() + 10_000_000_000)
            alarm.set(due)
            assert await rung.get() >= due
        alarm.set(SYSTEM.now_ns() + 1_000_000)
        alarm.clear()
        before = SYSTEM.now_ns()
        while SYSTEM.now_ns() < before + 3_000_000:
            await asyncio.sleep(0)
        assert rung.empty()
        alarm.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scene())
