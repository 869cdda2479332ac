"""Questions to the ledger, each one a function of one consistent view.

What is asked about a long time is answered from the sums; what is asked about few requests from the
rows themselves, so that an interval is made of observed values.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec
import sqlalchemy as sa

from lightgate.clock.attempt import AttemptRecord
from lightgate.clock.quantile import Interval, interval, quantile, quantiles, ranks
from lightgate.clock.sketch import DDSketch, merge_all
from lightgate.ledger.store.exchange import ExchangeRecord, exchange_of
from lightgate.ledger.store.keys import Period, period_start
from lightgate.ledger.store.rollup import DAY_S, FINE_S, HOUR_S
from lightgate.ledger.store.schema import (
    OUTCOMES,
    attempts,
    exchanges,
    key_rollups,
    reservations,
    rollups,
    whole_sum,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta

    from lightgate.ledger.store.store import Ledger

By = Literal["model", "provider", "target"]
RAW_ROWS: Final = 50_000  # up to here an answer is made of the rows themselves
_NS_PER_S: Final = 1_000_000_000


class SpeedRow(msgspec.Struct, frozen=True, kw_only=True):
    """How fast one model, provider or target was over a time; None where undefined.

    `attempts` are all, `successes` those that enter the speeds. `speed_total` is in tokens per
    second over the total time; `exact` when the numbers are observed values, else they come from
    sketches and are within 1 %.
    """

    name: str
    attempts: int
    successes: int
    speed_total_p50: float | None
    speed_total_interval: Interval | None
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    tokens_in: int
    tokens_out: int
    cost_usd: Decimal
    exact: bool


class TargetCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of all attempts at one target over a time."""

    target: str
    provider: str
    model: str
    attempts: int
    outcomes: dict[str, int]
    tokens_in: int
    tokens_out: int
    cost_usd: Decimal


def exchange_by_id(
    ledger: Ledger, wanted: str
) -> tuple[ExchangeRecord, list[AttemptRecord]] | None:
    """Find an exchange and its attempts by its own id, or the last one with a client's id."""
    with ledger.reading() as connection:
        row = connection.execute(exchanges.select().where(exchanges.c.id == wanted)).first()
        if row is None:
            newest = (
                exchanges.select()
                .where(exchanges.c.request_id == wanted, exchanges.c.request_id != exchanges.c.id)
                .order_by(exchanges.c.wall_ns.desc(), exchanges.c.id.desc())
                .limit(1)
            )
            row = connection.execute(newest).first()
        if row is None:
            return None
        tries = _attempts(connection, row.id)
    return exchange_of(row), tries


def attempts_of(ledger: Ledger, exchange_id: str) -> list[AttemptRecord]:
    """Return the attempts of one exchange, in the order of their starts."""
    with ledger.reading() as connection:
        return _attempts(connection, exchange_id)


def recent(ledger: Ledger, limit: int = 100, *, key_id: str | None = None) -> list[ExchangeRecord]:
    """Return the last exchanges, newest first, of one key or of all."""
    query = exchanges.select().order_by(exchanges.c.wall_ns.desc(), exchanges.c.id.desc())
    if key_id is not None:
        query = query.where(exchanges.c.key_id == key_id)
    with ledger.reading() as connection:
        return [exchange_of(row) for row in connection.execute(query.limit(limit))]


def spend_per_key(ledger: Ledger, since: datetime | None = None) -> dict[str, Decimal]:
    """Return the dollars that each key has spent, losers included, since a time or since ever.

    The time is taken back to whole 5 minutes. What is reserved and not settled counts as spent.
    """
    start = 0 if since is None else int(since.timestamp()) // FINE_S * FINE_S
    table = key_rollups.c
    query = sa.select(table.key_id, table.cost_usd, table.loser_cost_usd).where(_since(since))
    held = sa.select(reservations.c.key_id, reservations.c.nano_usd).where(
        reservations.c.wall_ns >= start * _NS_PER_S, reservations.c.nano_usd.is_not(None)
    )
    spent: dict[str, Decimal] = defaultdict(Decimal)
    with ledger.reading() as connection:
        for key_id, cost, lost in connection.execute(query):
            spent[key_id] += cost + lost
        for key_id, nano_usd in connection.execute(held):
            spent[key_id or ""] += Decimal(nano_usd).scaleb(-9)
    spent.pop("", None)  # requests without a key
    return dict(spent)


def spend_by_period(ledger: Ledger, now_ns: int) -> dict[str, dict[str, Decimal]]:
    """Return the dollars of each key in the running period, by kind of period and key."""
    periods: tuple[Period, ...] = get_args(Period)
    return {period: spend_per_key(ledger, period_start(period, now_ns)) for period in periods}


class KeyUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one key used of one model over a time; the cost is that of all its attempts."""

    model: str
    requests: int
    ok: int
    cached: int
    tokens_in: int
    tokens_out: int
    cost_usd: Decimal


def usage_of_key(ledger: Ledger, key_id: str, since: datetime | None = None) -> list[KeyUsage]:
    """Sums for every model that a key asked for, since a time or since the sums begin.

    The time is taken back to whole 5 minutes. A key's id is "" for requests without a key.
    """
    table = key_rollups.c
    query = sa.select(key_rollups).where(table.key_id == key_id, _since(since))
    found: dict[str, list[Any]] = defaultdict(lambda: [0, 0, 0, 0, 0, Decimal(0)])
    with ledger.reading() as connection:
        for row in connection.execute(query):
            sums = found[row.model_asked]
            counted = (row.exchanges, row.ok, row.cached, row.tokens_in, row.tokens_out)
            added = (*counted, row.cost_usd + row.loser_cost_usd)
            found[row.model_asked] = [a + b for a, b in zip(sums, added, strict=True)]
    names = ("requests", "ok", "cached", "tokens_in", "tokens_out", "cost_usd")
    return [
        KeyUsage(model=model, **dict(zip(names, sums, strict=True)))
        for model, sums in sorted(found.items())
    ]


def _since(since: datetime | None) -> sa.ColumnElement[bool]:
    """The rows of `key_rollups` from a time on: whole days, and 5 minutes before the first."""
    start = 0 if since is None else int(since.timestamp()) // FINE_S * FINE_S
    days = -(-start // DAY_S) * DAY_S  # the first whole day
    table = key_rollups.c
    whole = sa.and_(table.width_s == DAY_S, table.bucket_s >= days)
    edge = sa.and_(table.width_s == FINE_S, table.bucket_s >= start, table.bucket_s < days)
    return sa.or_(whole, edge)


def counts(ledger: Ledger, since: datetime | None = None) -> list[TargetCounts]:
    """Return the sums of every target since the hour of a time, or since the sums begin."""
    columns = ("attempts", *OUTCOMES, "tokens_in", "tokens_out")
    table = rollups.c
    sums = [whole_sum(table[name]).label(name) for name in columns]
    names = (table.target, table.provider, table.model)
    start = 0 if since is None else int(since.timestamp()) // HOUR_S * HOUR_S
    here = sa.and_(table.width_s == HOUR_S, table.bucket_s >= start)
    query = sa.select(*names, *sums).where(here).group_by(*names)
    money = sa.select(table.target, table.cost_usd).where(here)
    cost: dict[str, Decimal] = defaultdict(Decimal)
    with ledger.reading() as connection:
        rows = connection.execute(query.order_by(table.target)).all()
        for target, amount in connection.execute(money):
            cost[target] += amount
    return [
        TargetCounts(
            target=row.target,
            provider=row.provider,
            model=row.model,
            attempts=int(row.attempts),
            outcomes={name: int(row._mapping[name]) for name in OUTCOMES},  # noqa: SLF001 - public
            tokens_in=int(row.tokens_in),
            tokens_out=int(row.tokens_out),
            cost_usd=cost[row.target],
        )
        for row in rows
    ]


def speed_rows(
    ledger: Ledger, last: timedelta, by: By, now: datetime, *, raw_rows: int = RAW_ROWS
) -> list[SpeedRow]:
    """Return the speeds of each group over a period of whole 5 minutes, by name.

    Exact up to `raw_rows` successes and while their rows are kept, else from sketches.
    """
    start = int((now - last).timestamp()) // FINE_S * FINE_S
    stop = (int(now.timestamp()) // FINE_S + 1) * FINE_S
    table = rollups.c
    plain = (table.attempts, table.measured, table.tokens_in, table.tokens_out, table.cost_usd)
    sketches = (table.speed_total_tps_sketch, table.ttft_ms_sketch)
    with ledger.reading() as connection:
        rows = connection.execute(_summed(start, stop, table[by], *plain)).all()
        if sum(row.measured for row in rows) <= raw_rows:
            samples = _samples(connection, start, stop, by)
            kept = sum(len(some) for some in samples.values())
            if kept == sum(row.attempts for row in rows):
                return [_exact(name, of, samples[name]) for name, of in _grouped(rows)]
        rows = connection.execute(_summed(start, stop, table[by], *plain, *sketches)).all()
    return [_sketched(name, of) for name, of in _grouped(rows)]


def _summed(start: int, stop: int, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Rows of `rollups` for a time: whole hours as such, the rest in 5 minutes."""
    table = rollups.c
    first, last = -(-start // HOUR_S) * HOUR_S, stop // HOUR_S * HOUR_S
    hours = sa.and_(table.width_s == HOUR_S, table.bucket_s >= first, table.bucket_s < last)
    fine = table.width_s == FINE_S
    if first >= last:
        return sa.select(*columns).where(fine, table.bucket_s >= start, table.bucket_s < stop)
    before = sa.and_(fine, table.bucket_s >= start, table.bucket_s < first)
    after = sa.and_(fine, table.bucket_s >= last, table.bucket_s < stop)
    return sa.select(*columns).where(sa.or_(hours, before, after))


def measured() -> sa.ColumnElement[bool]:
    """Whether an attempt's numbers say how fast its provider is, as `AttemptNote.measured` does."""
    table = attempts.c
    return sa.and_(
        table.outcome == "ok",
        table.source == "gateway",
        table.won.is_distinct_from(sa.false()),
        table.void.is_(sa.false()),
    )


def _samples(
    connection: sa.Connection, start: int, stop: int, by: By
) -> dict[str, list[tuple[float | None, float | None]]]:
    """Speed and time to the first token of every attempt; None for those that do not count."""
    table = attempts.c
    counts_in = measured()
    query = sa.select(
        table[by],
        sa.case((counts_in, table.speed_total_tps)),
        sa.case((counts_in, table.ttft_ms)),
    ).where(table.wall_ns >= start * _NS_PER_S, table.wall_ns < stop * _NS_PER_S)
    found: dict[str, list[tuple[float | None, float | None]]] = defaultdict(list)
    for name, speed, ttft in connection.execute(query):
        found[name].append((speed, ttft))
    return found


def _exact(
    name: str, rows: Sequence[Any], samples: Sequence[tuple[float | None, float | None]]
) -> SpeedRow:
    speeds = [speed for speed, _ in samples if speed is not None]
    waits = [ttft for _, ttft in samples if ttft is not None]
    ttft_p50, ttft_p95 = quantiles(waits, (0.5, 0.95))
    middle = (quantile(speeds, 0.5), interval(speeds, 0.5))
    return _speed_row(name, rows, middle, (ttft_p50, ttft_p95), exact=True)


def _sketched(name: str, rows: Sequence[Any]) -> SpeedRow:
    speeds = _merged(row.speed_total_tps_sketch for row in rows)
    waits = _merged(row.ttft_ms_sketch for row in rows)
    n = speeds.count
    pair = ranks(n, 0.5)
    held: Interval | None = None
    if pair is not None:
        low, high = (speeds.quantile(place / n) for place in pair)
        error = speeds.relative_error  # the observed values lie this far to either side
        if low is not None and high is not None:
            held = Interval(low * (1 - error), high * (1 + error))
    return _speed_row(
        name,
        rows,
        (speeds.quantile(0.5), held),
        (waits.quantile(0.5), waits.quantile(0.95)),
        exact=False,
    )


def _speed_row(
    name: str,
    rows: Sequence[Any],
    middle: tuple[float | None, Interval | None],
    ttft: tuple[float | None, float | None],
    *,
    exact: bool,
) -> SpeedRow:
    return SpeedRow(
        name=name,
        attempts=sum(row.attempts for row in rows),
        successes=sum(row.measured for row in rows),
        speed_total_p50=middle[0],
        speed_total_interval=middle[1],
        ttft_p50_ms=ttft[0],
        ttft_p95_ms=ttft[1],
        tokens_in=sum(row.tokens_in for row in rows),
        tokens_out=sum(row.tokens_out for row in rows),
        cost_usd=sum((row.cost_usd for row in rows), Decimal(0)),
        exact=exact,
    )


def _grouped(rows: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    groups: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        groups[row[0]].append(row)
    return sorted(groups.items())


def _merged(blobs: Iterable[bytes | None]) -> DDSketch:
    return merge_all(DDSketch.from_bytes(blob) for blob in blobs if blob is not None)


def _attempts(connection: sa.Connection, exchange_id: str) -> list[AttemptRecord]:
    table = attempts.c
    query = attempts.select().where(table.exchange_id == exchange_id).order_by(table.seq, table.id)
    fields = AttemptRecord.__struct_fields__
    return [
        msgspec.convert(dict(zip(fields, row, strict=False)), AttemptRecord)
        for row in connection.execute(query)
    ]
