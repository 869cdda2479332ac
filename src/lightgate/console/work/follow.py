"""Follow a benchmark while it runs: its attempts are read from the file that it appends to."""

from __future__ import annotations

from contextlib import suppress
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.clock.attempt import AttemptRecord
from lightgate.clock.outcome import FAILURES
from lightgate.clock.quantile import smallest_n
from lightgate.console.work.runs import folder_of, one_run
from lightgate.ledger.runs.folder import ATTEMPTS

if TYPE_CHECKING:
    from pathlib import Path

MOST_READ: Final = 8 * 1024 * 1024  # bytes at one look
_ENOUGH: Final = smallest_n(0.5)


class ProgressRow(msgspec.Struct, frozen=True, kw_only=True):
    """A target under a load so far: what ended, and the medians, once there are enough."""

    target: str
    load: str
    n: int
    failed: int
    ttft_p50_ms: float | None
    speed_p50_tps: float | None


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A run so far; requests of the ramp are counted too."""

    id: str
    state: str
    done: int
    total: int | None
    failed: int
    rows: list[ProgressRow]
    problem: str


class _Counted:
    def __init__(self) -> None:
        self.n = self.failed = 0
        self.ttft: list[float] = []
        self.speed: list[float] = []

    def row(self, target: str, load: str) -> ProgressRow:
        """What is known so far."""
        ttft = median(self.ttft) if len(self.ttft) >= _ENOUGH else None
        speed = median(self.speed) if len(self.speed) >= _ENOUGH else None
        return ProgressRow(
            target=target, load=load, n=self.n, failed=self.failed, ttft_p50_ms=ttft,
            speed_p50_tps=speed,
        )  # fmt: skip


class RunFollower:
    """Reads what a run has appended since the last look."""

    def __init__(self, data: Path, id_: str) -> None:
        self._data = data
        self._id = id_
        self._path = folder_of(data, id_) / ATTEMPTS
        self._at = 0
        self._rest = b""
        self._cells: dict[tuple[str, str], _Counted] = {}

    def look(self) -> RunProgress:
        """How far the run is now."""
        row = one_run(self._data, self._id).row  # its state first: it may end in between
        self._read()
        cells = [one.row(*place) for place, one in self._cells.items()]
        return RunProgress(
            id=self._id,
            state=row.state,
            done=sum(one.n for one in cells),
            total=row.total,
            failed=sum(one.failed for one in cells),
            rows=cells,
            problem=row.problem,
        )

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                news = file.read(MOST_READ)
        except OSError:
            return
        self._at += len(news)
        *lines, self._rest = (self._rest + news).split(b"\n")
        for line in lines:
            with suppress(ValueError):  # cut off by a kill, or damaged: the others still count
                self._count(AttemptRecord.from_line(line))

    def _count(self, attempt: AttemptRecord) -> None:
        load = "" if attempt.concurrency is None else f"c={attempt.concurrency}"
        cell = self._cells.setdefault((attempt.target, load), _Counted())
        cell.n += 1
        if attempt.outcome in FAILURES:
            cell.failed += 1
        if attempt.ttft_ms is not None:
            cell.ttft.append(attempt.ttft_ms)
        if attempt.speed_tps is not None:
            cell.speed.append(attempt.speed_tps)
