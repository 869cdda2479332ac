from __future__ import annotations

import html
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ledger.notes import T0
from lightgate.console.app import STALE_S
from lightgate.console.ship_loop import ShipLoop
from lightgate.console.speeds import SHOWN, live_speeds
from lightgate.ledger.store.hourly import note_hourly_prices
from lightgate.report.tables.speed_report import GROUPINGS

if TYPE_CHECKING:
    from pathlib import Path

    from console.conftest import Get, Traffic
    from lightgate.clock.source import ManualClock
    from lightgate.console.app import ConsoleContext
    from lightgate.ledger.store.store import Ledger

NOW = T0 + 60_000_000_000


def rows(answer: Any) -> dict[str, Any]:
    return {row["target"]: row for row in json.loads(answer.text)["rows"]}


async def test_speeds_of_nothing(get: Get) -> None:
    told = json.loads((await get("/api/speeds")).text)
    assert told["rows"] == []
    assert (told["requests"], told["overhead_p50_ms"], told["left_out"]) == (0, None, 0)


async def test_the_speeds_of_a_target(get: Get, console: ConsoleContext, traffic: Traffic) -> None:
    traffic(72)
    traffic(5, target="lab/rare")
    traffic(3, target="lab/rare", ok=False)
    assert console.ship_loop.work()
    answer = await get("/api/speeds")
    told, often, rare = json.loads(answer.text), rows(answer)["lab/s1"], rows(answer)["lab/rare"]
    assert (told["requests"], told["ok"]) == (80, 77)
    assert (often["requests"], often["ok"], often["last_error"]) == (72, 72, None)
    assert 99 <= often["ttft_p50_ms"] <= 108
    assert often["ttft_p95_ms"] >= often["ttft_p50_ms"]
    assert often["speed_p50_tps"] == pytest.approx(100, rel=0.02)  # a token every 10 ms
    assert often["grade"] == "5"
    assert often["cost_usd"] == "0.000108000"  # 72 requests of 1500 nano-dollars
    # Five good answers are one too few for a median.
    assert (rare["requests"], rare["ok"], rare["ttft_p50_ms"], rare["grade"]) == (8, 5, None, None)
    assert rare["last_error"] == "reset: It broke."


async def test_the_page_shows_a_bounded_number_of_targets(
    ledger: Ledger, console: ConsoleContext, traffic: Traffic
) -> None:
    traffic(2, target="lab/busy")
    for number in range(SHOWN + 4):
        traffic(target=f"lab/made-up-{number}")
    console.ship_loop.work()
    told = live_speeds(ledger, NOW, {})
    assert len(told.rows) == SHOWN
    assert told.left_out == 5
    assert told.requests == SHOWN + 6
    assert "lab/busy" in {row.target for row in told.rows}


async def test_an_old_window_is_empty(
    ledger: Ledger, console: ConsoleContext, traffic: Traffic
) -> None:
    traffic(3)
    console.ship_loop.work()
    assert live_speeds(ledger, NOW, {}).requests == 3
    assert live_speeds(ledger, NOW + 3_600_000_000_000, {}).requests == 0


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


async def test_self_hosted_providers_cost_by_the_hour(
    ledger: Ledger, console: ConsoleContext, traffic: Traffic
) -> None:
    traffic(2)
    traffic(6, target="lab/other")
    console.ship_loop.work()
    note_hourly_prices(ledger, {"lab": Decimal("3.6")}, T0 // 1_000_000_000)
    told = live_speeds(ledger, NOW, {})
    (lab,) = told.hourly
    assert (lab.cost_usd, lab.in_use) == (Decimal("0.06"), 1)  # a minute, all of it in use
    shared = {row.target: row.cost_usd for row in told.rows}
    assert shared == {"lab/s1": Decimal("0.015"), "lab/other": Decimal("0.045")}
    assert told.cost_usd is not None
    assert told.cost_usd > lab.cost_usd  # and the tokens' price


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
    assert live_speeds(ledger, NOW, {}).requests == 3


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
