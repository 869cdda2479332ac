from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens
from lightgate.errors import ConfigError, UsageError
from lightgate.ledger.runs.folder import ATTEMPTS, BURSTS, RUN, DiskFailed, RunFolder
from lightgate.ledger.runs.recording import Recording
from lightgate.ledger.runs.run import SCHEMA, CellSummary, Estimate, Run

if TYPE_CHECKING:
    from pathlib import Path

RUN_RECORD = Run(
    id="r", started="2026-11-15T00:00:00Z", cells=(CellSummary(target="x/m", load="c=1"),)
)


def measured(number: int) -> tuple[AttemptRecord, Recording]:
    marks = Marks(plan=100, stamp_source="kernel")
    marks.send = 1_000
    marks.burst(5_000, 4_000, 1, 4, -1, 1)
    marks.burst(9_000, 9_000, 2, 8, -1, 3)
    marks.finish = marks.end = 9_500
    marks.closed = 9_900
    marks.dispatch_lag_ns = 40
    facts = AttemptFacts(
        id=f"a{number}",
        exchange_id="e",
        source="bench",
        target="x/m",
        provider="x",
        model="m",
        dialect="openai",
        outcome=Outcome.OK,
        wall_ns=0,
    )
    attempt = AttemptRecord.of(
        facts, marks, Tokens(out=3, streamed=3, source="usage", first_burst=1)
    )
    return attempt, Recording.of(attempt.id, marks, block=2, load="c=1", max_tokens=7)


def test_a_recording_keeps_the_bursts_after_the_send() -> None:
    _, recording = measured(1)
    assert list(recording.at_ns) == [4_000, 8_000]
    assert list(recording.since_ns) == [3_000, 8_000]
    assert (recording.pieces, recording.weight, recording.kinds) == ((1, 2), (4, 8), (1, 3))
    assert (recording.finish_ns, recording.closed_ns) == (8_500, 8_900)
    assert (recording.block, recording.load, recording.max_tokens) == (2, "c=1", 7)
    assert (recording.lag_ns, recording.headers_bound_ns) == (40, None)
    assert Recording.from_line(recording.to_line()) == recording


def test_what_was_written_is_read(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    pairs = [measured(n) for n in range(3)]
    for attempt, recording in pairs:
        folder.append(attempt, recording)
    folder.write_run(RUN_RECORD)
    again = RunFolder(folder.path)
    assert again.run() == RUN_RECORD
    assert again.attempts() == [attempt for attempt, _ in pairs]
    assert again.recordings() == {recording.id: recording for _, recording in pairs}


def test_a_line_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    attempt, recording = measured(1)
    folder.append(attempt, recording)
    for name in (ATTEMPTS, BURSTS):
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"id":"half')
    assert folder.attempts() == [attempt]
    assert list(folder.recordings()) == [recording.id]


def test_an_empty_folder_has_no_attempts(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).attempts() == []


def test_a_run_is_not_overwritten_by_accident(tmp_path: Path) -> None:
    RunFolder.create(tmp_path).write_run(RUN_RECORD)
    with pytest.raises(UsageError, match="holds a run already"):
        RunFolder.create(tmp_path)
    assert RunFolder.create(tmp_path, resume=True).run() == RUN_RECORD


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (None, UsageError, "holds no run"),
        (b"not json", ConfigError, "not JSON"),
        (b'{"id": 3}', ConfigError, "is no run"),
        (
            msgspec.json.encode(msgspec.structs.replace(RUN_RECORD, schema=SCHEMA + 1)),
            ConfigError,
            "newer Lightgate",
        ),
    ],
)
def test_what_is_no_run_is_said(
    tmp_path: Path, content: bytes | None, error: type[Exception], said: str
) -> None:
    if content is not None:
        (tmp_path / RUN).write_bytes(content)
    with pytest.raises(error, match=said):
        RunFolder(tmp_path).run()


def test_a_full_disk_is_said_and_what_is_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path)
    first, recording = measured(1)
    folder.append(first, recording)

    def no_room(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", no_room)
    with pytest.raises(DiskFailed, match="No space left"):
        folder.append(*measured(2))
    monkeypatch.undo()
    assert folder.attempts() == [first]


def test_a_line_that_the_disk_took_in_part_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path)
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:-1]))
    with pytest.raises(DiskFailed, match="cannot be written: the disk is full"):
        folder.append(*measured(1))


def test_answers_to_cases_are_lines_that_are_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    first, second = (Estimate(q=0.5, n=n) for n in (1, 2))
    folder.write_answers([first, second])
    folder.write_answers([second, first])
    lines = (tmp_path / "checks.jsonl").read_bytes().splitlines(keepends=True)
    assert [msgspec.json.decode(line, type=Estimate) for line in lines] == [second, first]
    assert all(line.endswith(b"}\n") for line in lines)


def test_a_place_where_no_folder_can_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file/run cannot be made: Not a directory"):
        RunFolder.create(tmp_path / "file" / "run")
    with pytest.raises(DiskFailed, match=r"checks\.jsonl cannot be written: Not a directory"):
        RunFolder(tmp_path / "file").write_answers([])
