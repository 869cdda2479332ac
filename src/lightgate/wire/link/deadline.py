"""A deadline that moves often and is rarely met."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Deadline:
    """One timer that is set late: moving the deadline back or clearing it costs no timer at all."""

    __slots__ = ("_due_ns", "_loop", "_passed", "_timer", "_timer_ns")

    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[[], None]) -> None:
        self._loop = loop
        self._passed = passed
        self._due_ns = 0  # 0: none
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0

    @property
    def pending(self) -> bool:
        """Whether a deadline is set."""
        return bool(self._due_ns)

    @property
    def ticking(self) -> bool:
        """Whether a timer is under way, be it for nothing."""
        return self._timer is not None

    def set(self, seconds: float) -> None:
        """Call when this time has passed from now, instead of what was set before."""
        self._due_ns = time.monotonic_ns() + int(seconds * 1e9)
        if self._timer is not None:
            if self._timer_ns <= self._due_ns:
                return
            self._timer.cancel()
        self._start(seconds)

    def clear(self) -> None:
        """Call no more; a timer that is under way ends in nothing."""
        self._due_ns = 0

    def close(self) -> None:
        """Clear, and give the timer back too."""
        self._due_ns = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, seconds: float) -> None:
        self._timer_ns = self._due_ns
        self._timer = self._loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._due_ns:
            return
        left_ns = self._due_ns - time.monotonic_ns()
        if left_ns > 0:
            self._start(left_ns / 1e9)
        else:
            self._due_ns = 0
            self._passed()
