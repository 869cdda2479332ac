"""What a report is made from: the run, and the attempts and recordings that belong to its cells."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from lightgate.ledger.runs.samples import Samples, untold

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.clock.outcome import Outcome
    from lightgate.ledger.runs.folder import RunFolder
    from lightgate.ledger.runs.recording import Recording
    from lightgate.ledger.runs.run import Run

Cell = tuple[str, str]  # target, load


class Material(NamedTuple):
    """A run with the samples that its tables are made of, by cell.

    `untold` where it is an older file that does not say which they are: all but warm-up, then.
    """

    run: Run
    by_cell: Mapping[Cell, list[AttemptRecord]]
    recordings: Mapping[str, Recording]
    untold: bool = False


class ErrorText(NamedTuple):
    """What a target said when it failed, and how often."""

    target: str
    outcome: str
    status: int | None
    text: str
    times: int


def read(folder: RunFolder) -> Material:
    """Read the three files of a run."""
    return gather(folder.run(), folder.attempts(), folder.recordings())


def gather(
    run: Run, attempts: Iterable[AttemptRecord], recordings: Mapping[str, Recording]
) -> Material:
    """Put every attempt that counts to its cell.

    Its recording names the load, else its concurrency does.
    """
    attempts, samples = list(attempts), Samples(run)
    closed = {(c.target, c.concurrency): c.load for c in run.cells if c.concurrency is not None}
    by_cell: dict[Cell, list[AttemptRecord]] = {}
    for attempt in attempts:
        recording = recordings.get(attempt.id)
        if not samples.counts(attempt, recording):
            continue
        load = "" if recording is None else recording.load
        if not load and attempt.concurrency is not None:
            load = closed.get((attempt.target, attempt.concurrency), "")
        if load:
            by_cell.setdefault((attempt.target, load), []).append(attempt)
    return Material(run, by_cell, recordings, untold(run, attempts, recordings))


def error_texts(material: Material, most: int = 20) -> list[ErrorText]:
    """Return the most frequent error texts."""
    counted: Counter[tuple[str, Outcome, int | None, str]] = Counter()
    for (target, _), attempts in material.by_cell.items():
        for attempt in attempts:
            if attempt.outcome.is_failure:
                counted[target, attempt.outcome, attempt.status, attempt.error or ""] += 1
    return [
        ErrorText(target, outcome.value, status, text, count)
        for (target, outcome, status, text), count in counted.most_common(most)
    ]
