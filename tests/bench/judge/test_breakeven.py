from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lightgate.bench.judge.breakeven import (
    HOURS_PER_MONTH,
    billed_per_mtok,
    break_even,
    capacity_per_month,
    tokens_per_month,
)
from lightgate.clock.load import cost_out
from lightgate.ledger.runs.run import CellSummary, TargetFacts

H100 = Decimal("2.69")


def target(name: str, **facts: Any) -> TargetFacts:
    return TargetFacts(
        name=name, provider="p", model="m", base_url="http://h", dialect="openai", **facts
    )


def cell(throughput: float | None, name: str = "own", **facts: Any) -> CellSummary:
    return CellSummary(target=name, load="c=32", concurrency=32, throughput_tps=throughput, **facts)


OWN = target("own", hourly_cost=H100)
API = target("api", price_output=Decimal(4))


def test_an_h100_at_the_speed_of_one_stream_is_dear() -> None:
    # "$0.75-1.00 per million" at 85-100 tok/s and $2.69 an hour: eight times too low.
    per_mtok = cost_out(hourly=H100, throughput_tps=92.0)
    assert per_mtok is not None
    assert round(per_mtok, 1) == Decimal("8.1")
    dollar = cost_out(hourly=H100, throughput_tps=747.0)
    cents_75 = cost_out(hourly=H100, throughput_tps=996.0)
    assert dollar is not None
    assert cents_75 is not None
    assert (round(dollar, 2), round(cents_75, 2)) == (Decimal("1.00"), Decimal("0.75"))


def test_500_million_tokens_a_month_are_beyond_92_tokens_per_second() -> None:
    assert capacity_per_month(92.0) == 241_776_000
    assert capacity_per_month(92.0) < 500_000_000
    # At what API price would 500 M be the break-even? $3.93; one stream's machine costs $8.12.
    price = HOURS_PER_MONTH * H100 / 500
    assert round(price, 2) == Decimal("3.93")
    (row,) = break_even([OWN, target("api", price_output=price)], [cell(92.0)])
    assert row.tokens_per_month is None
    assert row.note.startswith("never at this load: it takes 500 M tokens a month")
    assert row.note.endswith("and the machine makes at most 242 M")


def test_a_machine_that_batches_breaks_even() -> None:
    (row,) = break_even([OWN, API], [cell(1000.0)])
    assert (row.hosted, row.api, row.load) == ("own", "api", "c=32")
    assert row.hosted_per_mtok == Decimal("0.7472")
    assert row.tokens_per_month == Decimal(490_925_000)
    assert row.note == (
        "against $4.00 per million output tokens with their prompts; "
        "19% of what the machine can make"
    )


@pytest.mark.parametrize("throughput", [92.0, 180.0, 187.0, 200.0, 5000.0])
def test_never_is_where_a_full_hour_costs_more_than_the_api(throughput: float) -> None:
    (row,) = break_even([OWN, API], [cell(throughput)])
    assert row.hosted_per_mtok is not None
    assert (row.tokens_per_month is None) == (row.hosted_per_mtok > Decimal(4))


def test_an_api_bills_the_prompts_too() -> None:
    api = target("api", price_output=Decimal(4), price_input=Decimal(1))
    here = cell(1000.0, tokens_in_p50=512.0, tokens_out_p50=128.0)
    assert billed_per_mtok(api, here) == Decimal(8)
    assert billed_per_mtok(api, cell(1000.0)) == Decimal(4)
    (row,) = break_even([OWN, api], [here])
    assert row.tokens_per_month == tokens_per_month(H100, Decimal(8))


def test_what_is_unknown_is_said() -> None:
    nameless = target("nameless")
    free = target("free", price_output=Decimal(0))
    rows = break_even([OWN, nameless, free, API], [cell(None)])
    assert [row.tokens_per_month for row in rows] == [None, None, Decimal(490_925_000)]
    assert [row.hosted_per_mtok for row in rows] == [None] * 3
    assert rows[0].note == "the API's price is unknown"
    assert rows[1].note == "never: the API is free"
    assert "throughput is unknown" in rows[2].note


def test_twins_and_runs_without_a_machine_have_no_rows() -> None:
    twin = target("api (again)", price_output=Decimal(4), twin_of="api")
    assert len(break_even([OWN, API, twin], [cell(500.0), cell(900.0, "api")])) == 1
    assert break_even([API], [cell(900.0, "api")]) == ()
