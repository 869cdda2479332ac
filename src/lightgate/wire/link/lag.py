"""How late a stamp taken in the event loop may be.

A read stamp says when the loop came to the bytes, not when they arrived. Bytes that arrive while
the loop sleeps wake it; bytes that arrive while it works wait. So the wait is bounded by the time
that this thread was busy (on a core, or queued for one) since it last went to sleep of its own
accord, and by the time that an idle core needs to wake. More than that only a hypervisor can take
away unseen; kernel stamps are the answer to it.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Final

SCHEDSTAT: Final = "/proc/thread-self/schedstat"  # Linux: on-core ns, run-queue ns, slices
WAKE_NS: Final = 400_000  # from the arrival to a woken thread on an idle virtual core: 0.2 ms seen
_THREAD: Final = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class LoopLag:
    """Bounds the lateness of read stamps on one event loop; about three microseconds a read."""

    __slots__ = ("_busy_ns", "_fd", "_lag_ns", "_last_ns", "_sleeps")

    def __init__(self) -> None:
        try:
            self._fd = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1
        self._last_ns = time.monotonic_ns()
        self._busy_ns = self._busy()
        self._sleeps = resource.getrusage(_THREAD).ru_nvcsw
        self._lag_ns = 0

    def since(self, stamp_ns: int) -> int:
        """The earliest instant at which bytes that were read at `stamp_ns` can have arrived."""
        sleeps = resource.getrusage(_THREAD).ru_nvcsw
        busy = self._busy()
        if sleeps == self._sleeps:
            self._lag_ns += stamp_ns - self._last_ns
        else:
            self._lag_ns = busy - self._busy_ns + WAKE_NS
            self._sleeps = sleeps
        self._last_ns = stamp_ns
        self._busy_ns = busy
        return stamp_ns - self._lag_ns

    def close(self) -> None:
        """Give the file descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _busy(self) -> int:
        queued = 0
        if self._fd >= 0:
            queued = int(os.pread(self._fd, 96, 0).split(b" ", 2)[1])
        return time.thread_time_ns() + queued
