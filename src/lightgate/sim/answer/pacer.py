"""One heap of due instants for all streams of the process, and one timer for the next of them."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from lightgate.clock.source import SYSTEM, Clock
from lightgate.wire.link.timers import Alarm, best_alarm

if TYPE_CHECKING:
    from collections.abc import Callable

SPIN_NS: Final = 25_000  # nearer than this, looking again is cheaper than sleeping
TURN_NS: Final = 2_000_000  # then the loop gets a turn: new requests must be read in time


class Paced(Protocol):
    """Something that is due now and then."""

    def fire(self, now_ns: int) -> int | None:
        """Do what is due; the next due instant, or None at the end."""
        ...


class Ticket:
    """A place in the heap; dropping it frees what it held at once."""

    __slots__ = ("paced",)

    def __init__(self, paced: Paced) -> None:
        self.paced: Paced | None = paced

    def drop(self) -> None:
        """Never fire again."""
        self.paced = None


class SimPacer:
    """Fires each paced thing at its instant, never before."""

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
        """Fire it at this instant; at once, if that has passed and nothing else is being fired."""
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
        """Fire what is due, then set the alarm for what is next."""
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
