"""The writer of a worker's notes, on a disk that gets full and is freed."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ledger.notes import reserved, settled
from lightgate.gateway.exchange.journal import RECENT, JournalWriter
from lightgate.ledger.journal.journal import JournalFailed

if TYPE_CHECKING:
    import pytest

    from lightgate.ledger.journal.journal import Journal
    from lightgate.ledger.journal.notes import Note


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
    assert list(writer.recent) == [f"x-{number}" for number in range(6)]
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
    assert (len(writer.recent), next(iter(writer.recent))) == (RECENT, "x-2")
