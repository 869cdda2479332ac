"""Bills and worst cases of a target's prices, to the nano-dollar."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lightgate.clock.tokens import Tokens
from lightgate.gateway.request.body import Sound
from lightgate.gateway.served.price import (
    MOST_GIVEN,
    MOST_REASONED,
    NO_BILL,
    SLACK,
    USUAL_ANSWER,
    Bill,
    TokenPrices,
    believed,
)
from lightgate.price.rates import Rates, TierRates

D = Decimal


def prices(**more: Any) -> TokenPrices:
    """Nano-dollars: 2,000 per token in, 8,000 out, 500 cached, 3,000 written, 5,000 for an hour."""
    facts: dict[str, Any] = {
        "input": D(2), "output": D(8), "cached": D("0.5"), "cache_write": D(3),
        "cache_write_1h": D(5), "source": "list", "as_of": "2026-01-01",
    } | more  # fmt: skip
    return TokenPrices(Rates(**facts))


def tokens(into: int | None = 100, out: int | None = 10, **more: Any) -> Tokens:
    return Tokens(tokens_in=into, out=out, source=more.pop("source", "usage"), **more)


UNKNOWN = TokenPrices(None)
HOURLY = TokenPrices(Rates(input=D(2), output=D(8)), hourly=True)


def test_counted_tokens_have_their_price() -> None:
    assert prices().bill(tokens()) == Bill(280_000, "list", "2026-01-01")
    found = prices().bill(tokens(cached=30, cache_write=20))
    assert found.nano_usd == 50 * 2000 + 30 * 500 + 20 * 3000 + 80_000
    kept = prices().bill(tokens(cache_write=20, cache_write_1h=5))
    assert kept.nano_usd == 80 * 2000 + 15 * 3000 + 5 * 5000 + 80_000
    more = prices().bill(tokens(cache_write=20, cache_write_1h=50))
    assert more.nano_usd == 80 * 2000 + 20 * 5000 + 80_000
    plain = prices(cached=None, cache_write=None, cache_write_1h=None)
    assert plain.bill(tokens(cached=30, cache_write=20, cache_write_1h=20)).nano_usd == 280_000
    assert prices().bill(tokens(source="estimate")).source == "estimated"


def test_parts_of_a_nano_dollar_are_rounded() -> None:
    cheap = prices(input=D("0.0001"), output=D(0))  # a tenth of a nano-dollar
    assert [cheap.bill(tokens(n, 0)).nano_usd for n in (4, 5, 14, 15)] == [0, 1, 1, 2]
    assert [cheap.estimate(n, 0).nano_usd for n in (4, 5, 14, 15)] == [0, 1, 1, 2]
    least = prices(input=D("0.000001"), output=D(0))  # a thousandth of one
    assert [least.bill(tokens(n, 0)).nano_usd for n in (499, 500, 1499, 1500)] == [0, 1, 1, 2]
    assert [least.estimate(n, 0).nano_usd for n in (499, 500, 1499, 1500)] == [0, 1, 1, 2]
    bare = prices(input=D("0.0001"), output=D(0), cache_write=None, cache_write_1h=None)
    assert [bare.worst(n, 0) for n in (0, 1, 10, 11)] == [0, 1, 1, 2]


def test_what_has_no_bill() -> None:
    for each in (tokens(None), tokens(100, None)):
        assert prices().bill(each) == NO_BILL
    assert prices().bill(tokens(100, cached=60, cache_write=41)) == NO_BILL
    assert prices().bill(tokens(100, cached=60, cache_write=40)) != NO_BILL
    assert UNKNOWN.bill(tokens()) == NO_BILL
    assert HOURLY.bill(tokens()) == Bill(None, "hourly", None)
    assert UNKNOWN.estimate(1, 1) == Bill(None, None, None)
    assert HOURLY.estimate(1, 1) == Bill(None, "hourly", None)
    assert TokenPrices(Rates(output=D(1))).bill(tokens()) == NO_BILL


def test_what_is_known_of_a_target() -> None:
    assert (prices().known, prices().hourly, prices().source) == (True, False, "list")
    assert (UNKNOWN.known, UNKNOWN.source, UNKNOWN.as_of) == (False, None, None)
    assert (HOURLY.known, HOURLY.hourly, HOURLY.source, HOURLY.as_of) == (
        True,
        True,
        "hourly",
        None,
    )
    assert UNKNOWN.unpriced == Bill(None, None, None)
    told = prices().price(abort_stops=True)
    assert told is not None
    assert (told.tokens_in, told.tokens_out, told.cached_in) == (2000.0, 8000.0, 500.0)
    assert told.abort_stops
    assert UNKNOWN.price(abort_stops=True) is None
    hourly = HOURLY.price(abort_stops=False)
    assert hourly is not None
    assert (hourly.tokens_in, hourly.tokens_out, hourly.abort_stops) == (0.0, 0.0, False)


def test_estimates_and_worst_cases() -> None:
    assert prices().estimate(100, 10) == Bill(280_000, "estimated", "2026-01-01")
    assert prices().worst(100, 10) == 100 * 3000 + 80_000
    assert prices(cache_write=D(1)).worst(100, 10) == 280_000
    assert prices().worst(0, None) == USUAL_ANSWER * 8000
    assert prices().worst_kept(100) == 200_000
    assert prices(cache_write_1h=D(1)).worst_kept(100) == 0
    assert prices(cache_write=D(1), cache_write_1h=D(4)).worst_kept(100) == 200_000
    assert (UNKNOWN.worst(9, 9), HOURLY.worst(9, 9)) == (0, 0)


def test_calls_of_a_providers_own_tools() -> None:
    with_tools = prices(calls={"web_search": D(10), "request": D(5)})  # dollars for a thousand
    search, request = 10_000_000, 5_000_000
    assert with_tools.bill(tokens()).nano_usd == 280_000 + request
    called = tokens(calls=(("web_search", 3), ("other", 9)))
    assert with_tools.bill(called).nano_usd == 280_000 + request + 3 * search
    assert with_tools.called(called) == 3 * search
    assert with_tools.estimate(100, 10).nano_usd == 280_000 + request
    assert with_tools.worst(100, 10) == 380_000 + request
    assert with_tools.worst_call("web_search", 4) == 4 * search
    assert with_tools.worst_call("other", 1) is None
    assert HOURLY.worst_call("other", 1) == 0
    grounded = prices(calls={"grounded_request": D(35), "web_search": D(1), "x": D(2)})
    assert grounded.worst_call("web_search", 9) == 35_000_000
    assert grounded.worst_call("x", 2) == 4_000_000


def test_service_tiers() -> None:
    tiers = {
        "flex": TierRates(input=D(1), output=D(4)),
        "priority": TierRates(input=D(4), output=D(16), cached=D(1), cache_write=D(6)),
    }
    tiered = prices(tiers=tiers, calls={"request": D(5), "web_search": D(10)})
    flex = tiered.bill(tokens(cached=30, cache_write=20, tier="flex"))
    assert flex == Bill(100 * 1000 + 40_000 + 5_000_000, "list", "2026-01-01")
    dear = tiered.bill(tokens(cached=30, cache_write=20, tier="priority"))
    assert dear.nano_usd == 50 * 4000 + 30 * 1000 + 20 * 6000 + 160_000 + 5_000_000
    searched = tiered.bill(tokens(tier="flex", calls=(("web_search", 1),)))
    assert searched.nano_usd == 140_000 + 15_000_000
    silent = tiered.bill(tokens(100, 0, tier="priority"))
    assert silent.nano_usd == 100 * 4000 + 5_000_000
    odd = tiered.bill(tokens(cached=30, cache_write=20, tier="odd"))
    assert odd.nano_usd == 50 * 2000 + 30 * 500 + 20 * 3000 + 80_000 + 5_000_000
    assert odd.source == "estimated"
    assert tiered.bill(tokens(tier="flex", source="estimate")).source == "estimated"
    for usual in (None, "auto", "default", "standard"):
        assert tiered.bill(tokens(tier=usual)).nano_usd == 5_280_000
    dearest = 100 * 6000 + 160_000 + 5_000_000
    for tier in ("flex", "priority", "auto", "batch"):
        assert tiered.worst_tier(100, 10, tier) == dearest
    assert tiered.worst_tier(0, None, "flex") == USUAL_ANSWER * 16_000 + 5_000_000
    assert tiered.worst_tier(100, 10, "odd") is None
    assert HOURLY.worst_tier(100, 10, "odd") == 0
    assert prices().worst_tier(100, 10, "auto") == prices().worst(100, 10)


def test_parts_of_a_nano_dollar_are_rounded_under_every_tier_and_for_sound() -> None:
    least = TierRates(input=D("0.000001"), output=D(0))  # a thousandth of a nano-dollar
    tiered = prices(tiers={"flex": least})
    counts = (499, 500, 1499, 1500)
    assert [tiered.bill(tokens(n, 0, tier="flex")).nano_usd for n in counts] == [0, 1, 1, 2]
    dear = prices(tiers={"flex": TierRates(input=D("0.001"), output=D("0.001"))})
    assert [dear.worst_tier(n, 0, "flex") for n in (1, 2)] == [3000, 6000]
    alone = TokenPrices(Rates(input=D(0), output=D(0), tiers={"flex": least}, source="list"))
    assert [alone.worst_tier(n, 0, "flex") for n in (0, 1, 1000, 1001)] == [0, 1, 1, 2]
    kept = prices(cache_write=D(2), cache_write_1h=D("2.000001"))
    assert [kept.worst_kept(n) for n in (0, 1, 1000, 1001)] == [0, 1, 1, 2]
    hour = prices(audio_hour=D(3600))  # a dollar a second
    assert hour.spoken(Tokens(seconds=1000.0), Sound(None, 1)).nano_usd == 1000 * 10**9
    letters = prices(characters=D("0.000001"))
    assert [letters.spoken(Tokens(), Sound(n)).nano_usd for n in counts] == [0, 1, 1, 2]
    assert [letters.worst_spoken(Sound(n)) for n in (0, 1, 1000, 1001)] == [0, 1, 1, 2]


# Sound


def test_speech_by_the_character_or_by_the_token() -> None:
    spoken = prices(characters=D(15))  # 15,000 nano-dollars a character
    assert spoken.spoken(Tokens(), Sound(10)) == Bill(150_000, "list", "2026-01-01")
    assert spoken.worst_spoken(Sound(10)) == 150_000
    by_token = prices().spoken(Tokens(), Sound(10))  # 3 tokens in, 15 out
    assert by_token == Bill(3 * 2000 + 15 * 8000, "estimated", "2026-01-01")
    counted = prices().spoken(tokens(7, 20), Sound(10))
    assert counted == Bill(7 * 2000 + 20 * 8000, "list", "2026-01-01")


def test_a_recording_by_the_hour_or_by_the_token() -> None:
    heard = prices(audio_hour=D("0.36"))  # 100,000 nano-dollars a second
    assert heard.spoken(Tokens(seconds=2.5), Sound(None, 99)) == Bill(250_000, "list", "2026-01-01")
    guessed = heard.spoken(Tokens(), Sound(None, 16_000))  # two seconds of 8,000 bytes
    assert guessed == Bill(200_000, "estimated", "2026-01-01")
    assert heard.least_spoken(Sound(None, 16_000)) == 800_000
    assert heard.worst_spoken(Sound(None, 16_000)) == 3_200_000  # 4 kbit/s
    by_token = prices().spoken(Tokens(), Sound(None, 16_000))
    assert by_token == Bill(34 * 2000 + 8 * 8000, "estimated", "2026-01-01")
    sound = prices(input_audio=D(6))
    assert sound.spoken(tokens(50, 5), Sound(None, 1)).nano_usd == 50 * 6000 + 5 * 8000
    mixed = sound.spoken(tokens(50, 5, audio=40), Sound(None, 1))
    assert mixed.nano_usd == 40 * 6000 + 10 * 2000 + 5 * 8000
    more = sound.spoken(tokens(50, 5, audio=60), Sound(None, 1))
    assert more.nano_usd == 60 * 6000 + 5 * 8000


def test_speech_that_is_counted_in_part_is_estimated() -> None:
    by_token = prices().spoken(Tokens(), Sound(8))  # 3 tokens in, 12 out
    assert by_token == Bill(3 * 2000 + 12 * 8000, "estimated", "2026-01-01")
    assert prices().spoken(tokens(7, None), Sound(8)) == by_token
    assert prices().spoken(tokens(None, 7), Sound(8)) == by_token
    heard = prices(input_audio=D(6))  # nothing is heard where something is spoken
    assert heard.spoken(tokens(7, 20), Sound(10)).nano_usd == 7 * 2000 + 20 * 8000


def test_a_price_that_is_nothing_or_not_there_costs_nothing() -> None:
    for free in (D(0), None):
        made = TokenPrices(Rates(input=D(2), output=free))
        assert made.bill(tokens(100, 10)).nano_usd == 200_000


def test_sound_without_a_price() -> None:
    assert UNKNOWN.spoken(Tokens(), Sound(10)) == NO_BILL
    assert UNKNOWN.worst_spoken(Sound(10)) is None
    assert HOURLY.spoken(Tokens(), Sound(10)) == Bill(None, "hourly", None)
    assert HOURLY.worst_spoken(Sound(10)) == 0


# What is believed


def test_an_answer_is_no_longer_than_its_limit() -> None:
    for out, asked in ((100 + SLACK, 100), (USUAL_ANSWER + SLACK, None)):
        said = tokens(5, out)
        assert believed(said, asked, 10, 10) is said
        cut = believed(tokens(5, out + 1, streamed=3, first_burst=1.0), asked, 10, 10)
        assert (cut.out, cut.source) == (out - SLACK, "estimate")
        assert (cut.streamed, cut.first_burst) == (None, None)
    long = tokens(5, 9000 + SLACK)
    assert believed(long, None, 9000, 10) is long
    thought = tokens(5, 150 + SLACK, reasoning=50)
    assert believed(thought, 100, 10, 10) is thought
    most = tokens(5, 100 + SLACK + MOST_REASONED + 1, reasoning=MOST_REASONED + 1)
    cut = believed(most, 100, 10, 10)
    assert (cut.out, cut.reasoning) == (100 + MOST_REASONED, None)
    fair = tokens(5, 10, reasoning=MOST_REASONED)
    assert believed(fair, 100, 10, 10) is fair


def test_a_visible_token_has_a_byte() -> None:
    fair = tokens(5, 10, streamed=10, first_burst=1.0)
    assert believed(fair, 100, 10, 10) is fair
    cut = believed(fair, 100, 9, 10)
    assert (cut.streamed, cut.first_burst, cut.out) == (None, None, 10)


@pytest.mark.parametrize("field", ["tokens_in", "cached", "cache_write"])
def test_a_prompt_is_no_longer_than_what_was_sent(field: str) -> None:
    facts = {"tokens_in": 5, "out": 1} | {field: 10 + MOST_GIVEN}
    fair = Tokens(source="usage", **facts)  # type: ignore[arg-type] # counts
    assert believed(fair, 100, 10, 10) is fair
    cut = believed(fair, 100, 10, 9)
    assert (cut.tokens_in, cut.cached, cut.cache_write) == (None, None, None)
    nothing = Tokens()
    assert believed(nothing, None, 0, 0) is nothing


def test_counts_at_the_edge_of_what_is_believed() -> None:
    sent = 50
    most = sent + MOST_GIVEN
    for sound in (tokens(most), tokens(1, cached=most), tokens(1, cache_write=most)):
        assert believed(sound, None, 9, sent) is sound
    thought = tokens(1, 5, reasoning=MOST_REASONED)
    assert believed(thought, None, 9, sent) is thought
    over = believed(tokens(1, 5, reasoning=MOST_REASONED + 1), None, 9, sent)
    assert (over.reasoning, over.out) == (None, 5)
    exact = tokens(1, 100 + SLACK)
    assert believed(exact, 100, 9, sent) is exact
    cut = believed(tokens(1, 101 + SLACK, streamed=3, first_burst=2), 100, 9, sent)
    assert (cut.out, cut.source, cut.streamed, cut.first_burst) == (100, "estimate", None, None)
    silent = tokens(None, 5)
    assert believed(silent, None, 0, 0) is silent
    seen = tokens(1, 5, streamed=9)
    assert believed(seen, None, 9, sent) is seen
    assert believed(tokens(1, 5, streamed=10), None, 9, sent).streamed is None


@pytest.mark.parametrize("streamed", [None, 0, 5])
def test_visible_tokens_are_believed_up_to_a_byte_each_whatever_else_is_told(
    streamed: int | None,
) -> None:
    """With cached tokens, which have every count looked at."""
    fair = tokens(100, 5, cached=1, streamed=streamed, first_burst=1.0)
    assert believed(fair, 100, streamed or 0, 10) is fair
    if streamed:
        assert believed(fair, 100, streamed - 1, 10).streamed is None


def test_a_target_that_is_paid_by_the_hour_costs_nothing_whatever_its_list_says() -> None:
    rates = Rates(input=D(2), output=D(8), cached=D(1), cache_write=D(3), cache_write_1h=D(5))
    hourly = TokenPrices(rates, hourly=True)
    price = hourly.price(abort_stops=True)
    assert price is not None
    assert (price.tokens_in, price.tokens_out, price.cached_in) == (0.0, 0.0, 0.0)
    assert (hourly.worst(100, 10), hourly.worst_kept(100)) == (0, 0)
