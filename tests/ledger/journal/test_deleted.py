"""Journals that are deleted or replaced under their writer: every note is shipped once."""

from __future__ import annotations

import fcntl
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from full_disk import no_room
from ledger.notes import reserved, settled
from lightgate.gateway.exchange.journal import JournalWriter
from lightgate.ledger.journal import journal as journals_module
from lightgate.ledger.journal import ship
from lightgate.ledger.journal.journal import Journal, JournalFailed, alive, journals, read_frames
from lightgate.ledger.journal.node import FILE as NODE
from lightgate.ledger.journal.notes import Opened, Settled
from lightgate.ledger.journal.ship import Shipped, Shipper
from lightgate.ledger.store import schema
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def ids(folder: Path) -> list[str]:
    """The exchanges that are settled in the files of a folder."""
    notes = [note for path in journals(folder) for note, _ in read_frames(path)]
    return [note.exchange.id for note in notes if isinstance(note, Settled)]


def unlink(journal: Journal) -> None:
    journal.path.unlink()


def replace(journal: Journal) -> None:
    other = journal.path.with_name("other")
    other.write_bytes(b"")
    other.replace(journal.path)


def copy_back(journal: Journal) -> None:
    """What a move to another disk does."""
    other = journal.path.with_name("other")
    shutil.copy2(journal.path, other)
    other.replace(journal.path)


def remove_folder(journal: Journal) -> None:
    shutil.rmtree(journal.path.parent)


def remove_data(journal: Journal) -> None:
    shutil.rmtree(journal.path.parent.parent)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "journal"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger that is elsewhere: it stays where the data folder goes."""
    with Ledger.open(tmp_path / "ledger.sqlite") as opened:
        yield opened


def known(ledger: Ledger) -> list[str]:
    table = schema.exchange_notes
    with ledger.reading() as connection:
        return sorted(row.id for row in connection.execute(table.select()))


@pytest.mark.parametrize("how", [unlink, replace, copy_back, remove_folder, remove_data])
def test_a_journal_that_goes_away_is_written_anew_where_it_was(
    folder: Path, ledger: Ledger, how: Callable[[Journal], None]
) -> None:
    journal, shipper = Journal(folder, 0), Shipper(ledger, folder)
    assert not journal.keep_in_place()
    path = journal.path
    journal.write(settled("x-1"))
    shipper.ship()
    for number in (2, 4):  # twice
        journal.write(settled(f"x-{number}"))
        how(journal)
        journal.write(settled(f"x-{number + 1}"))
        size = journal.size
        assert journal.keep_in_place()
        assert (journal.path, journal.size, alive(path)) == (path, size, True)
        assert [path.stat().st_mode & 0o777, folder.stat().st_mode & 0o777] == [0o600, 0o700]
        assert not journal.keep_in_place()
        shipper.ship()
    journal.write(settled("x-6"))
    assert ids(folder) == [f"x-{number}" for number in range(1, 7)]
    journal.close()
    assert shipper.ship() == Shipped(records=1, exchanges=1, attempts=1, removed=1)
    assert known(ledger) == [f"x-{number}" for number in range(1, 7)]
    assert journals(folder) == []


def test_a_ledger_that_went_away_too_gets_every_note_of_the_file(
    folder: Path, tmp_path: Path
) -> None:
    journal = Journal(folder, 0)
    for name in ("first", "second"):
        journal.write(settled(f"x-{name}"))
        with Ledger.open(tmp_path / name) as ledger:
            Shipper(ledger, folder).ship()
            remove_data(journal)
            journal.keep_in_place()
            if name == "second":
                assert known(ledger) == ["x-first", "x-second"]
    journal.close()


def test_a_deletion_between_a_reservation_and_its_settlement(folder: Path, ledger: Ledger) -> None:
    journal, shipper = Journal(folder, 0), Shipper(ledger, folder)
    journal.write(reserved("x-1"))
    journal.write(reserved("x-2"))
    shipper.ship()
    remove_data(journal)
    journal.write(settled("x-1"))
    journal.keep_in_place()
    journal.close()
    shipped = shipper.ship()
    assert (shipped.exchanges, shipped.orphans, shipped.duplicates) == (1, 1, 0)
    assert known(ledger) == ["x-1", "x-2"]


@pytest.mark.parametrize("how", [unlink, replace, remove_folder])
def test_a_rotation_first_writes_a_deleted_file_anew(
    folder: Path, how: Callable[[Journal], None]
) -> None:
    journal = Journal(folder, 0, rotate_bytes=400)
    journal.write(settled("x-1"))
    how(journal)
    assert journal.size >= 400
    journal.write(settled("x-2"))
    assert len(journals(folder)) == 2
    assert ids(folder) == ["x-1", "x-2"]
    journal.close()


def test_a_rotation_waits_while_a_deleted_file_cannot_be_written_anew(folder: Path) -> None:
    journal = Journal(folder, 0, rotate_bytes=400)
    journal.write(settled("x-1"))
    remove_folder(journal)
    folder.write_bytes(b"")  # where the folder was
    journal.write(settled("x-2"))
    folder.unlink()
    journal.write(settled("x-3"))
    assert len(journals(folder)) == 2
    assert ids(folder) == ["x-1", "x-2", "x-3"]
    journal.close()


def test_the_end_writes_a_deleted_file_anew(folder: Path) -> None:
    journal = Journal(folder, 0)
    journal.write(settled("x-1"))
    unlink(journal)
    journal.close()
    assert ids(folder) == ["x-1"]
    assert not alive(journal.path)
    journal.path.unlink()
    journal.close()  # again: it is the shipper's by now
    assert journals(folder) == []


def test_a_full_disk_keeps_the_open_file_until_there_is_room(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(folder, 0)
    writer = JournalWriter(journal)
    writer.write(settled("x-1"))
    unlink(journal)
    with no_room():
        for _ in range(3):
            writer.keep_in_place()
        assert (writer.lost, writer.short, writer.accepts()) == (True, True, False)
        writer.write(settled("x-2"))  # which was under way
    assert list(folder.iterdir()) == []
    assert not writer.accepts()  # only the look once a second tries again
    writer.keep_in_place()
    assert (writer.lost, writer.accepts()) == (False, True)
    assert ids(folder) == ["x-1", "x-2"]
    gone = f"The journal {journal.path.name} was deleted or replaced while the gateway ran."
    why = f"No journal can be made in {folder}: No space left on device."
    assert caplog.messages == [
        f"{gone} {why} Requests get 503 until it can be written anew.",
        f"{gone} It was written anew, with all of its notes.",
    ]
    writer.close()


def test_a_journal_that_stays_lost_is_said_at_the_end(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(folder, 0)
    writer = JournalWriter(journal)
    remove_folder(journal)
    folder.write_bytes(b"")
    writer.close()
    said = f"No journal can be made in {folder}: "
    assert [said in message for message in caplog.messages] == [True, True]
    assert caplog.messages[-1].startswith("The journal is lost.")
    with pytest.raises(JournalFailed, match="closed"):
        journal.write(settled("x-1"))


def test_a_file_that_is_written_anew_is_locked_before_it_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(folder, 0)
    journal.write(settled("x-1"))
    unlink(journal)
    held: list[bool] = []
    kind = type(folder)
    rename = kind.rename

    def seen(self: Path, target: Path) -> Path:
        held.append(alive(self))
        return rename(self, target)

    monkeypatch.setattr(kind, "rename", seen)
    journal.keep_in_place()
    assert held == [True]
    journal.close()


def test_a_shipper_does_not_take_a_writer_for_dead_whose_file_comes_back(
    folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted before the look at the lock, and written anew before the look at the folder."""
    journal, shipper = Journal(folder, 0), Shipper(ledger, folder)
    journal.write(settled("x-1"))
    look = alive

    def gone_meanwhile(path: Path) -> bool:
        unlink(journal)
        found = look(path)
        journal.keep_in_place()
        return found

    monkeypatch.setattr(ship, "alive", gone_meanwhile)
    assert shipper.ship().removed == 0
    monkeypatch.undo()
    journal.write(settled("x-2"))
    journal.close()
    shipper.ship()
    assert known(ledger) == ["x-1", "x-2"]


def test_the_writer_that_is_named_first_is_the_same(folder: Path) -> None:
    journal = Journal(folder, 5, now=lambda: 7)
    unlink(journal)
    journal.keep_in_place()
    (opened, _), *_ = read_frames(journal.path)
    assert isinstance(opened, Opened)
    assert (opened.worker, opened.pid, opened.wall_ns) == (5, os.getpid(), 7)
    descriptor = os.open(journal.path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(descriptor)
    journal.close()


def test_the_node_of_a_folder_that_went_away_stays_the_same(folder: Path, ledger: Ledger) -> None:
    journal, shipper = Journal(folder, 0), Shipper(ledger, folder)
    journal.write(settled("x-1"))
    shipper.ship()
    node = folder.parent / NODE
    before = node.read_text()
    remove_data(journal)
    shipper.ship()
    journal.keep_in_place()
    assert node.read_text() == before
    journal.write(settled("x-2"))
    Shipper(ledger, folder).ship()  # of the next life of the console
    assert known(ledger) == ["x-1", "x-2"]
    journal.close()


def test_a_folder_that_comes_back_is_not_lost(folder: Path) -> None:
    journal = Journal(folder, 0)
    assert not journal.lost
    assert journal.regain()  # it has room
    away = folder.with_name("away")
    folder.rename(away)
    folder.write_bytes(b"")  # no folder can be made there
    with pytest.raises(JournalFailed):
        journal.keep_in_place()
    lost = [journal.lost]
    folder.unlink()
    away.rename(folder)
    assert not journal.keep_in_place()
    assert [*lost, journal.lost] == [True, False]
    journal.close()


def test_the_file_that_was_deleted_is_let_go(folder: Path) -> None:
    journal = Journal(folder, 0)
    before = len(os.listdir("/proc/self/fd"))
    unlink(journal)
    assert journal.keep_in_place()
    assert len(os.listdir("/proc/self/fd")) == before
    journal.close()


def test_folders_above_the_data_folder_are_made_as_well(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c" / "journal"
    journal = Journal(folder, 0)
    journal.write(settled("x-1"))
    assert ids(folder) == ["x-1"]
    shutil.rmtree(tmp_path / "a")
    assert journal.keep_in_place()
    assert ids(folder) == ["x-1"]
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700, 0o700]
    journal.close()


def test_a_copy_needs_no_more_room_than_its_notes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(folder, 0)
    journal.write(settled("x-1"))
    unlink(journal)
    monkeypatch.setattr(journals_module, "SPARE_BYTES", 0)
    monkeypatch.setattr(journals_module, "GROW_BYTES", 8)
    assert journal.keep_in_place()
    assert ids(folder) == ["x-1"]
    assert journal.path.stat().st_size == journal.size
    journal.close()
