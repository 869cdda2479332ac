"""What self-hosted providers cost: hours times the price of an hour, whether they were used or not.

The control process notes every price by the hour that the configuration names, with the time from
which it holds. So an hour without a request costs what it costs, and a price that changes does not
change the past. What a machine can serve is not in a ledger, but what it did serve in its busiest
five minutes is, and it can serve at least that: a utilisation is an upper bound.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from lightgate.ledger.store.rollup import FINE_S, HOUR_S
from lightgate.ledger.store.schema import attempt_notes, hourly_prices, rollups, whole_sum

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from lightgate.ledger.store.store import Ledger

_MILLION: Final = 1_000_000
_DAY_HOURS: Final = 24
_ZERO: Final = Decimal(0)
Steps = list[tuple[int, Decimal | None]]  # prices, each from a second on


class HourlyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A self-hosted provider over a time; None where undefined.

    `usd_per_hour` is the price at the end. `in_use` is the share of the time's 5-minute spans in
    which the provider was asked, and `idle_usd` the cost of the others. `usd_per_mtok` is the whole
    cost for a million output tokens at the traffic that there was.
    """

    provider: str
    usd_per_hour: Decimal
    hours: float
    cost_usd: Decimal
    in_use: float
    idle_usd: Decimal
    attempts: int
    tokens_out: int
    usd_per_mtok: Decimal | None


def note_hourly_prices(ledger: Ledger, prices: Mapping[str, Decimal], now_s: int) -> bool:
    """Write down the prices that differ from the last ones, and those that are gone; if any.

    The first price of a provider holds from the first request that was noted as paid by the hour.
    """
    with ledger.reading() as connection:
        last = {name: steps[-1][1] for name, steps in _steps(connection).items()}
        changed = {
            name: price
            for name, price in {**dict.fromkeys(last), **prices}.items()
            if name not in last or last[name] != price
        }
        rows = [
            {
                "provider": name,
                "since_s": now_s if name in last else _first(connection, name, now_s),
                "usd": price,
            }
            for name, price in changed.items()
        ]
    if rows:
        with ledger.writing() as connection:
            here = hourly_prices.c
            for row in rows:  # another process may have noted the same in this second
                same = sa.and_(here.provider == row["provider"], here.since_s == row["since_s"])
                connection.execute(hourly_prices.delete().where(same))
            connection.execute(hourly_prices.insert(), rows)
    return bool(rows)


def hourly_rows(
    ledger: Ledger, last: timedelta, now: datetime, prices: Mapping[str, Decimal]
) -> list[HourlyRow]:
    """Return what every self-hosted provider cost over a period, by name.

    `prices` are those in force, for a ledger in which none was noted.
    """
    stop = int(now.timestamp())
    start = stop - int(last.total_seconds())
    with ledger.reading() as connection:
        steps = _steps(connection)
        asked = _asked(connection, start, stop)
        for name, price in prices.items():
            if name not in steps:
                steps[name] = [(_first(connection, name, stop), price)]
    rows = (_row(name, of, asked[name], (start, stop)) for name, of in sorted(steps.items()))
    return [row for row in rows if row is not None]


def hourly_costs(
    connection: sa.Connection, period: tuple[int, int], prices: Mapping[str, Decimal]
) -> dict[str, tuple[Decimal, Decimal]]:
    """Return the price of an hour and the cost of a period of every self-hosted provider in it.

    `prices` are those in force, for a ledger in which none was noted.
    """
    steps = _steps(connection)
    for name, price in prices.items():
        if name not in steps:
            steps[name] = [(_first(connection, name, period[1]), price)]
    found = {}
    for name, of in steps.items():
        parts = list(_paid(of, period))
        if parts:
            cost = sum((price * (until - since) / HOUR_S for since, until, price in parts), _ZERO)
            found[name] = (parts[-1][2], _cents(cost))
    return found


def _paid(steps: Steps, period: tuple[int, int]) -> Iterator[tuple[int, int, Decimal]]:
    """The parts of a period in which a provider was self-hosted, each with its price."""
    start, stop = period
    for at, (since, price) in enumerate(steps):
        until = min(steps[at + 1][0] if at + 1 < len(steps) else stop, stop)
        if price is not None and max(since, start) < until:
            yield max(since, start), until, price


def _row(name: str, steps: Steps, asked: list[Any], period: tuple[int, int]) -> HourlyRow | None:
    """The sums of one provider; None where it was not self-hosted in the period."""
    used = {row.bucket_s for row in asked}
    seconds = idle_s = 0
    cost = idle = _ZERO
    per_hour = None
    for since, until, price in _paid(steps, period):
        per_hour = price
        spared = _idle_s(since, until, used)
        seconds += until - since
        idle_s += spared
        cost += price * (until - since) / HOUR_S
        idle += price * spared / HOUR_S
    if per_hour is None:
        return None
    tokens_out = sum(row.tokens_out for row in asked)
    return HourlyRow(
        provider=name,
        usd_per_hour=per_hour,
        hours=seconds / HOUR_S,
        cost_usd=_cents(cost),
        in_use=1 - idle_s / seconds,
        idle_usd=_cents(idle),
        attempts=sum(row.attempts for row in asked),
        tokens_out=tokens_out,
        usd_per_mtok=_cents(cost * _MILLION / tokens_out) if tokens_out else None,
    )


def _idle_s(since: int, until: int, used: set[int]) -> int:
    """Seconds of a time that lie in spans of 5 minutes without a request."""
    busy = 0
    for bucket in used:
        busy += max(0, min(bucket + FINE_S, until) - max(bucket, since))
    return until - since - busy


def _cents(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.000001"))


def _steps(connection: sa.Connection) -> dict[str, Steps]:
    found: dict[str, Steps] = defaultdict(list)
    table = hourly_prices.c
    for row in connection.execute(hourly_prices.select().order_by(table.provider, table.since_s)):
        found[row.provider].append((row.since_s, row.usd))
    return found


def _asked(connection: sa.Connection, start: int, stop: int) -> dict[str, list[Any]]:
    """Sums of each provider for every 5 minutes in which it was asked."""
    table = rollups.c
    query = (
        sa.select(
            table.provider,
            table.bucket_s,
            whole_sum(table.attempts).label("attempts"),
            whole_sum(table.tokens_out).label("tokens_out"),
        )
        .where(
            table.width_s == FINE_S,
            table.bucket_s > start - FINE_S,
            table.bucket_s < stop,
            table.attempts > 0,
        )
        .group_by(table.provider, table.bucket_s)
    )
    found: dict[str, list[Any]] = defaultdict(list)
    for row in connection.execute(query):
        found[row.provider].append(row)
    return found


def _first(connection: sa.Connection, provider: str, now_s: int) -> int:
    """The second of the first request at a provider that was paid by the hour, else now."""
    table = attempt_notes.c
    query = (
        sa.select(table.wall_ns)
        .where(table.provider == provider, table.cost_source == "hourly")
        .order_by(table.wall_ns)
        .limit(1)
    )
    found = connection.execute(query).scalar()
    return now_s if found is None else min(now_s, found // 1_000_000_000)


class MachineUse(msgspec.Struct, frozen=True, kw_only=True):
    """A self-hosted provider over a period; tokens per second are output tokens.

    `peak_tps` is that of its busiest five minutes, `mean_tps` that of all hours it was paid for,
    and `utilisation` the second beside the first. `by_hour_tps` are the means of each hour of the
    day in UTC, `hourly_tps` those of every single hour in which it was asked.
    """

    provider: str
    models: tuple[str, ...]
    usd_per_hour: Decimal
    hours: float
    answered: int
    tokens_in: int
    tokens_out: int
    peak_tps: float
    mean_tps: float
    utilisation: float
    by_hour_tps: tuple[float, ...]
    hourly_tps: tuple[float, ...]


def machine_uses(
    ledger: Ledger, hourly: Iterable[HourlyRow], last: timedelta, now: datetime
) -> list[MachineUse]:
    """Return the use of every self-hosted provider that answered in a period.

    One that was paid for less than five minutes is not judged: its busiest five are not over.
    """
    stop = int(now.timestamp())
    start = stop - int(last.total_seconds())
    paid = {row.provider: row for row in hourly if row.hours * HOUR_S >= FINE_S}
    table = rollups.c
    query = sa.select(
        table.provider, table.model, table.bucket_s, table.measured, table.tokens_in,
        table.tokens_out,
    ).where(
        table.width_s == FINE_S, table.bucket_s > start - FINE_S, table.bucket_s < stop,
        table.provider.in_(list(paid)), table.measured > 0,
    )  # fmt: skip
    found: dict[str, list[Any]] = defaultdict(list)
    with ledger.reading() as connection:
        for row in connection.execute(query):
            found[row.provider].append(row)
    return [_use(paid[name], rows) for name, rows in sorted(found.items())]


def _use(paid: HourlyRow, rows: Sequence[Any]) -> MachineUse:
    spans: dict[int, int] = defaultdict(int)
    hours: dict[int, int] = defaultdict(int)
    for row in rows:
        spans[row.bucket_s] += row.tokens_out
        hours[row.bucket_s // HOUR_S] += row.tokens_out
    tokens_out = sum(spans.values())
    mean = tokens_out / (paid.hours * HOUR_S)
    peak = max(max(spans.values()) / FINE_S, mean)  # a short use may lie across two spans
    days = max(paid.hours / _DAY_HOURS, 1.0 / _DAY_HOURS)
    by_hour = [0.0] * _DAY_HOURS
    for hour, tokens in hours.items():
        by_hour[hour % _DAY_HOURS] += tokens / HOUR_S / max(days, 1.0)
    return MachineUse(
        provider=paid.provider,
        models=tuple(sorted({row.model for row in rows})),
        usd_per_hour=paid.usd_per_hour,
        hours=paid.hours,
        answered=sum(row.measured for row in rows),
        tokens_in=sum(row.tokens_in for row in rows),
        tokens_out=tokens_out,
        peak_tps=peak,
        mean_tps=mean,
        utilisation=min(mean / peak, 1.0) if peak else 0.0,
        by_hour_tps=tuple(by_hour),
        hourly_tps=tuple(tokens / HOUR_S for tokens in hours.values()),
    )
