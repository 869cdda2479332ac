"""Journals that are cut off or written over under their writer: no note goes where nobody reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from full_disk import no_room
from ledger.notes import settled
from lightgate.ledger.journal.journal import (
    Journal,
    JournalDamaged,
    JournalFailed,
    alive,
    journals,
    read_frames,
)
from lightgate.ledger.journal.notes import VERSION, Opened, Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def cut_by_a_byte(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def zeroed(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))


DAMAGES = pytest.mark.parametrize("damage", [emptied, cut_by_a_byte, zeroed])


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path, 0)
    yield journal
    journal.close()


def ids(path: Path) -> list[str]:
    return [note.exchange.id for note, _ in read_frames(path) if isinstance(note, Settled)]


@DAMAGES
def test_a_note_is_refused_and_the_damage_is_said(
    made: Journal, damage: Callable[[Path], None]
) -> None:
    made.write(settled("x-1"))
    size = made.size
    damage(made.path)
    for _ in range(2):
        with pytest.raises(JournalDamaged, match="cut off or written over"):
            made.write(settled("x-2"))
        with pytest.raises(JournalDamaged, match="cut off or written over"):
            made.keep_in_place()
    assert (made.size, made.regain()) == (size, False)


@DAMAGES
def test_a_journal_that_has_only_its_first_note_is_looked_at_too(
    made: Journal, damage: Callable[[Path], None]
) -> None:
    damage(made.path)
    with pytest.raises(JournalDamaged):
        made.write(settled("x-1"))


@DAMAGES
def test_a_damaged_file_is_not_rotated(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    journal = Journal(tmp_path, 0, rotate_bytes=400)
    journal.write(settled("x-1"))
    assert journal.size >= 400
    damage(journal.path)
    with pytest.raises(JournalDamaged):
        journal.write(settled("x-2"))
    assert journals(tmp_path) == [journal.path]
    journal.close()


@DAMAGES
def test_a_note_that_needs_more_room_does_not_mend_a_damaged_file(
    made: Journal, damage: Callable[[Path], None]
) -> None:
    """Room is asked for behind the end; a file that is cut off would get its length back."""
    damage(made.path)
    length = made.path.stat().st_size
    file = made._file
    assert file is not None
    file._ahead = 0  # what is written next must ask the disk
    with pytest.raises(JournalDamaged):
        made.write(settled("x-1"))
    with pytest.raises(OSError, match="it was cut off or written over"):
        file.grow(file.size)
    assert made.path.stat().st_size == length


def test_a_file_without_a_damage_says_so(made: Journal) -> None:
    file = made._file
    assert file is not None
    assert file.damaged is False
    made.write(settled("x-1"))
    assert file.damaged is False
    cut_by_a_byte(made.path)
    assert file.damaged is True


def test_a_file_that_only_grew_is_not_damaged(made: Journal) -> None:
    os.truncate(made.path, made.path.stat().st_size + 1)
    made.write(settled("x-1"))
    assert not made.keep_in_place()
    assert ids(made.path) == ["x-1"]


def test_the_length_of_a_file_is_that_of_its_end(
    made: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look from another place than the end finds too much of a file that was cut off."""
    asked = []
    seek = os.lseek

    def seen(descriptor: int, place: int, how: int) -> int:
        asked.append((place, how))
        return seek(descriptor, place, how)

    monkeypatch.setattr("lightgate.ledger.journal.journal.os.lseek", seen)
    made.write(settled("x-1"))
    assert not made.keep_in_place()
    assert asked == [(0, os.SEEK_END), (0, os.SEEK_END)]


@DAMAGES
def test_the_next_file_takes_the_notes_and_the_old_one_is_let_go(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    journal = Journal(tmp_path, 3, now=lambda: 7)
    journal.write(settled("x-1"))
    old, open_files = journal.path, len(os.listdir("/proc/self/fd"))
    damage(old)
    journal.begin_anew()
    assert journal.path.name == f"{journal.life}.000001.lgj"
    assert (alive(old), alive(journal.path)) == (False, True)
    assert len(os.listdir("/proc/self/fd")) == open_files
    journal.write(settled("x-2"))
    (opened, _), *_ = read_frames(journal.path)
    assert opened == Opened(VERSION, 3, os.getpid(), 7)
    assert ids(journal.path) == ["x-2"]
    damage(journal.path)
    journal.begin_anew()
    assert journal.path.name == f"{journal.life}.000002.lgj"
    journal.close()


def test_without_room_for_another_file_the_damaged_one_stays(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    path = journal.path
    emptied(path)
    with no_room():
        for _ in range(2):
            with pytest.raises(JournalFailed, match="No space left on device") as failed:
                journal.begin_anew()
            assert failed.value.full
            assert (journal.path, alive(path)) == (path, True)
    with pytest.raises(JournalDamaged):
        journal.write(settled("x-1"))
    journal.begin_anew()
    journal.write(settled("x-1"))
    assert journal.path.name == f"{journal.life}.000001.lgj"
    assert ids(journal.path) == ["x-1"]
    journal.close()


def test_a_journal_that_had_no_room_for_its_first_file_can_begin_one(tmp_path: Path) -> None:
    with no_room():
        journal = Journal(tmp_path, 0)
    assert journals(tmp_path) == []
    journal.begin_anew()
    journal.write(settled("x-1"))
    assert ids(journal.path) == ["x-1"]
    journal.close()
