"""A queue before a number of slots: first come, first served, in virtual time.

How long an entry will be served is known when it enters, so that its start is computed and not
waited for. An entry that leaves early gives its place to those behind it: their starts are computed
again, and whoever waits for them is told.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

EVER_NS: Final = 1 << 62
CLEAN: Final = 64  # entries beyond those in use, after which the list is cleaned


class QueueEntry:
    """One request in a queue; instants and durations in nanoseconds."""

    __slots__ = ("at_ns", "end_ns", "number", "service_ns", "start_ns")

    def __init__(self, number: int, at_ns: int, service_ns: int) -> None:
        self.number = number
        self.at_ns = at_ns
        self.service_ns = service_ns
        self.start_ns = self.end_ns = 0


class ServiceQueue:
    """Slots that serve one entry each; `changes` are (instant, slots) from that instant on.

    An entry starts at the first instant at which fewer of those before it are served than there
    are slots. A smaller number of slots ends no service that has begun.
    """

    def __init__(self, slots: int, changes: Sequence[tuple[int, int]] = ()) -> None:
        edges = [(-EVER_NS, slots), *changes]
        untils = [at_ns for at_ns, _ in edges[1:]] + [EVER_NS]
        self._stretches = [(until, count) for until, (_, count) in zip(untils, edges, strict=True)]
        self._entries: list[QueueEntry] = []  # in the order in which they came
        self._ends: list[int] = []  # of all entries that are not over, sorted
        self._last_ns = -EVER_NS  # the latest start so far

    def enter(self, number: int, now_ns: int, service_ns: int) -> QueueEntry:
        """Take a request in; `number` is the caller's own name for it."""
        self._forget(now_ns)
        entry = QueueEntry(number, now_ns, service_ns)
        self._entries.append(entry)
        self._place(entry, now_ns)
        return entry

    def leave(self, entry: QueueEntry, now_ns: int) -> list[tuple[int, int]]:
        """Take a request out before its end; return who starts sooner now, and by how much."""
        if entry.end_ns <= now_ns:
            return []
        self._ends.remove(entry.end_ns)
        start_ns, entry.end_ns = entry.start_ns, now_ns
        if start_ns > now_ns:
            self._entries.remove(entry)
        if self._last_ns <= now_ns:
            return []
        running = [one for one in self._entries if one.start_ns <= now_ns < one.end_ns]
        behind = [one for one in self._entries if one.start_ns > now_ns]
        self._entries = [*running, *behind]
        self._ends = sorted([one.end_ns for one in running])
        self._last_ns = now_ns
        moved = []
        for one in behind:
            before_ns = one.start_ns
            self._place(one, now_ns)
            if one.start_ns != before_ns:
                moved.append((one.number, before_ns - one.start_ns))
        return moved

    def wait_ns(self, now_ns: int) -> int:
        """Return how long a request of now would wait for its slot."""
        self._forget(now_ns)
        return self._start_ns(now_ns) - now_ns

    def busy(self, now_ns: int) -> int:
        """Return how many requests are served or wait."""
        self._forget(now_ns)
        return len(self._ends)

    def _place(self, entry: QueueEntry, now_ns: int) -> None:
        entry.start_ns = self._last_ns = self._start_ns(now_ns)
        entry.end_ns = entry.start_ns + entry.service_ns
        insort(self._ends, entry.end_ns)

    def _start_ns(self, now_ns: int) -> int:
        ends = self._ends
        at_ns = max(now_ns, self._last_ns)
        for until_ns, slots in self._stretches:
            if at_ns >= until_ns:
                continue
            if slots > 0:
                start_ns = at_ns if len(ends) < slots else max(at_ns, ends[-slots])
                if start_ns < until_ns:
                    return start_ns
            at_ns = until_ns
        return EVER_NS

    def _forget(self, now_ns: int) -> None:
        """Drop what is over."""
        ends = self._ends
        if ends and ends[0] <= now_ns:
            del ends[: bisect_right(ends, now_ns)]
        if len(self._entries) > 2 * len(ends) + CLEAN:
            self._entries = [one for one in self._entries if one.end_ns > now_ns]
