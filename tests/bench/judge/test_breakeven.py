from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lightgate.bench.judge.breakeven import break_even, other_models
from lightgate.clock.load import cost_out
from lightgate.ledger.runs.break_even import UNKNOWN
from lightgate.ledger.runs.run import CellSummary, CostFacts, TargetFacts

H100 = Decimal("2.69")


def target(name: str, model: str = "m", **facts: Any) -> TargetFacts:
    return TargetFacts(
        name=name, provider="p", model=model, base_url="http://h", dialect="openai", **facts
    )


def cell(name: str, per_1k: str | None, load: str = "c=32", **facts: Any) -> CellSummary:
    return CellSummary(
        target=name,
        load=load,
        concurrency=int(load.removeprefix("c=")),
        tokens_out_p50=100.0,
        cost=CostFacts(per_1k=None if per_1k is None else Decimal(per_1k)),
        **facts,
    )


OWN = target("own", hourly_cost=H100)
API = target("api")


def test_an_h100_at_the_speed_of_one_stream_is_dear() -> None:
    # "$0.75-1.00 per million" at 85-100 tok/s and $2.69 an hour: eight times too low.
    per_mtok = [cost_out(H100, tps * 3600) for tps in (92.0, 747.0, 996.0)]
    assert [round(price or 0, 2) for price in per_mtok] == [
        Decimal("8.12"),
        Decimal("1.00"),
        Decimal("0.75"),
    ]


def test_break_even_is_the_share_of_its_use_at_which_both_cost_the_same() -> None:
    (row,) = break_even([OWN, API], [cell("own", "0.10"), cell("api", "0.40")])
    assert (row.hosted, row.api, row.load) == ("own", "api", "c=32")
    assert row.utilisation == pytest.approx(0.25)
    # A month costs 730 h x $2.69; at $0.40 per 1,000 requests the API bills that for so many.
    assert row.requests_per_month == (730 * H100 / Decimal("0.40") * 1000).quantize(Decimal(1))
    assert row.tokens_per_month == row.requests_per_month * 100
    assert (row.hosted_per_1k, row.api_per_1k) == (Decimal("0.10"), Decimal("0.40"))
    assert row.note == ""


def test_never_is_where_a_busy_machine_costs_more_than_the_api() -> None:
    (row,) = break_even([OWN, API], [cell("own", "0.50"), cell("api", "0.40")])
    assert (row.utilisation, row.requests_per_month) == (None, None)
    assert row.note == "never at this load: busy all day, it still costs 1.2 times as much"
    (even,) = break_even([OWN, API], [cell("own", "0.40"), cell("api", "0.40")])
    assert even.utilisation == 1.0


def test_the_machine_is_judged_where_it_is_cheapest_and_the_api_at_its_heaviest_load() -> None:
    cells = [
        cell("own", "3.00", "c=1"),
        cell("own", "0.10", "c=32"),
        cell("own", "0.20", "c=64"),
        cell("api", "0.30", "c=1"),
        cell("api", "0.50", "c=64"),
    ]
    (row,) = break_even([OWN, API], cells)
    assert (row.load, row.hosted_per_1k, row.api_per_1k) == (
        "c=32",
        Decimal("0.10"),
        Decimal("0.50"),
    )


def test_the_soonest_break_even_comes_first_and_the_unknown_last() -> None:
    apis = [target("nameless"), target("dear"), target("cheap"), target("free")]
    cells = [
        cell("own", "0.10"),
        cell("nameless", None),
        cell("cheap", "0.20"),
        cell("dear", "2.00"),
        cell("free", "0"),
    ]
    rows = break_even([OWN, *apis], cells)
    assert [row.api for row in rows] == ["dear", "cheap", "free", "nameless"]
    assert [row.note for row in rows[2:]] == ["never: the API is free", UNKNOWN]


def test_twins_and_runs_without_a_machine_have_no_rows() -> None:
    twin = target("api (again)", twin_of="api")
    cells = [cell("own", "0.1"), cell("api", "0.4"), cell("api (again)", "0.4")]
    assert len(break_even([OWN, API, twin], cells)) == 1
    assert break_even([API], cells) == ()
    assert break_even([OWN, API], [cell("own", None), cell("api", "0.4")]) == ()


def test_other_models_are_said() -> None:
    llama = target("a", "meta-llama/Llama-3.3-70B-Instruct")
    same = target("b", "llama-3.3-70b-instruct")
    other = target("c", "gpt-4.1-mini", hourly_cost=H100)
    assert other_models([llama, same]) == ""
    assert other_models([llama, same, other]).startswith("The targets run 2 different models")
    (row,) = break_even([other, llama], [cell("a", "0.4"), cell("c", "0.1")])
    assert row.models == ("gpt-4.1-mini", "meta-llama/Llama-3.3-70B-Instruct")
    hosted = target("d", "llama-3.3-70b-instruct", hourly_cost=H100)
    (row,) = break_even([hosted, llama], [cell("a", "0.4"), cell("d", "0.1")])
    assert row.models == ()
