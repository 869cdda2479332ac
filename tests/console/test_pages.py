from __future__ import annotations

import html
from typing import TYPE_CHECKING

from lightgate.console.app import STALE_S
from lightgate.console.ship_loop import ShipLoop
from lightgate.report.tables.speed_report import GROUPINGS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from console.conftest import Get, Traffic
    from lightgate.clock.source import ManualClock
    from lightgate.console.app import ConsoleContext
    from lightgate.ledger.store.store import Ledger


async def test_health(get: Get, console: ConsoleContext) -> None:
    assert (await get("/health/live")).text == '{"live":true}'
    assert (await get("/health/ready")).status == 503  # nothing has been shipped yet
    console.ship_loop.work()
    assert (await get("/health/ready")).status == 200
    clock: ManualClock = console.clock  # type: ignore[assignment]  # the fixture's
    clock.advance(int(STALE_S * 1e9))
    assert (await get("/health/ready")).status == 503


async def test_head_is_answered(get: Get) -> None:
    assert (await get("/", method="HEAD")).status == 200


async def test_a_report_by_something_else(get: Get) -> None:
    assert (await get("/report?by=colour")).status == 400


async def test_the_report(get: Get, console: ConsoleContext, traffic: Traffic) -> None:
    traffic(8)
    console.ship_loop.work()
    for by in GROUPINGS:
        answer = await get(f"/report?by={by}")
        assert answer.status == 200
        assert "<title>" in answer.text
        assert "default-src" not in answer.headers["content-security-policy"]
        assert "default-src 'none'" in html.unescape(answer.text)  # its own policy


# The ship_loop


async def test_a_stop_ships_once_more(ledger: Ledger, tmp_path: Path, traffic: Traffic) -> None:
    ship_loop = ShipLoop(ledger, tmp_path, prune=lambda: None)
    traffic(3)
    ship_loop.stop()
    await ship_loop.run()
    assert ship_loop.totals.exchanges == 3


async def test_a_failure_is_logged_and_tried_again(
    ledger: Ledger, tmp_path: Path, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship_loop = ShipLoop(ledger, tmp_path, prune=lambda: None)
    traffic(1)

    def broken() -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(ship_loop.shipper, "drain", broken)
        assert not ship_loop.work()
    assert (ship_loop.failures, ship_loop.lag_s()) == (1, None)
    assert ship_loop.work()
    assert ship_loop.totals.exchanges == 1


async def test_it_tidies_once_an_hour(
    console: ConsoleContext, ledger: Ledger, tmp_path: Path
) -> None:
    clock: ManualClock = console.clock  # type: ignore[assignment]  # the fixture's
    times: list[int] = []
    ship_loop = ShipLoop(ledger, tmp_path, prune=lambda: times.append(1), clock=clock)
    ship_loop.work()
    ship_loop.work()
    assert len(times) == 1
    clock.advance(3_600_000_000_000)
    ship_loop.work()
    assert len(times) == 2


async def test_orphans_of_a_dead_worker_are_settled(
    console: ConsoleContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from ledger.notes import reserved
    from lightgate.ledger.journal.journal import Journal

    journal = Journal(tmp_path / "journal", 1)
    journal.write(reserved("x-1"))
    console.ship_loop.work()
    assert console.ship_loop.totals.orphans == 0  # its writer lives
    journal.close()
    console.ship_loop.work()
    assert console.ship_loop.totals.orphans == 1
    assert "1 requests of a dead worker" in caplog.text
