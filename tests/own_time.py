"""A clock that stands still while this program waits for a processor.

Deadlines of the product are in real time, and real time also passes while the machine is busy with
other programs: two events that are a second apart may then be seen together. The kernel counts how
long a runnable thread was not run; without that share, a crowded machine is a slow one at most.
Blocking calls, sleep and work of this program's own count as ever.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lightgate.clock.source import SystemClock
from lightgate.wire.link import alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

QUEUED = Path("/proc/thread-self/schedstat")  # nanoseconds run, nanoseconds queued, times run


class OwnTime:
    """Nanoseconds of the monotonic clock, less those that this thread has waited to run."""

    def __init__(
        self, real_ns: Callable[[], int] = time.monotonic_ns, queued: Path = QUEUED
    ) -> None:
        self._real_ns = real_ns
        self._epoch_ns = SystemClock.wall_ns() - real_ns()
        self._file = os.open(queued, os.O_RDONLY)
        self._before_ns = 0
        self._before_ns = self.lost_ns()
        self._seen_ns = 0

    def lost_ns(self) -> int:
        """What others had of the time since this clock was made."""
        return int(os.pread(self._file, 64, 0).split()[1]) - self._before_ns

    def now_ns(self) -> int:
        """Both figures of one moment: who was set aside since the last look looks again."""
        while True:
            now_ns, lost_ns = self._real_ns(), self.lost_ns()
            if lost_ns == self._seen_ns:
                return now_ns - lost_ns
            self._seen_ns = lost_ns

    def now(self) -> float:
        """The same in seconds."""
        return self.now_ns() / 1e9

    def wall_ns(self) -> int:
        """The same since the epoch."""
        return self._epoch_ns + self.now_ns()

    def close(self) -> None:
        os.close(self._file)


def keep(monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnTime | None]:
    """Give this clock to the loop, the product and the simulator; None where no kernel counts."""
    if not QUEUED.exists():
        yield None
        return
    own = OwnTime()

    class OwnAlarm(alarm.KernelAlarm):
        """Rings early when others had the processor meanwhile; who is woken looks at the clock."""

        def set(self, due_ns: int) -> None:
            super().set(due_ns + own.lost_ns())

    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic_ns", own.now_ns)
        patch.setattr(time, "monotonic", own.now)
        patch.setattr(SystemClock, "now_ns", staticmethod(own.now_ns))
        # Records put an instant on the wall clock by how long ago it was: both must go alike.
        patch.setattr(SystemClock, "wall_ns", staticmethod(own.wall_ns))
        patch.setattr(alarm, "KernelAlarm", OwnAlarm)
        yield own
    own.close()
