"""When a machine paid by the hour is cheaper than an API paid by the token.

Both are held against each other by one number: dollars per 1,000 requests of this workload, as the
run measured it. A machine costs the same whether it works or not, so what it costs for a request
falls with its use: from some share of what it can serve on, it is cheaper than the API.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from lightgate.bench.statistics.summary import lightest_first
from lightgate.ledger.runs.run import BreakEven
from lightgate.price.cost import HOURS_PER_MONTH
from lightgate.provider.identity import identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lightgate.ledger.runs.run import CellSummary, TargetFacts

UNKNOWN: Final = "what a request to the API costs is unknown"


def break_even(
    targets: Sequence[TargetFacts], cells: Iterable[CellSummary]
) -> tuple[BreakEven, ...]:
    """Hold every self-hosted target, where it is cheapest, against every API of the run.

    The lowest utilisation comes first: against that API the machine pays for itself soonest.
    """
    shown = [target for target in targets if target.twin_of is None]
    by_target = {t.name: [cell for cell in cells if cell.target == t.name] for t in shown}
    rows = [
        _row((hosted, own), (api, _heaviest(by_target[api.name])))
        for hosted in shown
        if hosted.hourly_cost is not None and (own := _cheapest(by_target[hosted.name])) is not None
        for api in shown
        if api.hourly_cost is None
    ]
    return tuple(sorted(rows, key=_order))


def other_models(targets: Iterable[TargetFacts]) -> str:
    """Say that the targets of a run do not all run the same model; empty where they do."""
    shown = [target for target in targets if target.twin_of is None]
    models = {identity(target.model): target.model for target in reversed(shown)}
    if len(models) < 2:
        return ""
    listed = ", ".join(dict.fromkeys(t.model for t in shown if t.model in models.values()))
    return (
        f"The targets run {len(models)} different models ({listed}): their speed and their cost "
        "are compared, how good their answers are is not."
    )


def _cheapest(cells: Sequence[CellSummary]) -> CellSummary | None:
    """The load at which a request costs least."""
    known = [cell for cell in cells if cell.cost.per_1k]
    return min(known, key=lambda cell: cell.cost.per_1k or Decimal(0), default=None)


def _heaviest(cells: Sequence[CellSummary]) -> CellSummary | None:
    known = [cell for cell in lightest_first(cells) if cell.cost.per_1k is not None]
    return known[-1] if known else None


def _row(
    machine: tuple[TargetFacts, CellSummary], rival: tuple[TargetFacts, CellSummary | None]
) -> BreakEven:
    hosted, own = machine
    api, other = rival
    full, billed = own.cost.per_1k, None if other is None else other.cost.per_1k
    share, note = _judge(full, billed)
    served = _served_per_month(hosted.hourly_cost, full)
    requests = None if share is None or served is None else served * Decimal(str(share))
    tokens = None if own.tokens_out_p50 is None else Decimal(str(own.tokens_out_p50))
    same = identity(hosted.model) == identity(api.model)
    return BreakEven(
        hosted=hosted.name,
        api=api.name,
        load=own.load,
        hosted_per_mtok=own.cost.out_per_mtok,
        tokens_per_month=_whole(None if requests is None or tokens is None else requests * tokens),
        note=note,
        hosted_per_1k=full,
        api_per_1k=billed,
        requests_per_month=_whole(requests),
        utilisation=share,
        models=() if same else (hosted.model, api.model),
    )


def _judge(full: Decimal | None, billed: Decimal | None) -> tuple[float | None, str]:
    """Find the share of its use from which the machine is cheaper; a note where there is none."""
    if billed is None or full is None:
        return None, UNKNOWN
    if billed == 0:
        return None, "never: the API is free"
    share = float(full / billed)
    if share > 1.0:
        return None, f"never at this load: busy all day, it still costs {share:.1f} times as much"
    return share, ""


def _served_per_month(hourly: Decimal | None, full: Decimal | None) -> Decimal | None:
    """Requests that the machine serves in a month without a pause."""
    return None if hourly is None or not full else HOURS_PER_MONTH * hourly * 1000 / full


def _whole(amount: Decimal | None) -> Decimal | None:
    return None if amount is None else amount.quantize(Decimal(1))


def _order(row: BreakEven) -> tuple[str, bool, float, str]:
    known = row.utilisation is not None
    return row.hosted, not known, row.utilisation or 0.0, row.api
