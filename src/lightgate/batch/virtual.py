"""Virtual time for a job: an event loop whose clock moves only while there is nothing to do.

A job against simulated targets takes no longer than its computing, and every run of it is the same.
Only for senders that wait on this loop alone: nothing outside of the process has time to answer.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

NS: Final = 1_000_000_000
EPOCH_NS: Final = 1_767_225_600 * NS  # 2026-01-01: the wall time at which virtual time begins
_Result = TypeVar("_Result")


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; `time` begins with 0."""

    def __init__(self) -> None:
        self._virtual_s = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Seconds that were waited for so far."""
        return self._virtual_s

    def jump(self, seconds: float) -> None:
        """Let this time pass."""
        self._virtual_s += seconds


class _Jumping(selectors.DefaultSelector):
    """A selector that never waits: it lets the time of its loop pass instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready: list[Any] = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("Nothing will ever happen in this loop.")
        if not ready and timeout is not None and timeout > 0:
            self._loop.jump(timeout)
        return ready


class LoopClock:
    """The clock of a virtual loop, as the rest of the program wants it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ns(self) -> int:
        """Nanoseconds of virtual time."""
        return round(self._loop.time() * NS)

    def wall_ns(self) -> int:
        """The same since the epoch."""
        return EPOCH_NS + self.now_ns()


def run_virtual(loop: VirtualLoop, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run one coroutine to its end, then close the loop."""
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()
