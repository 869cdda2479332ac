"""A SQLite ledger that is damaged: it is put aside whole, and nothing is written over it."""

from __future__ import annotations

import sqlite3
import sys
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from lightgate.errors import ConfigError
from lightgate.ledger.failed import LedgerFailed
from lightgate.ledger.migrations import HEAD
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store.file_watch import FileWatch
from lightgate.ledger.store.schema import attempt_notes
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open("sqlite", tmp_path) as made:
        yield made


def harm(path: Path) -> None:
    """Put nothing but rubbish into all pages behind the first one."""
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    base.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xa5" * 16_384)


def test_the_files_get_another_name_together_and_never_one_that_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    watch = FileWatch(path)
    for place, end in enumerate(("", "-2", "-3")):
        path.write_text(f"base {place}")
        (tmp_path / "x.sqlite-wal").write_text(f"wal {place}")
        if place:
            (tmp_path / "x.sqlite-shm").write_text(f"shm {place}")
        watch.note()
        aside = watch.put_aside("noon")
        assert aside == tmp_path / f"x.sqlite.damaged-noon{end}"
        assert aside.read_text() == f"base {place}"
        assert aside.with_name(f"{aside.name}-wal").read_text() == f"wal {place}"
        assert aside.with_name(f"{aside.name}-shm").exists() is (place > 0)
        assert not path.exists()


def test_what_was_put_aside_is_not_cleared_away(tmp_path: Path) -> None:
    path, wal = tmp_path / "x.sqlite", tmp_path / "x.sqlite-wal"
    path.touch()
    wal.touch()
    watch = FileWatch(path)
    watch.note()
    aside = watch.put_aside("noon")
    aside.with_name(f"{aside.name}-wal").rename(wal)  # as if it were that of a new database
    watch.clear()
    assert wal.exists()


def test_what_was_cleared_away_is_forgotten(tmp_path: Path) -> None:
    """A new file may get the number of a deleted one; a hard link stands for such a file here."""
    path, wal, kept = tmp_path / "x.sqlite", tmp_path / "x.sqlite-wal", tmp_path / "kept"
    path.touch()
    wal.touch()
    kept.hardlink_to(wal)
    watch = FileWatch(path)
    watch.note()
    watch.clear()
    assert not wal.exists()
    wal.hardlink_to(kept)
    watch.clear()
    assert wal.exists()


def test_damage_is_noted_once_and_gone_with_the_file(ledger: Ledger, tmp_path: Path) -> None:
    ledger.check_file(lambda: False)
    assert ledger.damage == ""
    harm(tmp_path / FILE)
    ledger.check_file(lambda: False)
    assert ledger.damage
    ledger.damage = "known"
    ledger.check_file(lambda: False)
    assert ledger.damage == "known"
    aside = ledger.put_aside("noon")
    assert aside == tmp_path / f"{FILE}.damaged-noon"
    assert ledger.damage == ""
    ledger.reopen()
    ledger.check_file(lambda: False)
    assert ledger.damage == ""
    assert aside.exists()


def test_a_ledger_that_was_not_opened_is_not_checked(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    ledger = Ledger.later("sqlite", tmp_path)
    ledger.check_file(lambda: False)
    assert ledger.damage == ""


# A look that changes nothing


def test_a_look_at_a_ledger_says_how_far_its_tables_are(tmp_path: Path) -> None:
    ledger = Ledger.later("sqlite", tmp_path)
    assert ledger.examined().startswith("It has no tables yet")
    assert ledger.examined().startswith("It has no tables yet")  # the look has made none
    ledger.bring_up_to_date()
    assert ledger.examined() == "Its tables are up to date."
    with ledger.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
    older = Ledger.later("sqlite", tmp_path)
    assert older.examined() == f"Its tables are at step 0001: the next start brings them to {HEAD}."
    older.close()
    ledger.close()


def test_a_look_finds_a_newer_ledger_and_one_without_a_table(tmp_path: Path) -> None:
    with Ledger.open("sqlite", tmp_path) as ledger:
        with ledger.writing() as connection:
            connection.execute(sa.text("DROP TABLE attempt_notes"))
        with pytest.raises(LedgerFailed):
            Ledger.later("sqlite", tmp_path).examined()
        with ledger.writing() as connection:
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ConfigError, match="written by a newer Lightgate"):
        Ledger.later("sqlite", tmp_path).examined()


def test_tables_that_no_step_has_made_are_refused_by_name(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as strange:
        strange.execute("CREATE TABLE rollups (x)")
        strange.execute("CREATE TABLE exchanges (x)")
        strange.execute("CREATE TABLE other (x)")
    strange.close()
    ledger = Ledger.later("sqlite", tmp_path)
    with pytest.raises(LedgerFailed, match="has a table exchanges that no step") as said:
        ledger.examined()
    assert said.value.hint
    ledger.close()


def test_a_ledger_that_is_no_file_of_its_own_has_no_days_apart(ledger: Ledger) -> None:
    assert ledger.drop_days(attempt_notes, 10**18) is None
    assert ledger.days(attempt_notes) is None


def test_only_a_sound_ledger_that_is_open_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / FILE
    Ledger.open("sqlite", tmp_path).close()
    with Ledger.open("sqlite", tmp_path) as ledger:
        path.write_bytes(b"x" * path.stat().st_size)
        ledger.damage = "known"
        ledger.look_at_file()
        assert ledger.damage == "known"
        ledger.damage = ""
        ledger.look_at_file()
        assert ledger.damage
    closed = Ledger.later("sqlite", tmp_path)
    closed.look_at_file()
    assert closed.damage == ""
    closed.close()


def test_without_its_driver_a_ledger_on_a_server_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "lightgate.ledger.database.postgres", None)
    with pytest.raises(ConfigError, match="No driver for a PostgreSQL ledger") as said:
        Ledger.later("postgresql://host/x")
    assert said.value.hint == "pip install 'lightgate[postgres]'"
