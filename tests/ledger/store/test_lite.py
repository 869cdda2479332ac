"""SQLite under the ledger: rows straight to the driver, errors in a sentence, a file that moves."""

from __future__ import annotations

import os
import sqlite3
import stat
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from lightgate.errors import ConfigError
from lightgate.ledger.database.lite import LiteDatabase
from lightgate.ledger.database.place import database_url
from lightgate.ledger.failed import LedgerBusy, LedgerConflict, LedgerFailed, LedgerNoRoom
from lightgate.ledger.store.file_watch import FileWatch
from lightgate.ledger.store.schema import Money

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLE = sa.Table(
    "t", sa.MetaData(), sa.Column("a", sa.Integer), sa.Column("b", Money), sa.Column("c", sa.Text)
)


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[LiteDatabase]:
    made = LiteDatabase(database_url("sqlite", tmp_path / "deep" / "down"), 0.0)
    with made.engine.begin() as connection:
        TABLE.create(connection)
    yield made
    made.engine.dispose()


def test_a_new_file_and_its_folder_are_for_their_owner_only(lite: LiteDatabase) -> None:
    """`lightgate keys create` makes both before the first `lightgate up` closes the folder."""
    assert lite.path is not None
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (lite.path.parent, lite.path)]
    assert modes == [0o700, 0o600]
    lite.path.chmod(0o640)
    LiteDatabase(database_url("sqlite", lite.path.parent), 0.0).engine.dispose()
    assert stat.S_IMODE(lite.path.stat().st_mode) == 0o640  # what is there is its owner's matter


def test_rows_are_inserted_whatever_is_missing_at_their_ends(lite: LiteDatabase) -> None:
    rows: list[tuple[Any, ...]] = [
        (1, Decimal("0.000000001"), "x"), (2, Decimal("1E+2"), None), (3, None, None),
        (4, None, "y"), (5, Decimal(7), None),
    ]  # fmt: skip
    with lite.engine.begin() as connection:
        lite.insert(connection, TABLE, rows)
        found = connection.execute(sa.select(TABLE).order_by(TABLE.c.a)).all()
        raw = connection.exec_driver_sql("SELECT b, typeof(b) FROM t ORDER BY a").all()
    assert [tuple(row) for row in found] == rows
    assert [tuple(row) for row in raw[:3]] == [
        ("0.000000001", "text"), ("100", "text"), (None, "null"),
    ]  # fmt: skip


def test_one_connection_writes_at_a_time_and_others_read(lite: LiteDatabase) -> None:
    with lite.engine.connect() as first, lite.engine.connect() as second:
        lite.to_write(first).begin()
        with pytest.raises(sa.exc.OperationalError) as busy:
            lite.to_write(second).begin()
        assert isinstance(lite.failed(busy.value, "written"), LedgerBusy)
    with lite.engine.connect() as first, lite.engine.connect() as second:
        lite.to_write(first).begin()
        with lite.to_read(second).begin():
            assert second.execute(sa.select(TABLE)).all() == []


def test_an_error_says_what_could_not_be_done_and_why(lite: LiteDatabase) -> None:
    def wrapped(cause: Exception, kind: Any = sa.exc.OperationalError) -> Any:
        return kind("SELECT 1", None, cause)

    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    for error, kind, said in (
        (wrapped(ValueError("twice"), sa.exc.IntegrityError), LedgerConflict, "read: twice."),
        (wrapped(full), LedgerNoRoom, "read, the disk may be full: database"),
        (wrapped(sqlite3.OperationalError("no such table: x")), LedgerFailed, "read: no such"),
        (sa.exc.InvalidRequestError("odd"), LedgerFailed, "read: odd."),
    ):
        told = lite.failed(error, "read")
        assert type(told) is kind
        assert told.message.startswith(f"The ledger cannot be {said}")


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerFailed, match="cannot be opened: Not a directory"):
        LiteDatabase(database_url(tmp_path / "file" / "x" / "l.sqlite", None), 1.0)


def test_the_url_of_a_ledger_is_a_file_or_a_server(tmp_path: Path) -> None:
    assert database_url(tmp_path / "x", None).database == str(tmp_path / "x")
    assert database_url("sqlite", tmp_path).database == str(tmp_path / "ledger.sqlite")
    assert database_url("postgresql://u:p@h/d", None).drivername == "postgresql"
    with pytest.raises(ConfigError, match="needs a data folder"):
        database_url("sqlite", None)
    with pytest.raises(ConfigError, match="no database URL") as wrong:
        database_url("secret nonsense", None)
    assert "secret" not in str(wrong.value)


def test_a_file_that_was_replaced_takes_what_it_left_beside_it_with_it(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    beside = [tmp_path / f"l.sqlite{end}" for end in ("-wal", "-shm")]
    for one in (path, beside[0]):
        one.write_text("old")
    watch = FileWatch(path)
    watch.note()
    assert not watch.moved()
    beside[1].write_text("old")
    assert not watch.moved()  # which sees the other file, too
    new = tmp_path / "new"
    new.write_text("new")
    os.replace(new, path)  # noqa: PTH105 - as a restore does
    assert watch.moved()
    fresh = tmp_path / "fresh"
    fresh.write_text("new")
    os.replace(fresh, beside[0])  # noqa: PTH105 - it came with the new one
    watch.clear()
    assert [one.exists() for one in beside] == [True, False]
    watch.note()
    assert not watch.moved()
    path.unlink()
    assert watch.moved()
    watch.clear()
    assert not beside[0].exists()
