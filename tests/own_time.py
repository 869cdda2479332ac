"""A clock of the loop's own: it moves only while the loop has nothing to do.

Deadlines of the product are in real time, and real time also passes while the machine is busy with
other programs: two events that are a second apart may then be seen together. Here no work takes any
time, and a wait takes exactly as long as was asked for: a machine of any speed, and however busy,
sees the same instants. Nothing is slept either: where all that could happen is in this process and
has happened, the clock jumps to the next timer.

Only for tests whose client, gateway and provider are all tasks of one loop.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from lightgate.clock.source import SystemClock
from lightgate.wire.link import timers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

NS: Final = 1_000_000_000
LOOK_NS: Final = 1_000  # what a look at the clock takes: no two instants are the same
TURNS: Final = 200  # so many turns of the loop in which nothing came: it waits for a timer
# The kernel hands bytes over on the way, but need not: after so much time without any, it gets
# a real millisecond for it.
UNHEARD_NS: Final = 100_000_000
REAL_S: Final = 0.001


class OwnTime:
    """Nanoseconds since some instant; they pass in `wait`, and a little at each look."""

    def __init__(self, now_ns: int = 0, wall_ns: int = 0) -> None:
        self._now_ns = now_ns
        self._epoch_ns = wall_ns - now_ns

    def now_ns(self) -> int:
        self._now_ns += LOOK_NS
        return self._now_ns

    def now(self) -> float:
        """The same in seconds."""
        return self.now_ns() / NS

    def wall_ns(self) -> int:
        """The same since the epoch."""
        return self._epoch_ns + self.now_ns()

    def wait(self, seconds: float) -> int:
        """Let this time pass, and say how many nanoseconds it was."""
        passed = max(0, round(seconds * NS))
        self._now_ns += passed
        return passed


class Waits:
    """A loop's wait for its sockets: what is there is seen at once, and waits for timers jump."""

    def __init__(
        self, own: OwnTime, real: Callable[[float | None], list[Any]], due: Callable[[], float]
    ) -> None:
        self._own = own
        self._real = real
        self._due = due  # the loop's next timer, in seconds from now; infinite without one
        self._turns = 0
        self._unheard_ns = 0
        self.elsewhere = 0  # jobs in other threads: they need real time, and get it

    def select(self, timeout: float | None = None) -> list[Any]:
        events = self._real(0)
        if events:
            self._turns = self._unheard_ns = 0
            return events
        if self.elsewhere and timeout != 0:
            return self._real(REAL_S)
        if timeout is None:
            return self._real(None)
        if timeout <= 0:
            self._turns += 1
            timeout = self._due()
            if self._turns < TURNS or timeout == float("inf") or self.elsewhere:
                return []
        self._turns = 0
        if self._unheard_ns >= UNHEARD_NS:
            self._unheard_ns = 0
            events = self._real(REAL_S)
            if events:
                return events
        self._unheard_ns += self._own.wait(min(timeout, UNHEARD_NS / NS))
        return []


class OwnAlarm:
    """An alarm on the loop's timers, which are exact here."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def set(self, due_ns: int) -> None:
        self.clear()
        self._handle = self._loop.call_at((due_ns + LOOK_NS) / NS, self._wake)

    def clear(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    close = clear


@contextmanager
def kept(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnTime]:
    """Give this clock to the loop, the product and the simulator."""
    own = OwnTime(time.monotonic_ns(), SystemClock.wall_ns())
    inside: Any = loop  # its selector and its timers are nobody's business but its own

    def due() -> float:
        timers = inside._scheduled
        return max(0.0, timers[0]._when - own.now()) if timers else float("inf")

    waits = Waits(own, inside._selector.select, due)
    run = loop.run_in_executor

    def counted(*job: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = run(*job)
        waits.elsewhere += 1
        future.add_done_callback(lambda _: _less(waits))
        return future

    with monkeypatch.context() as patch:
        patch.setattr(inside._selector, "select", waits.select)
        patch.setattr(loop, "run_in_executor", counted)
        patch.setattr(time, "monotonic_ns", own.now_ns)
        patch.setattr(time, "monotonic", own.now)
        patch.setattr(SystemClock, "now_ns", staticmethod(own.now_ns))
        # Records put an instant on the wall clock by how long ago it was: both must go alike.
        patch.setattr(SystemClock, "wall_ns", staticmethod(own.wall_ns))
        patch.setattr(timers, "KernelAlarm", OwnAlarm)
        yield own


def _less(waits: Waits) -> None:
    waits.elsewhere -= 1
