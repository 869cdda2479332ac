"""Rates that are read from a price list made here, in which each price is another number."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from genai_prices.data_snapshot import DataSnapshot
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    PriceVariant,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
)

from lightgate.clock.tokens import Usage
from lightgate.price import rates as module
from lightgate.price.rates import (
    BATCH,
    CHEAPER_TIERS,
    GROUNDED,
    USUAL_TIERS,
    BatchDiscount,
    LongRates,
    Rates,
    TierRates,
    list_as_of,
    list_cost,
    listed_model,
    models_of,
    rates_of,
    with_calls,
    with_discount,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

AT = datetime(2026, 11, 15, tzinfo=UTC)
BEGAN, LATER = date(2026, 3, 1), date(2026, 12, 1)
EVERY = {
    "input_mtok": 2,
    "output_mtok": 3,
    "cache_read_mtok": 5,
    "cache_write_mtok": 7,
    "cache_write_1h_mtok": 11,
    "input_audio_mtok": 13,
    "input_image_mtok": 17,
    "input_video_mtok": 19,
    "output_audio_mtok": 23,
    "output_image_mtok": 29,
    "output_video_mtok": 31,
    "input_mchars": 37,
    "audio_hours": 41,
    "input_audio_hours": 43,
    "web_searches_kcount": 47,
    "storage_searches_kcount": 53,
    "requests_kcount": 59,
}
FLEX = {"service_tier": "flex"}


def priced(**prices: int | TieredPrices) -> ModelPrice:
    return ModelPrice(
        **{key: Decimal(one) if isinstance(one, int) else one for key, one in prices.items()}
    )


def variant(
    when: dict[str, str], constraint: StartDateConstraint | None = None, **prices: int
) -> PriceVariant:
    return PriceVariant(when=when, constraint=constraint, prices=priced(**prices))


def model(name: str, prices: ModelPrice, *variants: PriceVariant) -> ModelInfo:
    return ModelInfo(
        id=name, match=ClauseEquals(name), prices=prices, price_variants=list(variants) or None
    )


def rising(base: int, **above: int) -> TieredPrices:
    """A price with steps: `rising(2, t200=4)` is 4 for prompts above 200 tokens."""
    steps = [Tier(start=int(at[1:]), price=Decimal(price)) for at, price in above.items()]
    return TieredPrices(base=Decimal(base), tiers=steps)


PLAIN = priced(input_mtok=2, output_mtok=3, cache_read_mtok=1, cache_write_mtok=4)
MODELS = [
    model("whole", priced(**EVERY)),
    model("gemini-2.5-flash", priced(web_searches_kcount=35, requests_kcount=6)),
    model("a-tts", priced(output_mtok=10, output_audio_mtok=12, input_audio_hours=8)),
    model(
        "tiers",
        PLAIN,
        variant(BATCH, input_mtok=20, output_mtok=30, cache_read_mtok=10, cache_write_mtok=40),
        variant(FLEX, input_mtok=200, output_mtok=300, cache_read_mtok=100, cache_write_mtok=400),
        variant({"service_tier": "priority"}, StartDateConstraint(BEGAN), input_mtok=5),
        variant({"service_tier": "later"}, StartDateConstraint(LATER), input_mtok=6),
        variant({"service_tier": "flex", "region": "eu"}, input_mtok=7),
        variant({"service_tier": "answers"}, output_mtok=8),
        variant({"region": "us"}, input_mtok=9),
    ),
    model(
        "long",
        priced(
            input_mtok=rising(2, t200=4, t400=8),
            output_mtok=rising(3, t200=6),
            cache_read_mtok=1,
            cache_write_1h_mtok=rising(7, t400=9),
        ),
    ),
    model("embedding", priced(input_mtok=2)),
    model("answers", priced(output_mtok=3)),
    ModelInfo(
        id="dated",
        match=ClauseEquals("dated"),
        name="Dated",
        context_window=4096,
        deprecated=True,
        prices=[
            ConditionalPrice(constraint=None, prices=priced(input_mtok=2)),
            ConditionalPrice(
                constraint=StartDateConstraint(BEGAN), prices=priced(input_mtok=4, output_mtok=1)
            ),
            ConditionalPrice(
                constraint=StartDateConstraint(LATER), prices=priced(input_mtok=6, output_mtok=1)
            ),
        ],
    ),
]


@pytest.fixture(autouse=True)
def _made(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A price list of one provider in the place of the one that is installed."""
    other = Provider(id="other", name="Other", api_pattern="-", models=[model("x", PLAIN)])
    made = Provider(id="made", name="Made", api_pattern="-", models=MODELS)
    listed = DataSnapshot(providers=[other, made], from_auto_update=False)
    monkeypatch.setattr("genai_prices.data_snapshot._custom_snapshot", listed)
    module._dated.cache_clear()
    yield
    module._dated.cache_clear()


def of(name: str, at: datetime = AT) -> Rates:
    found = rates_of("made", name, at)
    assert found is not None
    return found


def numbers(**prices: int) -> dict[str, Any]:
    return {kind: Decimal(price) for kind, price in prices.items()}


def test_each_rate_is_read_from_the_price_of_its_own_kind() -> None:
    assert of("whole") == Rates(
        **numbers(
            input=2,
            output=3,
            cached=5,
            cache_write=7,
            cache_write_1h=11,
            input_audio=13,
            input_image=17,
            input_video=19,
            output_audio=23,
            output_image=29,
            output_video=31,
            characters=37,
            audio_hour=41,
        ),
        calls=numbers(web_search=47, file_search=53, request=59),
        as_of="2026-03-01",
    )


def test_a_rate_that_the_list_does_not_have_is_unknown() -> None:
    assert of("embedding") == Rates(input=Decimal(2), as_of="2026-03-01")


def test_rates_of_nothing_are_a_lists_and_do_not_rise() -> None:
    bare = Rates()
    assert (bare.source, bare.tiered, bare.long, bare.tiers, bare.calls) == (
        "list", False, (), {}, {},
    )  # fmt: skip
    assert not bare.priced


@pytest.mark.parametrize("kind", ["input", "characters", "audio_hour"])
def test_one_price_of_what_is_sent_makes_a_model_priced(kind: str) -> None:
    assert Rates(**numbers(**{kind: 0})).priced


def test_a_price_of_answers_alone_makes_no_model_priced() -> None:
    assert not Rates(output=Decimal(1), cached=Decimal(1)).priced


def test_a_model_that_only_speaks_has_the_price_of_its_answers_for_its_sound() -> None:
    spoken = of("a-tts")
    assert spoken.output_audio == Decimal(10)
    assert spoken.audio_hour == Decimal(8)


def test_gemini_2_is_paid_for_each_grounded_request_and_not_for_each_search() -> None:
    assert of("gemini-2.5-flash").calls == numbers(grounded_request=35, request=6)
    assert GROUNDED == "grounded_request"


def test_rates_of_a_batch_are_those_of_its_variant() -> None:
    found = of("tiers")
    assert (found.batch_input, found.batch_output) == (Decimal(20), Decimal(30))
    assert (found.batch_cached, found.batch_cache_write) == (Decimal(10), Decimal(40))
    assert found.batch_source == "list"


def test_a_model_without_a_batch_variant_has_no_rates_of_a_batch() -> None:
    found = of("long")
    assert (found.batch_input, found.batch_source) == (None, None)


def test_a_service_tier_has_rates_if_its_variant_is_in_force_and_names_it_alone() -> None:
    flex = TierRates(**numbers(input=200, output=300, cached=100, cache_write=400))
    assert of("tiers").tiers == {"flex": flex, "priority": TierRates(input=Decimal(5))}
    after = datetime(2026, 12, 1, tzinfo=UTC)
    assert set(of("tiers", after).tiers) == {"flex", "priority", "later"}
    assert of("whole").tiers == {}


def test_each_step_of_a_longer_prompt_has_all_rates_that_hold_above_it() -> None:
    found = of("long")
    assert found.tiered
    assert (found.input, found.output, found.cached) == (Decimal(2), Decimal(3), Decimal(1))
    assert found.long == (
        LongRates(above=200, **numbers(input=4, output=6, cached=1, cache_write_1h=7)),
        LongRates(above=400, **numbers(input=8, output=6, cached=1, cache_write_1h=9)),
    )


def test_a_price_that_rises_with_the_first_token_is_not_the_base() -> None:
    """The base is the price of a prompt of no tokens; its first step may begin at one."""
    prices = priced(input_mtok=rising(2, t1=4))
    assert module._base(prices, "input_mtok") == Decimal(2)
    assert module._base(prices, "input_mtok", 1) == Decimal(4)


def test_each_kind_of_rate_rises_by_its_own_price() -> None:
    prices = {
        key: TieredPrices(base=Decimal(price), tiers=[Tier(start=10, price=Decimal(price + 100))])
        for key, price in EVERY.items()
        if key.endswith("mtok")
    }
    steps = module._long(ModelPrice(**prices))
    assert steps == (
        LongRates(
            above=10,
            **numbers(input=102, output=103, cached=105, cache_write=107, cache_write_1h=111),
        ),
    )


def test_rates_are_those_of_the_day_that_is_asked_for() -> None:
    days = (datetime(2026, 2, 28, tzinfo=UTC), AT, datetime(2026, 12, 1, tzinfo=UTC))
    assert [of("dated", day).input for day in days] == [2, 4, 6]


def test_the_list_is_as_new_as_its_newest_price_in_force() -> None:
    asked = (date(2026, 2, 28), BEGAN, date(2026, 11, 30), LATER, date(2027, 5, 1))
    newest = [list_as_of(datetime(d.year, d.month, d.day, tzinfo=UTC)) for d in asked]
    assert newest == [None, "2026-03-01", "2026-03-01", "2026-12-01", "2026-12-01"]
    assert of("dated").as_of == "2026-03-01"


def test_a_listed_model_carries_what_the_list_says_of_it() -> None:
    found = listed_model("made", "dated", AT)
    assert found is not None
    assert found[:4] == ("dated", "Dated", 4096, True)
    assert found.rates == of("dated")
    assert listed_model("made", "whole", AT) == ("whole", None, None, False, of("whole"))
    assert listed_model("made", "no-such", AT) is None


def test_the_models_of_a_provider_are_all_of_its_own_and_of_no_other() -> None:
    assert [one.id for one in models_of("made", AT)] == [one.id for one in MODELS]
    assert [one.id for one in models_of("other", AT)] == ["x"]
    assert models_of("no-such", AT) == ()
    assert {one.id: one.rates for one in models_of("made", AT)}["tiers"] == of("tiers")


def test_names_find_models_of_their_provider_only() -> None:
    assert rates_of("made", "x", AT) is None
    assert rates_of("no-such", "whole", AT) is None


def cost(name: str, *, batch: bool = False, at: datetime = AT, **counts: Any) -> Decimal | None:
    return list_cost("made", name, Usage(**counts), at, batch=batch)


M = 1_000_000


def test_each_kind_of_token_costs_its_own_price() -> None:
    sent: dict[str, Any] = {"tokens_in": 6 * M, "tokens_cached": 2 * M, "tokens_cache_write": M}
    # Three millions are fresh at 2, two are read from the cache at 1, one is written to it at 4.
    assert cost("tiers", **sent, tokens_out=5 * M) == Decimal(3 * 2 + 2 * 1 + 1 * 4 + 5 * 3)
    assert cost("tiers", batch=True, **sent, tokens_out=5 * M) == Decimal(270)
    assert cost("tiers", **sent, tokens_out=5 * M, tier="flex") == Decimal(2700)


@pytest.mark.parametrize("tier", sorted(USUAL_TIERS, key=str), ids=str)
def test_a_usual_tier_costs_what_no_tier_does(tier: str | None) -> None:
    assert cost("tiers", tokens_in=M, tokens_out=0, tier=tier) == Decimal(2)


def test_the_usual_and_the_cheaper_tiers_by_name() -> None:
    usual = {None, "auto", "default", "standard", "standard_only", "on_demand"}
    assert usual == USUAL_TIERS
    assert {"flex", "batch"} == CHEAPER_TIERS


def test_the_tier_of_an_answer_says_nothing_of_a_batch_that_is_known_to_be_one() -> None:
    assert cost("tiers", batch=True, tokens_in=M, tokens_out=0, tier="flex") == Decimal(20)


@pytest.mark.parametrize("tier", ["warp", "later"])
def test_a_tier_that_has_no_price_in_force_costs_an_unknown_amount(tier: str) -> None:
    assert cost("tiers", tokens_in=M, tokens_out=0, tier=tier) is None
    assert cost("whole", tokens_in=M, tokens_out=0, batch=True) is None


def test_a_tier_has_its_price_from_the_day_on_which_it_begins() -> None:
    first = datetime(2026, 12, 1, tzinfo=UTC)
    assert cost("tiers", at=first, tokens_in=M, tokens_out=0, tier="later") == Decimal(6)


def test_counts_that_are_missing_make_the_cost_unknown() -> None:
    assert cost("tiers", tokens_in=M) is None
    assert cost("tiers", tokens_out=M) is None
    assert cost("tiers") is None


def test_an_answer_that_has_no_price_costs_nothing_only_where_none_was_counted() -> None:
    assert cost("embedding", tokens_in=M) == Decimal(2)
    assert cost("embedding", tokens_in=M, tokens_out=0) == Decimal(2)
    assert cost("embedding", tokens_in=M, tokens_out=1) is None


def test_a_prompt_that_has_no_price_costs_nothing_only_where_none_was_counted() -> None:
    assert cost("answers", tokens_in=0, tokens_out=M) == Decimal(3)
    assert cost("answers", tokens_in=1, tokens_out=M) is None


def test_more_tokens_of_the_cache_than_were_sent_make_the_cost_unknown() -> None:
    assert cost("tiers", tokens_in=2 * M, tokens_out=0, tokens_cached=2 * M) == Decimal(2)
    half: dict[str, Any] = {"tokens_cached": M, "tokens_cache_write": M}
    assert cost("tiers", tokens_in=2 * M, tokens_out=0, **half) == Decimal(5)
    assert cost("tiers", tokens_in=2 * M - 1, tokens_out=0, **half) is None


def test_calls_without_a_rate_take_the_providers_and_keep_their_own() -> None:
    own = Rates(input=Decimal(2), calls=numbers(request=1))
    both = with_calls(own, numbers(request=9, web_search=10))
    assert both == Rates(input=Decimal(2), calls=numbers(request=1, web_search=10))


def test_a_search_has_no_price_beside_that_of_a_grounded_request() -> None:
    grounded = Rates(calls=numbers(grounded_request=35))
    more = with_calls(grounded, numbers(web_search=10, file_search=2))
    assert more.calls == numbers(grounded_request=35, file_search=2)


SHARES = BatchDiscount(
    input=Decimal("0.5"),
    output=Decimal("0.25"),
    cached=Decimal("0.1"),
    cache_write=Decimal("0.2"),
)
USUAL = Rates(**numbers(input=2, output=4, cached=10, cache_write=20))


def test_a_discount_takes_its_share_of_each_price() -> None:
    found = with_discount(USUAL, SHARES)
    assert (found.batch_input, found.batch_output) == (Decimal(1), Decimal(1))
    assert (found.batch_cached, found.batch_cache_write) == (Decimal(1), Decimal(4))
    assert (found.batch_source, found.input) == ("discount", Decimal(2))


def test_a_discount_leaves_unknown_what_has_no_price_or_no_share() -> None:
    partly = BatchDiscount(input=Decimal("0.5"), output=Decimal("0.5"))
    found = with_discount(USUAL, partly)
    assert (found.batch_cached, found.batch_cache_write) == (None, None)
    bare = with_discount(Rates(input=Decimal(2)), SHARES)
    assert (bare.batch_input, bare.batch_output, bare.batch_cached) == (Decimal(1), None, None)


@pytest.mark.parametrize(
    "known",
    [
        Rates(input=Decimal(2), batch_input=Decimal(1)),
        Rates(input=Decimal(2), batch_output=Decimal(1)),
        Rates(input=Decimal(2), tiered=True),
        Rates(output=Decimal(2)),
    ],
    ids=["an input of its own", "an output of its own", "rising", "without an input"],
)
def test_a_discount_is_taken_of_plain_prices_that_lack_one_only(known: Rates) -> None:
    assert with_discount(known, SHARES) is known


def test_no_discount_changes_nothing() -> None:
    assert with_discount(USUAL, None) is USUAL
