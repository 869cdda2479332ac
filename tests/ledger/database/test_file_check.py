"""A SQLite file that is read for damage beside its writer."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from lightgate.ledger.database import file_check
from lightgate.ledger.database.file_check import HEAD_BYTES, damage_of, misshapen
from lightgate.ledger.store.file_watch import FileWatch

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 4096


def never() -> bool:
    return False


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sound database of some hundred pages; its name has a character that ends a URL's path."""
    made = tmp_path / "what is ?#%41.sqlite"
    with sqlite3.connect(made) as base:
        base.execute("CREATE TABLE t (n INTEGER NOT NULL, x TEXT, CHECK (n >= 0))")
        base.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x" * 900) for n in range(1000)])
    base.close()
    return made


def harm(path: Path, at: int, size: int = PAGE) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xa5" * size)


def test_a_sound_file_has_no_damage(path: Path) -> None:
    before = path.read_bytes()
    assert damage_of(path, never) == ""
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_page_that_nobody_reads_is_found(path: Path) -> None:
    harm(path, 40 * PAGE)
    said = damage_of(path, never)
    assert said
    assert "\n" not in said


def test_a_file_that_is_no_database_is_damaged(path: Path) -> None:
    harm(path, 0, 100)
    assert damage_of(path, never) == "file is not a database"


def test_a_file_that_is_missing_is_not_made(tmp_path: Path) -> None:
    assert damage_of(tmp_path / "none.sqlite", never) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_check_is_given_up_when_it_is_told_to(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_check, "_STEPS", 100)
    harm(path, 40 * PAGE)
    assert damage_of(path, lambda: True) == ""
    looks = iter(range(1, 10**9))
    assert damage_of(path, lambda: next(looks) < 0) != ""
    assert next(looks) > 2  # it was asked


def test_a_file_that_another_holds_is_not_known_to_be_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_check, "BUSY_S", 0.0)
    other = sqlite3.connect(path)
    other.execute("BEGIN EXCLUSIVE")
    assert damage_of(path, never) == ""
    other.close()


def rewritten(path: Path, old: str, new: str) -> None:
    """Let the text of the table be another, as if an older Lightgate had made it."""
    base = sqlite3.connect(path)
    base.execute("PRAGMA writable_schema = ON")
    base.execute("UPDATE sqlite_master SET sql = replace(sql, ?, ?)", (old, new))
    base.commit()
    base.close()


def test_rows_that_break_a_rule_lie_in_sound_pages(path: Path) -> None:
    """Older tables may have such rows: they are read as well as others."""
    rewritten(path, " NOT NULL", "")
    base = sqlite3.connect(path)
    base.execute("PRAGMA ignore_check_constraints = ON")
    base.execute("INSERT INTO t VALUES (NULL, 'x')")
    base.commit()
    base.close()
    rewritten(path, "INTEGER", "INTEGER NOT NULL")
    assert damage_of(path, never) == ""
    harm(path, 40 * PAGE)
    assert damage_of(path, never) != ""


@pytest.mark.parametrize("page", [512, PAGE, 65_536])
def test_the_head_and_the_length_of_a_file_say_whether_it_may_be_whole(
    tmp_path: Path, page: int
) -> None:
    path = tmp_path / "ledger.sqlite"
    with sqlite3.connect(path) as base:
        base.execute(f"PRAGMA page_size = {page}")
        base.execute("CREATE TABLE t (x TEXT)")
        base.execute("INSERT INTO t VALUES (?)", ["x" * 3 * page])
    base.close()
    head, whole = path.read_bytes()[:HEAD_BYTES], path.stat().st_size
    assert not misshapen(head, whole)
    assert not misshapen(head, whole + 1)
    for size in (whole - 1, page, 0):
        assert misshapen(head, size)
    assert misshapen(b"", 0)
    assert misshapen(b"x" * HEAD_BYTES, whole)


def test_a_new_database_with_a_write_ahead_log_is_in_shape(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    base = sqlite3.connect(path)
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("CREATE TABLE t (x TEXT)")
    watch = FileWatch(path)
    found = watch.head(HEAD_BYTES)
    assert found is not None
    assert not misshapen(*found)
    base.close()
    path.unlink()
    assert watch.head(HEAD_BYTES) is None  # it is gone, which is noticed elsewhere
