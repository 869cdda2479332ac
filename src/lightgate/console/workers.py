"""What the workers say about themselves once a second, and what the system says about processes.

Gauges are those of the workers that live. Counters are added up over all lives of a worker: a
worker that is replaced begins at zero again, and what its predecessor had counted stays.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.gateway.exchange.load import LAG_BOUNDS_NS
from lightgate.gateway.process.gauges import read_gauges

if TYPE_CHECKING:
    from lightgate.clock.source import Clock
    from lightgate.gateway.process.gauges import WorkerGauges

FRESH_NS: Final = 5_000_000_000  # a worker that was silent for longer is not shown
GONE_NS: Final = 60_000_000_000  # the file of a worker that was silent for longer is removed
_PROC: Final = Path("/proc")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_BEATS: Final = len(LAG_BOUNDS_NS) + 1


class ProcessFacts(NamedTuple):
    """One process as the kernel sees it; `most_files` is its limit."""

    open_files: int
    most_files: int
    resident_bytes: int
    cpu_s: float


class WorkerBeats:
    """The beats of one worker's loop, by how late they were."""

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * _BEATS
        self.total_ns = 0

    def gain(self, now: WorkerGauges, before: WorkerGauges | None) -> None:
        """Add what a worker has counted since its last file."""
        old = (0,) * _BEATS if before is None else before.lags
        if len(now.lags) == len(old) == _BEATS:
            self.counts = [
                count + new - gone
                for count, new, gone in zip(self.counts, now.lags, old, strict=True)
            ]
            self.total_ns += now.lag_total_ns - (0 if before is None else before.lag_total_ns)


class Workers:
    """The gauges of all workers, and counters over all their lives.

    `now` are the gauges of the workers that live; of two with one number, the one that leaves and
    the one that takes its place, both are there.
    """

    def __init__(self, data: Path, clock: Clock) -> None:
        self._data = data
        self._clock = clock
        self._before: dict[Path, WorkerGauges] = {}
        self.now: list[WorkerGauges] = []
        self.shed: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.lags: dict[int, WorkerBeats] = {}
        self.lock = threading.Lock()  # held while the counters are changed or read

    def look(self) -> None:
        """Read the files of all workers, and remove those of workers that are long gone."""
        now_ns = self._clock.now_ns()
        found = read_gauges(self._data)
        with self.lock:
            self.now = []
            for path, gauges in found:
                self._gain(gauges, self._before.get(path))
                age_ns = now_ns - gauges.at_ns  # below zero: of a life before the machine's restart
                if 0 <= age_ns < FRESH_NS:
                    self.now.append(gauges)
                elif not 0 <= age_ns < GONE_NS:
                    path.unlink(missing_ok=True)
            self._before = dict(found)

    def written(self) -> dict[str, int]:
        """The bytes of notes in the journals that are being written."""
        return {gauges.journal: gauges.journal_bytes for gauges in self.now}

    def _gain(self, now: WorkerGauges, before: WorkerGauges | None) -> None:
        for counter, new, old in (
            (self.shed, now.shed, {} if before is None else before.shed),
            (self.turns, now.turns, {} if before is None else before.turns),
            (self.refused, now.refused, {} if before is None else before.refused),
        ):
            for name, count in new.items():
                counter[name] += count - old.get(name, 0)
        self.lags.setdefault(now.worker, WorkerBeats()).gain(now, before)


def process_facts(pid: int) -> ProcessFacts | None:
    """What the kernel says about a process; None where it is gone or the system has no /proc."""
    try:
        files = sum(1 for _ in (_PROC / str(pid) / "fd").iterdir())
        limits = (_PROC / str(pid) / "limits").read_text()
        most = limits.partition("Max open files")[2].split()[0]
        resident = int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
        spent = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[11:13]
    except (OSError, IndexError, ValueError):
        return None
    most_files = 0
    with contextlib.suppress(ValueError):  # "unlimited"
        most_files = int(most)
    return ProcessFacts(files, most_files, resident, sum(map(int, spent)) / _TICKS)
