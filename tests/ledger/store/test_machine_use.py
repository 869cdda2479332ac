"""What a self-hosted provider did for its price: sums that are worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ledger.notes import attempt_note
from lightgate.ledger.store.hourly import HourlyRow, MachineUse, hourly_costs, machine_uses
from lightgate.ledger.store.rollup import FINE_S, HOUR_S
from lightgate.ledger.store.schema import attempt_notes, hourly_prices, rollups
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

NOON = 1_790_000_000 // 86_400 * 86_400 + 12 * HOUR_S
NOW = datetime.fromtimestamp(NOON + HOUR_S, UTC)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with Ledger.open("sqlite", tmp_path_factory.mktemp("use")) as ledger:
        yield ledger


@pytest.fixture
def ledger(opened: Ledger) -> Ledger:
    with opened.writing() as connection:
        for table in (rollups, hourly_prices, attempt_notes):
            connection.execute(table.delete())
    return opened


def paid(provider: str = "lab", hours: float = 1.0) -> HourlyRow:
    return HourlyRow(
        provider=provider, usd_per_hour=Decimal(2), hours=hours, cost_usd=Decimal(2), in_use=1.0,
        idle_usd=Decimal(0), attempts=9, tokens_out=9, usd_per_mtok=None,
    )  # fmt: skip


def span(ledger: Ledger, at: int, tokens: int, **other: Any) -> None:
    """Keep the sums of five minutes that began at a second after noon."""
    plain = {
        "provider": "lab", "model": "m", "target": "lab/m", "bucket_s": NOON + at,
        "width_s": FINE_S, "attempts": 2, "measured": 1, "tokens_in": 3, "tokens_out": tokens,
    }  # fmt: skip
    with ledger.writing() as connection:
        rest = {
            column.name: 0
            for column in rollups.columns
            if not column.nullable and column.name not in plain and column.default is None
        }
        connection.execute(rollups.insert().values(**{**rest, **plain, **other}))


def uses(ledger: Ledger, *of: HourlyRow, hours: float = 1) -> list[MachineUse]:
    return machine_uses(ledger, of or (paid(),), timedelta(hours=hours), NOW)


def test_use_is_the_mean_beside_the_busiest_five_minutes(ledger: Ledger) -> None:
    span(ledger, 0, 600)
    span(ledger, 0, 300, model="k", target="lab/k", measured=4)
    span(ledger, 3300, 900)
    assert uses(ledger) == [
        MachineUse(
            provider="lab", models=("k", "m"), usd_per_hour=Decimal(2), hours=1.0, answered=6,
            tokens_in=9, tokens_out=1800, peak_tps=3.0, mean_tps=0.5, utilisation=0.5 / 3.0,
            by_hour_tps=(*[0.0] * 12, 0.5, *[0.0] * 11), hourly_tps=(0.5,),
        )
    ]  # fmt: skip


def test_only_whole_answers_of_the_period_and_of_paid_machines_count(ledger: Ledger) -> None:
    span(ledger, 0, 600)
    span(ledger, -300, 7)
    span(ledger, 3600, 7)
    span(ledger, 300, 7, measured=0)
    span(ledger, 0, 7, width_s=HOUR_S)
    span(ledger, 600, 7, provider="other", target="other/m")
    (found,) = uses(ledger)
    assert (found.tokens_out, found.answered) == (600, 1)
    span(ledger, -299, 8)  # a span that reaches into the period
    (found,) = uses(ledger)
    assert found.tokens_out == 608


def test_providers_are_sorted_by_name_and_the_unasked_left_out(ledger: Ledger) -> None:
    span(ledger, 0, 600)
    span(ledger, 0, 60, provider="ab", target="ab/m")
    found = uses(ledger, paid("lab"), paid("zero"), paid("ab", 0.5))
    assert [(one.provider, one.hours, one.tokens_out) for one in found] == [
        ("ab", 0.5, 60), ("lab", 1.0, 600),
    ]  # fmt: skip
    assert uses(ledger, paid("zero")) == []


def test_a_machine_that_was_paid_for_a_moment_is_not_judged(ledger: Ledger) -> None:
    span(ledger, 0, 300)
    assert uses(ledger, paid(hours=299 / HOUR_S)) == []
    (found,) = uses(ledger, paid(hours=300 / HOUR_S))
    assert (found.mean_tps, found.peak_tps, found.utilisation) == (1.0, 1.0, 1.0)


def test_a_use_across_two_spans_is_no_less_than_its_mean(ledger: Ledger) -> None:
    span(ledger, 0, 300)
    span(ledger, 300, 300)
    (found,) = uses(ledger, paid(hours=1 / 12))
    assert (found.mean_tps, found.peak_tps, found.utilisation) == (2.0, 2.0, 1.0)


def test_answers_without_tokens_are_no_use(ledger: Ledger) -> None:
    span(ledger, 0, 0)
    (found,) = uses(ledger)
    assert (found.peak_tps, found.mean_tps, found.utilisation) == (0.0, 0.0, 0.0)


def test_hours_of_the_day_are_means_over_the_days(ledger: Ledger) -> None:
    for day, tokens in ((0, 3600), (-1, 7200)):
        span(ledger, day * 86_400, tokens)
    span(ledger, -HOUR_S, 1800)
    (found,) = uses(ledger, paid(hours=48), hours=48)
    assert found.by_hour_tps[11:13] == (0.25, 1.5)
    assert sum(found.by_hour_tps) == 1.75
    assert sorted(found.hourly_tps) == [0.5, 1.0, 2.0]
    (short,) = uses(ledger, paid(hours=12), hours=48)
    assert short.by_hour_tps[11:13] == (0.5, 3.0)


def test_hours_cost_what_they_cost_in_a_period(ledger: Ledger) -> None:
    with ledger.writing() as connection:
        connection.execute(
            hourly_prices.insert(),
            [
                {"provider": "lab", "since_s": NOON, "usd": Decimal(2)},
                {"provider": "lab", "since_s": NOON + 7200, "usd": Decimal("0.0000025")},
                {"provider": "gone", "since_s": NOON - 9000, "usd": Decimal(5)},
                {"provider": "gone", "since_s": NOON, "usd": None},
            ],
        )
        first_ns = (NOON + 1800) * 10**9
        note = attempt_note("x", wall_ns=first_ns, provider="new", cost_source="hourly")
        ledger.insert(connection, attempt_notes, [note.row()])
        found = hourly_costs(connection, (NOON, NOON + 3 * HOUR_S), {"new": Decimal(4)})
        assert found == {
            "lab": (Decimal("0.0000025"), Decimal("4.000002")),
            "new": (Decimal(4), Decimal(10)),
        }
        assert hourly_costs(connection, (NOON - 7200, NOON), {"lab": Decimal(9)}) == {
            "gone": (Decimal(5), Decimal(10)),
        }
        unasked = hourly_costs(connection, (NOON, NOON + 60), {"other": Decimal(9)})
        assert set(unasked) == {"lab"}  # nothing says when it began
