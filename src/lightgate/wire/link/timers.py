"""Timers: an alarm that is sharper than the event loop's, and a deadline that moves often."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
import time
from typing import TYPE_CHECKING, Final, Protocol

from lightgate.clock.source import SYSTEM, Clock

if TYPE_CHECKING:
    from collections.abc import Callable

_CLOCK_MONOTONIC: Final = 1
_ABSOLUTE: Final = 1  # TFD_TIMER_ABSTIME
_SPEC: Final = struct.Struct("@qqqq")  # itimerspec: interval, then first expiry
EARLY_NS: Final = 1_500_000  # the loop's grain and a half


class Alarm(Protocol):
    """A timer that wakes its owner once, at or soon after the instant that was set last.

    The loop's own timers have a grain of a millisecond. On Linux a timerfd, watched like a socket,
    wakes the loop within tens of microseconds. Elsewhere the loop's timer is set a little early and
    the rest is waited out in turns of the loop without sleep.
    """

    def set(self, due_ns: int) -> None:
        """Wake at this instant of the monotonic clock; an earlier order is forgotten."""

    def clear(self) -> None:
        """Forget the order; after a wake, `set` or `clear` must be called."""

    def close(self) -> None:
        """Never wake again."""


class KernelAlarm:
    """An alarm on a timerfd."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        flags = os.O_NONBLOCK | os.O_CLOEXEC  # TFD_NONBLOCK, TFD_CLOEXEC
        self._fd = int(self._libc.timerfd_create(_CLOCK_MONOTONIC, flags))
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._settime = self._libc.timerfd_settime
        self._spec = ctypes.create_string_buffer(_SPEC.size)
        self._loop = asyncio.get_running_loop()
        # The expiry is not read: each wake is followed by a new order or a clear, and either resets
        # the descriptor for less than a read costs.
        self._loop.add_reader(self._fd, wake)

    def set(self, due_ns: int) -> None:
        """Arm the timer; an instant of the past wakes at once."""
        seconds, nanoseconds = divmod(max(due_ns, 1), 1_000_000_000)
        _SPEC.pack_into(self._spec, 0, 0, 0, seconds, nanoseconds)
        self._settime(self._fd, _ABSOLUTE, self._spec, None)

    def clear(self) -> None:
        """Disarm; like a new order this takes back an expiry that was not read."""
        _SPEC.pack_into(self._spec, 0, 0, 0, 0, 0)
        self._settime(self._fd, _ABSOLUTE, self._spec, None)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


class LoopAlarm:
    """An alarm on the loop's timers."""

    def __init__(self, wake: Callable[[], None], clock: Clock = SYSTEM) -> None:
        self._wake = wake
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle | None = None
        self._due_ns = 0

    def set(self, due_ns: int) -> None:
        """Set the loop's timer early by its grain, then wait turn by turn."""
        self.clear()
        self._due_ns = due_ns
        wait_ns = due_ns - self._clock.now_ns() - EARLY_NS
        if wait_ns > 0:
            self._handle = self._loop.call_later(wait_ns * 1e-9, self._ring)
        else:
            self._handle = self._loop.call_soon(self._ring)

    def close(self) -> None:
        """Forget the order for good."""
        self.clear()

    def clear(self) -> None:
        """Forget the order."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        if self._clock.now_ns() >= self._due_ns:
            self._wake()
        else:
            self._handle = self._loop.call_soon(self._ring)


def best_alarm(wake: Callable[[], None]) -> Alarm:
    """The sharpest alarm of this system."""
    return KernelAlarm(wake) if sys.platform == "linux" else LoopAlarm(wake)


class Deadline:
    """A deadline that moves often and is rarely met; moving or clearing it costs no timer.

    `due_ns` may be set to 0 by the owner: the deadline is cleared, and a timer that is under way
    ends without a call.
    """

    __slots__ = ("_loop", "_passed", "_timer", "_timer_ns", "due_ns")

    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[[], None]) -> None:
        self._loop = loop
        self._passed = passed
        self.due_ns = 0  # 0: none
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0

    @property
    def pending(self) -> bool:
        """Whether a deadline is set."""
        return bool(self.due_ns)

    @property
    def ticking(self) -> bool:
        """Whether a timer is under way, also one whose deadline was cleared."""
        return self._timer is not None

    def set(self, seconds: float) -> None:
        """Call when so many seconds have passed from now; an earlier order is forgotten."""
        self.due_ns = time.monotonic_ns() + int(seconds * 1e9)
        if self._timer is not None:
            if self._timer_ns <= self.due_ns:
                return
            self._timer.cancel()
        self._start(seconds)

    def close(self) -> None:
        """Clear, and give the timer back too."""
        self.due_ns = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, seconds: float) -> None:
        self._timer_ns = self.due_ns
        self._timer = self._loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self.due_ns:
            return
        left_ns = self.due_ns - time.monotonic_ns()
        if left_ns > 0:
            self._start(left_ns / 1e9)
        else:
            self.due_ns = 0
            self._passed()
