"""The watch over the turns of a worker's loop: long ones are counted and logged with their stage.

A thread hands the loop something to do, fifty times a second, and looks whether it was done. If
not, the loop is inside a turn that takes long, and the thread notes which function it is in.
Requests pay nothing for it, and the loop a callback in C.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import FrameType

LOOK_S: Final = 0.02
AGAIN_S: Final = 0.005  # between two looks at a loop that is late
LONG_NS: Final = 50_000_000
WAIT_NS: Final = 1_000_000_000  # a busy machine is no news until it takes as long
SAY_NS: Final = 60_000_000_000  # between two lines of the log about one cause
MOST_CAUSES: Final = 100
UNKNOWN: Final = ("unknown", "")
_MS: Final = 1_000_000
_PACKAGE: Final = "lightgate."
# The stage of a request that a function belongs to, by its module; the first that fits.
_STAGES: Final = (
    ("gateway.exchange.settle", "settle"),
    ("gateway.exchange.journal", "settle"),
    ("ledger", "settle"),
    ("dialect", "translate"),
    ("gateway.request", "read"),
    ("wire.door", "read"),
    ("gateway.aside", "read"),
    ("gateway.http", "admit"),
    ("gateway.admit", "admit"),
    ("gateway.served", "prepare"),
    ("route", "plan"),
    ("gateway.kept", "keep"),
    ("gateway.cache", "cache"),
    ("gateway.spend", "spend"),
    ("gateway.exchange", "exchange"),
    ("provider", "call"),
    ("wire", "call"),
    ("gateway.process", "worker"),
)
_log = logging.getLogger(__name__)


class Turns:
    """Long turns of one loop: how many of each stage, and the longest of them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._loop = loop
        self._now_ns = now_ns
        self._thread_id = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread_id)
        self._done: deque[None] = deque()
        self._said: dict[tuple[str, str], int] = {}
        self._stop = threading.Event()
        self.long: Counter[str] = Counter()
        self.longest_ns = 0

    def start(self) -> None:
        """Watch until `close`."""
        threading.Thread(target=self._watch, name="loop-turns", daemon=True).start()

    def close(self) -> None:
        """Watch no more."""
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self.look(self._stop.wait)
            except RuntimeError:  # the loop is closed
                return

    def look(self, wait: Callable[[float], object]) -> None:
        """Hand the loop something to do, and wait until it is done."""
        began, spent, cause = self._now_ns(), self._busy_ns(), UNKNOWN
        self._done.clear()
        self._loop.call_soon_threadsafe(self._done.append, None)
        wait(LOOK_S)
        while not self._done and not self._stop.is_set():
            if cause is UNKNOWN:
                cause = cause_of(self._frame())
            wait(AGAIN_S)
        now = self._now_ns()
        if now - began > LONG_NS:
            self._note(now - began, self._busy_ns() - spent, cause, now)

    def _busy_ns(self) -> int:
        """The time that the loop's thread was at work so far."""
        return time.clock_gettime_ns(self._clock)

    def _frame(self) -> FrameType | None:
        return sys._current_frames().get(self._thread_id)  # noqa: SLF001 - documented so

    def _note(self, took_ns: int, busy_ns: int, cause: tuple[str, str], now: int) -> None:
        """Count a long turn, and say so once in a while for each cause."""
        waited = busy_ns < took_ns // 2  # it did not run: for want of a processor, or for a disk
        if waited:
            cause = ("wait", cause[1])
        stage, place = cause
        self.long[stage] += 1
        self.longest_ns = max(self.longest_ns, took_ns)
        if now - self._said.get(cause, -SAY_NS) < SAY_NS or (waited and took_ns < WAIT_NS):
            return
        if len(self._said) >= MOST_CAUSES:
            self._said.clear()
        self._said[cause] = now
        _log.warning(
            "A turn of the loop took %d ms, %d of them at work: stage %s%s",
            took_ns // _MS,
            busy_ns // _MS,
            stage,
            f", in {place}" if place else "",
        )


def cause_of(frame: FrameType | None) -> tuple[str, str]:
    """The stage and the function of the innermost frame that is ours."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith(_PACKAGE):
            module = name.removeprefix(_PACKAGE)
            if not module.endswith(".worker"):  # which runs the loop, and waits in it
                return stage_of(module), f"{module}.{frame.f_code.co_name}"
        frame = frame.f_back
    return UNKNOWN


def stage_of(module: str) -> str:
    """The stage that a module belongs to."""
    for start, stage in _STAGES:
        if module == start or module.startswith(start + "."):
            return stage
    return "other"
