"""Parts of shipping that need no journal: what is forgotten, what is newer, the longest gaps."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from ledger.notes import MS, T0, attempt_note, journal_of, marks, reserved, settled
from lightgate.ledger.journal.notes import STAMP_BYTES, VERSION, Opened
from lightgate.ledger.journal.ship import (
    MANY,
    Shipped,
    Shipper,
    _Batch,
    _chunks,
    _is_newer,
    _stalls,
    _uncollected,
)
from lightgate.ledger.store import schema
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.ledger.journal.notes import Note


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open("sqlite", tmp_path) as opened:
        yield opened


def test_only_the_places_of_files_that_are_finished_and_gone_are_forgotten(
    ledger: Ledger, tmp_path: Path
) -> None:
    shipper = Shipper(ledger, tmp_path / "journal")
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "there").touch()
    places = {"gone": True, "there": True, "open": False}
    with ledger.writing() as connection:
        connection.execute(
            schema.shipped.insert(),
            [
                {"journal": one, "node": "", "offset": 1, "finished": of}
                for one, of in places.items()
            ],
        )
    shipper._forget({name: (1, finished) for name, finished in places.items()})
    with ledger.reading() as connection:
        left = connection.execute(schema.shipped.select()).all()
    assert sorted(row.journal for row in left) == ["open", "there"]


def test_two_passes_are_added_up_and_either_says_that_there_is_more() -> None:
    one = Shipped(records=1, exchanges=2, attempts=3, orphans=4, more=True)
    two = Shipped(duplicates=5, refused=6, damaged=7, removed=8, records=1, busy=True)
    assert one + two == Shipped(
        records=2, exchanges=2, attempts=3, orphans=4,
        duplicates=5, refused=6, damaged=7, removed=8, more=True, busy=True,
    )  # fmt: skip
    assert Shipped() + Shipped() == Shipped()
    assert Shipped() == Shipped(records=0, exchanges=0, attempts=0, orphans=0, more=False)


def test_bytes_that_wait_are_those_behind_the_place_of_each_file(
    ledger: Ledger, tmp_path: Path
) -> None:
    journal = journal_of(tmp_path, reserved("x-1"))
    shipper = Shipper(ledger, tmp_path / "journal")
    name = next((tmp_path / "journal").glob("*.lgj")).name
    whole = (tmp_path / "journal" / name).stat().st_size
    assert shipper.waiting_bytes({}) == whole
    assert shipper.waiting_bytes({name: 1000}) == 1000
    assert shipper.waiting_bytes({"other": 1000}) == whole
    shipper.ship()
    place = shipper._offsets[name]
    assert 0 < place < whole
    assert shipper.waiting_bytes({name: place + 7}) == 7
    assert shipper.waiting_bytes({name: place - 1}) == 0
    journal.close()


@pytest.mark.parametrize(
    ("life", "worker"), [("3-1790000100-77", 3), ("12-1", 12), ("x-1", 0), ("", 0)]
)
def test_the_worker_of_a_batch_is_named_by_its_life(life: str, worker: int) -> None:
    assert _Batch(life, [], settles=False)._worker == worker


def test_a_batch_sorts_what_it_opens_settles_and_closes() -> None:
    notes: list[Note] = [reserved("a"), reserved("b"), settled("a"), settled("c"), settled("c")]
    batch = _Batch("1-2", notes, settles=True)
    assert list(batch._opened) == ["b"]
    assert list(batch._settled) == ["a", "c"]
    assert batch._closed == ["c", "c"]
    assert (batch._duplicates, batch._notes, batch._settles) == (1, 5, True)


def test_a_journal_of_a_later_version_is_newer() -> None:
    first = Opened(1, 0, 77, T0)
    assert not _is_newer(first)
    assert not _is_newer(msgspec.structs.replace(first, version=VERSION))
    assert _is_newer(msgspec.structs.replace(first, version=VERSION + 1))
    assert not _is_newer(settled("x"))


def test_the_longest_gap_is_found_within_each_attempt_of_many_bursts() -> None:
    """Many are those from `MANY` on; a part of a stamp at the end makes a note that is none."""
    few = attempt_note("few", marks(MANY - 1))
    long, short = (
        attempt_note(made, marks(count, gap_ms=gap))
        for made, count, gap in (("long", MANY, 30), ("short", MANY + 5, 10))
    )
    odd = msgspec.structs.replace(attempt_note("odd", marks(MANY)), bursts=b"x" * (MANY * 8 + 1))
    assert _stalls([settled("a", few, long), settled("b", short), settled("c", odd)]) == {
        "long-a": 30 * MS,
        "short-a": 10 * MS,
    }
    assert _stalls([settled("a", few)]) == {}
    assert len(long.bursts) == MANY * STAMP_BYTES == MANY * np.dtype(np.int64).itemsize


def test_ids_are_taken_in_parts_that_a_statement_has_room_for() -> None:
    ids = [str(at) for at in range(1001)]
    parts = list(_chunks(ids))
    assert [one for part in parts for one in part] == ids
    assert max(len(part) for part in parts) == len(parts[0]) < 1001
    assert list(_chunks([])) == []


@pytest.mark.parametrize("was", [True, False])
def test_the_collector_rests_while_a_batch_is_made_and_is_left_as_it_was(*, was: bool) -> None:
    before = gc.isenabled()
    (gc.enable if was else gc.disable)()
    try:
        with _uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() is was
    finally:
        (gc.enable if before else gc.disable)()
