"""The pacer of all streams: a heap of due instants, and one timer for the next of them."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from lightgate.clock.source import SYSTEM, Clock
from lightgate.wire.link.timers import Alarm, best_alarm

if TYPE_CHECKING:
    from collections.abc import Callable

SPIN_NS: Final = 25_000  # below this wait, looking at the clock again is cheaper than sleeping
TURN_NS: Final = 2_000_000  # then the loop gets a turn, so that new requests are read


class Paced(Protocol):
    """A stream whose beats are due at planned instants."""

    def fire(self, now_ns: int) -> int | None:
        """Write the beat that is due; the next due instant, or None at the end."""
        ...


class Ticket:
    """The place of a stream in the heap; a dropped ticket frees its stream at once."""

    __slots__ = ("paced",)

    def __init__(self, paced: Paced) -> None:
        self.paced: Paced | None = paced

    def drop(self) -> None:
        """Fire this stream never again."""
        self.paced = None


class SimPacer:
    """Fires each stream at its instants, never before."""

    def __init__(
        self,
        clock: Clock = SYSTEM,
        alarm: Callable[[Callable[[], None]], Alarm] = best_alarm,
        *,
        spin_ns: int = SPIN_NS,
    ) -> None:
        self._now_ns = clock.now_ns
        self._heap: list[tuple[int, int, Ticket]] = []
        self._order = 0
        self._spin_ns = spin_ns
        self._running = False
        self._alarm = alarm(self.turn)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due_ns: int, paced: Paced) -> Ticket:
        """Fire a stream at this instant, or now if the instant has passed and no other is fired."""
        self._order += 1
        ticket = Ticket(paced)
        first = not self._heap or due_ns < self._heap[0][0]
        heappush(self._heap, (due_ns, self._order, ticket))
        if first and not self._running:
            if due_ns <= self._now_ns():
                self.turn()
            else:
                self._alarm.set(due_ns)
        return ticket

    def turn(self) -> None:
        """Fire the streams that are due, then set the alarm for the next one."""
        self._running = True
        try:
            self._fire_due()
        finally:
            self._running = False
            if self._heap:
                self._alarm.set(self._heap[0][0])
            else:
                self._alarm.clear()

    def close(self) -> None:
        """Fire no more."""
        self._heap.clear()
        self._alarm.close()

    def _fire_due(self) -> None:
        heap, now_ns, spin_ns = self._heap, self._now_ns, self._spin_ns
        limit_ns = now_ns() + TURN_NS
        while heap:
            due_ns, order, ticket = heap[0]
            now = now_ns()
            if now >= limit_ns:
                return
            if due_ns > now:
                if due_ns - now > spin_ns:
                    return
                continue
            heappop(heap)
            paced = ticket.paced
            if paced is None:
                continue
            following = paced.fire(now)
            if following is not None:
                heappush(heap, (following, order, ticket))
