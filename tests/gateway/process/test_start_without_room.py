"""A start on a full disk: keys, budgets and the snapshot of a data folder that was served from."""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec
import pytest

from full_disk import full_disk, no_room
from gateway.process.test_preparation import CONFIG, S, key, prepared
from ledger.notes import exchange_note, journal_of
from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError
from lightgate.gateway.exchange.journal import JournalWriter
from lightgate.gateway.process.prepare import keys_in, restore_spend
from lightgate.gateway.request.prints import PromptPrints
from lightgate.gateway.served.snapshot import (
    FILE,
    SnapshotFailed,
    admits_no_more,
    put_snapshot,
    read_snapshot,
)
from lightgate.gateway.spend.counter_file import CounterFileFailed
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.ledger.failed import LedgerFailed, LedgerNoRoom
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.notes import Settled
from lightgate.ledger.locate import LedgerPlace
from lightgate.ledger.store.keys import KeyRecord, add_key

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.gateway.process.prepare import Preparation

__all__ = ["prepared"]
NO_LEDGER = LedgerFailed("It cannot be read.")


def unreadable(patch: pytest.MonkeyPatch) -> None:
    def refuse(place: LedgerPlace) -> None:
        raise NO_LEDGER

    patch.setattr(LedgerPlace, "open_alone", refuse)


def with_keys(data: Path, *keys: KeyRecord) -> LedgerPlace:
    place = LedgerPlace("sqlite", data)
    with place.open() as ledger, ledger.writing() as connection:
        for one in keys:
            add_key(connection, one)
    return place


def left_of(data: Path, record: KeyRecord) -> int:
    with SpendCounters.open(data / "spend", 0, [record]) as counters:
        return counters.left_nano(record)


# Keys


def test_the_keys_of_a_ledger_on_a_full_disk(tmp_path: Path) -> None:
    record = key()
    place = with_keys(tmp_path, record)
    with no_room():
        assert keys_in(place) == (record,)


def test_the_keys_of_the_last_snapshot_where_no_ledger_can_be_read(
    prepared: Preparation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record, data = key(), prepared._data()
    place = with_keys(data, record)
    unreadable(monkeypatch)
    with no_room(), pytest.raises(LedgerNoRoom):  # never open to all for want of a list of keys
        keys_in(place)
    prepared.put_snapshot(lambda: (record,), first=True)
    with no_room():
        assert keys_in(place) == (record,)
    assert caplog.messages[-1].endswith("disk I/O error. The keys are those of the last start.")
    (data / "ledger.sqlite").write_bytes(b"something else, which no disk can be blamed for")
    with pytest.raises(LedgerFailed, match="not a database"):
        keys_in(place)


# Budgets


def test_a_budget_counts_what_ledger_and_journals_have(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The counters are behind both here, as they are after the machine lost its power."""
    record = key(budget_usd=Decimal(1), budget_period="day")
    place, now_ns = with_keys(tmp_path, record), SYSTEM.wall_ns()

    def paid(made: str, nano_usd: int) -> Settled:
        return Settled(
            exchange_note(made, key_id=record.id, wall_ns=now_ns, cost_nano=nano_usd), ()
        )

    journal_of(tmp_path, paid("x-1", 300_000_000)).close()
    restore_spend(place, (record,))
    assert not list((tmp_path / "journal").iterdir())
    journal_of(tmp_path, paid("x-2", 600_000_000)).close()
    with SpendCounters.open(tmp_path / "spend", 3, [record]) as dead:
        assert dead.admit(record, now_ns, 0, 50_000_000) is None  # no journal knows of it
    with no_room():
        restore_spend(place, (record,))
    assert caplog.messages[-1].endswith("Budgets go on from what the ledger and the journals say.")
    assert left_of(tmp_path, record) == 100_000_000
    with no_room():
        restore_spend(place, (record,))
    assert left_of(tmp_path, record) == 100_000_000  # nothing is counted twice
    restore_spend(place, (record,))  # there is room again
    assert left_of(tmp_path, record) == 100_000_000
    assert not list((tmp_path / "journal").iterdir())


def test_a_budget_stays_with_its_counter_where_no_ledger_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was reserved is not free again: nobody can tell whether it was spent."""
    record, free = key(budget_usd=Decimal(1)), msgspec.structs.replace(key(), name="free")
    place = with_keys(tmp_path, record, free)
    with SpendCounters.open(tmp_path / "spend", 3, [record]) as dead:
        assert dead.admit(record, SYSTEM.wall_ns(), 0, S // 2) is None
        dead.settle(record.id, S // 2, S // 4, 0, 0)
        assert dead.admit(record, SYSTEM.wall_ns(), 0, S // 4) is None
    unreadable(monkeypatch)
    with no_room():
        restore_spend(place, (record, free))
    assert caplog.messages[-1].endswith("Budgets go on from the counters of this data folder.")
    with SpendCounters.open(tmp_path / "spend", 0, [record]) as counters:
        counters.charge_dead()  # as every worker does
        standing = counters.standing(record.id)
        assert standing is not None
        assert (standing.spent_nano, standing.held_nano) == (S // 2, 0)


def test_a_budget_without_a_counter_and_a_ledger_is_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, unknown = key(budget_usd=Decimal(1)), key(budget_usd=Decimal(1))
    unknown = msgspec.structs.replace(unknown, name="fresh")
    place = with_keys(tmp_path, known)
    unreadable(monkeypatch)
    with no_room(), pytest.raises(CounterFileFailed, match="cannot be opened: File too large"):
        restore_spend(place, (known,))
    SpendCounters.open(tmp_path / "spend", 0, [known]).close()
    with no_room():
        restore_spend(place, (known,))
        with pytest.raises(LightgateError, match=r"not known .* have spent: fresh\.$") as caught:
            restore_spend(place, (known, unknown))
    assert caught.value.hint == "Make room on the disk of the data folder."


# The snapshot


def test_a_first_start_on_a_full_disk_says_so(prepared: Preparation) -> None:
    prepared._data().mkdir()
    with (
        no_room(),
        pytest.raises(SnapshotFailed, match="cannot be written: File too large") as said,
    ):
        prepared.put_snapshot(tuple, first=True)
    assert said.value.exit_code == 1


def test_a_new_configuration_is_taken_over_on_a_full_disk(
    prepared: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, path = prepared._data(), prepared.path
    assert path is not None
    prepared.put_snapshot(tuple, first=True)
    full_disk(monkeypatch)
    for name, first in (("quick", True), ("slow", False), ("brisk", False)):
        path.write_text(CONFIG.replace("models.fast", f"models.{name}"))
        assert not prepared.put_snapshot(tuple, first=first).old
        assert [alias.name for alias in read_snapshot(data).aliases] == [name]


@pytest.mark.parametrize("first", [True, False])
def test_the_last_snapshot_will_do_where_it_says_the_same(
    prepared: Preparation, first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    record, data = key(), prepared._data()
    before = prepared.put_snapshot(lambda: (record,), first=True)
    content = (data / FILE).read_bytes()
    with no_room():
        assert prepared.put_snapshot(lambda: (record,), first=first) == before
    assert (data / FILE).read_bytes() == content
    assert caplog.messages == []


def test_a_start_without_room_serves_the_last_configuration(
    prepared: Preparation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record, data, path = key(), prepared._data(), prepared.path
    assert path is not None
    before = prepared.put_snapshot(lambda: (record,), first=True)
    path.write_text(CONFIG.replace("models.fast", "models.slow"))
    with no_room():
        served = prepared.put_snapshot(lambda: (record, key()), first=True)
        assert served == msgspec.structs.replace(before, old=True)
        with pytest.raises(SnapshotFailed):  # a reload did not happen
            prepared.put_snapshot(lambda: (record,), first=False)
        prepared.facts = {"ports": "of a simulator that is no more are in it"}
        monkeypatch.setattr(prepared, "make_snapshot", lambda *_: read_snapshot(data))
        with pytest.raises(SnapshotFailed):
            prepared.put_snapshot(lambda: (key(),), first=True)
    said = "cannot be written: File too large. The last configuration is served until there is room"
    assert caplog.messages == [f"{data / FILE} {said}."]


def test_a_key_that_was_revoked_is_not_let_in_for_want_of_room(prepared: Preparation) -> None:
    record, other = key(), key()
    prepared.put_snapshot(lambda: (record, other), first=True)
    limited = msgspec.structs.replace(record, rpm=1)
    with no_room():
        for now in ((other,), (limited, other), ()):
            with pytest.raises(SnapshotFailed):
                prepared.put_snapshot(functools.partial(tuple, now), first=True)


def test_who_is_let_in_by_a_snapshot(prepared: Preparation) -> None:
    none = prepared.make_snapshot((), {})
    record, other = key(), key()
    one, both = (prepared.make_snapshot(keys, {}) for keys in ((record,), (record, other)))
    assert admits_no_more(none, none)
    assert admits_no_more(one, both)
    assert not admits_no_more(both, one)
    assert not admits_no_more(none, one)  # without a key nobody has to show one
    assert not admits_no_more(one, none)


# Workers


def test_a_worker_that_begins_on_a_full_disk_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with no_room():
        writer = JournalWriter(Journal(tmp_path / "journal", 0))
        assert not writer.accepts()
    assert caplog.messages == [
        "The disk is full: requests get 503 until there is room for the journal."
    ]
    assert writer.accepts()
    writer.close()


def test_a_full_disk_leaves_no_part_of_the_hash_key(tmp_path: Path) -> None:
    with no_room():
        PromptPrints.of_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []
    kept = PromptPrints.of_folder(tmp_path)._key
    with no_room():
        assert PromptPrints.of_folder(tmp_path)._key == kept
    assert [one.name for one in tmp_path.iterdir()] == ["fingerprint.key"]


def test_a_snapshot_has_its_room_beside_it(tmp_path: Path, prepared: Preparation) -> None:
    put_snapshot(tmp_path / "d", prepared.make_snapshot((), {}))
    assert {one.name for one in (tmp_path / "d").iterdir()} == {FILE, f"{FILE}.spare"}
