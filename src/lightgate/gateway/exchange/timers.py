"""Deadlines for first tokens: many, mostly met, and none of them worth a timer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

STEP_S: Final = 0.02  # how late a deadline may be noticed


class Waiting(Protocol):
    """What is told when its time is over."""

    def give_up(self) -> None:
        """The deadline has passed."""


class Timers:
    """Looks every 20 ms at what waits, while something does."""

    __slots__ = ("_due", "_loop", "_now_ns", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int]) -> None:
        self._loop = loop
        self._now_ns = now_ns
        self._due: dict[Waiting, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, waiting: Waiting, due_ns: int) -> None:
        """Call its `give_up` once this instant has passed."""
        self._due[waiting] = due_ns
        if self._timer is None:
            self._timer = self._loop.call_later(STEP_S, self._look)

    def end(self, waiting: Waiting) -> None:
        """Forget its deadline."""
        self._due.pop(waiting, None)

    def _look(self) -> None:
        self._timer = None
        now = self._now_ns()
        over = [waiting for waiting, due_ns in self._due.items() if due_ns <= now]
        for waiting in over:
            if self._due.pop(waiting, None) is not None:
                waiting.give_up()
        if self._due:
            self._timer = self._loop.call_later(STEP_S, self._look)
