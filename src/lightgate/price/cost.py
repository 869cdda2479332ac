"""The cost of a request, in dollars as Decimal; unknown is None, never 0."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.price.rates import (
    USUAL_TIERS,
    BatchDiscount,
    Rates,
    TierRates,
    list_as_of,
    list_cost,
    rates_of,
    with_discount,
)

if TYPE_CHECKING:
    from datetime import datetime

    from lightgate.clock.tokens import Usage

CostSource = Literal["list", "override", "hourly"]
MTOK: Final = Decimal(1_000_000)
BATCH_TIER: Final = "batch"  # the service tier that an answer of a batch job names
HOURS_PER_MONTH: Final = Decimal(730)  # 365 x 24 / 12


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of one attempt; the names are those of the record."""

    cost_usd: Decimal | None = None
    cost_source: CostSource | None = None
    price_as_of: str | None = None


class PriceTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms that differ from the list: own rates, dollars per hour, the batch tier.

    `discount` is for models whose batch price the list does not have.
    """

    override: Rates | None = None
    hourly_cost: Decimal | None = None
    batch: bool = False
    discount: BatchDiscount | None = None


LIST_TERMS: Final = PriceTerms()


def money(amount: Decimal) -> str:
    """Write dollars with two digits after the point, and with more where the amount is small."""
    size = abs(float(amount))
    if size == 0 or size >= 1:
        return f"${size:,.2f}"
    places = min(9, 1 - math.floor(math.log10(size)))
    whole, _, part = f"{size:.{places}f}".partition(".")
    return f"${whole}.{part.rstrip('0').ljust(2, '0')}"


def price_of(
    price_provider: str | None,
    model: str,
    usage: Usage,
    at: datetime,
    *,
    terms: PriceTerms = LIST_TERMS,
) -> Cost:
    """The cost of one request: own dollars per hour, then own rates, then the list.

    A target that is paid by the hour has no price per request: its dollars per token depend on the
    load, and are clock's `cost_1k` of a whole cell.
    """
    if terms.hourly_cost is not None:
        return Cost(cost_source="hourly")
    batch = terms.batch or usage.tier == BATCH_TIER
    if terms.override is not None:
        dollars = _at_rates(terms.override, usage, batch=batch)
        if dollars is None:
            return Cost()
        return Cost(cost_usd=dollars, cost_source="override", price_as_of=terms.override.as_of)
    if price_provider is None:
        return Cost()
    dollars = list_cost(price_provider, model, usage, at, batch=batch)
    if dollars is None and batch:
        dollars = _discounted(price_provider, model, usage, at, terms.discount)
    if dollars is None:
        return Cost()
    return Cost(cost_usd=dollars, cost_source="list", price_as_of=list_as_of(at))


def _discounted(
    price_provider: str, model: str, usage: Usage, at: datetime, discount: BatchDiscount | None
) -> Decimal | None:
    """Dollars of a batch by its provider's discount; None where the list has a batch price."""
    rates = rates_of(price_provider, model, at)
    rates = None if rates is None else with_discount(rates, discount)
    if rates is None or rates.batch_source != "discount":
        return None
    unknown = (usage.tokens_cached and rates.batch_cached is None) or (
        usage.tokens_cache_write and rates.batch_cache_write is None
    )
    return None if unknown else _at_rates(rates, usage, batch=True)


def _at_rates(rates: Rates, usage: Usage, *, batch: bool) -> Decimal | None:
    """Dollars at own rates; cached tokens without a rate of their own cost what others do.

    In a batch they cost what the batch's own rate for them says, else the usual rate for them.
    """
    tier: Rates | TierRates = rates
    if not batch and usage.tier not in USUAL_TIERS:
        tier = rates.tiers.get(usage.tier or "", TierRates())
    price_in = rates.batch_input if batch else tier.input
    price_out = rates.batch_output if batch else tier.output
    if usage.tokens_in is None or usage.tokens_out is None or price_in is None or price_out is None:
        return None
    cached, written = usage.tokens_cached or 0, usage.tokens_cache_write or 0
    fresh = usage.tokens_in - cached - written
    if fresh < 0:
        return None  # more tokens cached than sent: the usage contradicts itself
    price_cached, price_written = tier.cached, tier.cache_write
    if batch:
        price_cached = rates.batch_cached if rates.batch_cached is not None else price_cached
        own = rates.batch_cache_write
        price_written = own if own is not None else price_written
    price_cached = price_in if price_cached is None else price_cached
    price_written = price_in if price_written is None else price_written
    total = (
        fresh * price_in
        + cached * price_cached
        + written * price_written
        + usage.tokens_out * price_out
    )
    return total / MTOK
