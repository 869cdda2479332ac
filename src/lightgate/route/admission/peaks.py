"""Clients beside lines of batches: how many requests they have at each target at their busiest.

A line holds a part of a target's room for as long as it runs, and clients come in bursts: what is
free now may be wanted a moment later. So their peak of the last minute or two stays free.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

ROOM_NS: Final = 600_000_000_000  # for which a queue is remembered; while none is, more is tried
PEAK_NS: Final = 60_000_000_000  # for which a peak counts, at least


class ClientPeaks:
    """The lines under way in one worker, and the peaks of its clients."""

    __slots__ = ("_before", "_lines", "_now", "_rooms", "_targets", "_turned_ns", "client_ns")

    def __init__(self) -> None:
        self._targets: dict[str, str] = {}  # of each line under way
        self._lines: Counter[str] = Counter()
        self._now: dict[str, int] = {}  # peaks since the last turn, and those before it
        self._before: dict[str, int] = {}
        self._turned_ns = 0
        self._rooms: dict[str, tuple[float, int]] = {}  # where a queue was seen: its room, and when
        self.client_ns: int | None = None  # when a client's request was last let in

    def began(self, id_: str, target: str) -> None:
        """Count a line of a batch."""
        self._targets[id_] = target
        self._lines[target] += 1

    def ended(self, id_: str) -> None:
        """Count a line of a batch no more."""
        target = self._targets.pop(id_, None)
        if target is not None:
            self._lines[target] -= 1

    def came(self, target: str, in_flight: int, now_ns: int) -> None:
        """Take in a client's request to a target that has so many in flight, lines included."""
        self.client_ns = now_ns
        flying = in_flight - self._lines[target] + 1
        if now_ns - self._turned_ns > PEAK_NS:
            late = now_ns - self._turned_ns > 2 * PEAK_NS
            self._before, self._now = {} if late else self._now, {}
            self._turned_ns = now_ns
        if flying > self._now.get(target, 0):
            self._now[target] = flying

    def saw_queue(self, target: str, room: float, now_ns: int) -> None:
        """Take in that requests beyond a room were seen to wait at a target."""
        self._rooms[target] = room, now_ns

    def room(self, target: str, now_ns: int) -> float | None:
        """The room of a target, as it was last seen; None where no queue was seen for long."""
        known = self._rooms.get(target)
        return None if known is None or now_ns - known[1] > ROOM_NS else known[0]

    def lines(self, target: str) -> int:
        """The lines that a target has."""
        return self._lines[target]

    def peak(self, target: str) -> int:
        """The most requests that clients had at a target lately."""
        return max(self._now.get(target, 0), self._before.get(target, 0))
