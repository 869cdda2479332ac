"""Which attempts of a run its numbers are made of: the same for tables, charts, files and verdicts.

A cell counts the requests that were sent (open loop: planned) inside its steady windows; what came
before, the ramp, is cut off like the warm-up. The windows are in run.json, so whoever reads a run
again takes the very samples that its tables were made of.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.recording import Recording
    from lightgate.ledger.runs.run import Run

UNTOLD: Final = (
    "was written before runs kept which requests their tables count; the ramp is taken in here"
)


class Samples:
    """Says of every attempt of a run whether the numbers of its cell are made of it."""

    def __init__(self, run: Run) -> None:
        self._cells = {(cell.target, cell.load): cell for cell in run.cells}

    def counts(self, attempt: AttemptRecord, recording: Recording | None) -> bool:
        """Return whether an attempt counts; without windows all but warm-up do.

        That is so where nothing was cut off, where a run has no cells (another tool's file), and in
        older files: see `untold`.
        """
        if recording is not None and recording.warmup:
            return False
        cell = self._cells.get((attempt.target, load_of(attempt, recording)))
        if cell is None or not cell.windows_ns:
            return True
        return in_windows(attempt, cell.windows_ns, planned=cell.concurrency is None)


def untold(
    run: Run, attempts: Iterable[AttemptRecord], recordings: Mapping[str, Recording]
) -> bool:
    """Whether a cell of an older file was made of fewer requests than are found for it now."""
    old = {(cell.target, cell.load): cell.requests for cell in run.cells if cell.windows_ns is None}
    if not old:
        return False
    samples, found = Samples(run), Counter[tuple[str, str]]()
    for attempt in attempts:
        recording = recordings.get(attempt.id)
        if samples.counts(attempt, recording):
            found[attempt.target, load_of(attempt, recording)] += 1
    return any(found[cell] > requests for cell, requests in old.items())


def in_windows(
    attempt: AttemptRecord, windows_ns: Sequence[tuple[int, int]], *, planned: bool = False
) -> bool:
    """Whether one request belongs to the windows; see `inside`."""
    return bool(inside((attempt,), windows_ns, planned=planned))


def inside(
    attempts: Iterable[AttemptRecord],
    windows_ns: Sequence[tuple[int, int]],
    *,
    planned: bool = False,
) -> list[AttemptRecord]:
    """Keep the requests that belong to the windows: by their send, or by their planned instant.

    A request that was never sent has no place in time, and belongs: it failed.
    """
    kept = []
    for attempt in attempts:
        at = attempt.t_plan_ns if planned else attempt.t_send_ns
        at = attempt.t_send_ns if at is None else at
        if at is None:
            kept.append(attempt)
            continue
        for start, stop in windows_ns:
            if start <= at < stop:
                kept.append(attempt)
                break
    return kept


def load_of(attempt: AttemptRecord, recording: Recording | None) -> str:
    """Return the load of an attempt's cell, as `CellSummary.load` has it."""
    if recording is not None and recording.load:
        return recording.load
    return "" if attempt.concurrency is None else f"c={attempt.concurrency}"
