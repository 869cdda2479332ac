"""Cost against speed: the board's targets as points, and which of them no other one beats."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from lightgate.clock.quantile import smallest_n
from lightgate.console.api.board import board
from lightgate.console.api.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.console.api.board import TargetRow
    from lightgate.console.api.question import Question
    from lightgate.ledger.store.store import Ledger
    from lightgate.price.rates import Rates


class MapAxis(NamedTuple):
    """What a map has upwards: a figure of the board, its words and its quantile."""

    figure: str
    words: str
    unit: str
    q: float
    larger: bool


AXES: Final = {
    "speed_total": MapAxis("speed_total", "total speed, p50", "tok/s", 0.5, larger=True),
    "speed": MapAxis("speed_p50", "speed while decoding, p50", "tok/s", 0.5, larger=True),
    "ttft": MapAxis("ttft_p50", "first token, p50", "ms", 0.5, larger=False),
    "ttft_p95": MapAxis("ttft_p95", "first token, p95", "ms", 0.95, larger=False),
    "e2e": MapAxis("e2e_p95", "whole answer, p95", "ms", 0.95, larger=False),
}

Place = Literal["edge", "open", "behind", "unknown"]


class MapPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One target. `cost_1k` is dollars per 1,000 requests, a sum and no estimate.

    `place`: on the edge no other target is as cheap and better. Behind it one is, `beaten_by`; open
    where the intervals of the two overlap. Unknown has no place, and `missing` says why.
    `usd_per_hour` is the price of a self-hosted provider, `price_as_of` the day of a list's prices.
    """

    target: str
    model: str
    provider: str
    n: int
    cost_1k: Decimal | None
    y: Figure
    place: Place
    beaten_by: str
    missing: str
    usd_per_hour: Decimal | None
    price_source: str
    price_as_of: str


class CostMap(msgspec.Struct, frozen=True, kw_only=True):
    """The map of a period; `since` is later than asked where only a part was looked at."""

    as_of: str
    since: str
    until: str
    from_rows: bool
    y: str
    words: str
    unit: str
    larger: bool
    rows: tuple[MapPoint, ...]
    left_out: int
    try_line: str
    ignored: tuple[str, ...]


def cost_map(
    ledger: Ledger,
    question: Question,
    now_ns: int,
    prices: Mapping[str, Decimal],
    rates: Mapping[str, Mapping[str, Rates]],
    try_line: str = "",
) -> CostMap:
    """Make the map of a period from the board of the same period."""
    axis = AXES[question.text("y")]
    values = {**question.values, "use": "", "group": "", "sort": "cost_1k"}
    found = board(ledger, msgspec.structs.replace(question, values=values), now_ns, prices, "")
    points = [_point(row, axis, rates) for row in found.rows]
    return CostMap(
        as_of=found.as_of,
        since=found.since,
        until=found.until,
        from_rows=found.from_rows,
        y=question.text("y"),
        words=axis.words,
        unit=axis.unit,
        larger=axis.larger,
        rows=tuple(placed(points, larger=axis.larger)),
        left_out=found.left_out,
        try_line=try_line,
        ignored=question.ignored,
    )


def placed(points: Sequence[MapPoint], *, larger: bool) -> list[MapPoint]:
    """Say of each point whether it is on the edge: cheaper than all that are better than it."""
    known = [point for point in points if not point.missing]
    return [point if point.missing else _place(point, known, larger=larger) for point in points]


def _place(point: MapPoint, known: Sequence[MapPoint], *, larger: bool) -> MapPoint:
    beating = [other for other in known if _beats(other, point, larger=larger)]
    if not beating:
        return msgspec.structs.replace(point, place="edge")
    # The one that beats it by most: the reason that is easiest to see in the picture.
    best = max(beating, key=lambda other: (_good(other, larger=larger), other.target))
    sure = any(_surely(other, point, larger=larger) for other in beating)
    return msgspec.structs.replace(point, place="behind" if sure else "open", beaten_by=best.target)


def _good(point: MapPoint, *, larger: bool) -> float:
    value = point.y.v or 0.0
    return value if larger else -value


def _beats(other: MapPoint, point: MapPoint, *, larger: bool) -> bool:
    """Whether another point is no dearer and no worse, and one of both for sure."""
    cost, its = other.cost_1k or Decimal(0), point.cost_1k or Decimal(0)
    good, mine = _good(other, larger=larger), _good(point, larger=larger)
    return cost <= its and good >= mine and (cost < its or good > mine)


def _surely(other: MapPoint, point: MapPoint, *, larger: bool) -> bool:
    """Whether the worse end of another interval is better than the better end of this one."""
    if larger:
        return (other.y.lo or 0.0) > (point.y.hi or 0.0)
    return (other.y.hi or 0.0) < (point.y.lo or 0.0)


def _point(row: TargetRow, axis: MapAxis, rates: Mapping[str, Mapping[str, Rates]]) -> MapPoint:
    y: Figure = getattr(row, axis.figure)
    price = rates.get(row.provider, {}).get(row.model)
    own = row.usd_per_hour is not None
    return MapPoint(
        target=row.target,
        model=row.model,
        provider=row.provider,
        n=row.n,
        cost_1k=row.cost_1k,
        y=y,
        place="unknown",
        beaten_by="",
        missing=_missing(row, y, axis),
        usd_per_hour=row.usd_per_hour,
        price_source="hourly" if own else "" if price is None else price.source,
        price_as_of="" if own or price is None else price.as_of or "",
    )


def _missing(row: TargetRow, y: Figure, axis: MapAxis) -> str:
    wants = []
    if not row.cost_1k:
        wants.append("its price is not known")
    if not y.v:
        wants.append(f"too few samples for {axis.words} ({y.n}, {smallest_n(axis.q)} needed)")
    return "; ".join(wants)
