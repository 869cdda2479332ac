"""What self-hosted providers cost: hours times price, the idle ones too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from ledger.notes import T0, attempt_note, settled
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store.hourly import hourly_rows, note_hourly_prices
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

S = T0 // 1_000_000_000
HOUR = 3600
NOW = datetime.fromtimestamp(S + 10 * HOUR, UTC)
DAY = timedelta(days=1)
PRICE = {"lab": Decimal("2.40")}


@pytest.fixture
def ledger(tmp_path: Path, ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, tmp_path) as opened:
        yield opened


def ask(ledger: Ledger, folder: Path, *seconds: int, source: str = "hourly") -> None:
    """One request at each of these seconds after the start."""
    journal = Journal(folder / "journal", 0)
    for at in seconds:
        made, wall_ns = f"x-{at}", T0 + at * 1_000_000_000
        note = attempt_note(made, wall_ns=wall_ns, cost_nano=0, cost_source=source)
        journal.write(settled(made, note, wall_ns=wall_ns))
    journal.close()
    Shipper(ledger, folder / "journal").drain()


def test_idle_hours_are_not_lost(ledger: Ledger, tmp_path: Path) -> None:
    note_hourly_prices(ledger, PRICE, S)
    ask(ledger, tmp_path, 10, 20, 301)
    (row,) = hourly_rows(ledger, DAY, NOW, {})
    assert row.provider == "lab"
    assert row.usd_per_hour == Decimal("2.40")
    assert row.hours == 10
    assert row.cost_usd == 24
    assert row.in_use == pytest.approx(600 / 36_000)  # two spans of 5 minutes
    assert row.idle_usd == Decimal("23.6")
    assert (row.attempts, row.tokens_out) == (3, 12)
    assert row.usd_per_mtok == Decimal(24) * 1_000_000 / 12


def test_a_machine_that_nobody_asked_costs_all_the_same(ledger: Ledger) -> None:
    assert hourly_rows(ledger, DAY, NOW, {}) == []
    note_hourly_prices(ledger, PRICE, S)
    (row,) = hourly_rows(ledger, DAY, NOW, {})
    assert row.cost_usd == row.idle_usd == 24
    assert row.in_use == 0
    assert row.usd_per_mtok is None


def test_a_price_that_changes_does_not_change_the_past(ledger: Ledger) -> None:
    assert note_hourly_prices(ledger, PRICE, S)
    assert not note_hourly_prices(ledger, PRICE, S + HOUR)
    assert note_hourly_prices(ledger, {"lab": Decimal(10)}, S + 4 * HOUR)
    assert note_hourly_prices(ledger, {"lab": Decimal(5)}, S + 4 * HOUR)  # of the same second
    assert note_hourly_prices(ledger, {}, S + 6 * HOUR)  # self-hosted no more
    (row,) = hourly_rows(ledger, DAY, NOW, {})
    assert row.hours == 6
    assert row.cost_usd == 4 * Decimal("2.40") + 2 * 5
    assert row.usd_per_hour == 5
    (part,) = hourly_rows(ledger, timedelta(hours=5), NOW, {})  # begins an hour before the change
    assert part.cost_usd == 5
    assert hourly_rows(ledger, timedelta(hours=3), NOW, {}) == []


def test_the_first_price_holds_from_the_first_request_that_was_paid_by_the_hour(
    ledger: Ledger, tmp_path: Path
) -> None:
    ask(ledger, tmp_path, 7200)
    (unnoted,) = hourly_rows(ledger, DAY, NOW, PRICE)
    assert unnoted.hours == 8
    note_hourly_prices(ledger, PRICE, S + 9 * HOUR)
    (row,) = hourly_rows(ledger, DAY, NOW, {})
    assert row == unnoted


def test_requests_at_token_prices_are_not_counted_as_hours(ledger: Ledger, tmp_path: Path) -> None:
    ask(ledger, tmp_path, 7200, source="list")
    note_hourly_prices(ledger, PRICE, S + 9 * HOUR)
    (row,) = hourly_rows(ledger, DAY, NOW, {})
    assert row.hours == 1
