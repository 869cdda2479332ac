"""Sums and sketches over time: kept up in the same transaction as the rows they are of.

Attempts are summed for each target over 5 minutes and over an hour, exchanges for each key and
model over 5 minutes and over a day. Only complete answers enter a latency: not those of losers, not
what a stale connection made the wire send twice, nothing that a stepping clock touched. What came
from a cache has no attempt and so no speed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal
from operator import add
from typing import TYPE_CHECKING, Any, Final, TypeVar

import sqlalchemy as sa

from lightgate.clock.outcome import Outcome
from lightgate.clock.sketch import DDSketch
from lightgate.ledger.store.schema import METRICS, key_rollups, rollups

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.store.exchange import ExchangeRecord
    from lightgate.ledger.store.store import Ledger

FINE_S: Final = 300
HOUR_S: Final = 3600
DAY_S: Final = 86_400
_NS_PER_S: Final = 1_000_000_000
_OF_ATTEMPT: Final = tuple(metric for metric in METRICS if metric != "overhead_ms")
_ZERO: Final = Decimal(0)
_FROM_CACHE: Final = frozenset({"hit", "join"})
_Key = tuple[Any, ...]  # a bucket's start in seconds and names, or a whole primary key
_Row = TypeVar("_Row", "_TargetRow", "_KeyRow")


def measured(attempt: AttemptRecord) -> bool:
    """Whether an attempt's numbers say how fast its provider is."""
    return (
        attempt.outcome is Outcome.OK
        and attempt.source == "gateway"
        and attempt.won is not False
        and not attempt.void
        and not attempt.replayed
    )


class _TargetRow:
    """What one batch adds to one row of `rollups`."""

    def __init__(self) -> None:
        self.attempts: list[AttemptRecord] = []
        self.overheads: list[float | None] = []

    def join(self, other: _TargetRow) -> None:
        self.attempts += other.attempts
        self.overheads += other.overheads

    def values(self, before: Sequence[Any] | None) -> list[Any]:
        """The columns behind the primary key, given those before."""
        tries = self.attempts
        outcomes = Counter([attempt.outcome for attempt in tries])
        fair = [attempt for attempt in tries if measured(attempt)]
        sums: list[Any] = [
            len(tries),
            *(outcomes[outcome] for outcome in Outcome),
            len(fair),
            sum([attempt.late for attempt in tries]),
            sum([attempt.tokens_in or 0 for attempt in tries]),
            sum([attempt.tokens_out or 0 for attempt in tries]),
            sum([attempt.cost_usd for attempt in tries if attempt.cost_usd], _ZERO),
        ]
        samples: list[list[float | None]] = [
            [getattr(attempt, metric) for attempt in fair] for metric in _OF_ATTEMPT
        ]
        samples.append(self.overheads)
        if before is None:
            sketches = [_sketch(None, values) for values in samples]
        else:
            sums = list(map(add, sums, before[2:]))
            sketches = list(map(_sketch, before[2 + len(sums) :], samples))
        return [tries[-1].provider, tries[-1].model, *sums, *sketches]


class _KeyRow:
    """What one batch adds to one row of `key_rollups`."""

    def __init__(self) -> None:
        self.sums: list[Any] = [0, 0, 0, 0, 0, _ZERO, _ZERO]

    def join(self, other: _KeyRow) -> None:
        self.sums = list(map(add, self.sums, other.sums))

    def values(self, before: Sequence[Any] | None) -> list[Any]:
        """The columns behind the primary key, given those before."""
        return self.sums if before is None else list(map(add, self.sums, before))


class Rollup:
    """Gathers what one batch adds, then adds it to the tables."""

    def __init__(self) -> None:
        self._targets: dict[_Key, _TargetRow] = defaultdict(_TargetRow)
        self._keys: dict[_Key, _KeyRow] = defaultdict(_KeyRow)

    def attempt(self, attempt: AttemptRecord, wall_ns: int, record: ExchangeRecord) -> None:
        """Take one attempt in, and what the gateway added to it if it is the answer."""
        total = self._targets[_fine(wall_ns), attempt.target]
        total.attempts.append(attempt)
        if record.winner == attempt.target and measured(attempt) and record.outcome == Outcome.OK:
            total.overheads.append(record.overhead_ms)

    def exchange(self, record: ExchangeRecord, wall_ns: int, *, sign: int = 1) -> None:
        """Take one exchange in; `sign` -1 takes back an estimate that was wrong."""
        sums = self._keys[_fine(wall_ns), record.key_id or "", record.model_asked].sums
        sums[0] += sign
        sums[1] += sign * (record.outcome == Outcome.OK)
        sums[2] += sign * (record.cache in _FROM_CACHE)
        sums[3] += sign * (record.tokens_in or 0)
        sums[4] += sign * (record.tokens_out or 0)
        if record.cost_usd is not None:
            sums[5] += sign * record.cost_usd
        if record.loser_cost_usd is not None:
            sums[6] += sign * record.loser_cost_usd

    def write(self, ledger: Ledger, connection: sa.Connection) -> None:
        """Add all of it to the tables, inside the caller's transaction."""
        for width in (FINE_S, HOUR_S):
            targets = _widened(self._targets, width, _TargetRow)
            _add(ledger, connection, rollups, targets)
        for width in (FINE_S, DAY_S):
            _add(ledger, connection, key_rollups, _widened(self._keys, width, _KeyRow))


def _fine(wall_ns: int) -> int:
    return wall_ns // _NS_PER_S // FINE_S * FINE_S


def _widened(sums: Mapping[_Key, _Row], width: int, make: Callable[[], _Row]) -> dict[_Key, _Row]:
    """The same sums over wider buckets, by primary key."""
    wide: dict[_Key, _Row] = defaultdict(make)
    for (bucket, *names), total in sums.items():
        wide[width, bucket // width * width, *names].join(total)
    return wide


def _add(
    ledger: Ledger,
    connection: sa.Connection,
    table: sa.Table,
    sums: Mapping[_Key, _TargetRow] | Mapping[_Key, _KeyRow],
) -> None:
    """Read the rows that the sums belong to, and put them back with the sums added."""
    if not sums:
        return
    width, bucket, name, *_rest = identity = tuple(table.primary_key.columns)
    size = len(identity)
    wanted = (
        table.select()
        .where(width == next(iter(sums))[0])
        .where(bucket.in_({key[1] for key in sums}))
        .where(name.in_({key[2] for key in sums}))
    )
    before = {tuple(row[:size]): row[size:] for row in connection.execute(wanted)}
    rows = [(*key, *total.values(before.get(key))) for key, total in sums.items()]
    stale = [{f"was_{at}": part for at, part in enumerate(key)} for key in sums if key in before]
    if stale:
        here = (column == sa.bindparam(f"was_{at}") for at, column in enumerate(identity))
        connection.execute(table.delete().where(*here), stale)
    ledger.insert(connection, table, rows)


def _sketch(before: bytes | None, values: Sequence[float | None]) -> bytes | None:
    # A time below zero (a stamp of another clock) is no time, and no sketch takes it.
    samples = [value for value in values if value is not None and value >= 0.0]
    if not samples:
        return before
    sketch = DDSketch() if before is None else DDSketch.from_bytes(before)
    sketch.add_many(samples)
    return sketch.to_bytes()
