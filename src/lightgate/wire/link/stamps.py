"""The error of stamps: the offset of kernel stamps, the lateness of read stamps."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import sys
import time
from typing import Final

from lightgate.clock.source import SYSTEM, Clock

RECHECK_NS: Final = 20_000_000  # 20 ms at 500 ppm is 10 µs of drift, a tenth of the error budget
SLEW: Final = 0.0005
JITTER_NS: Final = 50_000  # a sandwich that was itself preempted may be off by this much
SO_TIMESTAMPNS: Final = 35  # <asm-generic/socket.h>; also the type of the control message
SCHEDSTAT: Final = "/proc/thread-self/schedstat"  # Linux: on-core ns, run-queue ns, slices
WAKE_NS: Final = 400_000  # from the arrival to a woken thread on an idle virtual core: 0.2 ms seen
_THREAD: Final = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


def kernel_stamps_available() -> bool:
    """Whether this machine's kernel can stamp received TCP data."""
    if sys.platform != "linux":
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        except OSError:
            return False
    return True


class Anchor:
    """The offset between the wall clock and the monotonic clock, and how often it stepped.

    The kernel stamps a packet with the wall clock; durations need the monotonic one. The offset is
    measured in a tight sandwich, and again every few milliseconds of use. NTP may slew the wall
    clock by at most 500 ppm, so between two checks the offset may move by a known amount; a larger
    move is a step, and every attempt in flight at a step is void.
    """

    __slots__ = ("_clock", "_keeper", "checked_ns", "offset_ns", "steps")

    def __init__(self, clock: Clock = SYSTEM, *, keep_enabled: bool = False) -> None:
        self._clock = clock
        self.steps = 0
        self.offset_ns = self._measure()
        self.checked_ns = clock.now_ns()
        # The kernel switches packet stamping on lazily, with the first socket that asks, and off
        # with the last. One socket that is never used keeps it on: no first packet goes unstamped.
        self._keeper: socket.socket | None = None
        if keep_enabled:
            self._keeper = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._keeper.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def check(self, now_ns: int) -> None:
        """Measure the offset again; count a step if it moved by more than slewing can explain."""
        fresh = self._measure()
        allowed = JITTER_NS + SLEW * (now_ns - self.checked_ns)
        if abs(fresh - self.offset_ns) > allowed:
            self.steps += 1
        self.offset_ns = fresh
        self.checked_ns = now_ns

    def close(self) -> None:
        """Let the kernel switch stamping off again."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    def _measure(self) -> int:
        """The offset from the tightest of a few sandwiches (monotonic, wall, monotonic)."""
        now, wall = self._clock.now_ns, self._clock.wall_ns
        width, offset = 1 << 62, 0
        for _ in range(4):
            before = now()
            at = wall()
            after = now()
            if after - before < width:
                width = after - before
                offset = at - (before + after) // 2
        return offset


class BusyTime:
    """The time for which this thread was on a core or queued for one, as the scheduler counts it.

    Bytes that arrive while a loop sleeps wake it, so what is unread has arrived within the time for
    which the loop was busy since then, and the time that an idle core needs to wake. Only a
    hypervisor can take away more unseen.
    """

    __slots__ = ("fd",)

    def __init__(self) -> None:
        self.fd = -1  # where the system does not tell how long a thread was queued
        with contextlib.suppress(OSError):
            self.fd = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)

    def total_ns(self) -> int:
        """Nanoseconds since the thread began."""
        queued = int(os.pread(self.fd, 96, 0).split(b" ", 2)[1]) if self.fd >= 0 else 0
        return time.thread_time_ns() + queued

    def close(self) -> None:
        """Give the file descriptor back."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class LoopLag:
    """Bounds the lateness of read stamps on one event loop; about three microseconds a read.

    A read stamp says when the loop came to the bytes, not when they arrived: they may have waited
    for as long as the loop has been busy since it last went to sleep of its own accord.
    """

    __slots__ = ("_busy", "_busy_ns", "_lag_ns", "_last_ns", "_sleeps")

    def __init__(self) -> None:
        self._busy = BusyTime()
        self._last_ns = time.monotonic_ns()
        self._busy_ns = self._busy.total_ns()
        self._sleeps = resource.getrusage(_THREAD).ru_nvcsw
        self._lag_ns = 0

    def since(self, stamp_ns: int) -> int:
        """The earliest instant at which bytes that were read at `stamp_ns` can have arrived."""
        sleeps = resource.getrusage(_THREAD).ru_nvcsw
        busy = self._busy.total_ns()
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
        self._busy.close()
