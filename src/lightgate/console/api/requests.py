"""Requests, newest first: pages by cursor that stay fast however many rows there are.

A page walks back in time over slices of so many rows, and stops when it is full or when its time is
up; `searched_to` tells how far it came. So a filter that matches nothing costs no more than others.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from lightgate.clock.source import SYSTEM
from lightgate.console.api.question import BadQuestion, rfc3339
from lightgate.console.api.sums import SIZES, of_keys
from lightgate.console.totals import PROBE
from lightgate.ledger.store.owners import tags_of
from lightgate.ledger.store.schema import (
    EXCHANGE_FAILED,
    OUTCOMES,
    attempts,
    exchange_notes,
    exchanges,
    keys,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightgate.clock.source import Clock
    from lightgate.console.api.question import Question
    from lightgate.ledger.store.store import Ledger

SLICE: Final = 20_000  # rows that one statement looks at
SEARCH_NS: Final = 150_000_000  # after so long a page is answered with what was found
MOST: Final = 200  # rows of a page
OUTCOME_CHOICES: Final = ("all", "bad", *OUTCOMES)
_NS_PER_S: Final = 1_000_000_000
_COLUMNS: Final = ("id", "wall_ns", "wall_time", "request_id", "model_asked", "winner", "outcome",
                   "status", "attempts", "ttft_ms", "e2e_ms", "tokens_in", "tokens_out",
                   "cost_usd", "loser_cost_usd", "key_id", "tags", "cache", "streamed",
                   "error")  # fmt: skip


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a client; times are as the client saw them, without prompt and answer.

    `speed_total_tps` is that of the attempt that won; `key` is the name of the virtual key.
    """

    id: str
    t: str
    request_id: str
    model_asked: str
    winner: str | None
    outcome: str
    status: int
    error: str | None
    attempts: int
    streamed: bool
    ttft_ms: float | None
    speed_total_tps: float | None
    e2e_ms: float | None
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: Decimal | None
    loser_cost_usd: Decimal | None
    key_id: str | None
    key: str | None
    tags: tuple[str, ...]
    cache: str


class RequestPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of requests, newest first.

    `next` is the cursor of the page behind it, null at the end of the period. Where `complete` is
    false the page was cut by its time, and the search goes on behind `next`. `try_line` is a
    command that sends a request through the gateway.
    """

    as_of: str
    since: str
    until: str
    rows: tuple[RequestRow, ...]
    next: str | None
    newest: str | None
    searched_to: str
    complete: bool
    try_line: str
    ignored: tuple[str, ...]


class Cursor(msgspec.Struct, frozen=True):
    """A place between two requests: behind the one with this time and id, or all of the time."""

    wall_ns: int
    id: str

    def __str__(self) -> str:
        return f"{self.wall_ns:x}.{self.id}"


def read_cursor(text: str) -> Cursor | None:
    """Read a cursor; None of nothing."""
    if not text:
        return None
    at, dot, id_ = text.partition(".")
    try:
        wall_ns = int(at, 16)
    except ValueError:
        wall_ns = -1
    if not dot or not 0 <= wall_ns < 1 << 62:
        raise BadQuestion("before is a cursor from `next` of another page.")
    return Cursor(wall_ns, id_)


class RequestSearch:
    """One walk back in time over the requests that a question asks for."""

    def __init__(
        self, connection: sa.Connection, question: Question, clock: Clock = SYSTEM
    ) -> None:
        self._connection = connection
        self._wanted = _conditions(question)
        self._tags = set(question.names("tag"))
        self._clock = clock
        self._start = question.period.start_s * _NS_PER_S
        self._behind = read_cursor(question.text("before"))
        stop = question.period.end_s * _NS_PER_S
        self.upper = stop if self._behind is None else min(stop, self._behind.wall_ns + 1)
        self.done = False

    def page(self, limit: int, within_ns: int = SEARCH_NS) -> list[Any]:
        """The next rows, at most `limit`; fewer where the time or the period is over."""
        began, found = self._clock.now_ns(), list[Any]()
        while not self.done and len(found) < limit:
            lower = self._lower()
            rows = self._slice(lower, limit - len(found))
            found += rows
            if len(found) >= limit:
                last = found[-1]
                self._behind = Cursor(last.wall_ns, last.id)
                self.upper = last.wall_ns + 1
                break
            self.upper, self._behind = lower, None
            self.done = lower <= self._start
            if self._clock.now_ns() - began > within_ns:
                break
        return found

    @property
    def cursor(self) -> Cursor | None:
        """Where the walk goes on; None at its end."""
        if self.done:
            return None
        return self._behind or Cursor(self.upper, "")

    def _lower(self) -> int:
        """The time down to which the next slice reaches."""
        at = exchange_notes.c.wall_ns
        query = (
            sa.select(at)
            .where(at >= self._start, at < self.upper)
            .order_by(at.desc())
            .offset(SLICE)
            .limit(1)
        )
        found = self._connection.execute(query).scalar()
        return self._start if found is None else int(found)

    def _slice(self, lower: int, limit: int) -> list[Any]:
        table = exchanges.c
        here = [table.wall_ns >= lower, table.wall_ns < self.upper, *self._wanted]
        if self._behind is not None:
            at, id_ = self._behind.wall_ns, self._behind.id
            here.append(sa.or_(table.wall_ns < at, table.id < id_))
        if self._tags:
            texts = self._connection.execute(sa.select(table.tags).where(*here).distinct())
            tagged = [text for (text,) in texts if not self._tags.isdisjoint(tags_of(text))]
            if not tagged:
                return []
            here.append(table.tags.in_(tagged))
        query = (
            sa.select(*(table[name] for name in _COLUMNS))
            .where(*here)
            .order_by(table.wall_ns.desc(), table.id.desc())
            .limit(limit)
        )
        return list(self._connection.execute(query))


def request_page(
    ledger: Ledger, question: Question, now_ns: int, try_line: str = "", clock: Clock = SYSTEM
) -> RequestPage:
    """Return one page of requests."""
    limit = min(question.count("limit") or 100, MOST)
    with ledger.reading() as connection:
        search = RequestSearch(connection, question, clock)
        found = search.page(limit)
        rows = shown_rows(connection, found)
    cursor = search.cursor
    since, until = question.period.texts()
    return RequestPage(
        as_of=rfc3339(now_ns // _NS_PER_S),
        since=since,
        until=until,
        rows=tuple(rows),
        next=None if cursor is None else str(cursor),
        newest=str(Cursor(found[0].wall_ns, found[0].id)) if found else None,
        searched_to=rfc3339(search.upper // _NS_PER_S),
        complete=search.done or len(found) >= limit,
        try_line=try_line,
        ignored=question.ignored,
    )


def count_newer(ledger: Ledger, question: Question, than: Cursor | None) -> int:
    """Count the requests in front of a cursor that a question asks for, up to a page of them."""
    with ledger.reading() as connection:
        found = RequestSearch(connection, question).page(MOST)
    if than is None:
        return len(found)
    return sum((row.wall_ns, row.id) > (than.wall_ns, than.id) for row in found)


def shown_rows(connection: sa.Connection, found: Iterable[Any]) -> list[RequestRow]:
    """Make the rows of a page, with the speeds of the attempts that won and the names of keys."""
    rows = list(found)
    table = attempts.c
    won = sa.select(table.exchange_id, table.target, table.speed_total_tps).where(
        table.exchange_id.in_([row.id for row in rows]), table.won.is_distinct_from(sa.false())
    )
    speeds = {(row.exchange_id, row.target): row.speed_total_tps for row in connection.execute(won)}
    owners = {row.key_id for row in rows if row.key_id is not None}
    known = sa.select(keys.c.id, keys.c.name).where(keys.c.id.in_(owners))
    names: dict[str, str] = {row.id: row.name for row in connection.execute(known)}
    return [_request_row(row, speeds.get((row.id, row.winner)), names) for row in rows]


def _request_row(row: Any, speed: float | None, names: dict[str, str]) -> RequestRow:
    return RequestRow(
        id=row.id,
        t=row.wall_time,
        request_id=row.request_id,
        model_asked=row.model_asked,
        winner=row.winner,
        outcome=row.outcome,
        status=row.status or 0,
        error=row.error,
        attempts=row.attempts or 0,
        streamed=bool(row.streamed),
        ttft_ms=_ms(row.ttft_ms),
        speed_total_tps=_ms(speed),
        e2e_ms=_ms(row.e2e_ms),
        tokens_in=row.tokens_in,
        tokens_out=row.tokens_out,
        cost_usd=row.cost_usd,
        loser_cost_usd=row.loser_cost_usd,
        key_id=row.key_id,
        key=names.get(row.key_id or ""),
        tags=tags_of(row.tags) if row.tags else (),
        cache=row.cache,
    )


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _conditions(question: Question) -> list[Any]:
    table = exchanges.c
    found: list[Any] = [table.policy != PROBE]
    for name, column in (("model", table.model_asked), ("target", table.winner)):
        if question.names(name):
            found.append(column.in_(question.names(name)))
    if question.names("key"):
        found.append(of_keys(table.key_id, question.names("key")))
    if question.names("provider"):
        starts = (
            table.winner.startswith(f"{name}/", autoescape=True)
            for name in question.names("provider")
        )
        found.append(sa.or_(*starts))
    if question.names("tag"):
        found.append(table.tags.is_not(None))
    outcome = question.text("outcome")
    if outcome == "bad":
        found.append(EXCHANGE_FAILED)
    elif outcome != "all":
        found.append(table.outcome == outcome)
    if question.count("ttft_min"):
        found.append(table.ttft_ms >= question.count("ttft_min"))
    size = SIZES.get(question.text("size"))
    if size is not None:
        found.append(table.tokens_in.between(*size))
    return found
