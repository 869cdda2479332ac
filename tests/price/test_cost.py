from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.clock.tokens import Usage
from lightgate.price.cost import Cost, PriceTerms, price_of
from lightgate.price.rates import BatchDiscount, Rates, TierRates, with_discount

AT = datetime(2026, 11, 15, tzinfo=UTC)
OWN = Rates(
    input=Decimal(2),
    output=Decimal(8),
    cached=Decimal("0.5"),
    cache_write=Decimal("2.5"),
    source="override",
    as_of="2026-11-01",
)
UNKNOWN = Cost()
TOKENS = st.integers(min_value=0, max_value=10_000_000)


def own(usage: Usage, rates: Rates = OWN, *, batch: bool = False) -> Cost:
    return price_of(None, "m", usage, AT, terms=PriceTerms(override=rates, batch=batch))


def test_own_rates_by_kind_of_token() -> None:
    usage = Usage(tokens_in=1000, tokens_out=100, tokens_cached=400, tokens_cache_write=100)
    cost = own(usage)
    assert cost.cost_usd == Decimal("0.00225")  # 500*2 + 400*0.5 + 100*2.5 + 100*8, in millionths
    assert (cost.cost_source, cost.price_as_of) == ("override", "2026-11-01")


def test_cached_tokens_without_a_rate_cost_what_others_do() -> None:
    rates = Rates(input=Decimal(2), output=Decimal(8))
    usage = Usage(tokens_in=1_000_000, tokens_out=0, tokens_cached=400_000)
    assert own(usage, rates).cost_usd == Decimal(2)


def test_unknown_tokens_are_not_free() -> None:
    assert own(Usage(tokens_in=10)) == UNKNOWN
    assert own(Usage(tokens_out=10)) == UNKNOWN
    assert own(Usage()) == UNKNOWN


def test_a_provider_that_contradicts_itself_has_no_cost() -> None:
    assert own(Usage(tokens_in=10, tokens_out=1, tokens_cached=11)) == UNKNOWN


def test_an_unknown_batch_price_is_not_the_standard_one() -> None:
    usage = Usage(tokens_in=1_000_000, tokens_out=1_000_000)
    assert own(usage, batch=True) == UNKNOWN
    batch = Rates(batch_input=Decimal(1), batch_output=Decimal(4))
    assert own(usage, batch, batch=True).cost_usd == Decimal(5)


def test_no_list_no_price() -> None:
    assert price_of(None, "m", Usage(tokens_in=1, tokens_out=1), AT) == UNKNOWN
    assert price_of("groq", "no-such-model", Usage(tokens_in=1, tokens_out=1), AT) == UNKNOWN
    assert price_of("no-such-list", "m", Usage(tokens_in=1, tokens_out=1), AT) == UNKNOWN


def test_by_the_hour_comes_before_every_token_price() -> None:
    terms = PriceTerms(override=OWN, hourly_cost=Decimal("2.69"))
    cost = price_of("groq", "m", Usage(tokens_in=1, tokens_out=1), AT, terms=terms)
    assert cost == Cost(cost_source="hourly")


def test_own_rates_come_before_the_list() -> None:
    usage = Usage(tokens_in=1_000_000, tokens_out=0)
    cost = price_of("openai", "gpt-4o", usage, AT, terms=PriceTerms(override=OWN))
    assert (cost.cost_usd, cost.cost_source) == (Decimal(2), "override")


@given(fresh=TOKENS, cached=TOKENS, out=TOKENS)
@settings(max_examples=100, derandomize=True)
def test_cost_is_the_sum_of_its_parts(fresh: int, cached: int, out: int) -> None:
    whole = own(Usage(tokens_in=fresh + cached, tokens_out=out, tokens_cached=cached)).cost_usd
    parts = [
        own(Usage(tokens_in=fresh, tokens_out=0)).cost_usd,
        own(Usage(tokens_in=cached, tokens_out=0, tokens_cached=cached)).cost_usd,
        own(Usage(tokens_in=0, tokens_out=out)).cost_usd,
    ]
    assert whole == sum(part for part in parts if part is not None)


def test_a_service_tier_has_its_own_price_or_none() -> None:
    rates = Rates(
        input=Decimal(2),
        output=Decimal(8),
        tiers={"flex": TierRates(input=Decimal(1), output=Decimal(4))},
    )
    costs = {
        tier: own(Usage(tokens_in=10**6, tokens_out=10**6, tier=tier), rates).cost_usd
        for tier in (None, "default", "flex", "warp")
    }
    assert costs == {None: Decimal(10), "default": Decimal(10), "flex": Decimal(5), "warp": None}


def test_the_list_prices_by_service_tier() -> None:
    plain, flex, warp = (
        price_of(
            "openai", "gpt-5", Usage(tokens_in=1_000_000, tokens_out=0, tier=tier), AT
        ).cost_usd
        for tier in ("default", "flex", "warp")
    )
    assert plain is not None
    assert (flex, warp) == (plain / 2, None)


def test_a_batch_is_priced_by_its_own_rates_and_cached_tokens_by_theirs() -> None:
    rates = Rates(
        input=Decimal(4),
        output=Decimal(8),
        cached=Decimal(1),
        batch_input=Decimal(2),
        batch_output=Decimal(4),
        batch_cached=Decimal("0.5"),
    )
    usage = Usage(tokens_in=1_000_000, tokens_out=0, tokens_cached=500_000)
    terms = PriceTerms(override=rates, batch=True)
    assert price_of(None, "m", usage, AT, terms=terms).cost_usd == Decimal("1.25")
    named = msgspec.structs.replace(usage, tier="batch")  # what an answer of a job says itself
    assert price_of(None, "m", named, AT, terms=PriceTerms(override=rates)).cost_usd == Decimal(
        "1.25"
    )
    without = msgspec.structs.replace(rates, batch_cached=None)
    terms = PriceTerms(override=without, batch=True)
    assert price_of(None, "m", usage, AT, terms=terms).cost_usd == Decimal("1.5")


def test_a_discount_is_for_models_without_a_batch_price_of_their_own() -> None:
    half = BatchDiscount(input=Decimal("0.5"), output=Decimal("0.5"))
    tenth = BatchDiscount(input=Decimal("0.1"), output=Decimal("0.1"))
    usage = Usage(tokens_in=1_000_000, tokens_out=1_000_000)
    model = "llama-3.3-70b-versatile"
    usual = price_of("groq", model, usage, AT).cost_usd
    assert usual is not None

    def batch(name: str, discount: BatchDiscount | None, used: Usage = usage) -> Decimal | None:
        terms = PriceTerms(batch=True, discount=discount)
        return price_of("groq", name, used, AT, terms=terms).cost_usd

    assert batch(model, half) == usual / 2
    assert batch(model, None) is None
    listed = "openai/gpt-oss-120b"  # whose batch price the list has
    assert batch(listed, tenth) == batch(listed, None)
    # What cached tokens cost in a batch nobody says: the cost is unknown, and not a guess.
    cached = msgspec.structs.replace(usage, tokens_cached=10)
    assert batch(model, half, cached) is None


def test_a_discount_is_not_taken_where_longer_prompts_cost_more() -> None:
    half = BatchDiscount(input=Decimal("0.5"), output=Decimal("0.5"))
    rates = Rates(input=Decimal(2), output=Decimal(4), tiered=True)
    assert with_discount(rates, half).batch_input is None
    plain = with_discount(msgspec.structs.replace(rates, tiered=False), half)
    assert (plain.batch_input, plain.batch_source) == (Decimal(1), "discount")
