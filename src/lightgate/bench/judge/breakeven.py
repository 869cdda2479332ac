"""Which machines of a run are held against which of its APIs, and at which load."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from lightgate.bench.statistics.summary import lightest_first
from lightgate.ledger.runs.break_even import ApiCost, MachineCost, break_even_row, soonest_first
from lightgate.provider.identity import identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lightgate.ledger.runs.run import BreakEven, CellSummary, TargetFacts


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
    return soonest_first(rows)


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
    same = identity(hosted.model) == identity(api.model)
    return break_even_row(
        MachineCost(
            name=hosted.name,
            load=own.load,
            hourly=hosted.hourly_cost,
            per_1k=own.cost.per_1k,
            per_mtok=own.cost.out_per_mtok,
            tokens_out=None if own.tokens_out_p50 is None else Decimal(str(own.tokens_out_p50)),
        ),
        ApiCost(
            name=api.name,
            per_1k=None if other is None else other.cost.per_1k,
            models=() if same else (hosted.model, api.model),
        ),
    )
