"""Machines of one's own against APIs, for the traffic of production.

The tables, the chart and the formula are those of a benchmark report: only where the figures come
from differs. A machine's capacity is what it served in its busiest five minutes, and an API's cost
is that of the machine's own requests at the API's prices.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.clock.load import cost_1k, cost_out
from lightgate.ledger.runs.break_even import ApiCost, MachineCost, break_even_row, soonest_first
from lightgate.ledger.runs.run import Run, TargetFacts
from lightgate.provider.identity import identity
from lightgate.report.tables.figures import clean, dollars, number, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lightgate.ledger.runs.run import BreakEven
    from lightgate.ledger.store.hourly import MachineUse
    from lightgate.ledger.store.queries import SpeedRow
    from lightgate.price.rates import Rates

LOAD: Final = "its busiest 5 minutes"
MTOK: Final = Decimal(1_000_000)
HOUR_S: Final = 3600
MEANS: Final = (
    "For this traffic: an API's $/1k is what the machine's own requests would cost there. The"
    " machine's capacity is what it served in its busiest 5 minutes; if it can do more, it is"
    " cheaper than shown."
)


class ApiPrice(NamedTuple):
    """An API of the ledger: its row of the period, and its prices where they are known."""

    row: SpeedRow
    rates: Rates | None = None


def machine_run(uses: Sequence[MachineUse], apis: Iterable[ApiPrice], since: str) -> Run | None:
    """Make the part of a run that the tables and charts of break-even read; None without both."""
    own = {use.provider for use in uses}
    listed = [a for a in apis if a.row.name.partition("/")[0] not in own and a.row.cost_usd]
    rows = [break_even_row(machine_cost(use), api_cost(use, api)) for use in uses for api in listed]
    if not rows:
        return None
    named = dict.fromkeys([*(machine_name(use) for use in uses), *(a.row.name for a in listed)])
    facts = [_facts(name) for name in named]
    return Run(id="production", started=since, targets=tuple(facts), break_even=soonest_first(rows))


def machine_name(use: MachineUse) -> str:
    """The name of a machine: its provider, with its model where it has one alone."""
    return f"{use.provider}/{use.models[0]}" if len(use.models) == 1 else use.provider


def machine_cost(use: MachineUse) -> MachineCost:
    """What a machine costs that goes on as in its busiest five minutes."""
    each = Decimal(use.tokens_out) / max(use.answered, 1)
    return machine_at(machine_name(use), LOAD, use.usd_per_hour, use.peak_tps, each)


def machine_at(
    name: str, load: str, hourly: Decimal, tokens_per_s: float, each: Decimal
) -> MachineCost:
    """What a machine costs that never waits for work, with answers of `each` tokens."""
    tokens = Decimal(str(tokens_per_s)) * HOUR_S  # in an hour
    served = int(tokens / each) if each else 0
    return MachineCost(
        name=name,
        load=load,
        hourly=hourly,
        per_1k=cost_1k(hourly, served),
        per_mtok=cost_out(hourly, float(tokens)),
        tokens_out=each,
    )


def api_cost(use: MachineUse, api: ApiPrice) -> ApiCost:
    """What the machine's requests would cost at an API: by its prices, else by what it billed."""
    row, rates = api.row, api.rates
    if rates is not None and rates.input is not None and rates.output is not None:
        total = (use.tokens_in * rates.input + use.tokens_out * rates.output) / MTOK
    else:
        total = row.cost_usd / max(row.tokens_out, 1) * use.tokens_out
    other = row.name.partition("/")[2]
    same = any(identity(model) == identity(other) for model in use.models)
    return ApiCost(row.name, cost_1k(total, use.answered), () if same else (use.models[0], other))


def _facts(name: str) -> TargetFacts:
    provider, _, model = name.partition("/")
    return TargetFacts(name=name, provider=provider, model=model, base_url="", dialect="")


def use_sentences(uses: Iterable[MachineUse], rows: Iterable[BreakEven]) -> list[str]:
    """Say how much of each machine was used, and where that is beside its break-even."""
    listed = list(rows)
    found = []
    for use in uses:
        name = machine_name(use)
        first = next(
            (row for row in listed if row.hosted == name and row.utilisation is not None), None
        )
        line = (
            f"{clean(name)}: {number(use.mean_tps)} tok/s on average, {number(use.peak_tps)} in its"
            f" busiest 5 minutes; used to {percent(use.utilisation)} at most, for"
            f" {dollars(_at_use(use))} per million output tokens."
        )
        if first is not None and first.utilisation is not None:
            enough = sum(tps >= first.utilisation * use.peak_tps for tps in use.hourly_tps)
            line += (
                f" It is cheaper than {clean(first.api)} from {percent(first.utilisation)} on:"
                f" so in {enough:,} of {max(round(use.hours), 1):,} hours."
            )
        found.append(line)
    return found


def _at_use(use: MachineUse) -> Decimal | None:
    whole = use.usd_per_hour * Decimal(str(use.hours))
    return cost_out(whole, use.tokens_out)


def with_rates(rows: Iterable[SpeedRow], rates: Mapping[str, Rates | None]) -> list[ApiPrice]:
    """Join the targets of a report with their prices."""
    return [ApiPrice(row, rates.get(row.name)) for row in rows]
