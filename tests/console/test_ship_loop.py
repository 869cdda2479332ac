"""The loop that ships journals: what it says while another process holds the ledger."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ledger.notes import settled
from lightgate.clock.source import ManualClock
from lightgate.console import ship_loop
from lightgate.console.ship_loop import HELD_S, ShipLoop
from lightgate.ledger.journal.journal import Journal
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
