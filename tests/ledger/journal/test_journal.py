from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.notes import T0, reserved, settled
from lightgate.ledger.journal.journal import (
    Frames,
    Journal,
    JournalFailed,
    alive,
    journals,
    life_of,
    read_frames,
)
from lightgate.ledger.journal.notes import VERSION, Announced, Note, Opened, Settled

NOTES: list[Note] = [reserved("x-1"), settled("x-1"), Announced("x-2", T0), settled("x-2")]


def written(folder: Path) -> bytes:
    journal = Journal(folder, 3, now=lambda: T0)
    for note in NOTES:
        journal.write(note)
    journal.close()
    return journal.path.read_bytes()


with tempfile.TemporaryDirectory() as name:
    DATA = written(Path(name))
OPENED = Opened(VERSION, 3, os.getpid(), T0)


def read(path: Path, data: bytes) -> tuple[list[Note], Frames]:
    path.write_bytes(data)
    frames = Frames(path)
    return [note for note, _ in frames], frames


def test_what_was_written_is_read(tmp_path: Path) -> None:
    notes, frames = read(tmp_path / "j", DATA)
    assert notes == [OPENED, *NOTES]
    assert (frames.offset, frames.torn, frames.damaged) == (len(DATA), False, False)


def test_reading_goes_on_from_any_offset(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(DATA)
    places = [offset for _, offset in read_frames(path)]
    for at, offset in enumerate(places):
        assert [note for note, _ in read_frames(path, offset)] == NOTES[at:]


def test_frames_larger_than_a_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    large = settled("x-1", tags="t" * 3_000_000)
    for note in (NOTES[0], large, NOTES[1]):
        journal.write(note)
    journal.close()
    assert [note for note, _ in read_frames(journal.path)][1:] == [NOTES[0], large, NOTES[1]]


@given(st.integers(0, len(DATA) - 1))
@settings(max_examples=300)
def test_any_truncation_gives_a_prefix(length: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        notes, frames = read(Path(folder) / "j", DATA[:length])
    assert notes == [OPENED, *NOTES][: len(notes)]
    assert frames.torn == (frames.offset < length)
    assert not frames.damaged


@given(st.integers(0, len(DATA) * 8 - 1))
@settings(max_examples=500)
def test_any_flipped_bit_ends_the_file_there(bit: int) -> None:
    changed = bytearray(DATA)
    changed[bit // 8] ^= 1 << bit % 8
    with tempfile.TemporaryDirectory() as folder:
        notes, frames = read(Path(folder) / "j", bytes(changed))
    assert notes == [OPENED, *NOTES][: len(notes)]
    assert len(notes) < len(NOTES) + 1
    assert frames.offset <= bit // 8
    assert frames.torn or frames.damaged


@given(st.binary(max_size=200))
def test_anything_else_is_no_note(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        notes, frames = read(Path(folder) / "j", data)
    assert notes == []
    assert frames.torn or frames.damaged or not data.strip(b"\0")


def test_room_that_was_never_written_to_is_no_note(tmp_path: Path) -> None:
    notes, frames = read(tmp_path / "j", DATA + bytes(4096))
    assert notes == [OPENED, *NOTES]
    assert (frames.offset, frames.torn, frames.damaged) == (len(DATA), False, False)


def test_a_note_without_its_head_is_torn(tmp_path: Path) -> None:
    """Killed between the copy of the note and the store of its head."""
    notes, frames = read(tmp_path / "j", DATA + bytes(8) + b"half of a note" + bytes(4096))
    assert notes == [OPENED, *NOTES]
    assert (frames.offset, frames.torn, frames.damaged) == (len(DATA), True, False)


def test_a_killed_writer_leaves_whole_notes_and_zeros(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    for note in NOTES:
        journal.write(note)
    data = journal.path.read_bytes()  # as a killed process leaves it
    journal.close()
    assert len(data) > len(journal.path.read_bytes())
    notes, frames = read(tmp_path / "j", data)
    assert notes[1:] == NOTES
    assert (frames.torn, frames.damaged) == (False, False)


def test_the_writer_holds_its_file_while_it_lives(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    assert alive(journal.path)
    journal.close()
    assert not alive(journal.path)
    assert not alive(tmp_path / "never")
    with pytest.raises(JournalFailed, match="is closed"):
        journal.write(NOTES[0])
    journal.close()


def test_rotation_keeps_the_life_and_the_lock(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 7, rotate_bytes=1200)
    for _ in range(4):
        for note in NOTES:
            journal.write(note)
    paths = journals(tmp_path)
    assert len(paths) > 2
    assert {life_of(path) for path in paths} == {journal.life}
    assert [alive(path) for path in paths] == [False] * (len(paths) - 1) + [True]
    notes = [note for path in paths for note, _ in read_frames(path)]
    assert [note for note in notes if not isinstance(note, Opened)] == NOTES * 4
    journal.close()
    assert not any(tmp_path.glob("*.new"))


def test_a_folder_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalFailed, match="No journal can be made"):
        Journal(tmp_path / "file" / "journal", 0)


def run(script: str, *arguments: str) -> str:
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True, text=True, check=True, timeout=100,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    return made.stdout


FULL = """
    import resource, sys
    from pathlib import Path
    from ledger.notes import settled
    from lightgate.ledger.journal.journal import Journal, JournalFailed

    folder = Path(sys.argv[1])
    journal = Journal(folder, 0)
    limit = journal.path.stat().st_size + 2500  # blocks are taken ahead
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    kept = failed = 0
    for at in range(60):
        try:
            journal.write(settled(f"x-{at}", tags="t" * 40_000))
            kept += 1
        except JournalFailed as error:
            failed += 1
            assert "disk is full" in error.message or "cannot be written" in error.message
    assert failed
    assert journal.short and not journal.regain()
    assert kept > 40  # two megabytes had been taken ahead
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert journal.regain() and not journal.short
    journal.write(settled("after"))
    print(kept)
"""


def test_a_full_disk_loses_only_what_it_refused(tmp_path: Path) -> None:
    kept = int(run(FULL, str(tmp_path)))
    (path,) = tmp_path.glob("*.lgj")
    frames = Frames(path)
    ids = [note.exchange.id for note, _ in frames if isinstance(note, Settled)]
    assert ids == [*(f"x-{at}" for at in range(kept)), "after"]
    assert (frames.torn, frames.damaged) == (False, False)


FULL_FROM_THE_START = """
    import resource, sys
    from pathlib import Path
    from ledger.notes import settled
    from lightgate.ledger.journal.journal import Journal, JournalFailed

    endless = resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, endless))
    journal = Journal(Path(sys.argv[1]), 0)
    assert journal.short and not journal.regain()
    try:
        journal.write(settled("refused"))
    except JournalFailed as failure:
        print(failure.message)
    resource.setrlimit(resource.RLIMIT_FSIZE, (endless, endless))
    assert journal.regain()
    journal.write(settled("after"))
    journal.close()
    assert not journal.regain()
"""


def test_a_journal_that_begins_on_a_full_disk_is_made_when_there_is_room(tmp_path: Path) -> None:
    assert run(FULL_FROM_THE_START, str(tmp_path)) == "The disk is full.\n"
    (path,) = tmp_path.iterdir()
    notes = [note for note, _ in read_frames(path) if isinstance(note, Settled)]
    assert [note.exchange.id for note in notes] == ["after"]


def test_a_full_disk_puts_a_rotation_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, 0, rotate_bytes=1000)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", full)
        for at in range(20):
            journal.write(settled(f"x-{at}"))
    journal.write(settled("x-20"))
    journal.close()
    paths = journals(tmp_path)
    notes = [note for path in paths for note, _ in read_frames(path) if isinstance(note, Settled)]
    assert [note.exchange.id for note in notes] == [f"x-{at}" for at in range(21)]
    assert len(paths) == 2


def test_random_appends_after_random_cuts(tmp_path: Path) -> None:
    """A reader that stopped at a torn tail finds the rest once it is there."""
    draw = random.Random(4)  # noqa: S311 - the same cuts every time
    path = tmp_path / "j"
    found: list[Note] = []
    offset = length = 0
    while length < len(DATA):
        length = min(len(DATA), length + draw.randrange(1, 200))
        path.write_bytes(DATA[:length])
        for note, place in read_frames(path, offset):
            found.append(note)
            offset = place
    assert found == [OPENED, *NOTES]
