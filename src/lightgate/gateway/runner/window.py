"""How many lines of batches may be under way: fewer at once when refused, more only slowly."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

START: Final = 2.0
LEAST: Final = 1.0
CUT: Final = 0.5  # what is left of the window after a refusal
CUT_NS: Final = 500_000_000  # lines that were sent together are refused together: one cut
HOLD_NS: Final = 10_000_000_000  # for which a refused width is not tried again
STEP: Final = 0.05  # of the window, by which it grows after as many good answers as it is wide


class WindowClosed(Exception):  # noqa: N818 - says what happened
    """No line is sent any more: the process ends."""


class SendWindow:
    """Lets lines through one by one; `most` is the widest that it may become."""

    def __init__(self, most: int, now_ns: Callable[[], int]) -> None:
        self.most = float(most)
        self.width = min(START, self.most)
        self.flying = 0
        self._now_ns = now_ns
        self._held_until_ns = 0
        self._cut_ns = -CUT_NS
        self._ceiling = self.most  # of the window, until `_tried_ns`
        self._tried_ns = 0
        self._good = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def held(self) -> bool:
        """Whether nothing is sent at the moment."""
        return self._now_ns() < self._held_until_ns

    async def enter(self) -> None:
        """Wait for a turn; those who wait have it in the order in which they came."""
        if self._closed:
            raise WindowClosed
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._wake()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave()  # it had its turn already
            raise

    def leave(self) -> None:
        """End a turn."""
        self.flying -= 1
        self._wake()

    def answered(self) -> None:
        """Take in a good answer."""
        self._good += 1
        if self._good >= self.width and self.flying + 1.0 >= self.width:
            self._good = 0
            most = self.most if self._now_ns() >= self._tried_ns else min(self.most, self._ceiling)
            self.width = max(self.width, min(most, self.width + max(1.0, STEP * self.width)))
            self._wake()

    def refused(self, wait_s: float) -> None:
        """Take in that there was no room: halve the window, and do not try so many for a while.

        A window of one line is held instead.
        """
        now = self._now_ns()
        self._good = 0
        if self.width <= LEAST:
            self._held_until_ns = max(self._held_until_ns, now + int(wait_s * 1e9))
        elif now - self._cut_ns >= CUT_NS:
            self._cut_ns, self._tried_ns = now, now + HOLD_NS
            self._ceiling = max(LEAST, self.width - 1.0)
            self.width = max(LEAST, CUT * self.width)

    def close(self) -> None:
        """Let nobody through any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(WindowClosed())

    def _wake(self) -> None:
        if self._closed:
            return
        left_ns = self._held_until_ns - self._now_ns()
        if left_ns > 0:
            if self._timer is None and self._waiting:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(left_ns / 1e9, self._again)
            return
        while self._waiting and self.flying + 1 <= self.width:
            turn = self._waiting.popleft()
            if not turn.done():
                self.flying += 1
                turn.set_result(None)

    def _again(self) -> None:
        self._timer = None
        self._wake()
