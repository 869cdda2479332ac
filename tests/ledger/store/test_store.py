from __future__ import annotations

import multiprocessing
import sqlite3
import subprocess
import sys
import threading
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from ledger.notes import T0, attempt_note, marks, settled
from lightgate.clock.attempt import AttemptRecord
from lightgate.errors import ConfigError
from lightgate.ledger.failed import LedgerBusy, LedgerConflict, LedgerFailed
from lightgate.ledger.migrations import HEAD
from lightgate.ledger.sqlite import FILE, use_wal
from lightgate.ledger.store import schema
from lightgate.ledger.store.exchange import ExchangeRecord
from lightgate.ledger.store.rollup import DAY_S, Rollup
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path

KEY = {
    "id": "k-1", "name": "n", "hash": "h", "prefix": "lg-abcde", "created": "2026-01-01T00:00:00Z",
    "models": ["fast"], "budget_usd": Decimal("10.000000001"), "budget_period": "day",
    "may_race": True, "max_fanout": 2,
}  # fmt: skip


def test_the_migrations_come_to_the_schema(tmp_path: Path) -> None:
    with Ledger.open("sqlite", tmp_path) as ledger, ledger.reading() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, schema.metadata) == []
        assert context.get_current_revision() == HEAD
    config = Config()
    config.set_main_option("script_location", "lightgate.ledger:migrations")
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_the_migrations_go_down_again(tmp_path: Path) -> None:
    from alembic import command

    with Ledger.open("sqlite", tmp_path) as ledger:
        config = Config()
        config.set_main_option("script_location", "lightgate.ledger:migrations")
        with ledger.writing() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "base")
        with ledger.reading() as connection:
            assert sa.inspect(connection).get_table_names() == ["alembic_version"]
            assert sa.inspect(connection).get_view_names() == []
    with Ledger.open("sqlite", tmp_path) as ledger, ledger.reading() as connection:
        assert "attempts" in sa.inspect(connection).get_view_names()


def test_the_days_of_an_older_ledger_are_those_that_would_be_there(tmp_path: Path) -> None:
    from alembic import command

    days = schema.rollups.select().where(schema.rollups.c.width_s == DAY_S)
    hours = (0, 1, 30)  # two of one day, one of the next
    with Ledger.open("sqlite", tmp_path) as ledger:
        for hour in hours:
            made, wall_ns = f"x-{hour}", T0 + hour * 3_600_000_000_000
            note = attempt_note(made, marks(first_ms=100 + hour), wall_ns=wall_ns)
            rollup = Rollup()
            rollup.add(settled(made, note).exchange, (note,))
            with ledger.writing() as connection:
                rollup.write(ledger, connection)
        with ledger.reading() as connection:
            before = connection.execute(days.order_by(schema.rollups.c.bucket_s)).all()
        assert [row.attempts for row in before] == [2, 1]
        config = Config()
        config.set_main_option("script_location", "lightgate.ledger:migrations")
        with ledger.writing() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "0008")
        with ledger.reading() as connection:
            assert connection.execute(days).all() == []
    with Ledger.open("sqlite", tmp_path) as ledger, ledger.reading() as connection:
        assert connection.execute(days.order_by(schema.rollups.c.bucket_s)).all() == before


def test_the_columns_are_the_records() -> None:
    of_attempt = (*AttemptRecord.__struct_fields__, "wall_ns", "cost_nano")
    of_exchange = (*ExchangeRecord.__struct_fields__, "wall_ns", "cost_nano", "loser_cost_nano")
    assert tuple(schema.attempts.columns.keys()) == of_attempt
    assert tuple(schema.exchanges.columns.keys()) == of_exchange


def test_the_views_have_the_columns_of_the_schema(tmp_path: Path) -> None:
    with Ledger.open("sqlite", tmp_path) as ledger, ledger.reading() as connection:
        for view in schema.views.sorted_tables:
            columns = sa.inspect(connection).get_columns(view.name)
            assert [column["name"] for column in columns] == view.columns.keys()


def test_the_columns_may_be_empty_where_the_schema_says_so(tmp_path: Path) -> None:
    with Ledger.open("sqlite", tmp_path) as ledger, ledger.reading() as connection:
        for table in schema.metadata.sorted_tables:
            found = sa.inspect(connection).get_columns(table.name)
            may = {column["name"]: column["nullable"] for column in found}
            assert may == {column.name: column.nullable for column in table.columns}, table.name


def test_the_tables_can_be_said_in_postgresql() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    for table in schema.metadata.sorted_tables:
        text = str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            text += str(CreateIndex(index).compile(dialect=dialect))
        assert "_usd TEXT" not in text
    assert "cost_usd NUMERIC(28, 12)" in str(CreateTable(schema.rollups).compile(dialect=dialect))
    assert '"offset" BIGINT' in str(CreateTable(schema.shipped).compile(dialect=dialect))


def test_money_is_exact(tmp_path: Path) -> None:
    with Ledger.open("sqlite", tmp_path) as ledger:
        with ledger.writing() as connection:
            connection.execute(schema.keys.insert().values(**KEY))
        with ledger.reading() as connection:
            row = connection.execute(schema.keys.select()).one()
    assert (row.budget_usd, row.models, row.may_race) == (Decimal("10.000000001"), ["fast"], True)
    base = sqlite3.connect(tmp_path / FILE)
    assert base.execute("SELECT budget_usd FROM keys").fetchone() == ("10.000000001",)
    assert base.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    base.close()


def test_a_failed_transaction_keeps_nothing(tmp_path: Path) -> None:
    with Ledger.open("sqlite", tmp_path) as ledger:
        rows = [("a", "1"), ("a", "2")]
        with pytest.raises(LedgerConflict), ledger.writing() as connection:
            ledger.insert(connection, schema.meta, rows)
        with ledger.reading() as connection:
            assert [row.name for row in connection.execute(schema.meta.select())] == ["created"]


def test_a_second_writer_waits_and_then_says_so(tmp_path: Path) -> None:
    with Ledger.open("sqlite", tmp_path, busy_s=0.05) as ledger:
        other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerBusy, match="cannot be written"), ledger.writing():
            pass
        with ledger.reading() as connection:
            assert connection.execute(schema.keys.select()).all() == []
        other.close()
        with ledger.writing() as connection:
            connection.execute(schema.keys.insert().values(**KEY))


def test_a_newer_ledger_is_refused(tmp_path: Path) -> None:
    with Ledger.open("sqlite", tmp_path) as ledger, ledger.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ConfigError, match="newer Lightgate"):
        Ledger.open("sqlite", tmp_path)


def test_what_is_no_ledger_is_said(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database, and long enough for a header\n" * 20)
    with pytest.raises(LedgerFailed, match="cannot be read"):
        Ledger.open(tmp_path / "text")
    with pytest.raises(LedgerFailed, match="cannot be opened"):
        Ledger.open(tmp_path / "text" / "ledger.sqlite")
    with pytest.raises(ConfigError, match="no database URL"):
        Ledger.open("postgresql//user:secret@host/x")
    with pytest.raises(ConfigError, match="No driver") as said:
        Ledger.open("mysql+none://user:secret@host/x")
    assert "secret" not in str(said.value)
    with pytest.raises(ConfigError, match="needs a data folder"):
        Ledger.open("sqlite")


def _open_many(folder: Path, times: int) -> None:
    for _ in range(times):
        Ledger.open("sqlite", folder).close()


def test_two_openers_make_one_ledger(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    openers = [context.Process(target=_open_many, args=(tmp_path, 3)) for _ in range(3)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join()
    assert [opener.exitcode for opener in openers] == [0, 0, 0]
    with Ledger.open("sqlite", tmp_path) as ledger, ledger.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []


def test_a_new_file_that_another_opener_holds_is_waited_for(tmp_path: Path) -> None:
    """Not SQLite's own wait: it has none for the change of a new file to WAL."""
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    said: list[str] = []
    waiting = threading.Event()

    def asked(statement: str) -> None:
        said.append(statement)
        if statement == "BEGIN IMMEDIATE":
            waiting.set()

    def opens() -> None:
        base = sqlite3.connect(tmp_path / FILE, timeout=100, isolation_level=None)
        base.set_trace_callback(asked)
        use_wal(base)
        base.close()

    opener = threading.Thread(target=opens)
    opener.start()
    assert waiting.wait(60)
    other.execute("COMMIT")
    opener.join(60)
    assert said == [
        "PRAGMA journal_mode = WAL", "BEGIN IMMEDIATE", "ROLLBACK", "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = NORMAL",
    ]  # fmt: skip
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()


def test_a_new_file_that_is_never_free_is_said(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerBusy, match="database is locked"):
        Ledger.open("sqlite", tmp_path, busy_s=0.05)
    other.close()
    Ledger.open("sqlite", tmp_path).close()


def test_a_ledger_that_is_up_to_date_opens_without_alembic(tmp_path: Path) -> None:
    Ledger.open("sqlite", tmp_path).close()
    script = (
        "import sys; from pathlib import Path; from lightgate.ledger.store.store import Ledger;"
        "Ledger.open('sqlite', Path(sys.argv[1])).close();"
        "assert 'alembic.command' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=100)


def test_a_ledger_in_a_file_needs_nothing_of_postgresql(tmp_path: Path) -> None:
    Ledger.open("sqlite", tmp_path).close()
    script = (
        "import sys; from pathlib import Path; from lightgate.ledger.store.store import Ledger;"
        "Ledger.open('sqlite', Path(sys.argv[1])).close();"
        "assert not {'psycopg', 'sqlalchemy.dialects.postgresql'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=100)


def test_workers_need_no_database_library() -> None:
    script = (
        "import sys; import lightgate.ledger.journal.journal;"
        "assert not {'sqlalchemy', 'sqlite3', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


def test_a_ledger_knows_that_its_file_has_moved(tmp_path: Path) -> None:
    with Ledger.open("sqlite", tmp_path) as ledger:
        assert not ledger.moved()
        with ledger.reading():
            (tmp_path / "ledger.sqlite").unlink()
        assert ledger.moved()
        ledger.leave_moved()
        assert list(tmp_path.iterdir()) == []  # nothing of the old one lies beside the new one
        ledger.reopen()
        assert not ledger.moved()
        with ledger.reading() as connection:
            assert connection.execute(sa.text("SELECT count(*) FROM exchanges")).scalar() == 0
