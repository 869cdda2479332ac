"""Copy a ledger into another database, row by row in the order of its keys, and compare the two.

A copy that was broken off goes on behind the last row that arrived: the target says itself which
that is. Nothing may write to the source meanwhile; whether the two are equal is found out at the
end, from the rows of both. A null character, which PostgreSQL has not, becomes the replacement
character, and counts as that in both.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
import sqlalchemy as sa

from lightgate.errors import UsageError
from lightgate.ledger.failed import LedgerFailed
from lightgate.ledger.store.schema import meta, metadata, without_null
from lightgate.ledger.store.store import CREATED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lightgate.ledger.store.store import Ledger

AT_ONCE: Final = 5000  # rows in one transaction
_CHECK_BYTES: Final = 8  # of a checksum
_FROM: Final = "copied from"  # in the target's `meta` while the copy is not complete


class CopiedTable(msgspec.Struct, frozen=True):
    """One table of both ledgers: how many rows it has, and a checksum over all of them."""

    name: str
    rows: int
    checksum: str


def copy_ledger(
    source: Ledger, target: Ledger, tell: Callable[[str, int], object] = lambda _name, _rows: None
) -> list[CopiedTable]:
    """Copy every table, then read both ledgers; LedgerFailed where they differ."""
    _claim(source, target)
    tables = [table for table in metadata.sorted_tables if table is not meta]
    for table in tables:
        for arrived in _copy(source, target, table):
            tell(table.name, arrived)
    compared = [(_summed(source, table), _summed(target, table)) for table in tables]
    if all(mine == theirs for mine, theirs in compared):
        _copy_meta(source, target)  # the copy is complete only now
        compared.append((_summed(source, meta), _summed(target, meta)))
    wrong = [mine.name for mine, theirs in compared if mine != theirs]
    if wrong:
        raise LedgerFailed(
            f"The copy differs from its source in {', '.join(wrong)}.",
            hint="Stop the gateway that writes to it, empty the target, and copy again.",
        )
    return [mine for mine, _ in compared]


def _claim(source: Ledger, target: Ledger) -> None:
    """Refuse a target with rows that are not of this copy; mark an empty one."""
    with source.reading() as connection:
        began = _word(connection, CREATED)
    with target.writing() as connection:
        of = _word(connection, _FROM)
        if of is None:
            for table in metadata.sorted_tables:
                if table is not meta and connection.execute(table.select().limit(1)).first():
                    raise UsageError(
                        f"The target has rows already, in {table.name}.",
                        hint="Name a database that is empty or has none of the tables.",
                    )
            connection.execute(meta.insert().values(name=_FROM, value=began or ""))
        elif of != (began or ""):
            raise UsageError(
                "The target has a part of another ledger's copy.",
                hint="Name a database that is empty or has none of the tables.",
            )


def _word(connection: sa.Connection, name: str) -> str | None:
    found = connection.execute(sa.select(meta.c.value).where(meta.c.name == name))
    word: str | None = found.scalar()
    return word


def _copy(source: Ledger, target: Ledger, table: sa.Table) -> Iterator[int]:
    """Copy the rows behind the last one that is there; gives how many have arrived."""
    identity = tuple(table.primary_key.columns)
    with target.reading() as connection:
        back = [column.desc() for column in identity]
        found = connection.execute(sa.select(*identity).order_by(*back).limit(1)).first()
        last = None if found is None else tuple(found)
    arrived = 0
    while True:
        query = table.select().order_by(*identity).limit(AT_ONCE)
        if last is not None:
            query = query.where(sa.tuple_(*identity) > last)
        with source.reading() as connection:
            rows = connection.execute(query).all()
        if not rows:
            return
        with target.appending() as connection:
            _insert(target, connection, table, rows)
        at = [table.columns.keys().index(column.name) for column in identity]
        last = tuple(rows[-1][place] for place in at)
        arrived += len(rows)
        yield arrived


def _insert(target: Ledger, connection: sa.Connection, table: sa.Table, rows: Any) -> None:
    if any(isinstance(column.type, sa.JSON) for column in table.columns):
        connection.execute(table.insert(), [dict(row._mapping) for row in rows])  # noqa: SLF001 - public
    else:
        target.insert(connection, table, [tuple(map(without_null, row)) for row in rows])


def _copy_meta(source: Ledger, target: Ledger) -> None:
    """Copy what the ledger says of itself; with that the copy is complete."""
    with source.reading() as connection:
        rows = [tuple(row) for row in connection.execute(meta.select())]
    with target.writing() as connection:
        connection.execute(meta.delete())
        target.insert(connection, meta, rows)


def _summed(ledger: Ledger, table: sa.Table) -> CopiedTable:
    """Count the rows of a table, and add up a checksum of each: their order is no part of it."""
    total, rows = 0, 0
    with ledger.reading() as connection:
        query = table.select()
        for row in connection.execution_options(yield_per=AT_ONCE).execute(query):
            digest = hashlib.sha256(repr(tuple(map(_plain, row))).encode())
            total += int.from_bytes(digest.digest()[:_CHECK_BYTES])
            rows += 1
    return CopiedTable(table.name, rows, f"{total % 256**_CHECK_BYTES:0{2 * _CHECK_BYTES}x}")


def _plain(value: Any) -> Any:
    """A value as every database gives it: dollars without zeros at their end, no null character."""
    return format(value.normalize(), "f") if isinstance(value, Decimal) else without_null(value)
