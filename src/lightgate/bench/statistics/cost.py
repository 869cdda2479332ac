"""What the requests of one cell cost: one figure, which every table, pick and chart uses.

`per_1k` is dollars per 1,000 requests of this workload. An API bills each request; a machine that
is paid by the hour costs its window, which the requests that ended in it share. Everything else,
dollars per million output tokens too, follows from the same dollars.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.clock import load
from lightgate.clock.load import Slo
from lightgate.clock.outcome import Outcome
from lightgate.ledger.runs.run import CostFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.run import TargetFacts

MTOK: Final = Decimal(1_000_000)
NANO: Final = Decimal("1e-9")
SECONDS_PER_HOUR: Final = 3600
# An answer that never began is not billed.
UNBILLED: Final = frozenset({Outcome.HTTP_ERROR, Outcome.RATE_LIMITED})


class Billed(NamedTuple):
    """What the cost of a cell is made of; `ended` and `seconds` are of its steady windows."""

    target: TargetFacts
    everything: Sequence[AttemptRecord]
    counted: Sequence[AttemptRecord]
    slo: Slo | None
    ended: Sequence[AttemptRecord]
    seconds: float
    throughput_tps: float | None
    inflight: float | None
    speed_tps: float | None


def cell_cost(billed: Billed) -> CostFacts:
    """Find the dollars of one cell; unknown is None, never 0."""
    if billed.target.hourly_cost is not None:
        return _by_the_hour(billed, billed.target.hourly_cost)
    return _by_the_token(billed)


def _by_the_token(billed: Billed) -> CostFacts:
    target = billed.target
    costs = {attempt.id: _dollars(attempt, target) for attempt in billed.everything}
    priced = [(a, cost) for a in billed.counted if (cost := costs[a.id]) is not None]
    source = next((a.cost_source for a in billed.everything if a.cost_source), None)
    facts = CostFacts(
        in_per_mtok=target.price_input,
        source=source or ("list" if target.price_output is not None else None),
    )
    if not any(attempt.outcome not in UNBILLED for attempt, _ in priced):
        return facts
    total = sum((cost for _, cost in priced), Decimal(0))
    tokens = sum(attempt.tokens_out or 0 for attempt, _ in priced)
    seconds = sum((a.e2e_ms or 0.0) / 1000.0 for a, cost in priced if cost)
    hourly = total * SECONDS_PER_HOUR / Decimal(str(seconds)) if seconds else None
    return CostFacts(
        out_per_mtok=_nano(load.cost_out(total, tokens)),
        in_per_mtok=target.price_input,
        per_request=_nano(total / len(priced)),
        per_good_request=_each(total, _good(billed.counted, billed.slo)),
        spent=sum(filter(None, costs.values()), Decimal(0)),
        source=facts.source,
        per_1k=_nano(load.cost_1k(total, len(priced))),
        tokens_per_dollar=float(tokens / total) if total else None,
        speed_per_dollar=_speed_per_dollar(billed.speed_tps, hourly),
    )


def _by_the_hour(billed: Billed, hourly: Decimal) -> CostFacts:
    """Paid by the hour: what the windows cost, shared by the requests that ended in them."""
    dollars = hourly * Decimal(str(billed.seconds)) / SECONDS_PER_HOUR
    tokens = (billed.throughput_tps or 0.0) * billed.seconds
    stream = hourly / Decimal(str(billed.inflight)) if billed.inflight else None
    return CostFacts(
        out_per_mtok=_nano(load.cost_out(dollars, tokens)),
        per_request=_each(dollars, len(billed.ended)),
        per_good_request=_each(dollars, _good(billed.ended, billed.slo)),
        spent=_nano(dollars),
        source="hourly",
        per_1k=_nano(load.cost_1k(dollars, len(billed.ended))),
        tokens_per_dollar=tokens / float(dollars) if dollars and tokens else None,
        speed_per_dollar=_speed_per_dollar(billed.speed_tps, stream),
    )


def _speed_per_dollar(speed_tps: float | None, hourly: Decimal | None) -> float | None:
    if speed_tps is None or hourly is None:
        return None
    return load.speed_per_dollar(speed_tps, hourly)


def _dollars(attempt: AttemptRecord, target: TargetFacts) -> Decimal | None:
    if attempt.cost_usd is not None:
        return attempt.cost_usd
    if target.price_input is None or target.price_output is None:
        return None
    if attempt.tokens_in is None or attempt.tokens_out is None:
        return Decimal(0) if attempt.outcome in UNBILLED else None
    tokens_paid = attempt.tokens_in * target.price_input + attempt.tokens_out * target.price_output
    return tokens_paid / MTOK


def _good(attempts: Iterable[AttemptRecord], slo: Slo | None) -> int:
    return sum(load.meets(attempt, slo or Slo()) for attempt in attempts)


def _each(total: Decimal, count: int) -> Decimal | None:
    return _nano(total / count) if count else None


def _nano(amount: Decimal | None) -> Decimal | None:
    return None if amount is None else amount.quantize(NANO)
