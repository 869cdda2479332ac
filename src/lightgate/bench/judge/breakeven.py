"""When a machine paid by the hour is cheaper than an API paid by the token.

A machine costs the same whether it works or not, so its price per token is that of a fully used
hour at the measured load, and only holds there. An API bills the prompts too: its price per output
token has the run's input tokens in it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from lightgate.clock.load import cost_out
from lightgate.ledger.runs.run import BreakEven

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lightgate.ledger.runs.run import CellSummary, TargetFacts

HOURS_PER_MONTH: Final = Decimal(730)  # 365 x 24 / 12
SECONDS_PER_HOUR: Final = 3600
MTOK: Final = Decimal(1_000_000)
CENTS: Final = Decimal("0.0001")


def break_even(
    targets: Sequence[TargetFacts], cells: Iterable[CellSummary]
) -> tuple[BreakEven, ...]:
    """Hold every cell of a self-hosted target against every API of the run."""
    shown = [target for target in targets if target.twin_of is None]
    hosted = {target.name: target for target in shown if target.hourly_cost is not None}
    apis = [target for target in shown if target.hourly_cost is None]
    return tuple(
        row
        for cell in cells
        if cell.target in hosted
        for row in _rows(cell, hosted[cell.target], apis)
    )


def tokens_per_month(hourly: Decimal, api_per_mtok: Decimal) -> Decimal | None:
    """Output tokens a month at which both cost the same: hours x $/hour / $ per token."""
    if api_per_mtok <= 0:
        return None
    return (HOURS_PER_MONTH * hourly * MTOK / api_per_mtok).quantize(Decimal(1))


def capacity_per_month(throughput_tps: float) -> Decimal:
    """Output tokens that one machine makes in a month without a pause."""
    made = Decimal(str(throughput_tps)) * SECONDS_PER_HOUR * HOURS_PER_MONTH
    return made.quantize(Decimal(1))


def billed_per_mtok(api: TargetFacts, cell: CellSummary) -> Decimal | None:
    """Dollars that an API bills per million output tokens with this cell's prompts, if known."""
    if api.price_output is None:
        return None
    tokens_in, tokens_out = cell.tokens_in_p50, cell.tokens_out_p50
    if api.price_input is None or tokens_in is None or not tokens_out:
        return api.price_output
    return api.price_output + api.price_input * Decimal(str(tokens_in)) / Decimal(str(tokens_out))


def _rows(
    cell: CellSummary, hosted: TargetFacts, apis: Iterable[TargetFacts]
) -> Iterator[BreakEven]:
    hourly = hosted.hourly_cost
    if hourly is None:
        return
    own = cost_out(hourly=hourly, throughput_tps=cell.throughput_tps)
    for api in apis:
        tokens, note = _judge(cell, hourly, billed_per_mtok(api, cell))
        yield BreakEven(
            hosted=hosted.name,
            api=api.name,
            load=cell.load,
            hosted_per_mtok=None if own is None else own.quantize(CENTS),
            tokens_per_month=tokens,
            note=note,
        )


def _judge(
    cell: CellSummary, hourly: Decimal, billed: Decimal | None
) -> tuple[Decimal | None, str]:
    """Find the break-even, if one machine can make that many tokens, and a note on it."""
    if billed is None:
        return None, "the API's price is unknown"
    tokens = tokens_per_month(hourly, billed)
    if tokens is None:
        return None, "never: the API is free"
    if not cell.throughput_tps:
        return tokens, "the throughput is unknown: whether one machine can make that many is open"
    most = capacity_per_month(cell.throughput_tps)
    price = f"${billed.quantize(Decimal('0.01'))} per million output tokens with their prompts"
    if tokens > most:
        return None, (
            f"never at this load: it takes {_millions(tokens)} tokens a month against {price}, "
            f"and the machine makes at most {_millions(most)}"
        )
    return tokens, f"against {price}; {tokens / most:.0%} of what the machine can make"


def _millions(tokens: Decimal) -> str:
    return f"{tokens / MTOK:,.0f} M"
