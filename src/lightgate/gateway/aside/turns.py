"""The watch over the turns of a worker's loop: long ones are counted and logged with their stage.

The loop sets the time of its next beat, a hundred times a second. A thread looks whether that time
has long passed; if so, the loop is inside a turn that takes too long, and the thread notes which
function it is in. The beat that comes at last tells how late it is. Requests pay nothing for it.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import FrameType

BEAT_S: Final = 0.01
LOOK_S: Final = 0.02
LONG_NS: Final = 50_000_000
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
        self,
        loop: asyncio.AbstractEventLoop,
        now_ns: Callable[[], int] = time.monotonic_ns,
        busy_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._loop = loop
        self._now_ns = now_ns
        self._busy_ns = busy_ns
        self._thread_id = threading.get_ident()
        self._due_ns = 0
        self._spent_ns = 0
        self._cause = UNKNOWN
        self._said: dict[tuple[str, str], int] = {}
        self._stop = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self.long: Counter[str] = Counter()
        self.longest_ns = 0

    def start(self) -> None:
        """Watch until `close`."""
        self._next(self._now_ns())
        threading.Thread(target=self._look_again, name="loop-turns", daemon=True).start()

    def close(self) -> None:
        """Watch no more."""
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()

    def _next(self, now: int) -> None:
        self._spent_ns = self._busy_ns()
        self._cause = UNKNOWN
        self._due_ns = now + int(BEAT_S * 1e9)
        self._timer = self._loop.call_later(BEAT_S, self.beat)

    def beat(self) -> None:
        """Take in that the loop has come round."""
        now = self._now_ns()
        late_ns = now - self._due_ns
        if late_ns > LONG_NS:
            self._note(late_ns, self._busy_ns() - self._spent_ns, now)
        self._next(now)

    def _note(self, late_ns: int, busy_ns: int, now: int) -> None:
        """Count a long turn, and say so once in a while for each cause."""
        stage, place = self._cause
        if busy_ns < late_ns // 2:  # it did not run: for want of a processor, or for a disk
            stage = "wait"
        self.long[stage] += 1
        self.longest_ns = max(self.longest_ns, late_ns)
        cause = (stage, place)
        if now - self._said.get(cause, -SAY_NS) < SAY_NS:
            return
        if len(self._said) >= MOST_CAUSES:
            self._said.clear()
        self._said[cause] = now
        _log.warning(
            "A turn of the loop took %d ms, %d of them at work: stage %s%s",
            late_ns // _MS,
            busy_ns // _MS,
            stage,
            f", in {place}" if place else "",
        )

    def _look_again(self) -> None:
        while not self._stop.wait(LOOK_S):
            self.look(sys._current_frames().get(self._thread_id))  # noqa: SLF001 - documented so

    def look(self, frame: FrameType | None) -> None:
        """Note where the loop is, if its beat is late."""
        if self._now_ns() - self._due_ns > LONG_NS // 2 and self._cause is UNKNOWN:
            self._cause = cause_of(frame)


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
