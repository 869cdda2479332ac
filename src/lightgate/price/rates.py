"""The rates of models in dollars per million tokens: a user's own, or the list of genai-prices.

The import of genai-prices takes a good part of a second and brings pydantic and an HTTP client: it
happens inside these functions, never on the request path. Nothing here goes to the network.
"""

from __future__ import annotations

import bisect
import functools
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    from genai_prices.types import ModelInfo, ModelPrice, Provider

    from lightgate.clock.tokens import Usage

RateSource = Literal["list", "override"]
BatchSource = Literal["list", "discount", "override"]
BATCH: Final = {"processing": "batch"}
GROUNDED: Final = "grounded_request"
_CALLS: Final = {
    "web_search": "web_searches_kcount",
    "file_search": "storage_searches_kcount",
    "request": "requests_kcount",
}
_RISING: Final = {
    "input": "input",
    "output": "output",
    "cached": "cache_read",
    "cache_write": "cache_write",
    "cache_write_1h": "cache_write_1h",
}
# Service tiers that cost what the list says; every other has a price of its own, or an unknown one.
USUAL_TIERS: Final = frozenset((None, "auto", "default", "standard", "standard_only", "on_demand"))


CHEAPER_TIERS: Final = frozenset(("flex", "batch"))


class TierRates(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of one model under one service tier, such as flex, in dollars per million tokens."""

    input: Decimal | None = None
    output: Decimal | None = None
    cached: Decimal | None = None
    cache_write: Decimal | None = None


class BatchDiscount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shares of its usual prices that a provider asks in a batch, where it says so for all.

    `cached` and `cache_write` are shares of their own usual prices; None where nobody says what
    tokens of the cache cost in a batch.
    """

    input: Decimal
    output: Decimal
    cached: Decimal | None = None
    cache_write: Decimal | None = None


class LongRates(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of all tokens of a request whose prompt has more tokens than `above`."""

    above: int
    input: Decimal | None = None
    output: Decimal | None = None
    cached: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of one model in dollars per million tokens; `as_of` is a day, ISO 8601.

    `cached` and `cache_write` are None where the list has no price of their own for them. `tiered`
    says that longer prompts cost more than shown, `long` how much, the shortest first. `tiers` are
    by the name of a service tier. `batch_source` says where the prices of a batch come from: from
    the list, from a provider's `discount` on all its prices, or from the user.
    `input_audio` and `output_audio` are for tokens of sound, and so on for pictures and films; None
    where they have no price of their own. `characters` is for a million that are spoken,
    `audio_hour` for an hour of a recording. `calls` are for a thousand calls of a tool that the
    provider carries out itself, by kind, and of the model itself (`request`). `cache_write_1h` is
    for tokens that are kept for an hour.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cached: Decimal | None = None
    cache_write: Decimal | None = None
    batch_input: Decimal | None = None
    batch_output: Decimal | None = None
    batch_cached: Decimal | None = None
    batch_cache_write: Decimal | None = None
    batch_source: BatchSource | None = None
    tiers: dict[str, TierRates] = {}
    input_audio: Decimal | None = None
    input_image: Decimal | None = None
    input_video: Decimal | None = None
    output_audio: Decimal | None = None
    output_image: Decimal | None = None
    output_video: Decimal | None = None
    characters: Decimal | None = None
    audio_hour: Decimal | None = None
    cache_write_1h: Decimal | None = None
    calls: dict[str, Decimal] = {}
    tiered: bool = False
    long: tuple[LongRates, ...] = ()
    source: RateSource = "list"
    as_of: str | None = None

    @property
    def priced(self) -> bool:
        """Whether anything has a price: tokens, spoken characters or hours of sound."""
        return any(price is not None for price in (self.input, self.characters, self.audio_hour))


class ListedModel(NamedTuple):
    """A model of a provider's price list."""

    id: str
    name: str | None
    context_window: int | None
    deprecated: bool
    rates: Rates


def with_calls(rates: Rates, calls: Mapping[str, Decimal]) -> Rates:
    """Rates with the prices of calls that they lack."""
    more = {
        kind: price
        for kind, price in calls.items()
        if kind != "web_search" or GROUNDED not in rates.calls
    }
    return msgspec.structs.replace(rates, calls={**more, **rates.calls})


def with_discount(rates: Rates, discount: BatchDiscount | None) -> Rates:
    """Rates with the prices of a batch that they lack, by what the provider says of all models.

    Where longer prompts cost more, a share of the shown price would be too little: they stay as
    they are.
    """
    known = rates.batch_input is not None or rates.batch_output is not None
    if discount is None or known or rates.tiered or rates.input is None:
        return rates
    return msgspec.structs.replace(
        rates,
        batch_input=_share(rates.input, discount.input),
        batch_output=_share(rates.output, discount.output),
        batch_cached=_share(rates.cached, discount.cached),
        batch_cache_write=_share(rates.cache_write, discount.cache_write),
        batch_source="discount",
    )


def _share(price: Decimal | None, share: Decimal | None) -> Decimal | None:
    return None if price is None or share is None else price * share


def rates_of(price_provider: str, model: str, at: datetime) -> Rates | None:
    """The list prices of one model at a moment, or None where the list does not have it."""
    found = _find(price_provider, model)
    return _rates(found[1], at) if found is not None else None


def models_of(price_provider: str, at: datetime) -> tuple[ListedModel, ...]:
    """Every model of a provider's list; empty where there is no list for it."""
    from genai_prices.data_snapshot import get_snapshot

    provider = next((p for p in get_snapshot().providers if p.id == price_provider), None)
    return tuple(_listed(model, at) for model in (provider.models if provider is not None else ()))


def listed_model(price_provider: str, model: str, at: datetime) -> ListedModel | None:
    """The list's row for a model by the list's own rules, which also know dated names."""
    found = _find(price_provider, model)
    return None if found is None else _listed(found[1], at)


def list_cost(
    price_provider: str, model: str, usage: Usage, at: datetime, *, batch: bool
) -> Decimal | None:
    """Dollars for one request at list price, or None where the list cannot say."""
    from genai_prices import Usage as ListUsage

    found = _find(price_provider, model)
    if found is None:
        return None
    provider, info = found
    context = BATCH if batch else None
    if not batch and usage.tier is not None and usage.tier not in USUAL_TIERS:
        context = {"service_tier": usage.tier}
    if context is not None and not _has_variant(info, at, context):
        return None
    prices = info.get_prices(at, context)
    out = usage.tokens_out
    if out is None and prices.output_mtok is None:
        out = 0  # an embedding has no answer to pay for
    if usage.tokens_in is None or out is None:
        return None
    if (usage.tokens_in and prices.input_mtok is None) or (out and prices.output_mtok is None):
        return None
    cached, written = usage.tokens_cached or 0, usage.tokens_cache_write or 0
    if cached + written > usage.tokens_in:
        return None  # the provider contradicts itself
    counted = ListUsage(
        input_tokens=usage.tokens_in,
        output_tokens=out,
        cache_read_tokens=cached,
        cache_write_tokens=written,
    )
    return info.calc_price(
        counted, provider, genai_request_timestamp=at, price_context=context
    ).total_price


def list_as_of(at: datetime) -> str | None:
    """The newest dated price of the list that is in force at `at`: it is at least that new."""
    days = _dated()
    position = bisect.bisect_right(days, at.date())
    return days[position - 1].isoformat() if position else None


@functools.cache
def _dated() -> tuple[date, ...]:
    from genai_prices.data_snapshot import get_snapshot
    from genai_prices.types import StartDateConstraint

    days: set[date] = set()
    for provider in get_snapshot().providers:
        for model in provider.models:
            prices = model.prices if isinstance(model.prices, list) else []
            days.update(
                price.constraint.start_date
                for price in prices
                if isinstance(price.constraint, StartDateConstraint)
            )
    return tuple(sorted(days))


def _listed(model: ModelInfo, at: datetime) -> ListedModel:
    return ListedModel(
        id=model.id,
        name=model.name,
        context_window=model.context_window,
        deprecated=bool(model.deprecated),
        rates=_rates(model, at),
    )


def _find(price_provider: str, model: str) -> tuple[Provider, ModelInfo] | None:
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, price_provider, None)
    except LookupError:
        return None


def _has_variant(info: ModelInfo, at: datetime, context: dict[str, str]) -> bool:
    return any(
        variant.when == context and (variant.constraint is None or variant.constraint.active(at))
        for variant in info.price_variants or ()
    )


def _rates(info: ModelInfo, at: datetime) -> Rates:
    standard = info.get_prices(at)
    batch = info.get_prices(at, BATCH) if _has_variant(info, at, BATCH) else None
    return Rates(
        input=_base(standard, "input_mtok"),
        output=_base(standard, "output_mtok"),
        cached=_base(standard, "cache_read_mtok"),
        cache_write=_base(standard, "cache_write_mtok"),
        batch_input=_base(batch, "input_mtok"),
        batch_output=_base(batch, "output_mtok"),
        batch_cached=_base(batch, "cache_read_mtok"),
        batch_cache_write=_base(batch, "cache_write_mtok"),
        batch_source="list" if batch is not None else None,
        tiers=_tiers(info, at),
        input_audio=_base(standard, "input_audio_mtok"),
        input_image=_base(standard, "input_image_mtok"),
        input_video=_base(standard, "input_video_mtok"),
        # A model that does nothing but speak has the price of its sound as that of its answers.
        output_audio=_base(standard, "output_mtok" if "tts" in info.id else "output_audio_mtok"),
        output_image=_base(standard, "output_image_mtok"),
        output_video=_base(standard, "output_video_mtok"),
        characters=_base(standard, "input_mchars"),
        audio_hour=_base(standard, "audio_hours") or _base(standard, "input_audio_hours"),
        cache_write_1h=_base(standard, "cache_write_1h_mtok"),
        calls=_calls(standard, info.id),
        tiered=any(hasattr(price, "tiers") for price in vars(standard).values()),
        long=_long(standard),
        as_of=list_as_of(at),
    )


def _long(prices: ModelPrice) -> tuple[LongRates, ...]:
    """The prices of longer prompts, step by step."""
    from genai_prices.types import TieredPrices

    rising = [price for price in vars(prices).values() if isinstance(price, TieredPrices)]
    return tuple(
        LongRates(
            above=above,
            **{name: _base(prices, f"{key}_mtok", above) for name, key in _RISING.items()},
        )
        for above in sorted({tier.start for price in rising for tier in price.tiers})
    )


def _calls(prices: ModelPrice, model: str) -> dict[str, Decimal]:
    """The prices of a thousand calls that the list has.

    Gemini 2 is paid for each request that was grounded, however many searches that took.
    """
    found = {kind: _base(prices, key) for kind, key in _CALLS.items()}
    if model.startswith("gemini-2"):
        found[GROUNDED] = found.pop("web_search")
    return {kind: price for kind, price in found.items() if price is not None}


def _tiers(info: ModelInfo, at: datetime) -> dict[str, TierRates]:
    """The prices under each service tier that the list names with prices of its own."""
    found: dict[str, TierRates] = {}
    for variant in info.price_variants or ():
        name = variant.when.get("service_tier") if len(variant.when) == 1 else None
        active = variant.constraint is None or variant.constraint.active(at)
        if not isinstance(name, str) or not active or _base(variant.prices, "input_mtok") is None:
            continue
        found[name] = TierRates(
            input=_base(variant.prices, "input_mtok"),
            output=_base(variant.prices, "output_mtok"),
            cached=_base(variant.prices, "cache_read_mtok"),
            cache_write=_base(variant.prices, "cache_write_mtok"),
        )
    return found


def _base(prices: ModelPrice | None, key: str, above: int = 0) -> Decimal | None:
    """The price of one kind of token; where it rises with the prompt, its step above so many."""
    from genai_prices.types import TieredPrices

    price: Decimal | TieredPrices | None = getattr(prices, key, None) if prices else None
    if not isinstance(price, TieredPrices):
        return price
    return next((tier.price for tier in price.tiers[::-1] if tier.start <= above), price.base)
