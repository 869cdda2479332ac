"""Long turns of the loop are counted and logged, once for each cause and minute."""

from __future__ import annotations

import asyncio
import sys
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from lightgate.gateway.aside.turns import LONG_NS, MOST_CAUSES, SAY_NS, Turns, cause_of, stage_of

if TYPE_CHECKING:
    from types import FrameType

MS = 1_000_000


class Watched(Turns):
    """A watch over a loop that does not run, with clocks that are set."""

    def __init__(self) -> None:
        self.now = self.busy = 0
        loop = SimpleNamespace(call_soon_threadsafe=lambda *_: None)
        super().__init__(cast("Any", loop), lambda: self.now)
        self.frame: FrameType | None = None

    def _busy_ns(self) -> int:
        return self.busy

    def _frame(self) -> FrameType | None:
        return self.frame

    def turn(self, took_ms: int, busy_ms: int, frame: FrameType | None = None) -> None:
        """Watch a turn of so many milliseconds."""
        self.frame = frame
        ended = self.now + took_ms * MS

        def wait(seconds: float) -> None:
            self.now = min(self.now + int(seconds * 1e9), ended)
            if self.now == ended:
                self.busy += busy_ms * MS
                self._done.append(None)

        self.look(wait)


def frame_in(module: str) -> FrameType:
    """A frame of a function of this module."""
    found = FunctionType(here.__code__, {"__name__": f"lightgate.{module}", "sys": sys})()
    return cast("FrameType", found)


def here() -> FrameType:
    return sys._getframe()


def test_only_long_turns_count(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for took_ms in (0, 10, LONG_NS // MS):
        watched.turn(took_ms, took_ms)
    assert not watched.long
    watched.turn(80, 80, frame_in("dialect.gemini.read"))
    watched.turn(60, 60, frame_in("dialect.gemini.read"))
    assert watched.long == {"translate": 2}
    assert watched.longest_ns == 80 * MS
    assert len(caplog.messages) == 1
    assert "took 80 ms, 80 of them at work: stage translate" in caplog.messages[0]
    assert "dialect.gemini.read" in caplog.messages[0]
    watched.now += SAY_NS
    watched.turn(70, 70, frame_in("dialect.gemini.read"))
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("late", [0, 1, 3])
def test_a_loop_that_is_late_is_looked_at_more_often(late: int) -> None:
    watched = Watched()
    watched.frame = frame_in("dialect.gemini.read")
    waits: list[float] = []
    handed: list[object] = []
    watched._loop = cast("Any", SimpleNamespace(call_soon_threadsafe=lambda *a: handed.append(a)))

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > late:
            watched._done.append(None)

    watched.look(wait)
    assert waits == [0.02, *[0.005] * late]
    assert handed == [(watched._done.append, None)]
    watched.close()
    waits.clear()
    late = 99
    watched.look(wait)  # nobody waits for a loop that is closed
    assert waits == [0.02]


def test_causes_are_kept_within_limits(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for number in range(MOST_CAUSES + 1):
        watched.turn(60, 60, frame_in(f"dialect.m{number}"))
    assert (len(watched._said), len(caplog.messages)) == (1, MOST_CAUSES + 1)
    watched.turn(60, 30, frame_in("dialect.m1"))  # half of it at work is no wait
    watched.turn(60, 29, frame_in("dialect.m1"))
    assert watched.long == {"translate": MOST_CAUSES + 2, "wait": 1}


def test_a_turn_that_waited_for_the_machine_says_so(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.turn(500, 20, frame_in("ledger.journal.journal"))
    assert watched.long == {"wait": 1}
    assert not caplog.text
    watched.turn(1100, 20, frame_in("ledger.journal.journal"))
    assert watched.long == {"wait": 2}
    assert "stage wait, in ledger.journal.journal" in caplog.text


def test_a_turn_without_a_frame_is_unknown() -> None:
    watched = Watched()
    watched.turn(60, 60)
    watched.turn(60, 60, frame_in("gateway.process.worker"))  # it waits there for its loop
    assert watched.long == {"unknown": 2}
    assert cause_of(None) == ("unknown", "")


@pytest.mark.parametrize(
    ("module", "stage"),
    [
        ("gateway.exchange.settle", "settle"),
        ("gateway.exchange.stream", "exchange"),
        ("gateway.request.body", "read"),
        ("gateway.admit.plan", "admit"),
        ("route.plan.decide", "plan"),
        ("wire.door.intake", "read"),
        ("wire.client.pool", "call"),
        ("routes", "other"),
    ],
)
def test_the_stage_of_a_module(module: str, stage: str) -> None:
    assert stage_of(module) == stage


async def test_a_real_loop_is_watched_until_it_is_over() -> None:
    turns = Turns(asyncio.get_running_loop())
    assert turns._frame() is not None
    turns.start()
    async with asyncio.timeout(10):
        while not turns._done:
            await asyncio.sleep(0.001)
    turns.close()
    assert turns._busy_ns() > 0


def test_a_loop_that_is_closed_ends_the_watch() -> None:
    loop = asyncio.new_event_loop()
    turns = Turns(loop)
    loop.close()
    turns._watch()
