"""The processor time that the client itself takes, over the run and over each load."""

from __future__ import annotations

import resource
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class ClientCpu:
    """Adds up the processor time of this process, and of load processes that have ended.

    `shares` has for each load how busy the busiest core of the client was, from 0 to 1: that of
    this process, or those of the load processes on average. `machine` is how busy all cores of the
    machine were, whoever kept them so.
    """

    def __init__(self) -> None:
        self._began_ns = time.process_time_ns()
        self.shares: dict[str, float] = {}
        self.machine: dict[str, float] = {}

    def spent_ns(self) -> int:
        """Processor time of this process since the begin."""
        return time.process_time_ns() - self._began_ns

    @contextmanager
    def over(self, load: str, processes: int) -> Iterator[None]:
        """Measure a load; of several times the same one, the busiest time counts."""
        wall, own, others = time.monotonic(), time.process_time(), _children_s()
        ticks = machine_ticks()
        try:
            yield
        finally:
            lasted = max(time.monotonic() - wall, 1e-9)
            mine, theirs = time.process_time() - own, (_children_s() - others) / processes
            self.shares[load] = max(self.shares.get(load, 0.0), max(mine, theirs) / lasted)
            busy, every = (now - then for now, then in zip(machine_ticks(), ticks, strict=True))
            if every > 0:
                self.machine[load] = max(self.machine.get(load, 0.0), busy / every)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def machine_ticks(stat: Path = Path("/proc/stat")) -> tuple[int, int]:
    """Ticks for which the cores of this machine were busy, and all ticks; 0 where it is not told.

    Idle is what waits for a disk too. Time that a hypervisor took is busy: the client did not have
    it.
    """
    try:
        first = stat.read_text("ascii").partition("\n")[0]
    except OSError:
        return 0, 0
    ticks = [int(word) for word in first.split()[1:9]]  # what guests took is in user time already
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)
