"""Deadlines for first tokens: many, mostly met, and none of them worth a timer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

STEP_S: Final = 0.02  # how late a deadline may be noticed


class Waiting(Protocol):
    """Who is told when its time is over."""

    def give_up(self) -> None:
        """The deadline has passed."""


class Patience:
    """Looks every 20 ms at those who wait, while there are any."""

    __slots__ = ("_due", "_loop", "_now_ns", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int]) -> None:
        self._loop = loop
        self._now_ns = now_ns
        self._due: dict[Waiting, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, who: Waiting, due_ns: int) -> None:
        """Tell it once this instant has passed."""
        self._due[who] = due_ns
        if self._timer is None:
            self._timer = self._loop.call_later(STEP_S, self._look)

    def end(self, who: Waiting) -> None:
        """It waits no more."""
        self._due.pop(who, None)

    def _look(self) -> None:
        self._timer = None
        now = self._now_ns()
        over = [who for who, due_ns in self._due.items() if due_ns <= now]
        for who in over:
            del self._due[who]
            who.give_up()
        if self._due:
            self._timer = self._loop.call_later(STEP_S, self._look)
