"""The processor time that the client itself takes, over the run and over each load."""

from __future__ import annotations

import resource
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class ClientCpu:
    """Adds up the processor time of this process, and of load processes that have ended.

    `shares` has for each load how busy the busiest core of the client was, from 0 to 1: that of
    this process, or those of the load processes on average.
    """

    def __init__(self) -> None:
        self._began_ns = time.process_time_ns()
        self.shares: dict[str, float] = {}

    def spent_ns(self) -> int:
        """Processor time of this process since the begin."""
        return time.process_time_ns() - self._began_ns

    @contextmanager
    def over(self, load: str, processes: int) -> Iterator[None]:
        """Measure a load; of several times the same one, the busiest time counts."""
        wall, own, others = time.monotonic(), time.process_time(), _children_s()
        try:
            yield
        finally:
            lasted = max(time.monotonic() - wall, 1e-9)
            mine, theirs = time.process_time() - own, (_children_s() - others) / processes
            self.shares[load] = max(self.shares.get(load, 0.0), max(mine, theirs) / lasted)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
