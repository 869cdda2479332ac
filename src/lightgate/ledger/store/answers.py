"""The table `cache`: complete answers that equal requests may get again, within a limit of bytes.

Losing a row costs one call to a provider, so nothing here is journaled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlalchemy as sa

from lightgate.ledger.store.schema import cache, whole_sum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.ledger.store.store import Ledger

ROW_BYTES: Final = 256  # what a row takes beside its answer
_LOW: Final = 0.9  # a full table is cut to this share of its limit, so that it is cut rarely


class AnswerRow(NamedTuple):
    """One row, in the table's order; instants in nanoseconds since the epoch."""

    key: bytes
    key_id: str | None
    model_asked: str
    target: str
    kept_ns: int
    expires_ns: int
    size: int
    answer: bytes


class KnownAnswer(NamedTuple):
    """The key of an answer that is kept, and how long it is valid."""

    key: bytes
    kept_ns: int
    expires_ns: int


def put_answers(ledger: Ledger, rows: Sequence[AnswerRow]) -> None:
    """Insert answers; a newer one takes the place of an older one, the last of a batch wins."""
    newest = {row.key: row for row in rows}
    with ledger.writing() as connection:
        connection.execute(cache.delete().where(cache.c.key.in_(list(newest))))
        ledger.insert(connection, cache, list(newest.values()))


def find_answer(ledger: Ledger, key: bytes, now_ns: int) -> AnswerRow | None:
    """Find the answer under a key that has not expired."""
    wanted = cache.select().where(cache.c.key == key, cache.c.expires_ns > now_ns)
    with ledger.reading() as connection:
        found = connection.execute(wanted).first()
    return None if found is None else AnswerRow(*found)


def known_answers(ledger: Ledger, since_ns: int, now_ns: int, limit: int) -> list[KnownAnswer]:
    """Return the newest keys kept at `since_ns` or later that have not expired."""
    wanted = (
        sa.select(cache.c.key, cache.c.kept_ns, cache.c.expires_ns)
        .where(cache.c.kept_ns >= since_ns, cache.c.expires_ns > now_ns)
        .order_by(cache.c.kept_ns.desc())
        .limit(limit)
    )
    with ledger.reading() as connection:
        return [KnownAnswer(*row) for row in connection.execute(wanted)]


def prune_answers(ledger: Ledger, now_ns: int, most_bytes: int) -> int:
    """Delete what has expired, then the oldest until the rest fits; how many went."""
    gone = _delete(ledger, cache.c.expires_ns <= now_ns)
    with ledger.reading() as connection:
        total = connection.execute(sa.select(whole_sum(cache.c.size))).scalar() or 0
        if total <= most_bytes:
            return gone
        last = _last_kept(connection, int(most_bytes * _LOW))
    return gone + _delete(ledger, cache.c.kept_ns <= last)


def _last_kept(connection: sa.Connection, room: int) -> int:
    """The instant at and before which answers have to go; those after it fit."""
    rows = connection.execute(
        sa.select(cache.c.kept_ns, cache.c.size).order_by(cache.c.kept_ns.desc())
    )
    used = 0
    for kept_ns, size in rows:
        used += size
        if used > room:
            return int(kept_ns)
    return -1


def _delete(ledger: Ledger, where: sa.ColumnElement[bool]) -> int:
    with ledger.reading() as connection:  # the write lock only if there is something to do
        if connection.execute(sa.select(cache.c.key).where(where).limit(1)).first() is None:
            return 0
    with ledger.writing() as connection:
        result: sa.CursorResult[Any] = connection.execute(cache.delete().where(where))
    return result.rowcount
