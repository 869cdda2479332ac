"""The list of virtual keys with what each has spent, and the spend of keys by day."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from lightgate.console.api.question import BadQuestion, rfc3339
from lightgate.gateway.served.key_desk import public_facts, version_of
from lightgate.ledger.store.exchange import NANO
from lightgate.ledger.store.keys import Period, read_keys
from lightgate.ledger.store.owners import MOST_GROUPS, NO_KEY, OTHER, tags_of
from lightgate.ledger.store.queries import spend_by_period
from lightgate.ledger.store.rollup import DAY_S, FINE_S
from lightgate.ledger.store.schema import exchange_notes, key_rollups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lightgate.console.api.question import Question
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.ledger.store.store import Ledger

DAYS: Final = 14  # of the small picture in the list
MOST_ROWS: Final = 100_000  # requests that are looked at for tags, the newest of the period
LONGEST_DAYS: Final = 92
BY: Final = ("key", "model", "tag")
STATES: Final = ("in use", "expired", "revoked")
_NS_PER_S: Final = 1_000_000_000


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One virtual key: its terms, and what it has spent in the budget's period.

    `version` is another word after each change; `days` are the dollars of the last 14 days, the
    oldest first; `last_used` is known to five minutes.
    """

    id: str
    name: str
    prefix: str
    state: str
    version: str
    created: str
    expires: str | None
    revoked: str | None
    models: list[str]
    budget_usd: Decimal | None
    budget_period: Period
    spent_usd: Decimal
    rpm: int | None
    tpm: int | None
    max_tokens: int | None
    may_race: bool
    max_fanout: int
    tags: dict[str, str]
    last_used: str | None
    days: list[Decimal]


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """All keys; `open`: there is none, and the gateway asks for none."""

    as_of: str
    open: bool
    rows: list[KeyRow]
    ignored: tuple[str, ...] = ()


class SpendRow(msgspec.Struct, frozen=True, kw_only=True):
    """The dollars of one group on one day (UTC); those of losers of races and hedges are apart."""

    day: str
    group: str
    requests: int
    cost_usd: Decimal
    loser_cost_usd: Decimal


class SpendBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The budget of a key that was asked for."""

    key: str
    name: str
    budget_usd: Decimal | None
    budget_period: Period
    spent_usd: Decimal


class SpendDays(msgspec.Struct, frozen=True, kw_only=True):
    """Spend by day and key, model or tag; from single requests where `from_rows`.

    `searched_to` is how far back those were looked at, where that is not the whole period.
    """

    as_of: str
    since: str
    until: str
    by: str
    from_rows: bool
    searched_to: str | None
    rows: list[SpendRow]
    total_usd: Decimal
    budgets: list[SpendBudget]
    ignored: tuple[str, ...] = ()


def key_row(record: KeyRecord, now_ns: int, spent: Decimal = Decimal(0)) -> KeyRow:
    """The row of one key, without what the sums say of it."""
    return KeyRow(
        **public_facts(record),
        state=record.over(now_ns) or "in use",
        version=version_of(record),
        spent_usd=spent,
        last_used=None,
        days=[],
    )


def key_list(ledger: Ledger, question: Question, now_ns: int) -> KeyList:
    """All keys, those in use first, then by name."""
    wanted = question.text("state")
    spent = spend_by_period(ledger, now_ns)
    now_s = now_ns // _NS_PER_S
    first = now_s // DAY_S * DAY_S - (DAYS - 1) * DAY_S
    with ledger.reading() as connection:
        records = read_keys(connection)
        days = _days(connection, first)
        used = _last_used(connection)
    rows = []
    for record in records:
        row = key_row(record, now_ns, spent[record.budget_period].get(record.id, Decimal(0)))
        by_day = days.get(record.id, {})
        last = used.get(record.id)
        rows.append(
            msgspec.structs.replace(
                row,
                last_used=None if last is None else rfc3339(min(now_s, last + FINE_S)),
                days=[by_day.get(first + at * DAY_S, Decimal(0)) for at in range(DAYS)],
            )
        )
    shown = [row for row in rows if wanted in {"", row.state}]
    shown.sort(key=lambda row: (STATES.index(row.state), row.name.casefold(), row.id))
    return KeyList(as_of=rfc3339(now_s), open=not records, rows=shown, ignored=question.ignored)


def spend_days(ledger: Ledger, question: Question, now_ns: int) -> SpendDays:
    """The spend of a period, by day and group."""
    by, keys = question.text("by"), question.names("key")
    start = question.period.start_s // DAY_S * DAY_S
    stop = question.period.stop_s
    if stop - start > LONGEST_DAYS * DAY_S:
        raise BadQuestion(f"Spend is shown for at most {LONGEST_DAYS} days.")
    searched_to = None
    with ledger.reading() as connection:
        records = {record.id: record for record in read_keys(connection)}
        if by == "tag":
            found, searched_to = _by_tag(connection, start, stop, keys)
        else:
            found = _by_sums(connection, start, stop, by, keys)
    rows = [
        SpendRow(
            day=rfc3339(day)[:10],
            group=_name(group, records) if by == "key" else group,
            requests=requests,
            cost_usd=cost,
            loser_cost_usd=lost,
        )
        for (day, group), (requests, cost, lost) in sorted(found.items())
    ]
    spent = spend_by_period(ledger, now_ns)
    return SpendDays(
        as_of=rfc3339(now_ns // _NS_PER_S),
        since=rfc3339(start),
        until=rfc3339(stop),
        by=by,
        from_rows=by == "tag",
        searched_to=searched_to,
        rows=rows,
        total_usd=sum((row.cost_usd + row.loser_cost_usd for row in rows), Decimal(0)),
        budgets=[
            SpendBudget(
                key=record.id,
                name=record.name,
                budget_usd=record.budget_usd,
                budget_period=record.budget_period,
                spent_usd=spent[record.budget_period].get(record.id, Decimal(0)),
            )
            for record in records.values()
            if record.id in keys
        ],
        ignored=question.ignored,
    )


def spend_rows(found: SpendDays) -> Iterator[dict[str, object]]:
    """The rows of the CSV file."""
    for row in found.rows:
        yield {
            "day": row.day, found.by: row.group, "requests": row.requests,
            "cost_usd": row.cost_usd, "loser_cost_usd": row.loser_cost_usd,
        }  # fmt: skip


_Sums = dict[tuple[int, str], list[Any]]


def _by_sums(
    connection: sa.Connection, start: int, stop: int, by: str, wanted: tuple[str, ...]
) -> _Sums:
    table = key_rollups.c
    query = sa.select(
        table.bucket_s, table.key_id, table.model_asked, table.exchanges, table.cost_usd,
        table.loser_cost_usd,
    ).where(table.width_s == DAY_S, table.bucket_s >= start, table.bucket_s < stop)  # fmt: skip
    if wanted:
        query = query.where(table.key_id.in_(wanted))
    return _added(
        (row.bucket_s, row.key_id if by == "key" else row.model_asked, row.exchanges,
         row.cost_usd, row.loser_cost_usd)
        for row in connection.execute(query)
    )  # fmt: skip


def _by_tag(
    connection: sa.Connection, start: int, stop: int, wanted: tuple[str, ...]
) -> tuple[_Sums, str | None]:
    """Sums over the newest requests of the period; one with several tags is in each of them."""
    table = exchange_notes.c
    query = (
        sa.select(table.wall_ns, table.tags, table.cost_nano, table.loser_cost_nano)
        .where(table.wall_ns >= start * _NS_PER_S, table.wall_ns < stop * _NS_PER_S)
        .order_by(table.wall_ns.desc())
        .limit(MOST_ROWS)
    )
    if wanted:
        query = query.where(table.key_id.in_(wanted))
    rows = connection.execute(query).all()
    found = _added(
        (row.wall_ns // _NS_PER_S // DAY_S * DAY_S, tag, 1,
         (row.cost_nano or 0) * NANO, (row.loser_cost_nano or 0) * NANO)
        for row in rows
        for tag in tags_of(row.tags)
    )  # fmt: skip
    whole = len(rows) < MOST_ROWS
    return found, None if whole else rfc3339(rows[-1].wall_ns // _NS_PER_S)


def _added(rows: Iterable[tuple[int, str, int, Decimal, Decimal]]) -> _Sums:
    found: _Sums = {}
    groups: set[str] = set()
    for day, group, requests, cost, lost in rows:
        known = group if group in groups or len(groups) < MOST_GROUPS else OTHER
        groups.add(known)
        sums = found.setdefault((day, known), [0, Decimal(0), Decimal(0)])
        sums[0] += requests
        sums[1] += cost
        sums[2] += lost
    return found


def _name(key_id: str, records: dict[str, KeyRecord]) -> str:
    if not key_id:
        return NO_KEY
    return records[key_id].name if key_id in records else key_id


def _days(connection: sa.Connection, first: int) -> dict[str, dict[int, Decimal]]:
    table = key_rollups.c
    query = sa.select(table.key_id, table.bucket_s, table.cost_usd, table.loser_cost_usd).where(
        table.width_s == DAY_S, table.bucket_s >= first
    )
    found: dict[str, dict[int, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for key_id, day, cost, lost in connection.execute(query):
        found[key_id][day] += cost + lost
    return found


def _last_used(connection: sa.Connection) -> dict[str, int]:
    """The start of the last five minutes, or of the last day, in which each key was used."""
    table = key_rollups.c
    query = sa.select(table.key_id, sa.func.max(table.bucket_s)).group_by(table.key_id)
    return {row[0]: int(row[1]) for row in connection.execute(query)}
