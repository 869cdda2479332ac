"""Sums and sketches over time: kept up in the same transaction as the rows they are of.

Attempts are summed for each target over 5 minutes, an hour and a day, exchanges for each key and
model over 5 minutes and over a day. Only complete answers enter a latency: not those of losers, not
what a stale connection made the wire send twice, nothing that a stepping clock touched. What came
from a cache has no attempt and so no speed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import add
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from lightgate.clock.outcome import Outcome
from lightgate.clock.sketch import DDSketch
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote
from lightgate.ledger.store.exchange import NANO
from lightgate.ledger.store.schema import METRICS, key_rollups, rollups

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lightgate.ledger.store.store import Ledger

FINE_S: Final = 300
HOUR_S: Final = 3600
DAY_S: Final = 86_400
_FINE_NS: Final = FINE_S * 1_000_000_000
_FROM_CACHE: Final = frozenset({"hit", "join"})
_NO_METRICS: Final = ((),) * (len(METRICS) - 1)
_Key = tuple[Any, ...]  # a bucket's start in seconds and names, or a whole primary key
_Tried = tuple[AttemptNote, ExchangeNote]  # an attempt and its exchange


class _TargetSums:
    """What one batch adds to one row of `rollups`."""

    def __init__(self, tried: Sequence[_Tried]) -> None:
        attempts = [attempt for attempt, _ in tried]
        outcomes = Counter([attempt.outcome for attempt in attempts])
        fair = [one for one in tried if one[0].measured()]
        self._names = [attempts[-1].facts.provider, attempts[-1].facts.model]
        self._sums: list[Any] = [
            len(attempts),
            *(outcomes[outcome] for outcome in Outcome),
            len(fair),
            sum([attempt.tokens_in or 0 for attempt in attempts]),
            sum([attempt.tokens_out or 0 for attempt in attempts]),
            sum([attempt.facts.cost_nano or 0 for attempt in attempts]) * NANO,
        ]
        metrics = list(zip(*[attempt.metrics() for attempt, _ in fair], strict=True))
        added = [
            exchange.overhead_ms()
            for attempt, exchange in fair
            if exchange.winner == attempt.facts.target and exchange.outcome == "ok"
        ]
        self._sketches = [_sketch(values) for values in (*(metrics or _NO_METRICS), added)]

    def join(self, other: _TargetSums) -> None:
        self._names = other._names
        self._sums = list(map(add, self._sums, other._sums))
        for mine, theirs in zip(self._sketches, other._sketches, strict=True):
            mine.merge(theirs)

    def values(self, before: Sequence[Any] | None) -> list[Any]:
        """The columns behind the primary key, given those before."""
        if before is None:
            blobs = [_merged(None, sketch) for sketch in self._sketches]
            return [*self._names, *self._sums, *blobs]
        sums = map(add, self._sums, before[2:])
        blobs = list(map(_merged, before[2 + len(self._sums) :], self._sketches))
        return [*self._names, *sums, *blobs]


class _KeySums:
    """What one batch adds to one row of `key_rollups`; `sign` -1 takes exchanges back."""

    def __init__(self, exchanges: Sequence[ExchangeNote], sign: int = 1) -> None:
        self._sums: list[Any] = [
            sign * len(exchanges),
            sign * sum([exchange.outcome == "ok" for exchange in exchanges]),
            sign * sum([exchange.cache in _FROM_CACHE for exchange in exchanges]),
            sign * sum([exchange.tokens_in or 0 for exchange in exchanges]),
            sign * sum([exchange.tokens_out or 0 for exchange in exchanges]),
            sign * sum([exchange.cost_nano or 0 for exchange in exchanges]) * NANO,
            sign * sum([exchange.loser_cost_nano or 0 for exchange in exchanges]) * NANO,
        ]

    def join(self, other: _KeySums) -> None:
        self._sums = list(map(add, self._sums, other._sums))

    def values(self, before: Sequence[Any] | None) -> list[Any]:
        """The columns behind the primary key, given those before."""
        return self._sums if before is None else list(map(add, self._sums, before))


class Rollup:
    """Gathers the notes of one batch, then adds them to the tables."""

    def __init__(self) -> None:
        self._exchanges: dict[_Key, list[ExchangeNote]] = defaultdict(list)
        self._taken_back: dict[_Key, list[ExchangeNote]] = defaultdict(list)
        self._attempts: dict[_Key, list[_Tried]] = defaultdict(list)

    def add(self, exchange: ExchangeNote, attempts: Sequence[AttemptNote] = ()) -> None:
        """Take one exchange in, and its attempts."""
        bucket = exchange.wall_ns // _FINE_NS * FINE_S
        self._exchanges[bucket, exchange.key_id or "", exchange.model_asked].append(exchange)
        for attempt in attempts:
            facts = attempt.facts
            bucket = facts.wall_ns // _FINE_NS * FINE_S
            self._attempts[bucket, facts.target].append((attempt, exchange))

    def take_back(self, exchange: ExchangeNote) -> None:
        """Subtract an exchange that had no attempt: an estimate that was wrong."""
        bucket = exchange.wall_ns // _FINE_NS * FINE_S
        self._taken_back[bucket, exchange.key_id or "", exchange.model_asked].append(exchange)

    def write(self, ledger: Ledger, connection: sa.Connection) -> None:
        """Add all of it to the tables, inside the caller's transaction."""
        targets = [(key, _TargetSums(tried)) for key, tried in self._attempts.items()]
        keys = [(key, _KeySums(exchanges)) for key, exchanges in self._exchanges.items()]
        keys += [(key, _KeySums(exchanges, -1)) for key, exchanges in self._taken_back.items()]
        for table, widths, sums in (
            (rollups, (FINE_S, HOUR_S, DAY_S), targets),
            (key_rollups, (FINE_S, DAY_S), keys),
        ):
            finer: Iterable[tuple[_Key, Any]] = sums
            for width in widths:
                wide = _widened(finer, width)
                _add(ledger, connection, table, wide)
                finer = [(key[1:], total) for key, total in wide.items()]


def _widened(sums: Iterable[tuple[_Key, Any]], width: int) -> dict[_Key, Any]:
    """The same sums over wider buckets, by primary key; the first of each takes in the others."""
    wide: dict[_Key, Any] = {}
    for (bucket, *names), total in sums:
        key = (width, bucket // width * width, *names)
        if key in wide:
            wide[key].join(total)
        else:
            wide[key] = total
    return wide


def _add(
    ledger: Ledger, connection: sa.Connection, table: sa.Table, sums: Mapping[_Key, Any]
) -> None:
    """Read the rows that the sums belong to, and put them back with the sums added."""
    if not sums:
        return
    wanted, stale = _STATEMENTS[table.name]
    known = {
        "width": next(iter(sums))[0],
        "buckets": list({key[1] for key in sums}),
        "names": list({key[2] for key in sums}),
    }
    size = len(table.primary_key.columns)
    before = {tuple(row[:size]): row[size:] for row in connection.execute(wanted, known)}
    rows = [(*key, *total.values(before.get(key))) for key, total in sums.items()]
    old = [{f"was_{at}": part for at, part in enumerate(key)} for key in sums if key in before]
    if old:
        connection.execute(stale, old)
    ledger.insert(connection, table, rows)


def _statements(table: sa.Table) -> tuple[sa.Select[Any], sa.Delete]:
    """To read the rows of some buckets and names, and to delete rows by their keys.

    Made once: SQLAlchemy works out anew how to cache every statement that it has not seen.
    """
    width, bucket, name, *_rest = identity = tuple(table.primary_key.columns)
    wanted = table.select().where(
        width == sa.bindparam("width"),
        bucket.in_(sa.bindparam("buckets")),
        name.in_(sa.bindparam("names")),
    )
    here = (column == sa.bindparam(f"was_{at}") for at, column in enumerate(identity))
    return wanted, table.delete().where(*here)


_STATEMENTS: Final = {table.name: _statements(table) for table in (rollups, key_rollups)}


def _sketch(values: Iterable[float | None]) -> DDSketch:
    sketch = DDSketch()
    # A time below zero (a stamp of another clock) is no time, and no sketch takes it.
    sketch.add_many([value for value in values if value is not None and value >= 0.0])
    return sketch


def _merged(before: bytes | None, added: DDSketch) -> bytes | None:
    if not added.count:
        return before
    if before is not None:
        sketch = DDSketch.from_bytes(before)
        sketch.merge(added)
        return sketch.to_bytes()
    return added.to_bytes()
