"""The records of prices and costs: dollars as Decimal, unknown as None, never 0."""

from __future__ import annotations

from decimal import Decimal
from typing import Final, Literal

import msgspec

RateSource = Literal["list", "override"]
CostSource = Literal["list", "override", "hourly"]
MTOK: Final = Decimal(1_000_000)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of one model in dollars per million tokens; `as_of` is a day, ISO 8601.

    `cached` and `cache_write` are None where the list has no price of their own for them. `tiered`
    says that longer prompts cost more than shown.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cached: Decimal | None = None
    cache_write: Decimal | None = None
    batch_input: Decimal | None = None
    batch_output: Decimal | None = None
    tiered: bool = False
    source: RateSource = "list"
    as_of: str | None = None


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt cost; the names are those of the record."""

    cost_usd: Decimal | None = None
    cost_source: CostSource | None = None
    price_as_of: str | None = None


class PriceTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from the list: own rates, dollars per hour, the batch tier."""

    override: Rates | None = None
    hourly_cost: Decimal | None = None
    batch: bool = False


LIST_TERMS: Final = PriceTerms()
