"""What attempts at each target come to over a period: from the ledger's sums, or from its rows.

The sums are by target. A question about a key, a tag or a size of prompts is answered from single
rows, the newest ones of at most a day.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from lightgate.clock.sketch import DDSketch
from lightgate.ledger.store.exchange import NANO
from lightgate.ledger.store.owners import tags_of
from lightgate.ledger.store.queries import measured
from lightgate.ledger.store.rollup import DAY_S, FINE_S, HOUR_S
from lightgate.ledger.store.schema import (
    METRICS,
    attempt_notes,
    attempts,
    exchange_notes,
    keys,
    rollups,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lightgate.console.api.question import Period, Question

ROWS_S: Final = DAY_S  # how far back single rows are asked
MOST_ROWS: Final = 100_000  # attempts that are looked at, the newest
LONG_S: Final = (
    2 * DAY_S
)  # longer periods begin at a whole hour, which saves 11 sums of each target
SIZES: Final = {"s": (0, 300), "m": (301, 3000), "l": (3001, 30_000), "xl": (30_001, 1 << 62)}
_NS_PER_S: Final = 1_000_000_000
_AT_ONCE: Final = 5000


class TargetSums:
    """All attempts at one target; `failed` leaves out those that the gateway itself ended."""

    def __init__(self, target: str, provider: str, model: str) -> None:
        self.target = target
        self.provider = provider
        self.model = model
        self.attempts = self.ok = self.ended = self.tokens_out = 0
        self.cost = Decimal(0)
        self.sketches: dict[str, DDSketch] = defaultdict(DDSketch)
        self._packed: dict[str, list[bytes]] = defaultdict(list)

    @property
    def judged(self) -> int:
        """Attempts that ended by themselves, well or not."""
        return self.attempts - self.ended

    def take(self, row: Any, metrics: Sequence[str]) -> None:
        """Add a row of the ledger's sums."""
        self.attempts += row.attempts
        self.ok += row.ok
        self.ended += row.cancelled + row.cut
        self.tokens_out += row.tokens_out
        self.cost += row.cost_usd
        for name, packed in zip(metrics, row[-len(metrics) :], strict=True):
            if packed is not None:
                self._packed[name].append(packed)

    def unpack(self) -> None:
        """Merge the distributions of all rows that were added."""
        for name, packed in self._packed.items():
            self.sketches[name] = DDSketch.from_many(packed)


def first_second(period: Period) -> int:
    """Where the sums of a period begin: at whole 5 minutes, at a whole hour for longer ones."""
    width = HOUR_S if period.stop_s - period.start_s > LONG_S else FINE_S
    return period.start_s // width * width


def last_second(period: Period) -> int:
    """Where the sums of a period end: at whole 5 minutes, or now."""
    return period.stop_s if period.is_open else -(-period.stop_s // FINE_S) * FINE_S


def spans(period: Period) -> Iterator[tuple[int, int, int]]:
    """Cover a period by buckets of the ledger: width, first and stop, whole days where they fit."""
    start = first_second(period)
    stop = -(-period.end_s // FINE_S) * FINE_S
    if period.is_open:  # nothing is newer: the day that runs has all of it up to now
        stop = -(-stop // DAY_S) * DAY_S
    yield from _covered(start, stop, (DAY_S, HOUR_S, FINE_S))


def _covered(start: int, stop: int, widths: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    width, *finer = widths
    first, last = -(-start // width) * width, stop // width * width
    if first >= last:
        if start < stop:
            yield from _covered(start, stop, tuple(finer))
        return
    yield width, first, last
    for left, right in ((start, first), (last, stop)):
        if left < right:
            yield from _covered(left, right, tuple(finer))


def named(question: Question, table: Any) -> list[sa.ColumnElement[bool]]:
    """The conditions of the parameters target, model and provider."""
    return [
        table[name].in_(question.names(name))
        for name in ("target", "model", "provider")
        if question.names(name)
    ]


def sums_of_rollups(
    connection: sa.Connection, question: Question, metrics: Sequence[str]
) -> dict[str, TargetSums]:
    """Add the ledger's sums up, with the distributions of some metrics."""
    table = rollups.c
    plain = (table.target, table.provider, table.model, table.attempts, table.ok, table.cancelled,
             table.cut, table.tokens_out, table.cost_usd)  # fmt: skip
    packed = [table[f"{name}_sketch"] for name in metrics]
    found: dict[str, TargetSums] = {}
    for width, first, stop in spans(question.period):
        query = sa.select(*plain, *packed).where(
            table.width_s == width, table.bucket_s >= first, table.bucket_s < stop,
            *named(question, table),
        )  # fmt: skip
        for row in connection.execute(query):
            sums = found.get(row.target)
            if sums is None:
                sums = found[row.target] = TargetSums(row.target, row.provider, row.model)
            sums.take(row, metrics)
    for sums in found.values():
        sums.unpack()
    return found


def sums_of_rows(
    connection: sa.Connection, question: Question
) -> tuple[dict[str, TargetSums], int | None]:
    """Add single attempts up, and tell the second of the oldest where not all were looked at."""
    table, owner, stop_s = attempts.c, exchange_notes.c, question.period.end_s
    start = max(question.period.start_s, stop_s - ROWS_S) * _NS_PER_S
    at = attempt_notes.c.wall_ns
    last = sa.select(at).where(at >= start, at < stop_s * _NS_PER_S).order_by(at.desc())
    oldest = connection.execute(last.offset(MOST_ROWS).limit(1)).scalar()
    start = start if oldest is None else int(oldest) + 1
    query = (
        sa.select(table.target, table.provider, table.model, table.outcome, table.tokens_out,
                  table.cost_nano, table.wall_ns, owner.tags, measured().label("measured"),
                  *(table[name] for name in METRICS[:-1]))
        .join_from(attempts, exchange_notes, owner.id == table.exchange_id)
        .where(table.wall_ns >= start, table.wall_ns < stop_s * _NS_PER_S)
        .where(table.source != "probe", *named(question, table), *_owned(question))
    )  # fmt: skip
    tags = set(question.names("tag"))
    values: dict[str, list[list[float]]] = defaultdict(lambda: [[] for _ in METRICS[:-1]])
    found: dict[str, TargetSums] = {}
    for row in connection.execution_options(yield_per=_AT_ONCE).execute(query):
        if tags and tags.isdisjoint(tags_of(row.tags)):
            continue
        sums = found.get(row.target)
        if sums is None:
            sums = found[row.target] = TargetSums(row.target, row.provider, row.model)
        _take_row(sums, row)
        if row.measured:
            for kept, value in zip(values[row.target], row[-len(METRICS) + 1 :], strict=True):
                if value is not None and value >= 0.0:
                    kept.append(value)
    for target, lists in values.items():
        for name, some in zip(METRICS[:-1], lists, strict=True):
            found[target].sketches[name].add_many(some)
    since_s = start // _NS_PER_S
    return found, since_s if since_s > question.period.start_s else None


def _take_row(sums: TargetSums, row: Any) -> None:
    sums.attempts += 1
    sums.ok += row.outcome == "ok"
    sums.ended += row.outcome in {"cancelled", "cut"}
    sums.tokens_out += row.tokens_out or 0
    sums.cost += (row.cost_nano or 0) * NANO


def of_keys(column: sa.ColumnElement[Any], wanted: Sequence[str]) -> sa.ColumnElement[bool]:
    """The condition that a row belongs to one of these keys, each by its id or its name."""
    named_so = sa.select(keys.c.id).where(keys.c.name.in_(wanted))
    return sa.or_(column.in_(wanted), column.in_(named_so))


def _owned(question: Question) -> list[sa.ColumnElement[bool]]:
    """The conditions of the parameters key and size; tags are looked at row by row."""
    found: list[sa.ColumnElement[bool]] = []
    if question.names("key"):
        found.append(of_keys(exchange_notes.c.key_id, question.names("key")))
    if question.names("tag"):
        found.append(exchange_notes.c.tags.is_not(None))
    size = SIZES.get(question.text("size"))
    if size is not None:
        found.append(attempts.c.tokens_in.between(*size))
    return found
