"""Machines of one's own against APIs, from the sums of a ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec
import pytest

from ledger.notes import T0, attempt_note, exchange_note, marks
from lightgate.ledger.store.hourly import hourly_rows, machine_uses, note_hourly_prices
from lightgate.ledger.store.owners import rows_by
from lightgate.ledger.store.rollup import Rollup
from lightgate.ledger.store.schema import attempt_notes, exchange_notes
from lightgate.ledger.store.store import Ledger
from lightgate.price.rates import Rates
from lightgate.report.charts.use_chart import use_charts
from lightgate.report.money.machines import machine_cost, machine_run, use_sentences, with_rates
from lightgate.report.pages.speed_page import speed_page
from lightgate.report.tables.own_or_api import own_rows
from lightgate.report.tables.speed_lines import plain_speed, speed_data
from lightgate.report.tables.speed_report import SpeedQuestion, arranged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.ledger.journal.notes import AttemptNote

S = 1_000_000_000
HOURS = 10
UNTIL = datetime.fromtimestamp(T0 / S + HOURS * 3600, UTC)
LAST = timedelta(hours=HOURS)
BUSY = 600  # requests in the busiest five minutes


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """One machine that is busy for five minutes of ten hours, and an API that is asked as often."""
    with Ledger.open("sqlite", tmp_path) as opened:
        own = [attempt(n, T0 + n * S // 4, "lab", None) for n in range(BUSY)]
        own += [attempt(BUSY + n, T0 + (600 + n * 300) * S, "lab", None) for n in range(100)]
        api = [attempt(9000 + n, T0 + n * 30 * S, "cloud", 40_000) for n in range(200)]
        rollup = Rollup()
        made = [(exchange_note(a.facts.exchange_id, wall_ns=a.facts.wall_ns), a) for a in own + api]
        for exchange, one in made:
            rollup.add(exchange, [one])
        with opened.writing() as connection:
            opened.insert(connection, exchange_notes, [e.row(1) for e, _ in made])
            opened.insert(connection, attempt_notes, [a.row() for _, a in made])
            rollup.write(opened, connection)
        note_hourly_prices(opened, {"lab": Decimal("2.40")}, T0 // S)
        yield opened


def attempt(number: int, wall_ns: int, provider: str, nano: int | None) -> AttemptNote:
    note = attempt_note(
        f"x-{number}", marks(10), wall_ns=wall_ns, target=f"{provider}/m", provider=provider,
        model="m", cost_nano=nano, cost_source="hourly" if nano is None else "list",
    )  # fmt: skip
    return msgspec.structs.replace(note, tokens_out=100, tokens_in=1000)


def test_capacity_is_that_of_the_busiest_five_minutes(ledger: Ledger) -> None:
    hourly = hourly_rows(ledger, LAST, UNTIL, {})
    (use,) = machine_uses(ledger, hourly, LAST, UNTIL)
    assert (use.provider, use.models, use.answered) == ("lab", ("m",), BUSY + 100)
    assert use.peak_tps == pytest.approx(BUSY * 100 / 300)
    assert use.mean_tps == pytest.approx((BUSY + 100) * 100 / (HOURS * 3600))
    assert use.utilisation == pytest.approx(use.mean_tps / use.peak_tps)
    assert len(use.by_hour_tps) == 24
    full = machine_cost(use)
    assert full.per_1k == pytest.approx(Decimal("2.40") / (BUSY * 12) * 1000)
    assert full.per_mtok == pytest.approx(Decimal("2.40") / (BUSY * 12 * 100) * 1_000_000)


@pytest.mark.parametrize(("seconds", "judged"), [(299, False), (300, True)])
def test_a_use_across_two_spans_counts_by_its_mean_once_five_minutes_are_over(
    tmp_path: Path, seconds: int, judged: bool
) -> None:
    begin_ns = (T0 // S // 300 + 1) * 300 * S - 150 * S  # half of a span, and half of the next
    until = datetime.fromtimestamp(begin_ns / S + seconds, UTC)
    with Ledger.open("sqlite", tmp_path) as opened:
        rollup = Rollup()
        made = [attempt(n, begin_ns + n * S, "lab", None) for n in range(seconds)]
        for one in made:
            rollup.add(exchange_note(one.facts.exchange_id, wall_ns=one.facts.wall_ns), [one])
        with opened.writing() as connection:
            opened.insert(connection, attempt_notes, [one.row() for one in made])
            rollup.write(opened, connection)
        note_hourly_prices(opened, {"lab": Decimal("2.40")}, begin_ns // S)
        uses = machine_uses(opened, hourly_rows(opened, LAST, until, {}), LAST, until)
    assert [use.mean_tps for use in uses] == [100.0] * judged
    assert [use.peak_tps for use in uses] == [100.0] * judged
    assert [use.utilisation for use in uses] == [1.0] * judged


def test_break_even_is_that_of_this_traffic(ledger: Ledger) -> None:
    hourly = hourly_rows(ledger, LAST, UNTIL, {})
    uses = machine_uses(ledger, hourly, LAST, UNTIL)
    rows = rows_by(ledger, LAST, "target", UNTIL)
    listed = {"cloud/m": Rates(input=Decimal(1), output=Decimal(4))}
    run = machine_run(uses, with_rates(rows, listed), "2026-11-01T00:00:00Z")
    assert run is not None
    (row,) = run.break_even
    # 1,000 tokens in at 1 dollar and 100 out at 4 dollars a million: 1.40 dollars per 1,000.
    assert row.api_per_1k == Decimal("1.4")
    assert row.utilisation == pytest.approx(2.40 / (BUSY * 12) * 1000 / 1.4)
    assert row.models == ()
    by_bills = machine_run(uses, with_rates(rows, {}), "2026-11-01T00:00:00Z")
    assert by_bills is not None
    assert by_bills.break_even[0].api_per_1k == Decimal("0.04")
    assert by_bills.break_even[0].utilisation is None
    assert len(use_charts(run)) == 1
    assert own_rows(run)[0].own == "lab at its busiest 5 minutes"
    (said,) = use_sentences(uses, run.break_even)
    assert "cheaper than cloud/m from 24 % on: so in 0 of 10 hours" in said
    assert machine_run(uses, [], "2026-11-01T00:00:00Z") is None


def test_the_report_has_it_in_every_form(ledger: Ledger) -> None:
    hourly = hourly_rows(ledger, LAST, UNTIL, {})
    uses = machine_uses(ledger, hourly, LAST, UNTIL)
    rows = rows_by(ledger, LAST, "target", UNTIL)
    listed = {"cloud/m": Rates(input=Decimal(1), output=Decimal(4))}
    asked = SpeedQuestion(by="target", since="2026-11-01T00:00:00Z", until="2026-11-01T10:00:00Z")
    asked = msgspec.structs.replace(asked, min_requests=10)
    report = arranged(rows, asked, hourly)._replace(
        machines=tuple(uses), own=machine_run(uses, with_rates(rows, listed), asked.since)
    )
    text = plain_speed(report)
    assert "lab at its busiest 5 minutes" in text
    assert "24 % of its use" in text
    data = speed_data(report)
    (found,) = data["rows"][:1] if data["rows"][0]["name"] == "cloud/m" else data["rows"][1:]  # type: ignore[index]
    assert found["cost_1k_usd"] == Decimal("0.04")
    assert found["tokens_per_dollar"] == pytest.approx(100 / 0.00004)
    assert data["break_even"]
    page = speed_page(report, ("<section id='more'></section>",))
    assert "Own machine or API, for this traffic" in page
    assert "<section id='more'>" in page
