from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bench.test_rules import worked
from lightgate.ledger.runs.run import CellSummary, Run
from lightgate.ledger.runs.samples import Samples, in_windows, load_of, untold

SEND = 1_000_000_000  # of every worked request
CELL = CellSummary(target="lab/s1", load="c=1", concurrency=1, requests=1)


def run(**facts: Any) -> Run:
    cell = msgspec.structs.replace(CELL, **facts)
    return Run(id="r-1", started="2026-11-15T10:00:00Z", cells=(cell,))


@pytest.mark.parametrize(
    ("windows", "counted"),
    [
        (((SEND, SEND + 1),), True),
        (((SEND - 9, SEND),), False),  # a window ends before its second instant
        (((SEND + 1, SEND + 9),), False),
        (((0, 9), (SEND - 1, SEND + 1)), True),
        ((), True),
        (None, True),
    ],
)
def test_what_was_sent_in_a_window_counts(windows: Any, counted: bool) -> None:
    attempt, recording = worked()
    assert Samples(run(windows_ns=windows)).counts(attempt, recording) is counted


def test_warm_up_never_counts() -> None:
    attempt, recording = worked()
    warm = msgspec.structs.replace(recording, warmup=True)
    assert not Samples(run(windows_ns=((SEND, SEND + 1),))).counts(attempt, warm)
    assert not Samples(run()).counts(attempt, warm)


def test_a_cell_that_the_run_does_not_have_counts_everything() -> None:
    attempt, recording = worked(target="lab/other")
    assert Samples(run(windows_ns=((0, 1),))).counts(attempt, recording)


def test_a_plan_counts_by_its_instants() -> None:
    attempt = msgspec.structs.replace(worked()[0], t_plan_ns=SEND - 50)
    recording = msgspec.structs.replace(worked()[1], load="20/s constant")
    windows = ((SEND - 50, SEND),)
    facts = {"load": "20/s constant", "concurrency": None}
    assert Samples(run(windows_ns=windows, **facts)).counts(attempt, recording)
    assert not in_windows(attempt, windows)
    unplanned = msgspec.structs.replace(attempt, t_plan_ns=None)
    assert not in_windows(unplanned, windows, planned=True)


def test_what_was_never_sent_failed_and_counts() -> None:
    attempt = msgspec.structs.replace(worked()[0], t_send_ns=None, t_plan_ns=None)
    assert in_windows(attempt, ((0, 1),))


def test_the_load_is_the_recordings_or_the_concurrency() -> None:
    attempt, recording = worked()
    assert load_of(attempt, msgspec.structs.replace(recording, load="x2")) == "x2"
    assert load_of(attempt, None) == "c=1"
    assert load_of(msgspec.structs.replace(attempt, concurrency=None), None) == ""


def test_an_older_file_that_counted_fewer_does_not_tell() -> None:
    pairs = [worked(f"a-{at}") for at in range(2)]
    attempts, known = [a for a, _ in pairs], {r.id: r for _, r in pairs}
    assert untold(run(), attempts, known)
    assert not untold(run(requests=2), attempts, known)
    assert not untold(run(windows_ns=()), attempts, known)
    assert not untold(Run(id="r", started="now"), attempts, known)


def test_a_run_without_windows_is_still_read() -> None:
    text = msgspec.json.encode(run())
    known = msgspec.json.decode(text)
    del known["cells"][0]["windows_ns"]
    assert msgspec.json.decode(msgspec.json.encode(known), type=Run) == run()
    assert msgspec.json.decode(msgspec.json.encode(run(windows_ns=((1, 2),))), type=Run) == run(
        windows_ns=((1, 2),)
    )
