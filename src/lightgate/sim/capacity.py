"""Known limits of a provider: a queue with c slots and a token bucket over requests.

The whole schedule of a request is known when it arrives, so its slot's end is known too: the queue
is computed, not waited in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightgate.sim.world import WorldRate


class Slots:
    """First come, first served on a fixed number of slots."""

    def __init__(self, count: int) -> None:
        self._free_ns: list[int] = [0] * count

    def start(self, now_ns: int) -> tuple[int, int]:
        """The slot that is free first, and the instant at which a request of now begins in it."""
        free = self._free_ns
        slot = free.index(min(free))
        return slot, max(now_ns, free[slot])

    def hold(self, slot: int, until_ns: int) -> None:
        """The slot is taken until then."""
        self._free_ns[slot] = until_ns

    def release(self, slot: int, held_until_ns: int, now_ns: int) -> None:
        """An abandoned request gives its slot back, unless a later one is planned into it."""
        if self._free_ns[slot] == held_until_ns:
            self._free_ns[slot] = min(held_until_ns, now_ns)


class Bucket:
    """A token bucket over requests."""

    def __init__(self, rate: WorldRate) -> None:
        self._rate = rate
        self._level = float(rate.burst)
        self._seen_ns: int | None = None

    def take(self, now_ns: int) -> float | None:
        """None if the request may pass, else the seconds until one would."""
        if self._seen_ns is not None:
            gained = max(now_ns - self._seen_ns, 0) * 1e-9 * self._rate.per_s
            self._level = min(self._level + gained, float(self._rate.burst))
        self._seen_ns = max(now_ns, self._seen_ns or now_ns)
        if self._level >= 1.0:
            self._level -= 1.0
            return None
        return (1.0 - self._level) / self._rate.per_s
