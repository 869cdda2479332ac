"""The writer of a worker's notes, on a disk that gets full and is freed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from ledger.notes import reserved, settled
from lightgate.gateway.exchange.journal import RECENT, JournalWriter
from lightgate.ledger.journal.journal import Journal, JournalFailed, journals, read_frames
from lightgate.ledger.journal.notes import Settled

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.ledger.journal.notes import Note
    from lightgate.route.plan.plan import Plan


class Disk:
    """A journal with room for so many notes; it is short when two are left."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.kept: list[Note] = []

    @property
    def short(self) -> bool:
        return self.room <= 2

    @property
    def tight(self) -> bool:
        return self.room <= 4

    def write(self, note: Note) -> None:
        if not self.room:
            raise JournalFailed("The journal cannot be written: No space left on device.")
        self.room -= 1
        self.kept.append(note)

    def regain(self) -> bool:
        return not self.short

    def keep_in_place(self) -> bool:
        return False


def test_what_is_under_way_is_written_when_no_more_is_admitted() -> None:
    disk = Disk(5)
    writer = JournalWriter(cast("Journal", disk))
    writer.write(reserved("x-1"))
    writer.write(reserved("x-2"))
    assert writer.accepts()
    writer.write(reserved("x-3"))
    assert (writer.short, writer.accepts()) == (True, False)
    ends = [settled(f"x-{at}") for at in (1, 2, 3)]
    for end in ends:
        writer.settle(end)
    assert disk.kept[-2:] == ends[:2]
    assert list(writer.waiting) == ends[2:]  # in memory, for want of any room
    disk.room = 100
    assert writer.accepts()
    assert (disk.kept[-1], writer.short, list(writer.waiting)) == (ends[2], False, [])


def test_a_disk_that_gives_no_more_is_told_while_requests_are_still_admitted() -> None:
    disk = Disk(5)
    writer = JournalWriter(cast("Journal", disk))
    assert not writer.tight()
    writer.write(reserved("x-1"))
    assert (writer.tight(), writer.accepts()) == (True, True)
    disk.room = 100
    assert not writer.tight()


def test_a_writer_that_begins_on_a_full_disk_admits_nothing() -> None:
    writer = JournalWriter(cast("Journal", Disk(0)))
    assert (writer.short, writer.accepts()) == (True, False)


def test_what_the_disk_refuses_is_said_and_written_later(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(4)
    writer = JournalWriter(cast("Journal", disk))
    for number in range(6):
        writer.settle(settled(f"x-{number}"))
        assert len(writer.waiting) == max(0, number - 3)
    assert caplog.messages == [
        "The disk is full: requests get 503 until there is room for the journal.",
        "The journal cannot be written: No space left on device. Notes are kept in memory.",
    ]
    assert list(writer.recent) == [settled(f"x-{number}") for number in range(6)]
    assert not writer.accepts()
    disk.room = 10
    assert writer.accepts()
    assert not writer.waiting
    assert [note.exchange.id for note in disk.kept] == [f"x-{number}" for number in range(6)]  # type: ignore[union-attr]


def test_notes_that_are_lost_at_the_end_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[int] = []
    disk = Disk(0)
    disk.close = lambda: closed.append(1)  # type: ignore[attr-defined]
    writer = JournalWriter(cast("Journal", disk))
    writer.write(reserved("x-1"))
    writer.write(reserved("x-2"))
    caplog.clear()
    writer.close()
    assert caplog.messages == ["2 notes are lost: the journal cannot be written"]
    disk.room = 9
    writer.close()
    assert (len(disk.kept), len(caplog.messages), closed) == (2, 1, [1, 1])


def test_the_exchanges_at_hand_are_the_newest() -> None:
    writer = JournalWriter(cast("Journal", Disk(10**9)))
    for number in range(RECENT + 2):
        writer.settle(settled(f"x-{number}"))
    assert (len(writer.recent), next(iter(writer.recent))) == (RECENT, settled("x-2"))


def test_an_exchange_at_hand_is_found_by_its_id_and_by_its_clients_name() -> None:
    writer = JournalWriter(cast("Journal", Disk(100)))
    first, other, again = (
        msgspec.structs.replace(one, exchange=msgspec.structs.replace(one.exchange, **more))
        for one, more in (
            (settled("x-1"), {"request_id": "mine"}),
            (settled("x-2"), {"request_id": "mine", "key_id": None}),
            (settled("x-3"), {"request_id": "mine", "error": "not by this name"}),
        )
    )
    plan = cast("Plan", object())
    for one in (first, other, again):
        writer.settle(one, plan if one is first else None)
    recent = writer.recent
    assert recent.get("x-1") == (first, plan)
    assert (recent.get("x-2"), recent.get("mine")) == ((other, None), None)
    assert recent.named("mine", "k-1") == (again, None)  # the last one
    assert recent.named("mine", None) == (other, None)
    assert recent.named("mine", "k-2") is None
    assert recent.named("not by this name", "k-1") is None  # it stands there, but is no name
    assert recent.named("x-1", "k-1") is None
    assert recent.named("\udcff", "k-1") is None


def test_what_is_at_hand_is_what_the_journal_has(tmp_path: Path) -> None:
    writer = JournalWriter(Journal(tmp_path, 0))
    writer.settle(settled("x-1"))
    [(packed, _)] = writer.recent.packed.values()
    assert packed in Path(tmp_path, writer.place()[0]).read_bytes()
    assert list(writer.recent) == [settled("x-1")]
    writer.close()


class Deleted(Disk):
    """A journal that is deleted; `trouble` says why it cannot be written anew."""

    def __init__(self) -> None:
        super().__init__(100)
        self.path = Path("worker-0.journal")
        self.trouble = ""
        self.gone = False

    def keep_in_place(self) -> bool:
        if self.trouble:
            raise JournalFailed(self.trouble)
        return self.gone

    def close(self) -> None:
        raise JournalFailed("Its last bytes are not on the disk.")


def test_a_journal_that_was_deleted_is_written_anew_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Deleted()
    writer = JournalWriter(cast("Journal", disk))
    writer.keep_in_place()
    assert not caplog.messages
    disk.gone = True
    writer.keep_in_place()
    assert len(caplog.messages) == 1
    assert "worker-0.journal" in caplog.text
    assert "written anew, with all of its notes" in caplog.text
    assert writer.accepts()


def test_while_a_deleted_journal_cannot_be_written_nothing_is_admitted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Deleted()
    writer = JournalWriter(cast("Journal", disk))
    disk.trouble = "Read-only file system."
    writer.keep_in_place()
    assert writer.short
    writer.keep_in_place()  # the same is said once
    assert len(caplog.messages) == 1
    assert "worker-0.journal" in caplog.messages[0]
    assert "Read-only file system. Requests get 503" in caplog.messages[0]
    disk.trouble = "No space left on device."
    writer.keep_in_place()
    assert len(caplog.messages) == 2
    disk.trouble = ""
    writer.keep_in_place()
    disk.trouble = "No space left on device."
    writer.keep_in_place()  # it was well in between
    assert len(caplog.messages) == 3


def test_a_journal_that_is_lost_at_the_end_is_said(caplog: pytest.LogCaptureFixture) -> None:
    JournalWriter(cast("Journal", Deleted())).close()
    assert caplog.messages == ["The journal is lost. Its last bytes are not on the disk."]


def test_a_journal_is_looked_at_once_more_before_it_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Deleted()
    disk.gone = True
    JournalWriter(cast("Journal", disk)).close()
    assert len(caplog.messages) == 2
    assert "written anew" in caplog.messages[0]


def test_the_first_reason_of_a_lost_journal_is_said_whatever_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Deleted()
    writer = JournalWriter(cast("Journal", disk))
    disk.trouble = "XX"
    writer.keep_in_place()
    assert len(caplog.messages) == 1
    disk.trouble = ""
    writer.keep_in_place()
    disk.trouble = "XX"
    writer.keep_in_place()
    assert len(caplog.messages) == 2


def cut_off(path: Path) -> None:
    os.truncate(path, 16)


def zeroed(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [cut_off, zeroed])
@pytest.mark.parametrize("by", ["a note", "the look of every second", "the end"])
def test_a_damaged_journal_ends_no_worker_and_loses_nothing_that_was_settled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None], by: str
) -> None:
    journal = Journal(tmp_path, 0)
    writer = JournalWriter(journal)
    writer.write(reserved("x-1"))
    for number in (1, 2):
        writer.settle(settled(f"x-{number}"))
    damaged = journal.path
    damage(damaged)
    if by == "a note":
        writer.settle(settled("x-3"))
    elif by == "the look of every second":
        writer.keep_in_place()
        writer.settle(settled("x-3"))
    writer.close()
    left = [note for path in journals(tmp_path) for note, _ in read_frames(path)]
    ended = [note.exchange.id for note in left if isinstance(note, Settled)]
    assert ended == ["x-1", "x-2", *(["x-3"] if by != "the end" else [])]
    assert [damaged.name in message for message in caplog.messages] == [True]


def test_a_damaged_journal_waits_for_a_disk_that_takes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path, 0)
    writer = JournalWriter(journal)
    writer.settle(settled("x-1"))
    cut_off(journal.path)

    def full(*_: object) -> None:
        raise JournalFailed("No journal can be made: No space left on device.")

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "_make", full)
        for _ in range(2):
            writer.settle(settled("x-2"))
            writer.keep_in_place()
            assert not writer.accepts()
    writer.keep_in_place()
    assert writer.accepts()
    assert not writer.waiting
    writer.close()
    left = [note for path in journals(tmp_path) for note, _ in read_frames(path)]
    assert {note.exchange.id for note in left if isinstance(note, Settled)} == {"x-1", "x-2"}
    assert len(caplog.messages) == 3  # what happened, once; where notes are; how it ended
