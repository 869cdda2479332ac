"""Calibration of predictions: how far first tokens were from what the router expected.

A failed attempt has no first token, so it is counted beside the others and never mixed in. An
attempt that was closed before its first token, because another one won, had waited for some time:
if that is already longer than what was predicted it counts with that time, as its first token would
have come later still; else nothing is known, and it is left out.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.clock.quantile import quantiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lightgate.ledger.store.predictions import KeptPrediction

BAND: Final = 0.8  # of the first tokens that lie in the band of a prediction, if it is right
LOADS: Final = (1, 4, 16)  # requests in flight at which the next group begins


class PredictionRow(msgspec.Struct, frozen=True, kw_only=True):
    """How good the predictions for one target were, at one load or at all of them.

    `ratio` is actual / predicted: its p10, median and p90. `within`, `below` and `above` are shares
    of the attempts whose first token lay in the band, before it and behind it. `failed` and
    `closed` attempts are in none of these.
    """

    target: str
    load: str
    n: int
    ratio_p10: float | None
    ratio_p50: float | None
    ratio_p90: float | None
    within: float | None
    below: float | None
    above: float | None
    failed: int
    closed: int


def calibration(found: Iterable[KeptPrediction]) -> list[PredictionRow]:
    """Arrange predictions by target, the largest first, each for all loads and for every load."""
    by_target: dict[str, list[KeptPrediction]] = defaultdict(list)
    for one in found:
        by_target[one.target].append(one)
    rows = []
    for target, mine in sorted(by_target.items(), key=lambda item: (-len(item[1]), item[0])):
        rows.append(_row(target, "all", mine))
        by_load: dict[int, list[KeptPrediction]] = defaultdict(list)
        for one in mine:
            if one.in_flight is not None:
                by_load[sum(one.in_flight >= bound for bound in LOADS)].append(one)
        if len(by_load) > 1:
            rows += [_row(target, _load(place), by_load[place]) for place in sorted(by_load)]
    return rows


def _load(place: int) -> str:
    bounds = (0, *LOADS)
    low = bounds[place]
    if place == len(LOADS):
        return f"{low}+"
    high = bounds[place + 1] - 1
    return f"{low}" if low == high else f"{low}-{high}"


def _row(target: str, load: str, mine: Sequence[KeptPrediction]) -> PredictionRow:
    ratios, below, above, closed = list[float](), 0, 0, 0
    for one in mine:
        took_ns = one.actual_ns
        if took_ns is None:
            if one.failed:
                continue
            waited_ns = one.waited_ns or 0
            if waited_ns <= max(one.predicted_ns, one.high_ns):
                closed += 1
                continue
            took_ns = waited_ns
        ratios.append(took_ns / max(one.predicted_ns, 1))
        below += took_ns < one.low_ns
        above += took_ns > one.high_ns
    n = len(ratios)
    low, middle, high = quantiles(ratios, (0.1, 0.5, 0.9))
    return PredictionRow(
        target=target,
        load=load,
        n=n,
        ratio_p10=low,
        ratio_p50=middle,
        ratio_p90=high,
        within=(n - below - above) / n if n else None,
        below=below / n if n else None,
        above=above / n if n else None,
        failed=sum(one.failed for one in mine),
        closed=closed,
    )


def prediction_cells(row: PredictionRow) -> tuple[str, ...]:
    """The cells of a row for people."""

    def ratio(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f}"  # noqa: RUF001 - a dash for nothing

    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.0%}"  # noqa: RUF001 - a dash for nothing

    return (
        row.target,
        row.load,
        str(row.n),
        ratio(row.ratio_p50),
        f"{ratio(row.ratio_p10)} - {ratio(row.ratio_p90)}",
        share(row.within),
        share(row.below),
        share(row.above),
        str(row.failed),
        str(row.closed),
    )


def prediction_data(rows: Sequence[PredictionRow], since: str, until: str) -> dict[str, Any]:
    """The JSON document of the calibration."""
    return {"since": since, "until": until, "band": BAND, "rows": list(rows)}
