"""What the workers say about themselves once a second, and what the system says about processes.

Gauges are those of the workers that live. Counters are added up over all lives of a worker: a
worker that is replaced begins at zero again, and what its predecessor had counted stays. A process
and its successor have one place, and one series, also while both run.
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
    from collections.abc import Callable, Sequence

    from lightgate.clock.source import Clock
    from lightgate.gateway.process.gauges import WorkerGauges
    from lightgate.gateway.process.lock import ChildState

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


class ChildSeries(NamedTuple):
    """A place among the processes of `lightgate up`: what runs there now, added up.

    `cpu_s` is that of all processes that had the place while this one looked.
    """

    name: str
    up: bool
    restarts: int
    facts: ProcessFacts | None
    cpu_s: float | None


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

    `now` are the gauges of the workers that live. Of the one that leaves and the one that takes its
    place both are there. A worker that died is not, once another has its number.
    """

    def __init__(
        self, data: Path, clock: Clock, facts: Callable[[int], ProcessFacts | None] | None = None
    ) -> None:
        self._data = data
        self._clock = clock
        self._facts = facts or process_facts
        self._cpu: dict[str, dict[int, float]] = {}  # by place and process
        self._cpu_gone: dict[str, float] = {}  # of those that have ended
        self._looking = threading.Lock()  # an older look that ends later would take counts back
        self._before: dict[Path, WorkerGauges] = {}
        self.now: list[WorkerGauges] = []
        self._written: dict[str, int] = {}
        self.shed: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.lags: dict[int, WorkerBeats] = {}
        self.lock = threading.Lock()  # held while the counters are changed or read

    def look(self) -> None:
        """Read the files of all workers, and remove those of workers that are long gone.

        Looks take turns: of two at once, the one that has read less might end last.
        """
        with self._looking:
            now_ns = self._clock.now_ns()
            found = read_gauges(self._data)
            with self.lock:
                fresh: dict[int, WorkerGauges] = {}  # by number: no two that live have the same
                written: dict[str, int] = {}
                for path, gauges in found:
                    self._gain(gauges, self._before.get(path))
                    self._before[path] = gauges
                    age_ns = now_ns - gauges.at_ns  # below zero: before the machine's restart
                    if 0 <= age_ns < FRESH_NS:
                        written[gauges.journal] = gauges.journal_bytes
                        other = fresh.get(gauges.worker)
                        if other is None or other.at_ns <= gauges.at_ns:
                            fresh[gauges.worker] = gauges
                    elif not 0 <= age_ns < GONE_NS:
                        with contextlib.suppress(OSError):  # it is looked at again
                            path.unlink(missing_ok=True)
                self.now, self._written = list(fresh.values()), written
                # A file that could not be read this time is no life that begins at zero next time.
                here = {path for path, _ in found}
                self._before = {
                    path: gauges
                    for path, gauges in self._before.items()
                    if path in here or 0 <= now_ns - gauges.at_ns < GONE_NS
                }

    def children(self, states: Sequence[ChildState]) -> list[ChildSeries]:
        """Look at the processes of a supervisor: one series for each place."""
        with self._looking:
            places: dict[str, list[ChildState]] = {}
            for state in states:
                places.setdefault(state.name, []).append(state)
            return [self._series(name, found) for name, found in places.items()]

    def written(self) -> dict[str, int]:
        """The bytes of notes in the journals that are being written."""
        return self._written

    def _gain(self, now: WorkerGauges, before: WorkerGauges | None) -> None:
        for counter, new, old in (
            (self.shed, now.shed, {} if before is None else before.shed),
            (self.turns, now.turns, {} if before is None else before.turns),
            (self.refused, now.refused, {} if before is None else before.refused),
        ):
            for name, count in new.items():
                counter[name] += count - old.get(name, 0)
        self.lags.setdefault(place_of(now), WorkerBeats()).gain(now, before)

    def _series(self, name: str, states: Sequence[ChildState]) -> ChildSeries:
        pids = [state.pid for state in states if state.pid is not None]
        known = {pid: facts for pid in pids if (facts := self._facts(pid)) is not None}
        spent = self._cpu.setdefault(name, {})
        for pid in [pid for pid in spent if pid not in pids]:  # not read this time is not gone
            self._cpu_gone[name] = self._cpu_gone.get(name, 0.0) + spent.pop(pid)
        spent.update((pid, max(facts.cpu_s, spent.get(pid, 0.0))) for pid, facts in known.items())
        cpu_s = self._cpu_gone.get(name, 0.0) + sum(spent.values())
        return ChildSeries(
            name=name,
            up=any(state.ready for state in states),
            restarts=max(state.restarts for state in states),
            facts=_added(list(known.values())),
            cpu_s=cpu_s if spent or name in self._cpu_gone else None,
        )


def place_of(gauges: WorkerGauges) -> int:
    """A worker's place, by which its series are named; workers without a supervisor have none."""
    return gauges.worker if gauges.place is None else gauges.place


def _added(facts: Sequence[ProcessFacts]) -> ProcessFacts | None:
    """What the processes of one place have together; no limit where one of them has none."""
    if not facts:
        return None
    most = [each.most_files for each in facts]
    return ProcessFacts(
        open_files=sum(each.open_files for each in facts),
        most_files=sum(most) if all(most) else 0,
        resident_bytes=sum(each.resident_bytes for each in facts),
        cpu_s=sum(each.cpu_s for each in facts),
    )


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
