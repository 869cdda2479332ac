"""Sources of time: one monotonic clock in nanoseconds, injected everywhere."""

from __future__ import annotations

import time
from typing import Final, Protocol

CONFIRM_NS: Final = 3_600_000_000_000  # of a life, in which a wrong clock may be set right


class Clock(Protocol):
    """A source of time."""

    def now_ns(self) -> int:
        """Nanoseconds of the monotonic clock; the same clock for all processes of one machine."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch, for display and joins only, never for durations."""
        ...


class SystemClock:
    """The machine's clocks."""

    now_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)


class ManualClock:
    """A clock that moves only when told, for tests."""

    def __init__(self, now_ns: int = 0, wall_ns: int = 1_700_000_000_000_000_000) -> None:
        self._now_ns = now_ns
        self._wall_ns = wall_ns

    def now_ns(self) -> int:
        """The instant that was set."""
        return self._now_ns

    def wall_ns(self) -> int:
        """The wall time that was set."""
        return self._wall_ns

    def advance(self, nanoseconds: int) -> None:
        """Move both clocks forward."""
        self._now_ns += nanoseconds
        self._wall_ns += nanoseconds

    def step_wall(self, nanoseconds: int) -> None:
        """Move the wall clock alone, as an operator or NTP would."""
        self._wall_ns += nanoseconds


SYSTEM = SystemClock()


class LifeClock:
    """The time by which a process deletes what is too old: the wall clock, if its life agrees.

    A leap ahead within a life deletes nothing, and nor does a life's first hour: a clock that was
    wrong at its start may be set right. What is too old is not used meanwhile.
    """

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._wall_ns, self._began_ns = clock.wall_ns(), clock.now_ns()

    def old_ns(self) -> int:
        """The instant on the wall clock before which what has expired may be deleted."""
        ran_ns = self._clock.now_ns() - self._began_ns
        if ran_ns < CONFIRM_NS:
            return 0
        return min(self._clock.wall_ns(), self._wall_ns + ran_ns + CONFIRM_NS)
