"""How fast and how dear the requests of each key, tag or alias were, from the rows of requests.

The sums of the ledger are by target. What clients are told apart by is in the rows of single
requests, so these answers reach back as far as those are kept.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import sqlalchemy as sa

from lightgate.clock.quantile import interval, quantile, quantiles
from lightgate.ledger.store.exchange import NANO
from lightgate.ledger.store.queries import By, SpeedRow, measured, speed_rows
from lightgate.ledger.store.rollup import FINE_S
from lightgate.ledger.store.schema import attempts, exchange_notes, keys, whole_sum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime, timedelta

    from lightgate.ledger.store.store import Ledger

OwnedBy = Literal["key", "tag", "alias"]
_OWNED: Final[dict[str, OwnedBy]] = {"key": "key", "tag": "tag", "alias": "alias"}
_SUMMED: Final[dict[str, By]] = {"model": "model", "provider": "provider", "target": "target"}
NO_KEY: Final = "(no key)"
NO_TAG: Final = "(no tag)"
OTHER: Final = "(other tags)"
MOST_GROUPS: Final = 1000  # tags are the clients' own words: those that come later are one group
MOST_TAGS: Final = 8  # of one request
_TAG_CHARS: Final = 64
_NS_PER_S: Final = 1_000_000_000
_ROWS_AT_ONCE: Final = 10_000
_COLUMNS: Final = {"key": "key_id", "tag": "tags", "alias": "model_asked"}


class _OwnerSums:
    """What is added up for one group."""

    __slots__ = ("attempts", "cost_nano", "speeds", "successes", "tokens_in", "tokens_out", "waits")

    def __init__(self) -> None:
        self.attempts = self.successes = self.tokens_in = self.tokens_out = self.cost_nano = 0
        self.speeds = array("d")
        self.waits = array("d")

    def take(self, row: Any) -> None:
        """Add one attempt."""
        self.attempts += 1
        self.tokens_in += row.tokens_in or 0
        self.tokens_out += row.tokens_out or 0
        self.cost_nano += row.cost_nano or 0
        if row.measured:
            self.successes += 1
            if row.speed_total_tps is not None:
                self.speeds.append(row.speed_total_tps)
            if row.ttft_ms is not None:
                self.waits.append(row.ttft_ms)

    def row(self, name: str) -> SpeedRow:
        """The row of the report."""
        ttft_p50, ttft_p95 = quantiles(self.waits, (0.5, 0.95))
        return SpeedRow(
            name=name,
            attempts=self.attempts,
            successes=self.successes,
            speed_total_p50=quantile(self.speeds, 0.5),
            speed_total_interval=interval(self.speeds, 0.5),
            ttft_p50_ms=ttft_p50,
            ttft_p95_ms=ttft_p95,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            cost_usd=self.cost_nano * NANO,
            exact=True,
        )


def rows_by(ledger: Ledger, last: timedelta, by: str, now: datetime) -> list[SpeedRow]:
    """Return the groups of a report: of targets from the sums, of clients from the rows."""
    owned = _OWNED.get(by)
    if owned is not None:
        return owner_rows(ledger, last, owned, now)
    return speed_rows(ledger, last, _SUMMED[by], now)


def owner_rows(ledger: Ledger, last: timedelta, by: OwnedBy, now: datetime) -> list[SpeedRow]:
    """Return the speeds and costs of each group over a period of whole 5 minutes, by name.

    A request with several tags is in the group of each. What a dead worker had reserved counts as
    spent, though it has no attempt.
    """
    start = int((now - last).timestamp()) // FINE_S * FINE_S * _NS_PER_S
    stop = (int(now.timestamp()) // FINE_S + 1) * FINE_S * _NS_PER_S
    found: dict[str, _OwnerSums] = {}
    owner = exchange_notes.c[_COLUMNS[by]].label("owner")
    with ledger.reading() as connection:
        groups_of = _namer(connection, by)

        def groups(text: str | None) -> Iterable[_OwnerSums]:
            for name in groups_of(text):
                known = name if name in found or len(found) < MOST_GROUPS else OTHER
                yield found.setdefault(known, _OwnerSums())

        chunks = connection.execution_options(yield_per=_ROWS_AT_ONCE)
        for row in chunks.execute(_tried(owner, start, stop)):
            for sums in groups(row.owner):
                sums.take(row)
        for row in connection.execute(_unsettled(owner, start, stop)):
            for sums in groups(row.owner):
                sums.cost_nano += int(row.cost_nano)
    return [sums.row(name) for name, sums in sorted(found.items())]


def tags_of(text: str | None) -> tuple[str, ...]:
    """The tags of an exchange: of a key's JSON object `name=value`, else words between commas."""
    if not text:
        return (NO_TAG,)
    if text.startswith("{"):
        try:
            pairs = msgspec.json.decode(text, type=dict[str, str])
        except msgspec.DecodeError:
            pairs = {}
        words: Iterable[str] = (f"{name}={value}" for name, value in pairs.items())
    else:
        words = text.split(",")
    cleaned = (word.strip()[:_TAG_CHARS] for word in words)
    return tuple(dict.fromkeys(word for word in cleaned if word))[:MOST_TAGS] or (NO_TAG,)


def _namer(connection: sa.Connection, by: OwnedBy) -> Callable[[str | None], tuple[str, ...]]:
    """How the groups of an exchange are called; a key by its name and its public id."""
    if by == "tag":
        return tags_of
    if by == "alias":
        return lambda asked: (asked or "",)
    named = {row.id: row.name for row in connection.execute(sa.select(keys.c.id, keys.c.name))}

    def of_key(key_id: str | None) -> tuple[str, ...]:
        if key_id is None:
            return (NO_KEY,)
        return (f"{named[key_id]} ({key_id})" if named.get(key_id) else key_id,)

    return of_key


def _tried(owner: sa.Label[Any], start: int, stop: int) -> sa.Select[Any]:
    """Every attempt of the time, with whom it was for."""
    table = attempts.c
    return (
        sa.select(
            owner, table.tokens_in, table.tokens_out, table.cost_nano, table.speed_total_tps,
            table.ttft_ms, measured().label("measured"),
        )
        .join_from(attempts, exchange_notes, exchange_notes.c.id == table.exchange_id)
        .where(table.wall_ns >= start, table.wall_ns < stop)
        .where(table.source.in_(("gateway", "batch")))  # probes are nobody's
    )  # fmt: skip


def _unsettled(owner: sa.Label[Any], start: int, stop: int) -> sa.Select[Any]:
    """Sums of what was reserved for exchanges that were never settled."""
    table = exchange_notes.c
    return (
        sa.select(owner, whole_sum(table.cost_nano).label("cost_nano"))
        .where(table.wall_ns >= start, table.wall_ns < stop)
        .where(table.attempts == 0, table.cost_nano > 0)
        .group_by(owner)
    )
