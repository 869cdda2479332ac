"""The loop that ships journals: what it says while another process holds the ledger."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ledger.notes import T0, settled
from lightgate.clock.source import ManualClock
from lightgate.console import ship_loop
from lightgate.console.ship_loop import HELD_S, PRUNE_AGAIN_S, ShipLoop
from lightgate.ledger.database import partitions
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store.retention import Keep, prune
from lightgate.ledger.store.schema import exchange_notes
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BEFORE = 20


def test_a_ledger_that_another_process_holds_for_long_is_said_once(
    ledger_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    journal = Journal(tmp_path / "journal", 0)
    journal.write(settled("x-0"))
    journal.close()
    with (
        caplog.at_level(logging.INFO),
        Ledger.open(ledger_url, tmp_path) as other,
        Ledger.open(ledger_url, tmp_path, busy_s=0.05) as ledger,
    ):
        loop = ShipLoop(ledger, tmp_path, prune=lambda: None, clock=clock)
        with other.writing():
            assert loop.work()
            assert loop.problem == ""  # another node writes, as often
            for _ in range(2):
                clock.advance(int(HELD_S * 1e9))
                assert loop.work()
            assert loop.problem.startswith("The ledger cannot be written: ")
            assert loop.problem.endswith("Another process holds it.")
            assert loop.totals.exchanges == 0
        assert loop.work()
        assert loop.problem == ""
        assert loop.totals.exchanges == 1
    said = [record.levelname for record in caplog.records if record.name == ship_loop.__name__]
    assert said == ["ERROR", "INFO"]


async def test_a_check_that_fails_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was the last one, and the console ended with its error instead of in order."""
    monkeypatch.setattr(ship_loop, "CHECK_S", 0.0)
    with Ledger.open("sqlite", tmp_path) as ledger:
        loop, fails = ShipLoop(ledger, tmp_path, prune=lambda: None), [MemoryError(), OSError()]

        def check(stopped: Callable[[], bool]) -> None:
            if fails:
                raise fails.pop()
            running.call_soon_threadsafe(loop.stop)

        running = asyncio.get_running_loop()
        monkeypatch.setattr(ledger, "check_file", check)
        await asyncio.wait_for(loop.run(), 60)
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert said == ["The ledger's file could not be checked; it is tried again"] * 2


def test_a_day_that_somebody_reads_is_dropped_soon_after(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive may read for an hour: nothing is wrong with the ledger meanwhile."""
    clock, week = ManualClock(), 7 * partitions.DAY_NS
    monkeypatch.setattr(partitions, "_DROP_MS", 20)
    journal = Journal(tmp_path / "journal", 0)
    journal.write(settled("x-0", wall_ns=T0))
    journal.close()
    with Ledger.open(postgres_url) as ledger, Ledger.open(postgres_url) as other:

        def clean() -> None:
            prune(ledger, Keep(raw_days=3), now=lambda: T0 + week)

        def rows() -> int:
            with other.reading() as connection:
                return len(connection.execute(exchange_notes.select()).all())

        loop = ShipLoop(ledger, tmp_path, prune=clean, clock=clock)
        with other.reading() as connection:
            loop.shipper.drain()
            connection.execute(exchange_notes.select()).all()
            assert loop.work()
        assert (loop.problem, loop.failures, rows()) == ("", 0, 1)
        clock.advance(int(PRUNE_AGAIN_S * 1e9) - 1)
        assert loop.work()
        assert rows() == 1
        clock.advance(1)
        assert loop.work()
        assert rows() == 0


@pytest.mark.parametrize("harm", ["junk", "empty", "cut off"])
def test_a_file_that_is_written_over_is_left_before_the_journals_are(
    tmp_path: Path, harm: str
) -> None:
    """The pages that the connection still has would take what is shipped, and nobody finds it."""
    path = tmp_path / FILE
    Ledger.open("sqlite", tmp_path).close()  # all tables are in the file, and not beside it
    with Ledger.open("sqlite", tmp_path) as ledger:
        loop = ShipLoop(ledger, tmp_path, prune=lambda: None)
        journal = Journal(tmp_path / "journal", 0)
        for number in range(BEFORE):  # until the connection knows every page that it writes to
            journal.write(settled(f"x-{number}"))
            assert loop.work()
        size = path.stat().st_size
        path.write_bytes(b"x" * size if harm == "junk" else path.read_bytes()[: size // 2])
        if harm == "empty":
            os.truncate(path, 0)
        for number in (BEFORE, BEFORE + 1):
            journal.write(settled(f"x-{number}"))
            loop.work()
        journal.close()
        loop.work()
        loop.work()
    assert not list((tmp_path / "journal").glob("*.lgj"))
    assert list(tmp_path.glob(f"{FILE}.damaged-*"))
    with Ledger.open("sqlite", tmp_path) as ledger, ledger.reading() as connection:
        found = {row.id for row in connection.execute(exchange_notes.select())}
    assert found == {f"x-{number}" for number in range(BEFORE + 2)}


def test_the_head_of_a_file_tells_before_a_page_is_missed(tmp_path: Path) -> None:
    path = tmp_path / FILE
    Ledger.open("sqlite", tmp_path).close()
    with Ledger.open("sqlite", tmp_path) as ledger:
        ledger.look_at_file()
        assert ledger.damage == ""
        path.write_bytes(b"x" * path.stat().st_size)
        ledger.look_at_file()
        assert ledger.damage == "file is not a database"


def test_a_look_at_the_file_takes_no_lock_away(tmp_path: Path) -> None:
    """Else another program that reads the ledger would delete its log at the end, as the last."""
    read = (
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone())"
    )

    def elsewhere() -> str:
        counted = "SELECT count(*) FROM exchange_notes"
        asked = [sys.executable, "-c", read, str(tmp_path / FILE), counted]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()

    Ledger.open("sqlite", tmp_path).close()
    with Ledger.open("sqlite", tmp_path) as ledger:
        loop = ShipLoop(ledger, tmp_path, prune=lambda: None)
        journal = Journal(tmp_path / "journal", 0)
        for number in range(3):
            journal.write(settled(f"x-{number}"))
            assert loop.work()
            assert elsewhere() == f"({number + 1},)"
        journal.close()
