"""Prices of sound and pictures beside text: what an answer and a prompt of them cost, to the nano.

A rate of 1 is a dollar for a million tokens, which is 1,000 nano-dollars for each.
"""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lightgate.clock.tokens import HEARD, Tokens
from lightgate.gateway.request.body import Sound
from lightgate.gateway.served.price import Bill, TokenPrices
from lightgate.price.rates import LongRates, Rates, TierRates


def D(number: float) -> Decimal:  # noqa: N802 - a number of money
    return Decimal(str(number))


def prices(*, hourly: bool = False, **more: Any) -> TokenPrices:
    """A token of a prompt costs 1, one of an answer 2; of sound 6 and 20; of a picture 3 and 40."""
    usual: dict[str, Any] = {
        "input": D(1), "output": D(2), "input_audio": D(6), "input_image": D(3),
        "output_audio": D(20), "output_image": D(40),
    }  # fmt: skip
    return TokenPrices(Rates(**usual | more), hourly=hourly)


def tokens(*media: tuple[str, int], **more: Any) -> Tokens:
    counts: dict[str, Any] = {"tokens_in": 100, "out": 50, "source": "usage"} | more
    return Tokens(media=media, **counts)


def nano(found: TokenPrices, *media: tuple[str, int], **more: Any) -> int | None:
    return found.bill(tokens(*media, **more)).nano_usd


TEXT = 100 * 1_000 + 50 * 2_000


# Bills


@pytest.mark.parametrize(
    ("media", "more"),
    [
        ([], 0),
        ([(HEARD, 10)], 10 * 5_000),
        ([("audio", 10)], 10 * 18_000),
        ([("image", 10)], 10 * 38_000),
        ([("video", 10)], 0),  # without a price of its own it costs what text does
        ([(HEARD, 10), ("audio", 5), ("image", 1)], 50_000 + 90_000 + 38_000),
        ([(HEARD, 101)], 100 * 5_000),  # no more than all tokens of the prompt
        ([("audio", 51)], 50 * 18_000),  # and of the answer
    ],
)
def test_tokens_that_are_no_text_have_prices_of_their_own(
    media: list[tuple[str, int]], more: int
) -> None:
    assert nano(prices(), *media) == TEXT + more
    assert nano(prices(), *media, tier="default") == TEXT + more


def test_cached_tokens_are_not_heard() -> None:
    found = prices(cached=D(0.1))
    cached = 70 * 100 + 30 * 1_000 + 50 * 2_000
    assert nano(found, (HEARD, 40), cached=70) == cached + 30 * 5_000
    assert nano(found, (HEARD, 20), cached=70) == cached + 20 * 5_000


def test_sound_that_is_cheaper_than_text_costs_as_much_as_text() -> None:
    assert nano(prices(input_audio=D(0.5)), (HEARD, 10)) == TEXT
    assert nano(prices(input_audio=None), (HEARD, 10)) == TEXT
    assert nano(prices(output_audio=D(1)), ("audio", 10)) == TEXT - 10 * 1_000


def test_a_service_tier_has_its_own_price_of_text_alone() -> None:
    found = prices(tiers={"priority": TierRates(input=D(2), output=D(4))})
    tiered = 100 * 2_000 + 50 * 4_000
    assert nano(found, tier="priority") == tiered
    assert nano(found, ("audio", 10), tier="priority") == tiered + 10 * 18_000
    assert nano(found, (HEARD, 10), tier="priority") == tiered + 10 * 5_000


# The most that a request can cost


def test_an_answer_costs_at_most_the_dearest_kind_that_may_come() -> None:
    found = prices()
    assert found.worst_answer({"audio"}, 100, 50) == 50 * 38_000  # it may draw unasked
    assert found.worst_answer((), 100, 50) == 50 * 38_000
    spoken = prices(output_image=None)
    assert spoken.worst_answer({"audio"}, 100, 50) == 50 * 18_000
    assert spoken.worst_answer((), 100, 50) == 0  # and speaks only where it is asked to
    cheap = prices(output_image=None, output_audio=D(1))
    assert cheap.worst_answer({"audio"}, 100, 50) == 0
    fine = prices(output_image=D(2.000001), output_audio=None)
    assert fine.worst_answer((), 100, 1) == 1  # a part of a nano-dollar counts as one
    assert fine.worst_answer((), 100, 1_000) == 1
    assert fine.worst_answer((), 100, 1_001) == 2


def test_a_kind_without_a_price_is_named() -> None:
    assert prices().worst_answer({"video", "audio"}, 100, 50) == "video"
    assert prices(output_audio=None).worst_answer({"video", "audio"}, 100, 50) == "audio"
    assert TokenPrices(None).worst_answer({"image"}, 100, 50) == "image"
    assert prices(hourly=True).worst_answer({"video"}, 100, 50) == 0


def test_a_prompt_costs_at_most_the_dearest_kind_of_all() -> None:
    assert prices().worst_heard(100, 10) == 10 * 5_000
    assert prices(input_audio=None).worst_heard(100, 10) == 10 * 2_000
    assert prices(input_video=D(9)).worst_heard(100, 10) == 10 * 8_000
    assert prices(input_audio=None, input_image=None).worst_heard(100, 10) == 0
    assert prices(cache_write=D(4)).worst_heard(100, 10) == 10 * 2_000  # beside its usual worst
    assert prices(input_audio=D(1.000001)).worst_heard(100, 1) == 2_000  # the picture's
    assert TokenPrices(None).worst_heard(100, 10) == 0
    assert prices(hourly=True).worst_heard(100, 10) == 0


def test_a_part_of_a_nano_dollar_that_is_heard_counts_as_one() -> None:
    fine = prices(input_audio=D(1.000001), input_image=None)
    assert [fine.worst_heard(100, count) for count in (0, 1, 1_000, 1_001)] == [0, 1, 1, 2]


def test_longer_prompts_have_their_own_prices_of_text_and_the_same_of_sound() -> None:
    found = prices(long=(LongRates(above=200, input=D(5), output=D(10)),))
    assert found.worst_answer({"audio"}, 200, 50) == 50 * 38_000
    assert found.worst_answer({"audio"}, 201, 50) == 50 * 30_000
    assert found.worst_heard(200, 10) == 10 * 5_000
    assert found.worst_heard(201, 10) == 10 * 1_000


@pytest.mark.parametrize(("rate", "hears"), [(D(6), True), (D(0), True), (None, False)])
def test_whether_a_target_hears_is_whether_it_has_a_price_of_sound(
    rate: Decimal | None, hears: bool
) -> None:
    assert prices(input_audio=rate).hears is hears
    assert not TokenPrices(None).hears
    assert prices(hourly=True, input_audio=rate).hears


# Answers that do not say how much of them was sound


def asked(**fields: Any) -> Any:
    """A request for speech; its prompt has 100 tokens."""
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    return SimpleNamespace(
        endpoint=SimpleNamespace(dialect="openai-chat"), fields=raw, tokens_in=100
    )


def test_an_answer_that_was_to_be_sound_and_counts_none_is_estimated_at_the_most() -> None:
    bill = Bill(TEXT, "listed", "2026-11-15")
    spoken = asked(modalities=["text", "audio"])
    found = prices(output_image=None)
    assert found.in_kind(bill, spoken, 50) == Bill(TEXT + 50 * 18_000, "estimated", "2026-11-15")
    assert found.in_kind(bill, asked(), 50) is bill
    assert found.in_kind(bill, spoken, 0) is bill
    assert found.in_kind(bill, asked(modalities=["video"]), 50) is bill  # without a price
    unknown = Bill(None, None, None)
    assert found.in_kind(unknown, spoken, 50) is unknown
    assert TokenPrices(None).in_kind(bill, spoken, 50) is bill


# Sound at its edges: nothing of it, nothing known of it, and no price


def test_an_answer_of_nothing_costs_nothing_more() -> None:
    assert nano(prices(), ("audio", 10), out=0) == 100_000
    assert nano(prices(), (HEARD, 10), tokens_in=0) == 100_000
    assert nano(prices(cached=D(1)), (HEARD, 10), cached=100) == TEXT


def test_tokens_of_sound_without_a_price_cost_what_text_does_where_text_is_cheap() -> None:
    """A millionth of a dollar for a million: a pico-dollar each."""
    cheap = prices(input=D(0), output=D(0), input_audio=None)
    assert nano(cheap, (HEARD, 10_000), tokens_in=100_000) == 0
    assert cheap.worst_heard(100, 100_000) == 300_000_000


def test_an_answer_has_at_most_the_price_of_its_own_kinds() -> None:
    drawn = prices(output=D(0), output_image=None, output_audio=None)
    assert drawn.worst_answer((), 100, 100_000) == 0
    assert prices(output_video=D(60)).worst_answer({"video"}, 100, 10) == 10 * 58_000
    assert nano(prices(output_video=D(60)), ("video", 10)) == TEXT + 10 * 58_000


def test_an_answer_in_kind_of_a_bill_of_nothing() -> None:
    free = Bill(0, "list", None)
    spoken = prices(output_image=None)
    assert spoken.in_kind(free, asked(modalities=["audio"]), 1).nano_usd == 18_000


# What a request for sound can cost: 500 bytes are a second, 17 tokens heard and 10 written


def test_a_recording_costs_at_most_what_is_heard_and_what_is_written() -> None:
    recording = Sound(None, 1000)
    assert prices().worst_spoken(recording) == 1_000 + 34 * 6_000 + 20 * 2_000
    assert prices(input_audio=None).worst_spoken(recording) == 1_000 + 34 * 1_000 + 20 * 2_000
    assert prices(input_audio=D(0.5)).worst_spoken(recording) == 1_000 + 34 * 1_000 + 20 * 2_000
    free = prices(input=D(0), output=D(0), input_audio=None)
    assert free.worst_spoken(Sound(None, 1_000_000)) == 0
    told = Sound(None, 1000, text=7)
    assert prices().worst_spoken(told) == 4 * 1_000 + 34 * 6_000 + 20 * 2_000


def test_a_text_costs_at_most_twelve_tokens_of_speech_for_a_character() -> None:
    assert prices().worst_spoken(Sound(10)) == 1_000 + 120 * 20_000
    assert prices(output_audio=None).worst_spoken(Sound(10)) == 1_000 + 120 * 2_000
    assert prices().worst_spoken(Sound(10, slower=2.0)) == 1_000 + 240 * 20_000
    assert prices().worst_spoken(Sound(0)) == 1_000
    assert prices(input=D(0)).worst_spoken(Sound(0)) == 0


def test_a_price_of_the_hour_of_recordings_is_not_that_of_speech() -> None:
    heard = prices(audio_hour=D(3.6))  # a million nano-dollars for a second
    assert heard.worst_spoken(Sound(None, 1000)) == 2_000_000
    assert heard.worst_spoken(Sound(10)) == 1_000 + 120 * 20_000
    speaks = prices(characters=D(15))
    assert speaks.worst_spoken(Sound(10)) == 150_000
    assert speaks.worst_spoken(Sound(None, 1000)) == prices().worst_spoken(Sound(None, 1000))


def test_the_least_that_is_reserved_for_sound() -> None:
    assert prices(audio_hour=D(3.6)).least_spoken(Sound(None, 16_000)) == 8_000_000
    assert prices(hourly=True, audio_hour=D(3.6)).least_spoken(Sound(None, 16_000)) == 0
    assert TokenPrices(None).least_spoken(Sound(None, 16_000)) == 0
    assert prices(hourly=True).least_spoken(Sound(10)) == 0


def test_speech_that_is_counted_has_the_price_of_its_own_tokens() -> None:
    counted = Tokens(tokens_in=7, out=20, source="usage")
    assert prices().spoken(counted, Sound(10)).nano_usd == 7 * 1_000 + 20 * 20_000
    assert prices().spoken(counted, Sound(None, 1)).nano_usd == 7 * 6_000 + 20 * 2_000


def test_sound_that_costs_nothing_more_does_not_round_a_bill_up() -> None:
    almost = prices(input=D(0.000499), output=D(0), input_audio=None)  # 499 pico-dollars
    assert nano(almost, (HEARD, 1), tokens_in=1, out=0) == 0
    half = prices(input=D(0.0005), output=D(0), input_audio=None)
    assert nano(half, (HEARD, 1), tokens_in=1, out=0) == 1
