"""When a machine paid by the hour is cheaper than an API paid by the token: the one formula.

Both are held against each other by dollars per 1,000 requests of the same work. A machine costs the
same whether it works or not, so what it costs for a request falls with its use: from some share of
what it can serve on, it is cheaper than the API. Runs, production and the console share this.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.ledger.runs.run import BreakEven
from lightgate.price.cost import HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Iterable

UNKNOWN: Final = "what a request to the API costs is unknown"


class MachineCost(NamedTuple):
    """A machine that never waits for work, at one load; None where unknown."""

    name: str
    load: str
    hourly: Decimal | None
    per_1k: Decimal | None
    per_mtok: Decimal | None
    tokens_out: Decimal | None  # of a request


class ApiCost(NamedTuple):
    """An API; `models` are the machine's model and its own, where they are not the same."""

    name: str
    per_1k: Decimal | None
    models: tuple[str, ...] = ()


class MonthCost(NamedTuple):
    """A month of so many output tokens: on machines of one's own, and at an API.

    `machines` is how many are needed if each may be filled to the share that was asked for, and
    `used` how much of them the tokens fill.
    """

    requests: Decimal
    machines: int
    used: float
    own_usd: Decimal
    api_usd: Decimal


def month_cost(
    machine: MachineCost, api: ApiCost, tokens: Decimal, fill: float
) -> MonthCost | None:
    """Hold a month's bills against each other; None where something about one is unknown."""
    served = _served_per_month(machine.hourly, machine.per_1k)
    if served is None or machine.hourly is None or not machine.tokens_out or api.per_1k is None:
        return None
    requests = tokens / machine.tokens_out
    machines = max(1, math.ceil(requests / (served * Decimal(str(fill)))))
    return MonthCost(
        requests=requests,
        machines=machines,
        used=float(requests / (served * machines)),
        own_usd=machines * machine.hourly * HOURS_PER_MONTH,
        api_usd=api.per_1k * requests / 1000,
    )


def break_even_row(machine: MachineCost, api: ApiCost) -> BreakEven:
    """Hold one machine against one API."""
    share, note = _judge(machine.per_1k, api.per_1k)
    served = _served_per_month(machine.hourly, machine.per_1k)
    requests = None if share is None or served is None else served * Decimal(str(share))
    tokens = machine.tokens_out
    return BreakEven(
        hosted=machine.name,
        api=api.name,
        load=machine.load,
        hosted_per_mtok=machine.per_mtok,
        tokens_per_month=_whole(None if requests is None or tokens is None else requests * tokens),
        note=note,
        hosted_per_1k=machine.per_1k,
        api_per_1k=api.per_1k,
        requests_per_month=_whole(requests),
        utilisation=share,
        models=api.models,
    )


def soonest_first(rows: Iterable[BreakEven]) -> tuple[BreakEven, ...]:
    """Sort by machine; against the first API it pays for itself soonest."""
    return tuple(sorted(rows, key=_order))


def times(share: float) -> str:
    """Write how many times as much: tenths decide below ten, and nobody reads them above."""
    return f"{share:.1f}" if share < 10 else f"{share:,.0f}"


def _judge(full: Decimal | None, billed: Decimal | None) -> tuple[float | None, str]:
    """Find the share of its use from which the machine is cheaper; a note where there is none."""
    if billed is None or full is None:
        return None, UNKNOWN
    if billed == 0:
        return None, "never: the API is free"
    share = float(full / billed)
    if share > 1.0:
        return (
            None,
            f"never at this load: busy all day, it still costs {times(share)} times as much",
        )
    return share, ""


def _served_per_month(hourly: Decimal | None, full: Decimal | None) -> Decimal | None:
    """Requests that the machine serves in a month without a pause."""
    return None if hourly is None or not full else HOURS_PER_MONTH * hourly * 1000 / full


def _whole(amount: Decimal | None) -> Decimal | None:
    return None if amount is None else amount.quantize(Decimal(1))


def _order(row: BreakEven) -> tuple[str, bool, float, str]:
    known = row.utilisation is not None
    return row.hosted, not known, row.utilisation or 0.0, row.api
