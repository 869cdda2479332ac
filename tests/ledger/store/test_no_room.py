"""A ledger whose disk is full: it can be read, and goes on when there is room."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from full_disk import no_room
from ledger.notes import T0, exchange_note, journal_of, reserved, settled
from lightgate.console.labels import LabelNames
from lightgate.console.nodes import begin_totals
from lightgate.console.ship_loop import ShipLoop
from lightgate.console.totals import Totals
from lightgate.gateway.process.apart import apart
from lightgate.ledger.failed import LedgerFailed, LedgerNoRoom
from lightgate.ledger.journal.journal import JournalFailed
from lightgate.ledger.journal.node import node_of
from lightgate.ledger.journal.notes import Settled
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.journal.waiting import waiting_spend
from lightgate.ledger.locate import LedgerPlace
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store.keys import KeyTerms, add_key, new_key, read_keys

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.ledger.store.keys import KeyRecord


def named(name: str) -> KeyRecord:
    return new_key(KeyTerms(name=name))[1]


def add(place: LedgerPlace, record: KeyRecord) -> None:
    with place.open() as ledger, ledger.writing() as connection:
        add_key(connection, record)


def keys_alone(place: LedgerPlace) -> list[str]:
    with no_room(), place.open_alone() as ledger, ledger.reading() as connection:
        return [key.name for key in read_keys(connection)]


def test_a_ledger_that_nobody_has_open_can_be_read(tmp_path: Path) -> None:
    place = LedgerPlace("sqlite", tmp_path)
    add(place, named("a"))
    with no_room(), pytest.raises(LedgerNoRoom, match="the disk may be full: disk I/O") as caught:
        place.open()
    assert caught.value.status == 503
    assert keys_alone(place) == ["a"]
    with (
        no_room(),
        place.open_alone() as ledger,
        pytest.raises(LedgerFailed, match="readonly"),
        ledger.writing() as connection,
    ):
        add_key(connection, named("b"))
    add(place, named("b"))
    assert keys_alone(place) == ["a", "b"]


def test_what_a_killed_process_left_in_the_wal_is_read_too(tmp_path: Path) -> None:
    place = LedgerPlace("sqlite", tmp_path)
    add(place, named("a"))

    def be_killed() -> None:
        ledger = place.open()
        with ledger.writing() as connection:
            add_key(connection, named("b"))
        os._exit(0)

    with pytest.raises(RuntimeError, match="no result"):
        apart(be_killed)
    assert (tmp_path / f"{FILE}-wal").stat().st_size > 0
    assert keys_alone(place) == ["a", "b"]
    assert keys_alone(place) == ["a", "b"]


def test_tables_of_an_older_version_cannot_be_read_without_room(tmp_path: Path) -> None:
    place = LedgerPlace("sqlite", tmp_path)
    with place.open() as ledger, ledger.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    with no_room(), pytest.raises(LedgerFailed):
        place.open_alone()


def test_a_console_begins_without_room_and_ships_when_there_is_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = LedgerPlace("sqlite", tmp_path)
    place.open().close()
    journal_of(tmp_path, settled("x-1")).close()
    with no_room():
        ledger = place.later()
        begin_totals(Totals(LabelNames(tmp_path)), ledger)
        ship_loop = ShipLoop(ledger, tmp_path, prune=lambda: None)
        assert not ship_loop.work()
        assert ship_loop.lost == 0  # nobody took its file away
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "The ledger cannot be read, the disk may be full: disk I/O error." + rest
        for rest in (" The console waits for it.", " The journals keep everything until then.")
    ]
    assert ship_loop.work()
    assert (ship_loop.totals.exchanges, ship_loop.lost) == (1, 0)
    ledger.close()


def test_a_folder_without_a_name_for_itself_says_so(tmp_path: Path) -> None:
    with no_room(), pytest.raises(JournalFailed, match=r"node cannot be written: .+\.$") as caught:
        node_of(tmp_path)
    assert caught.value.full
    assert not list(tmp_path.iterdir())
    assert node_of(tmp_path) == node_of(tmp_path)


def test_another_fault_of_a_ledger_still_ends_a_console(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all, whatever its name says")
    place = LedgerPlace("sqlite", tmp_path)
    with pytest.raises(LedgerFailed, match="not a database") as caught:
        place.later()
    assert not isinstance(caught.value, LedgerNoRoom)


def test_money_that_waits_in_journals_is_counted(tmp_path: Path) -> None:
    place = LedgerPlace("sqlite", tmp_path)

    def paid(made: str, **changes: object) -> Settled:
        return Settled(exchange_note(made, **changes), ())

    journal = journal_of(tmp_path, paid("x-1", cost_nano=1), reserved("x-2", nano_usd=20))
    with place.open() as ledger:
        Shipper(ledger, tmp_path / "journal").drain()
        assert waiting_spend(ledger, tmp_path / "journal", 0) == {}  # all of it is in the ledger
        for note in (
            paid("x-3", cost_nano=300, loser_cost_nano=4_000), reserved("x-4", nano_usd=50_000),
            reserved("x-5", nano_usd=7), paid("x-5", cost_nano=600_000),
            paid("x-6", cost_nano=None),
            paid("x-7", key_id=None, cost_nano=9), paid("x-8", cost_nano=1_000_000, wall_ns=T0 - 1),
            reserved("x-9", nano_usd=20_000_000, wall_ns=T0 - 1),
        ):  # fmt: skip
            journal.write(note)
        journal.close()
        assert waiting_spend(ledger, tmp_path / "journal", T0) == {"k-1": 654_300}
        assert waiting_spend(ledger, tmp_path / "journal", 0) == {"k-1": 21_654_300}
        Shipper(ledger, tmp_path / "journal").drain()
        assert waiting_spend(ledger, tmp_path / "journal", 0) == {}
