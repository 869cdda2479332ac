"""How much of the journals is not in the ledger yet, frames that are not notes, many stamps."""

from __future__ import annotations

import errno
import zlib
from array import array
from struct import pack
from typing import TYPE_CHECKING

import msgspec

from ledger.notes import attempt_note, marks, settled
from lightgate.ledger.journal.journal import Frames, Journal, JournalFailed
from lightgate.ledger.journal.ship import MANY, Shipper
from lightgate.ledger.store.schema import attempt_notes
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_what_waits_is_what_was_written_and_not_shipped(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with Ledger.open("sqlite", tmp_path) as ledger:
        shipper = Shipper(ledger, folder)
        assert shipper.waiting_bytes({}) == 0
        journal = Journal(folder, 0)
        journal.write(settled("x-1"))
        first = journal.size
        assert shipper.waiting_bytes({journal.path.name: first}) == first
        shipper.ship()
        assert shipper.waiting_bytes({journal.path.name: first}) == 0
        journal.write(settled("x-2"))
        assert shipper.waiting_bytes({journal.path.name: journal.size}) == journal.size - first
        assert shipper.waiting_bytes({journal.path.name: first - 8}) == 0  # told too early
        other = Journal(folder, 1)
        waits = journal.size - first
        written = {journal.path.name: journal.size, other.path.name: other.size}
        assert shipper.waiting_bytes(written) == waits + other.size
        path, size = other.path, other.size
        other.close()  # what was room for more is cut off
        assert path.stat().st_size == size
        assert shipper.waiting_bytes({journal.path.name: journal.size}) == waits + size
        journal.close()


def test_the_longest_silence_among_many_bursts_is_kept(tmp_path: Path) -> None:
    """Of each attempt by itself: not the time from one attempt to the next."""
    made = []
    for number, count in enumerate((MANY + 4, 1, 0, MANY, 2, 3 * MANY)):
        note = attempt_note(f"x-{number}", marks(bursts=count))
        stamps = array("q", note.bursts)
        for at in range(count):  # an hour after the last one, with one long pause
            late = (number + 1) * 1_000_000 if at > count // 2 else 0
            stamps[at] += number * 3600 * 10**9 + late
        made.append(msgspec.structs.replace(note, bursts=stamps.tobytes()))
    with Ledger.open("sqlite", tmp_path) as ledger:
        journal = Journal(tmp_path / "journal", 0)
        for number, note in enumerate(made):
            journal.write(settled(f"x-{number}", note))
        journal.close()
        Shipper(ledger, tmp_path / "journal").drain()
        with ledger.reading() as connection:
            rows = connection.execute(attempt_notes.select().order_by(attempt_notes.c.id)).all()
    stalls = [11_000_000, None, None, 14_000_000, 10_000_000, 16_000_000]
    assert [row.stall_ns for row in rows] == stalls
    assert rows == [note.row() for note in made]


def test_a_whole_frame_that_is_no_note_is_damage(tmp_path: Path) -> None:
    payload = msgspec.msgpack.encode({"no": "note"})
    head = pack("<II", len(payload), zlib.crc32(payload, len(payload)))
    path = tmp_path / "0-x.lgj"
    frame = head + payload
    path.write_bytes(frame + bytes(-len(frame) % 8))
    frames = Frames(path)
    assert list(frames) == []
    assert (frames.damaged, frames.torn, frames.offset) == (True, False, 0)
    path.write_bytes(b"")
    assert list(frames) == []
    assert not frames.damaged


def test_what_a_journal_says_when_it_fails() -> None:
    plain = JournalFailed("No.")
    assert (plain.label, plain.status, plain.full) == ("journal", 503, False)
    for number, full in ((errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EACCES, False)):
        failed = JournalFailed.of("It cannot", OSError(number, "because"))
        assert (failed.message, failed.full) == ("It cannot: because.", full)


def test_a_journal_without_a_file_has_no_room(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    assert (journal.tight, journal.size > 0) == (False, True)
    journal.close()
    assert (journal.tight, journal.size) == (True, 0)


def test_a_file_of_an_earlier_life_that_has_gone_meanwhile_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "0-earlier.new"
    monkeypatch.setattr(type(tmp_path), "glob", lambda _folder, _pattern: iter([left]))
    Journal(tmp_path, 0).close()


def test_what_stands_behind_a_head_of_zeros_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "0-x.lgj"
    for rest, torn in ((b"", False), (bytes(40), False), (b"X", True), (bytes(9) + b"X", True)):
        path.write_bytes(bytes(8) + rest)
        frames = Frames(path)
        assert list(frames) == []
        assert (frames.torn, frames.damaged) == (torn, False)
