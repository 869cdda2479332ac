"""A ledger that is copied to another database and back, and its days as Parquet files."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from ledger.notes import T0, attempt_note, reserved, settled
from lightgate.cli.main import cli
from lightgate.errors import UsageError
from lightgate.ledger.failed import LedgerFailed
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.move import copy as copying
from lightgate.ledger.move.archive import archive_days
from lightgate.ledger.move.copy import copy_ledger
from lightgate.ledger.store.keys import KeyTerms, add_key, new_key, read_keys
from lightgate.ledger.store.schema import attempt_notes, exchange_notes, meta
from lightgate.ledger.store.store import Ledger
from postgres import PASSWORD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY = 86_400 * 1_000_000_000


def fill(ledger: Ledger, folder: Path, exchanges: int = 9) -> None:
    """Three days of requests, one that is still open, and a key."""
    journal = Journal(folder / "journal", 0)
    for number in range(exchanges):
        made, wall_ns = f"x-{number}", T0 + number % 3 * DAY
        note = attempt_note(made, wall_ns=wall_ns, won=None if number else True)
        journal.write(settled(made, note, wall_ns=wall_ns, error="ü\t\\N" if number == 4 else None))
    journal.write(reserved("open"))
    Shipper(ledger, folder / "journal").drain()
    journal.close()
    terms = KeyTerms(name="ci", models=("a", "b"), budget_usd=Decimal("25.5"), may_race=True)
    with ledger.writing() as connection:
        add_key(connection, new_key(terms)[1])


def test_there_and_back_every_row_is_the_same(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "AT_ONCE", 4)
    with (
        Ledger.open(tmp_path / "a.sqlite") as one,
        Ledger.open(postgres_url) as other,
        Ledger.open(tmp_path / "b.sqlite") as back,
    ):
        fill(one, tmp_path)
        there = copy_ledger(one, other)
        again = copy_ledger(other, back)
        assert there == again
        rows = {table.name: table.rows for table in there}
        assert (rows["exchange_notes"], rows["attempt_notes"], rows["reservations"]) == (9, 9, 1)
        with one.reading() as first, back.reading() as last:
            assert read_keys(first) == read_keys(last)
            assert first.execute(meta.select()).all() == last.execute(meta.select()).all()
        with pytest.raises(UsageError, match="has rows already"):
            copy_ledger(one, other)


def test_a_null_character_does_not_stop_a_copy(tmp_path: Path, postgres_url: str) -> None:
    """A client may name a model so; other names sort between it and what becomes of it."""
    with Ledger.open(tmp_path / "a.sqlite") as one, Ledger.open(postgres_url) as other:
        journal = Journal(tmp_path / "journal", 0)
        for number, model in enumerate(("a\0b", "ab", "a")):
            journal.write(settled(f"x-{number}", model_asked=model))
        journal.close()
        Shipper(one, tmp_path / "journal").drain()
        copy_ledger(one, other)
        with other.reading() as connection:
            found = set(connection.execute(sa.select(exchange_notes.c.model_asked)).scalars())
    assert found == {"a\N{REPLACEMENT CHARACTER}b", "ab", "a"}


def test_a_copy_goes_on_where_it_was_broken_off_and_a_difference_is_found(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "AT_ONCE", 2)

    class Crash(BaseException):
        """The process dies here."""

    def dies(name: str, rows: int) -> None:
        if (name, rows) == ("exchange_notes", 4):
            raise Crash

    with Ledger.open(tmp_path / "a.sqlite") as one, Ledger.open(postgres_url) as other:
        fill(one, tmp_path)
        with pytest.raises(Crash):
            copy_ledger(one, other, dies)
        with other.writing() as connection:  # what somebody else changes is noticed
            connection.execute(exchange_notes.update().values(status=999))
        told: list[tuple[str, int]] = []
        with pytest.raises(LedgerFailed, match="differs from its source in exchange_notes"):
            copy_ledger(one, other, lambda name, rows: told.append((name, rows)))
        assert ("exchange_notes", 5) in told  # the other four were there
        assert ("exchange_notes", 9) not in told


def test_days_are_files_that_duckdb_reads(
    tmp_path: Path, ledger_url: str, missing: Callable[[str], None]
) -> None:
    try:
        import duckdb
    except ImportError:
        missing("DuckDB is not installed")
    with Ledger.open(ledger_url, tmp_path) as ledger:
        fill(ledger, tmp_path)
        made = list(archive_days(ledger, tmp_path / "out", T0 + 2 * DAY))
        assert [(day.table, day.rows) for day in made] == [
            ("exchanges", 3),
            ("exchanges", 3),
            ("attempts", 3),
            ("attempts", 3),
        ]  # fmt: skip - the third day is not over
        assert list(archive_days(ledger, tmp_path / "out", T0 + 2 * DAY)) == []
        later = list(archive_days(ledger, tmp_path / "out", T0 + 9 * DAY))
        assert [(day.table, day.rows) for day in later] == [("exchanges", 3), ("attempts", 3)]
        with ledger.reading() as connection:
            wanted = connection.execute(
                attempt_notes.select().order_by(attempt_notes.c.wall_ns, attempt_notes.c.id)
            ).all()
    base = duckdb.connect()
    files = f"{tmp_path}/out/attempts/*/*.parquet"
    rows = base.execute(
        "SELECT id, wall_ns, cost_usd, ttft_ms, CAST(day AS VARCHAR) FROM read_parquet(?,"
        " hive_partitioning = true) ORDER BY wall_ns, id",
        [files],
    ).fetchall()
    assert [(row[0], row[1]) for row in rows] == [(row.id, row.wall_ns) for row in wanted]
    assert {row[2] for row in rows} == {Decimal("0.0000015")}
    assert {row[3] for row in rows} == {100.0}
    assert len({row[4] for row in rows}) == 3
    texts = f"{tmp_path}/out/exchanges/*/*.parquet"
    found = base.execute("SELECT error FROM read_parquet(?) WHERE id = 'x-4'", [texts]).fetchall()
    assert found == [("ü\t\\N",)]


def test_rows_that_come_after_their_day_was_written_are_in_its_file_too(
    tmp_path: Path, ledger_url: str
) -> None:
    """A node that was cut off ships its journal late; retention would drop rows of no file."""
    out, late = tmp_path / "out", tmp_path / "other"
    with Ledger.open(ledger_url, tmp_path) as ledger:
        fill(ledger, tmp_path)
        assert len(list(archive_days(ledger, out, T0 + 9 * DAY))) == 6
        journal = Journal(late / "journal", 0)
        journal.write(settled("late", attempt_note("late", wall_ns=T0 + DAY), wall_ns=T0 + DAY))
        journal.close()
        Shipper(ledger, late / "journal").drain()
        made = list(archive_days(ledger, out, T0 + 9 * DAY))
        assert [(day.table, day.rows) for day in made] == [("exchanges", 4), ("attempts", 4)]
        assert list(archive_days(ledger, out, T0 + 9 * DAY)) == []
    table = pq.read_table(out / "exchanges" / f"day={made[0].day}" / "rows.parquet")
    assert "late" in table.column("id").to_pylist()


def test_a_day_that_was_made_and_has_no_row_has_no_file(tmp_path: Path, postgres_url: str) -> None:
    with Ledger.open(postgres_url) as ledger:
        fill(ledger, tmp_path)
        with ledger.writing() as connection:
            connection.execute(attempt_notes.delete().where(attempt_notes.c.wall_ns == T0 + DAY))
        made = list(archive_days(ledger, tmp_path / "out", T0 + 9 * DAY))
    assert [day.rows for day in made if day.table == "attempts"] == [3, 3]


def test_the_verb(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    with Ledger.open("sqlite", data) as ledger:
        fill(ledger, data)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEDGER_URL", postgres_url)

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(
            cli, ["ledger", *words, "--data", str(data)], catch_exceptions=True
        )
        return done.exit_code, f"{done.output}{done.exception or ''}"

    code, said = run("copy", "sqlite", postgres_url)
    assert code != 0
    assert "Every user of this machine" in said
    assert PASSWORD not in said
    for url in (f"postgresql://u@h/x?password={PASSWORD}", f"postgresql://u:{PASSWORD}@[h/x"):
        code, said = run("copy", "sqlite", url)
        assert code != 0
        assert "Every user of this machine" in said
        assert PASSWORD not in said
    code, said = run("copy", "sqlite", "env:NO_SUCH_VARIABLE")
    assert "NO_SUCH_VARIABLE is not set" in said
    code, said = run("copy", "sqlite", "env:LEDGER_URL")
    assert code == 0, said
    assert "attempt_notes" in said
    code, said = run("archive", "--out", str(tmp_path / "files"))
    assert code == 0, said
    assert len(list(tmp_path.glob("files/*/*/rows.parquet"))) == 6
    (tmp_path / "own.toml").write_text('[ledger]\nurl = "env:LEDGER_URL"\n')
    (data / "ledger.sqlite").unlink()
    code, said = run("archive", "--out", str(tmp_path / "more"), "--config", "own.toml")
    assert code == 0, said
    assert len(list(tmp_path.glob("more/*/*/rows.parquet"))) == 6


@pytest.mark.parametrize("words", [("sqlit", "a.sqlite"), ("sqlite", "sqllite")])
def test_a_word_that_is_mistyped_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, str]
) -> None:
    """It was made in the working folder, and the ledger was copied there."""
    monkeypatch.chdir(tmp_path)
    Ledger.open("sqlite", tmp_path / "data").close()
    result = CliRunner().invoke(cli, ["ledger", "copy", *words, "--data", "data"])
    assert isinstance(result.exception, UsageError)
    assert "does not look like a file" in result.exception.message
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
