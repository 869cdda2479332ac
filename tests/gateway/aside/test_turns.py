"""Long turns of the loop are counted and logged, once for each cause and minute."""

from __future__ import annotations

import asyncio
import sys
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from lightgate.gateway.aside.turns import LONG_NS, SAY_NS, Turns, cause_of, stage_of

if TYPE_CHECKING:
    from types import FrameType

MS = 1_000_000


class Watched:
    """A watch over a loop that does not run, with a clock that is set."""

    def __init__(self) -> None:
        self.now_ns = self.busy_ns = 0
        loop = SimpleNamespace(call_later=lambda *_: SimpleNamespace(cancel=lambda: None))
        self.turns = Turns(cast("Any", loop), lambda: self.now_ns, lambda: self.busy_ns)
        self.turns._next(0)

    def turn(self, took_ms: int, busy_ms: int, frame: FrameType | None = None) -> None:
        self.now_ns = self.turns._due_ns + took_ms * MS
        self.busy_ns += busy_ms * MS
        self.turns.look(frame)
        self.turns.beat()


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
    assert not watched.turns.long
    watched.turn(80, 80, frame_in("dialect.gemini.read"))
    watched.turn(60, 60, frame_in("dialect.gemini.read"))
    assert watched.turns.long == {"translate": 2}
    assert watched.turns.longest_ns == 80 * MS
    assert len(caplog.messages) == 1
    assert "took 80 ms, 80 of them at work: stage translate" in caplog.messages[0]
    assert "dialect.gemini.read" in caplog.messages[0]
    watched.now_ns = watched.turns._due_ns = SAY_NS + 1000 * MS
    watched.turn(70, 70, frame_in("dialect.gemini.read"))
    assert len(caplog.messages) == 2


def test_a_turn_that_waited_for_the_machine_says_so(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.turn(500, 20, frame_in("ledger.journal.journal"))
    assert watched.turns.long == {"wait": 1}
    assert "stage wait, in ledger.journal.journal" in caplog.text


def test_a_turn_without_a_frame_is_unknown() -> None:
    watched = Watched()
    watched.turn(60, 60)
    watched.turn(60, 60, frame_in("gateway.process.worker"))  # it waits there for its loop
    assert watched.turns.long == {"unknown": 2}
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


async def test_the_loop_beats_and_the_thread_looks() -> None:
    turns = Turns(asyncio.get_running_loop())
    turns.start()
    first = turns._due_ns
    async with asyncio.timeout(10):
        while turns._due_ns == first:
            await asyncio.sleep(0.001)
    turns.close()
