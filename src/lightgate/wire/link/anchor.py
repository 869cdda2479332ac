"""Mapping the kernel's wall-clock stamps to the monotonic clock.

The kernel stamps a packet with the wall clock; durations need the monotonic one. The offset between
the two is measured in a tight sandwich and measured again every few milliseconds of use. NTP may
slew the wall clock by at most 500 ppm, so between two checks the offset may move by a known amount;
a larger move is a step, and every attempt in flight at a step is void.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

from lightgate.clock.source import SYSTEM, Clock

RECHECK_NS: Final = 20_000_000  # 20 ms at 500 ppm is 10 µs of drift, a tenth of the error budget
SLEW: Final = 0.0005
JITTER_NS: Final = 50_000  # a sandwich that was itself preempted may be off by this much
SO_TIMESTAMPNS: Final = 35  # <asm-generic/socket.h>; also the type of the control message


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
    """The offset between the wall clock and the monotonic clock, and how often it stepped."""

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
