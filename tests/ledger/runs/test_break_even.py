"""A machine paid by the hour against an API paid by the token, worked out by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lightgate.ledger.runs.break_even import (
    UNKNOWN,
    ApiCost,
    MachineCost,
    break_even_row,
    month_cost,
    soonest_first,
)
from lightgate.price.cost import HOURS_PER_MONTH

# Two dollars an hour and 4,000 requests in it: half a dollar for 1,000.
OWN = MachineCost(
    name="own", load="8", hourly=Decimal(2), per_1k=Decimal("0.5"), per_mtok=Decimal("2.5"),
    tokens_out=Decimal(200),
)  # fmt: skip
API = ApiCost("api", Decimal(2), ("a", "b"))
SERVED = HOURS_PER_MONTH * 4000  # requests of one machine that never waits, in a month


def machine(**other: Any) -> MachineCost:
    return OWN._replace(**other)


def test_a_quarter_of_the_apis_price_pays_from_a_quarter_of_its_use_on() -> None:
    row = break_even_row(OWN, API)
    assert (row.hosted, row.api, row.load, row.models) == ("own", "api", "8", ("a", "b"))
    assert (row.hosted_per_1k, row.api_per_1k) == (Decimal("0.5"), Decimal(2))
    assert row.hosted_per_mtok == Decimal("2.5")
    assert (row.utilisation, row.note) == (0.25, "")
    assert row.requests_per_month == SERVED / 4
    assert row.tokens_per_month == SERVED / 4 * 200


def test_requests_and_tokens_of_a_month_are_whole() -> None:
    row = break_even_row(machine(per_1k=Decimal("0.7"), tokens_out=Decimal("0.3")), API)
    assert row.requests_per_month is not None
    assert row.tokens_per_month is not None
    assert row.requests_per_month == row.requests_per_month.to_integral_value()
    assert row.tokens_per_month == row.tokens_per_month.to_integral_value()


def test_at_the_same_price_a_machine_pays_when_it_is_always_busy() -> None:
    row = break_even_row(OWN, API._replace(per_1k=Decimal("0.5")))
    assert (row.utilisation, row.note) == (1.0, "")
    assert row.requests_per_month == SERVED


def test_a_dearer_machine_never_pays_and_the_note_says_how_much_dearer() -> None:
    row = break_even_row(OWN, API._replace(per_1k=Decimal("0.2")))
    assert (row.utilisation, row.requests_per_month, row.tokens_per_month) == (None, None, None)
    assert row.note == "never at this load: busy all day, it still costs 2.5 times as much"


def test_nothing_is_cheaper_than_an_api_that_is_free() -> None:
    row = break_even_row(OWN, API._replace(per_1k=Decimal(0)))
    assert (row.utilisation, row.note) == (None, "never: the API is free")


@pytest.mark.parametrize(
    ("own", "api"),
    [(OWN, API._replace(per_1k=None)), (machine(per_1k=None), API)],
    ids=["api", "machine"],
)
def test_what_is_not_known_is_not_judged(own: MachineCost, api: ApiCost) -> None:
    row = break_even_row(own, api)
    assert (row.utilisation, row.note, row.requests_per_month) == (None, UNKNOWN, None)


def test_the_share_is_known_without_the_price_of_an_hour_or_the_tokens_of_a_request() -> None:
    row = break_even_row(machine(hourly=None), API)
    assert (row.utilisation, row.requests_per_month, row.tokens_per_month) == (0.25, None, None)
    row = break_even_row(machine(tokens_out=None), API)
    assert (row.requests_per_month, row.tokens_per_month) == (SERVED / 4, None)


def test_a_machine_that_costs_nothing_for_a_request_has_no_number_of_requests() -> None:
    row = break_even_row(machine(per_1k=Decimal(0)), API)
    assert (row.utilisation, row.requests_per_month) == (0.0, None)


def test_a_months_bills() -> None:
    tokens = SERVED * 200 / 2  # half of what one machine serves
    cost = month_cost(OWN, API, tokens, 1.0)
    assert cost is not None
    assert cost.requests == SERVED / 2
    assert (cost.machines, cost.used) == (1, 0.5)
    assert cost.own_usd == 2 * HOURS_PER_MONTH
    assert cost.api_usd == SERVED / 2 * 2 / 1000


@pytest.mark.parametrize(
    ("share", "fill", "machines", "used"),
    [
        (Decimal(1), 1.0, 1, 1.0),
        (Decimal(2), 1.0, 2, 1.0),
        (Decimal("1.5"), 1.0, 2, 0.75),
        (Decimal(1), 0.5, 2, 0.5),
        (Decimal("0.001"), 1.0, 1, 0.001),
        (Decimal(0), 1.0, 1, 0.0),
    ],
)
def test_as_many_machines_as_may_be_filled_so_far(
    share: Decimal, fill: float, machines: int, used: float
) -> None:
    cost = month_cost(OWN, API, SERVED * 200 * share, fill)
    assert cost is not None
    assert (cost.machines, cost.used) == (machines, used)
    assert cost.own_usd == machines * 2 * HOURS_PER_MONTH


@pytest.mark.parametrize(
    ("own", "api"),
    [
        (machine(hourly=None), API),
        (machine(per_1k=None), API),
        (machine(per_1k=Decimal(0)), API),
        (machine(tokens_out=None), API),
        (machine(tokens_out=Decimal(0)), API),
        (OWN, API._replace(per_1k=None)),
    ],
)
def test_a_month_of_which_something_is_unknown_has_no_bill(own: MachineCost, api: ApiCost) -> None:
    assert month_cost(own, api, Decimal(1000), 1.0) is None


def test_rows_are_sorted_by_machine_then_by_how_soon_it_pays() -> None:
    def row(own: str, api: str, per_1k: str | None) -> Any:
        price = None if per_1k is None else Decimal(per_1k)
        return break_even_row(machine(name=own), ApiCost(api, price))

    free = break_even_row(machine(name="a", per_1k=Decimal(0)), API)
    rows = [
        free, row("b", "soon", "50"), row("a", "unknown", None), row("a", "never", "0.1"),
        row("a", "late", "1"), row("a", "z", "5"), row("a", "y", "5"),
    ]  # fmt: skip
    found = [(one.hosted, one.api) for one in soonest_first(rows)]
    assert found == [
        ("a", "api"), ("a", "y"), ("a", "z"), ("a", "late"), ("a", "never"),
        ("a", "unknown"), ("b", "soon"),
    ]  # fmt: skip
