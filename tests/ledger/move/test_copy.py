"""A SQLite ledger that is copied into another, and its days as files; no server is needed."""

from __future__ import annotations

import shutil
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ledger.notes import T0, attempt_note, reserved, settled
from lightgate.errors import UsageError
from lightgate.ledger.failed import LedgerFailed
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.move import archive as archiving
from lightgate.ledger.move import copy as copying
from lightgate.ledger.move.archive import ArchivedDay, archive_days
from lightgate.ledger.move.copy import CopiedTable, copy_ledger
from lightgate.ledger.store.keys import KeyTerms, add_key, new_key, read_keys
from lightgate.ledger.store.schema import attempts, exchange_notes, exchanges, keys, meta
from lightgate.ledger.store.store import CREATED, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DAY = 86_400 * 1_000_000_000
TERMS = KeyTerms(name="ci", models=("a", "b"), budget_usd=Decimal("25.50"), may_race=True)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger's file without rows, to be copied: quicker than one that is made anew."""
    path = tmp_path_factory.mktemp("empty") / "ledger.sqlite"
    Ledger.open(path).close()
    return path


@pytest.fixture(scope="module")
def filled(empty: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger's file with nine requests of three days, one that is open, and a key."""
    folder = tmp_path_factory.mktemp("filled")
    shutil.copy(empty, folder / "ledger.sqlite")
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        journal = Journal(folder / "journal", 0)
        for number in range(9):
            at = T0 + number % 3 * DAY
            note = attempt_note(f"x-{number}", wall_ns=at, won=None if number else True)
            journal.write(settled(f"x-{number}", note, wall_ns=at))
        journal.write(reserved("open"))
        Shipper(ledger, folder / "journal").drain()
        journal.close()
        with ledger.writing() as connection:
            add_key(connection, new_key(TERMS)[1])
    return folder / "ledger.sqlite"


@pytest.fixture
def source(filled: Path, tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(shutil.copy(filled, tmp_path / "source.sqlite")) as ledger:
        yield ledger


@pytest.fixture
def target(empty: Path, tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(shutil.copy(empty, tmp_path / "target.sqlite")) as ledger:
        with ledger.writing() as connection:  # it began at another time than the source
            connection.execute(meta.update().values(value="2020-01-01T00:00:00Z"))
        yield ledger


def rows(ledger: Ledger, table: Any) -> list[Any]:
    with ledger.reading() as connection:
        return list(connection.execute(table.select().order_by(*table.primary_key.columns)))


def test_every_row_arrives_and_the_ledger_is_as_old_as_its_source(
    source: Ledger, target: Ledger
) -> None:
    told: list[tuple[str, int]] = []
    found = {
        table.name: table
        for table in copy_ledger(source, target, lambda name, count: told.append((name, count)))
    }
    assert {name: table.rows for name, table in found.items() if table.rows} == {
        "exchange_notes": 9, "attempt_notes": 9, "reservations": 1, "keys": 1, "meta": 1,
        "shipped": 1,
        **{name: table.rows for name, table in found.items() if "rollup" in name},
    }  # fmt: skip
    assert dict(told) == {
        name: table.rows for name, table in found.items() if table.rows and name != "meta"
    }
    for table in (exchange_notes, keys, meta):
        assert rows(source, table) == rows(target, table)
    with target.reading() as connection:
        assert [key.name for key in read_keys(connection)] == ["ci"]
    assert all(len(table.checksum) == 16 for table in found.values())
    assert found["exchange_notes"].checksum != found["attempt_notes"].checksum


def test_rows_are_told_as_they_arrive(
    source: Ledger, target: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "AT_ONCE", 4)
    told: list[tuple[str, int]] = []
    copy_ledger(source, target, lambda name, count: told.append((name, count)))
    assert [count for name, count in told if name == "exchange_notes"] == [4, 8, 9]


def test_a_target_with_rows_of_its_own_is_refused_and_left_as_it_was(
    source: Ledger, target: Ledger
) -> None:
    with target.writing() as connection:
        add_key(connection, new_key(KeyTerms(name="mine"))[1])
    with pytest.raises(UsageError, match="has rows already, in keys") as caught:
        copy_ledger(source, target)
    assert "empty" in caught.value.hint
    assert rows(target, exchange_notes) == []
    assert [row.name for row in rows(target, meta)] == [CREATED]


def test_a_copy_goes_on_behind_the_last_row_that_arrived(
    source: Ledger, target: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "AT_ONCE", 4)

    def breaks(name: str, count: int) -> None:
        if (name, count) == ("exchange_notes", 8):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_ledger(source, target, breaks)
    marked = {row.name: row.value for row in rows(target, meta)}
    began = {row.name: row.value for row in rows(source, meta)}[CREATED]
    assert marked == {CREATED: "2020-01-01T00:00:00Z", "copied from": began}
    told: list[tuple[str, int]] = []
    copy_ledger(source, target, lambda name, count: told.append((name, count)))
    assert [count for name, count in told if name == "exchange_notes"] == [1]
    assert rows(target, exchange_notes) == rows(source, exchange_notes)
    assert [row.name for row in rows(target, meta)] == [CREATED]


def test_a_copy_that_was_broken_off_while_it_was_compared_is_compared_again(
    source: Ledger, target: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = copying._summed

    def broken(ledger: Ledger, table: Any) -> CopiedTable:
        if ledger is target and table is keys:
            raise KeyboardInterrupt
        return real(ledger, table)

    monkeypatch.setattr(copying, "_summed", broken)
    with pytest.raises(KeyboardInterrupt):
        copy_ledger(source, target)
    monkeypatch.setattr(copying, "_summed", real)
    assert {table.name for table in copy_ledger(source, target)} >= {"keys", "meta"}
    assert rows(source, meta) == rows(target, meta)
    with pytest.raises(UsageError, match="has rows already"):  # it is complete, and no copy now
        copy_ledger(source, target)


def test_a_part_of_another_ledgers_copy_is_not_gone_on_with(source: Ledger, target: Ledger) -> None:
    with target.writing() as connection:
        connection.execute(meta.insert().values(name="copied from", value="another time"))
    with pytest.raises(UsageError, match="a part of another ledger's copy"):
        copy_ledger(source, target)


def test_a_source_that_does_not_say_when_it_began_can_be_copied_in_two_goes(
    source: Ledger, target: Ledger
) -> None:
    with source.writing() as connection:
        connection.execute(meta.delete())

    def breaks(_name: str, _count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_ledger(source, target, breaks)
    assert ("copied from", "") in [tuple(row) for row in rows(target, meta)]
    copied = copy_ledger(source, target)
    assert CopiedTable("meta", 0, copied[-1].checksum) == copied[-1]


def test_a_row_that_differs_is_found_and_its_table_named(source: Ledger, target: Ledger) -> None:
    def changes(name: str, _count: int) -> None:
        if name == "exchange_notes":
            with target.writing() as connection:
                connection.execute(exchange_notes.update().values(status=999))

    with pytest.raises(
        LedgerFailed, match=r"differs from its source in exchange_notes\."
    ) as caught:
        copy_ledger(source, target, changes)
    assert "copy again" in caught.value.hint


def test_dollars_that_differ_only_in_their_zeros_are_the_same() -> None:
    plain = copying._plain
    assert plain(Decimal("25.50")) == plain(Decimal("25.500")) == "25.5"
    assert plain(Decimal(100)) == "100"
    assert plain("25.50") == "25.50"


@pytest.fixture
def parquet(missing: Callable[[str], None]) -> Any:
    """What reads the files."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        missing("pyarrow is not installed")
    return pq


def test_days_that_are_over_are_files(source: Ledger, tmp_path: Path, parquet: Any) -> None:
    out = tmp_path / "out"
    made = list(archive_days(source, out, T0 + 2 * DAY))
    first, second = (f"2026-09-{21 + n}" for n in range(2))
    assert [(day.table, day.day, day.rows) for day in made] == [
        ("exchanges", first, 3), ("exchanges", second, 3),
        ("attempts", first, 3), ("attempts", second, 3),
    ]  # fmt: skip
    path = out / "attempts" / f"day={second}" / "rows.parquet"
    assert made[-1] == ArchivedDay("attempts", second, 3, path.stat().st_size)
    table = parquet.read_table(path)
    assert table.column_names == attempts.columns.keys()
    kinds = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert {name: kinds[name] for name in ("id", "wall_ns", "cost_usd", "ttft_ms", "streamed")} == {
        "id": "string", "wall_ns": "int64", "cost_usd": "decimal128(28, 12)", "ttft_ms": "double",
        "streamed": "bool",
    }  # fmt: skip
    assert kinds["status"] == "int32"
    assert table.column("id").to_pylist() == ["x-1-a", "x-4-a", "x-7-a"]
    assert set(table.column("wall_ns").to_pylist()) == {T0 + DAY}
    assert set(table.column("cost_usd").to_pylist()) == {Decimal("0.0000015")}
    assert parquet.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    assert sorted(out.rglob("*.new")) == []


def test_a_day_whose_file_has_all_rows_is_not_written_again(
    source: Ledger, tmp_path: Path, parquet: Any
) -> None:
    out = tmp_path / "out"
    list(archive_days(source, out, T0 + DAY))
    path = out / "exchanges" / "day=2026-09-21" / "rows.parquet"
    assert parquet.read_metadata(path).num_rows == 3
    kept = path.stat().st_ino
    with source.writing() as connection:  # what retention has deleted stays in the file
        connection.execute(exchange_notes.delete().where(exchange_notes.c.id == "x-0"))
    later = list(archive_days(source, out, T0 + 9 * DAY))
    assert (path.stat().st_ino, parquet.read_metadata(path).num_rows) == (kept, 3)
    assert [(day.table, day.rows) for day in later] == [
        ("exchanges", 3), ("exchanges", 3), ("attempts", 3), ("attempts", 3),
    ]  # fmt: skip


def test_a_file_that_cannot_be_read_is_written_again(
    source: Ledger, tmp_path: Path, parquet: Any
) -> None:
    out = tmp_path / "out"
    list(archive_days(source, out, T0 + DAY))
    path = out / "exchanges" / "day=2026-09-21" / "rows.parquet"
    path.write_bytes(b"no Parquet")
    assert [day.table for day in archive_days(source, out, T0 + DAY)] == ["exchanges"]
    assert parquet.read_metadata(path).num_rows == 3


def test_a_day_is_from_midnight_to_midnight_in_utc(
    source: Ledger, tmp_path: Path, parquet: Any
) -> None:
    midnight = (T0 // DAY + 1) * DAY
    with source.writing() as connection:
        moved = exchange_notes.update()
        for number, at in enumerate((midnight - 1, T0 + 2 * DAY, T0 + 2 * DAY, midnight) * 2):
            row = exchange_notes.c.id == f"x-{number}"
            connection.execute(moved.where(row).values(wall_ns=at))
    assert list(archive_days(source, tmp_path / "none", midnight - 1)) == []
    made = list(archive_days(source, tmp_path / "out", midnight))
    rows_of = [(day.day, day.rows) for day in made if day.table == "exchanges"]
    assert rows_of == [("2026-09-21", 2)]
    every = list(archive_days(source, tmp_path / "all", T0 + 9 * DAY))
    rows_of = [(day.day, day.rows) for day in every if day.table == "exchanges"]
    assert rows_of == [("2026-09-21", 2), ("2026-09-22", 2), ("2026-09-23", 5)]
    path = tmp_path / "all" / "exchanges" / "day=2026-09-22" / "rows.parquet"
    assert parquet.read_table(path).column("id").to_pylist() == ["x-3", "x-7"]


def test_many_rows_of_a_day_are_written_in_parts(
    source: Ledger, tmp_path: Path, parquet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "_ROWS_AT_ONCE", 2)
    made = next(iter(archive_days(source, tmp_path / "out", T0 + DAY)))
    path = tmp_path / "out" / "exchanges" / f"day={made.day}" / "rows.parquet"
    assert (made.rows, parquet.read_metadata(path).num_row_groups) == (3, 2)
    assert parquet.read_table(path).column("id").to_pylist() == ["x-0", "x-3", "x-6"]
    assert parquet.read_table(path).column_names == exchanges.columns.keys()


def test_a_folder_that_takes_no_file_is_named(source: Ledger, tmp_path: Path, parquet: Any) -> None:
    assert parquet is not None
    (tmp_path / "out").write_text("a file where the folder should be")
    with pytest.raises(UsageError, match="out/exchanges/day=2026-09-21 cannot be written: Not a"):
        list(archive_days(source, tmp_path / "out", T0 + DAY))


def test_a_file_that_lacks_rows_is_not_kept(
    source: Ledger, tmp_path: Path, parquet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short:
        num_rows = 2

    monkeypatch.setattr(parquet, "read_metadata", lambda _path: Short)
    with pytest.raises(LedgerFailed, match="The file of day=2026-09-21 has 2 of 3 rows"):
        list(archive_days(source, tmp_path / "out", T0 + DAY))
    assert [path.name for path in (tmp_path / "out").rglob("rows*")] == []
