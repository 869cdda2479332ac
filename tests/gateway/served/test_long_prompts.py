"""Prices that rise with the prompt: the gateway bills as the price list itself does."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from lightgate.clock.tokens import Tokens, Usage
from lightgate.gateway.served.price import Ceiling, TokenPrices
from lightgate.price.rates import LongRates, Rates, list_cost, models_of, rates_of

AT = datetime(2026, 11, 15, tzinfo=UTC)
NANO = 10**9
RISING = [
    (provider, listed)
    for provider in ("anthropic", "google", "openai", "aws", "azure")
    for listed in models_of(provider, AT)
    # Some rows of the list are not found by their own names.
    if listed.rates.long and rates_of(provider, listed.id, AT) == listed.rates
]


def tokens(tokens_in: int, out: int, cached: int = 0, written: int = 0) -> Tokens:
    return Tokens(tokens_in=tokens_in, out=out, cached=cached, cache_write=written, source="usage")


def test_there_are_such_models() -> None:
    assert len(RISING) > 20
    assert all(listed.rates.tiered for _, listed in RISING)


@pytest.mark.parametrize(("provider", "listed"), RISING, ids=[f"{p}/{one.id}" for p, one in RISING])
def test_a_bill_is_that_of_the_list(provider: str, listed: object) -> None:
    found = next(one for p, one in RISING if p == provider and one is listed)
    prices = TokenPrices(found.rates)
    for step in found.rates.long:
        for tokens_in in (1, step.above - 1, step.above, step.above + 1, 3 * step.above):
            for cached in (0, tokens_in // 3):
                usage = Usage(tokens_in=tokens_in, tokens_out=500, tokens_cached=cached)
                due = list_cost(provider, found.id, usage, AT, batch=False)
                bill = prices.bill(tokens(tokens_in, 500, cached))
                assert due is not None
                assert bill.nano_usd is not None
                assert abs(bill.nano_usd - due * NANO) <= 1
                assert prices.worst(tokens_in, 500) >= bill.nano_usd
                if not cached:
                    assert prices.estimate(tokens_in, 500).nano_usd == bill.nano_usd


def test_steps_follow_each_other() -> None:
    rates = Rates(
        input=Decimal(1), output=Decimal(2), cached=Decimal("0.1"),
        long=(
            LongRates(above=100, input=Decimal(10), output=Decimal(20), cached=Decimal(1)),
            LongRates(above=200, input=Decimal(100), output=Decimal(200)),
        ),
    )  # fmt: skip
    prices = TokenPrices(rates)
    seen = [prices.bill(tokens(n, 1)).nano_usd for n in (100, 101, 200, 201)]
    assert seen == [102_000, 1_030_000, 2_020_000, 20_300_000]
    # Where a step has no price of its own for cached tokens, they cost what others do.
    assert prices.bill(tokens(201, 1, cached=201)).nano_usd == 20_300_000
    assert prices.bill(tokens(101, 1, cached=101)).nano_usd == 121_000
    assert prices.worst(101, 1) == 1_030_000
    assert TokenPrices(rates, hourly=True).bill(tokens(201, 1)).nano_usd is None
    assert TokenPrices(rates, hourly=True).worst(201, 1) == 0


def test_an_hour_in_the_cache_costs_what_a_prompt_of_that_length_does() -> None:
    step = LongRates(
        above=100, input=Decimal(10), output=Decimal(20), cache_write=Decimal(10),
        cache_write_1h=Decimal(40),
    )  # fmt: skip
    prices = TokenPrices(
        Rates(input=Decimal(1), output=Decimal(2), cache_write_1h=Decimal(3), long=(step,))
    )
    assert (prices.worst_kept(100), prices.worst_kept(101)) == (100 * 2000, 101 * 30_000)


@pytest.mark.parametrize("tokens_in", [1, 99, 100])
@pytest.mark.parametrize("written", [Decimal(1), Decimal(5)])
def test_the_ceiling_of_a_text_is_its_worst_case(tokens_in: int, written: Decimal) -> None:
    """Up to the length from which on a prompt has other prices; the fee is paid once."""
    longer = LongRates(above=100, input=Decimal(10), output=Decimal(20))
    rates = Rates(
        input=Decimal(3), output=Decimal(7), cache_write=written, calls={"request": Decimal(5)},
        long=(longer,),
    )  # fmt: skip
    prices = TokenPrices(rates)
    for out in (1, 50):
        most, prompt = prices.worst(tokens_in, out), prices.worst(tokens_in, 0)
        assert prices.worst_text(tokens_in, out) == Ceiling(most, prompt, out, text=True)
    assert prices.worst_text(101, 1) is None
    assert TokenPrices(None).worst_text(1, 1) is None
