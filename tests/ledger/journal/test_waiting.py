"""How much of the journals is not in the ledger yet, frames that are not notes, many stamps."""

from __future__ import annotations

import zlib
from array import array
from struct import pack
from typing import TYPE_CHECKING

import msgspec

from ledger.notes import attempt_note, marks, settled
from lightgate.ledger.journal.journal import Frames, Journal
from lightgate.ledger.journal.ship import MANY, Shipper
from lightgate.ledger.store.schema import attempt_notes
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path


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
