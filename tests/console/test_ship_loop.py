"""The loop that ships journals: what it says while another process holds the ledger."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ledger.notes import T0, settled
from lightgate.clock.source import ManualClock
from lightgate.console import ship_loop
from lightgate.console.ship_loop import HELD_S, PRUNE_AGAIN_S, ShipLoop
from lightgate.ledger.database import partitions
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.store.retention import Keep, prune
from lightgate.ledger.store.schema import exchange_notes
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
