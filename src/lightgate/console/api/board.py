"""The speed board: every target over a period, with intervals, costs and its last 24 hours."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from lightgate.clock.load import cost_1k
from lightgate.clock.quantile import smallest_n
from lightgate.clock.sketch import DDSketch
from lightgate.console.api.figures import Figure, grade_of, of_share, of_sketch
from lightgate.console.api.question import BadQuestion, rfc3339
from lightgate.console.api.sums import (
    TargetSums,
    first_second,
    last_second,
    sums_of_rollups,
    sums_of_rows,
)
from lightgate.console.api.uses import UsePlace, places, sentence
from lightgate.ledger.store.hourly import hourly_costs
from lightgate.ledger.store.rollup import HOUR_S
from lightgate.ledger.store.schema import ATTEMPT_FAILED, METRICS, attempt_notes, rollups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.console.api.question import Question
    from lightgate.ledger.store.store import Ledger

SHOWN: Final = 200  # targets; clients can name any number of them
SPARK: Final = 24  # hours
_FEWEST: Final = smallest_n(0.5)  # samples of an hour that has a point
_ERROR_LENGTH: Final = 160
_NS_PER_S: Final = 1_000_000_000
_FIGURES: Final = ("ok", "ttft_p50", "ttft_p95", "ttfa_p95", "speed_p50", "speed_p05",
                   "speed_total", "e2e_p95")  # fmt: skip
SORTS: Final = ("target", "model", "provider", "n", *_FIGURES, "cost_1k", "rank")


class LastError(msgspec.Struct, frozen=True):
    """The newest failure of a target; the sentence is the gateway's, without prompt or answer."""

    outcome: str
    status: int | None
    error: str | None
    at: str


class TargetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One target. Durations are in ms, speeds in tokens per second, `cost_1k` in dollars.

    `n` are all attempts; `ok` is the share that ended well of those that the gateway did not end
    itself. `spark` has the median first token of each of the last 24 hours, null where too few.
    `usd_per_hour` is the price of a self-hosted provider, whose hours are in `cost_1k`.
    """

    target: str
    model: str
    provider: str
    n: int
    ok: Figure
    ttft_p50: Figure
    ttft_p95: Figure
    ttfa_p95: Figure
    speed_p50: Figure
    speed_p05: Figure
    speed_total: Figure
    e2e_p95: Figure
    grade: str | None
    cost_1k: Decimal | None
    usd_per_hour: Decimal | None
    tokens_out: int
    spark: tuple[float | None, ...]
    last_error: LastError | None
    rank: int | None
    fits: bool | None
    why: str


class BoardTotals(msgspec.Struct, frozen=True):
    """All attempts of the board together, those of targets that are left out too."""

    n: int
    ok: Figure
    tokens_out: int
    overhead_p50: Figure
    cost_usd: Decimal


class SpeedBoard(msgspec.Struct, frozen=True, kw_only=True):
    """The board; `since` is later than asked where only a part of the period was looked at.

    `try_line` is a command that sends a request through the gateway.
    """

    as_of: str
    since: str
    until: str
    from_rows: bool
    ranked: str
    rows: tuple[TargetRow, ...]
    left_out: int
    totals: BoardTotals
    try_line: str
    ignored: tuple[str, ...]


def board(
    ledger: Ledger, question: Question, now_ns: int, prices: Mapping[str, Decimal], try_line: str
) -> SpeedBoard:
    """Make the board of a period."""
    now_s = now_ns // _NS_PER_S
    from_rows = any(question.names(name) for name in ("key", "tag")) or question.text("size") != ""
    oldest: int | None = None
    with ledger.reading() as connection:
        if from_rows:
            found, oldest = sums_of_rows(connection, question)
        else:
            found = sums_of_rollups(connection, question, METRICS)
        least = question.count("min_n")
        kept = [sums for sums in found.values() if sums.attempts >= max(least, 1)]
        shown = sorted(kept, key=lambda sums: (-sums.attempts, sums.target))[:SHOWN]
        names = [sums.target for sums in shown]
        sparks = _sparks(connection, names, now_s)
        errors = {
            sums.target: _last_error(connection, sums.target, question)
            for sums in shown
            if sums.ok < sums.judged
        }
        period = (question.period.start_s if oldest is None else oldest, question.period.stop_s)
        hours = {} if from_rows else hourly_costs(connection, period, prices)
    shares = _shares(found.values(), hours)
    rows = [_row(sums, sparks.get(sums.target), errors.get(sums.target), shares) for sums in shown]
    placed = [_placed(row, place) for row, place in
              zip(rows, places(rows, question.text("use")), strict=True)]  # fmt: skip
    return SpeedBoard(
        as_of=rfc3339(now_s),
        since=rfc3339(first_second(question.period) if oldest is None else oldest),
        until=rfc3339(question.period.stop_s if from_rows else last_second(question.period)),
        from_rows=from_rows,
        ranked=sentence(question.text("use")),
        rows=tuple(_sorted(placed, question)),
        left_out=len(found) - len(rows),
        totals=_totals(list(found.values()), hours),
        try_line=try_line,
        ignored=question.ignored,
    )


def _shares(
    found: Any, hours: Mapping[str, tuple[Decimal, Decimal]]
) -> dict[str, tuple[Decimal, Decimal, int]]:
    """Price, cost and output tokens of every self-hosted provider; its targets share by tokens."""
    tokens: dict[str, int] = {}
    for sums in found:
        tokens[sums.provider] = tokens.get(sums.provider, 0) + sums.tokens_out
    return {name: (*paid, tokens.get(name, 0)) for name, paid in hours.items()}


def _row(
    sums: TargetSums,
    spark: tuple[float | None, ...] | None,
    error: LastError | None,
    shares: Mapping[str, tuple[Decimal, Decimal, int]],
) -> TargetRow:
    sketches = sums.sketches
    speed_total = of_sketch(sketches["speed_total_tps"], 0.5)
    cost: Decimal | None = sums.cost if sums.cost or not sums.tokens_out else None
    per_hour, paid, tokens = shares.get(sums.provider, (None, Decimal(0), 0))
    if per_hour is not None and tokens:
        cost = paid * sums.tokens_out / tokens
    each = None if cost is None else cost_1k(cost, sums.attempts)
    return TargetRow(
        target=sums.target,
        model=sums.model,
        provider=sums.provider,
        n=sums.attempts,
        ok=of_share(sums.ok, sums.judged),
        ttft_p50=of_sketch(sketches["ttft_ms"], 0.5),
        ttft_p95=of_sketch(sketches["ttft_ms"], 0.95),
        ttfa_p95=of_sketch(sketches["ttfa_ms"], 0.95),
        speed_p50=of_sketch(sketches["speed_tps"], 0.5),
        speed_p05=of_sketch(sketches["speed_tps"], 0.05),
        speed_total=speed_total,
        e2e_p95=of_sketch(sketches["e2e_ms"], 0.95),
        grade=grade_of(speed_total),
        cost_1k=None if each is None else round(each, 6),
        usd_per_hour=per_hour,
        tokens_out=sums.tokens_out,
        spark=spark or (None,) * SPARK,
        last_error=error,
        rank=None,
        fits=None,
        why="",
    )


def _placed(row: TargetRow, place: UsePlace) -> TargetRow:
    return msgspec.structs.replace(row, rank=place.rank, fits=place.fits, why=place.why)


def _sorted(rows: list[TargetRow], question: Question) -> list[TargetRow]:
    asked = question.text("sort") or ("rank" if question.text("use") else "ttft_p50")
    name = asked.removeprefix("-")
    if name not in SORTS:
        raise BadQuestion(f"sort is one of {', '.join(SORTS)}, with - before it for the largest.")
    known = [row for row in rows if _sort_value(row, name) is not None]
    rest = [row for row in rows if _sort_value(row, name) is None]
    by_name = sorted(known, key=lambda row: row.target)
    by_name.sort(key=lambda row: _sort_value(row, name), reverse=asked.startswith("-"))
    ordered = by_name + sorted(rest, key=lambda row: row.target)
    if question.text("group") == "model":  # hosts of one model side by side, its best place first
        first = {row.model: at for at, row in reversed(list(enumerate(ordered)))}
        ordered.sort(key=lambda row: first[row.model])
    return ordered


def _sort_value(row: TargetRow, name: str) -> Any:
    value = getattr(row, name)
    return value.v if isinstance(value, Figure) else value


def _totals(
    found: Sequence[TargetSums], hours: Mapping[str, tuple[Decimal, Decimal]]
) -> BoardTotals:
    overhead = DDSketch()
    for sums in found:
        overhead.merge(sums.sketches["overhead_ms"])
    paid = sum((cost for _, cost in hours.values()), Decimal(0))
    return BoardTotals(
        n=sum(sums.attempts for sums in found),
        ok=of_share(sum(sums.ok for sums in found), sum(sums.judged for sums in found)),
        tokens_out=sum(sums.tokens_out for sums in found),
        overhead_p50=of_sketch(overhead, 0.5),
        cost_usd=sum((sums.cost for sums in found), paid),
    )


def _sparks(
    connection: sa.Connection, targets: Sequence[str], now_s: int
) -> dict[str, tuple[float | None, ...]]:
    """The median first token of each of the last 24 hours, the one that runs included."""
    table = rollups.c
    first = now_s // HOUR_S * HOUR_S - (SPARK - 1) * HOUR_S
    query = sa.select(table.target, table.bucket_s, table.ttft_ms_sketch).where(
        table.width_s == HOUR_S,
        table.bucket_s >= first,
        table.bucket_s < first + SPARK * HOUR_S,
        table.ttft_ms_sketch.is_not(None),
    )
    found: dict[str, list[float | None]] = {target: [None] * SPARK for target in targets}
    for target, bucket, packed in connection.execute(query):
        points = found.get(target)
        if points is not None:
            hour = DDSketch.from_bytes(packed)
            if hour.count >= _FEWEST:
                points[(bucket - first) // HOUR_S] = hour.quantile(0.5)
    return {target: tuple(points) for target, points in found.items()}


def _last_error(connection: sa.Connection, target: str, question: Question) -> LastError | None:
    """The newest failure of a target in the period, by the index of failures."""
    table, period = attempt_notes.c, question.period
    query = (
        sa.select(table.outcome, table.status, table.error, table.wall_ns)
        .where(table.target == target, ATTEMPT_FAILED)
        .where(table.wall_ns >= period.start_s * _NS_PER_S)
        .where(table.wall_ns < period.end_s * _NS_PER_S)
        .order_by(table.wall_ns.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    said = None if row.error is None else row.error[:_ERROR_LENGTH]
    return LastError(row.outcome, row.status, said, rfc3339(row.wall_ns // _NS_PER_S))
