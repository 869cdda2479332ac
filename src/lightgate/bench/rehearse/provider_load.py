"""The state of one provider in a rehearsal: in flight, limits, a cold start, a queue or batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.bench.rehearse.queue import ServiceQueue
from lightgate.bench.rehearse.shared_batch import BatchWork, SharedBatch
from lightgate.sim.capacity import Bucket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.bench.rehearse.queue import QueueEntry
    from lightgate.bench.rehearse.scene import Scene

NS: Final = 1_000_000_000
STRANGER: Final = -1  # the number of every request of another tenant


class ProviderLoad:
    """What a provider's present load makes of a request; instants in nanoseconds.

    `strangers` are the requests of other tenants: when each comes, and how long it holds a slot.
    """

    def __init__(
        self,
        name: str,
        scene: Scene,
        born_ns: int,
        *,
        changes: Sequence[tuple[int, int]] = (),
        strangers: Sequence[tuple[int, int]] = (),
    ) -> None:
        maker, conditions = scene.world.providers[name], scene.conditions
        self.in_flight = 0
        half = conditions.halved.get(name)
        self.batch = None if half is None else SharedBatch(half, maker.slots)
        lined_up = maker.slots and self.batch is None
        self.queue = ServiceQueue(maker.slots or 0, changes) if lined_up else None
        self._served: dict[int, QueueEntry] = {}  # our own entries in the queue, by ticket
        self._strangers = strangers
        self._next = 0
        self._bucket = None if maker.rate is None else Bucket(maker.rate)
        self._most = conditions.most
        self._refused = 0  # refusals that are still under way to us
        cold = conditions.cold if conditions.cold and name in conditions.cold.providers else None
        self._idle_ns = None if cold is None else round(cold.idle_s * NS)
        self._start_ns = 0 if cold is None else round(cold.start_s * NS)
        self._idle_since_ns = born_ns
        self._warm_ns = born_ns

    def begins(self, now_ns: int) -> float | None:
        """Count an attempt; return None if it is taken in, else the wait that is asked for.

        A refusal that asks for no wait is 0.
        """
        self.in_flight += 1
        self._meet(now_ns)
        if self._most is not None and self.in_flight - self._refused > self._most:
            self._refused += 1
            return 0.0
        wait_s = None if self._bucket is None else self._bucket.take(now_ns)
        if wait_s is not None:
            self._refused += 1
            return float(int(wait_s) + 1)
        return None

    def starts_ns(self, now_ns: int) -> int:
        """Return the time that a cold target takes to start, or still takes; 0 if it is warm."""
        if self._idle_ns is None:
            return 0
        rest_ns = self._rest_ns(now_ns, self.in_flight - 1)
        self._warm_ns = max(self._warm_ns, now_ns + rest_ns)
        return rest_ns

    def enter(self, ticket: int, now_ns: int, first_ns: int, decode_ns: int) -> int:
        """Take a request into the queue or the batch; return how long it waits."""
        if self.batch is not None:
            return self.batch.enter(ticket, now_ns, BatchWork(first_ns, decode_ns))
        if self.queue is None:
            return 0
        entry = self._served[ticket] = self.queue.enter(ticket, now_ns, first_ns + decode_ns)
        return entry.start_ns - now_ns

    def ends(self, ticket: int, now_ns: int, *, refused: bool, gone: bool) -> list[tuple[int, int]]:
        """Count the end of an attempt; return the tickets that start sooner, and by how much."""
        self.in_flight -= 1
        self._refused -= refused
        if self.in_flight == self._refused:
            self._idle_since_ns = now_ns
        if self.batch is not None:
            return self.batch.leave(ticket, now_ns)
        entry = self._served.pop(ticket, None)
        if entry is None or not gone or self.queue is None:
            return []
        self._meet(now_ns)
        return [move for move in self.queue.leave(entry, now_ns) if move[0] != STRANGER]

    # What only an oracle knows, and an engine's own metrics

    def refuses(self, now_ns: int) -> bool:
        """Return whether a request of now would be refused."""
        if self._most is not None and self.in_flight - self._refused >= self._most:
            return True
        return self._bucket is not None and self._bucket.empty(now_ns)

    def wait_ns(self, now_ns: int) -> int:
        """Return how long a request of now would wait for a slot and for a cold start."""
        self._meet(now_ns)
        rest_ns = 0 if self._idle_ns is None else self._rest_ns(now_ns, self.in_flight)
        lined_up = self.queue or self.batch
        return rest_ns + (0 if lined_up is None else lined_up.wait_ns(now_ns))

    def slower(self, now_ns: int) -> float:
        """Return how many times as long a token of a request of now takes as one alone."""
        return 1.0 if self.batch is None else self.batch.slower(now_ns)

    def busy(self, now_ns: int) -> int:
        """Return the requests that the engine itself counts, those of other tenants included."""
        self._meet(now_ns)
        lined_up = self.queue or self.batch
        return self.in_flight if lined_up is None else lined_up.busy(now_ns)

    def _rest_ns(self, now_ns: int, others: int) -> int:
        if now_ns < self._warm_ns:
            return self._warm_ns - now_ns
        asleep = self._idle_ns is not None and now_ns - self._idle_since_ns > self._idle_ns
        return self._start_ns if asleep and not others else 0

    def _meet(self, now_ns: int) -> None:
        """Let the requests of other tenants that have come by now into the queue."""
        strangers, queue = self._strangers, self.queue
        while self._next < len(strangers) and queue is not None:
            at_ns, service_ns = strangers[self._next]
            if at_ns > now_ns:
                break
            queue.enter(STRANGER, at_ns, service_ns)
            self._next += 1
