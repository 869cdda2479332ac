"""SQLite under the ledger: a file with one writer at a time."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from lightgate.ledger.failed import (
    LedgerBusy,
    LedgerConflict,
    LedgerDamaged,
    LedgerFailed,
    LedgerNoRoom,
)
from lightgate.ledger.sqlite import has_no_room, is_busy, is_damaged, use_alone, use_wal
from lightgate.ledger.store.schema import Money, money_text

if TYPE_CHECKING:
    from collections.abc import Sequence

# Without these, Python 3.11 looks in vain for adapters of every null and bool: three times as long.
# An empty dict's `get` makes None of None and, unlike a function of ours, costs no Python call.
sqlite3.register_adapter(type(None), {}.get)  # type: ignore[arg-type]
sqlite3.register_adapter(bool, int)
_WRITES: Final = "lightgate_writes"  # execution option of a connection that will write


class LiteDatabase:
    """A SQLite file; `path` is None for one in memory.

    `alone`: it is only read, without another process, and nothing is written for that.
    """

    name: Final = "sqlite"
    errors: Final = (sa.exc.SQLAlchemyError,)

    def __init__(self, url: sa.URL, busy_s: float, *, alone: bool = False) -> None:
        self.path = Path(url.database) if url.database else None
        try:
            if self.path is not None:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not alone:
                    _make_closed(self.path)
        except OSError as error:
            raise LedgerFailed(f"The ledger cannot be opened: {error.strerror}.") from None
        self.engine = sa.create_engine(url, connect_args={"timeout": busy_s})
        sa.event.listen(self.engine, "connect", _on_connect_alone if alone else _on_connect)
        sa.event.listen(self.engine, "begin", _on_begin)

    def to_read(self, connection: sa.Connection) -> sa.Connection:
        """Make a connection's next transaction one that reads."""
        return connection

    def to_write(self, connection: sa.Connection) -> sa.Connection:
        """Make a connection's next transaction one that has the write lock from its start."""
        return connection.execution_options(**{_WRITES: True})

    def lock(self, connection: sa.Connection) -> None:
        """Wait until no other transaction writes: SQLite has done so when this one began."""

    def hurry(self, connection: sa.Connection) -> None:
        """Let a commit return early: with synchronous NORMAL it does."""

    def check(self, connection: sa.Connection) -> None:
        """Refuse a database that a ledger cannot be in; every SQLite file will do."""

    def check_rights(self, connection: sa.Connection) -> None:
        """Refuse a role without rights; SQLite has no roles."""

    def insert(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[tuple[Any, ...]]
    ) -> None:
        """Insert rows that have a value for every column, in the table's order.

        Rows go straight to the driver, without the nulls at their ends: sqlite3 takes eight times
        as long for a null as for a number.
        """
        columns = tuple(table.columns)
        money = [at for at, column in enumerate(columns) if isinstance(column.type, Money)]
        by_size: dict[int, list[tuple[Any, ...]]] = {}
        for row in rows:
            size = len(row)
            while row[size - 1] is None:
                size -= 1
            by_size.setdefault(size, []).append(row[:size])
        for size, some in by_size.items():
            quoted = ", ".join(f'"{column.name}"' for column in columns[:size])
            connection.exec_driver_sql(
                f"INSERT INTO {table.name} ({quoted}) VALUES ({', '.join('?' * size)})",  # noqa: S608 - own names
                [_with_text(row, money) for row in some] if money else some,
            )

    def failed(self, error: BaseException, doing: str) -> LedgerFailed:
        """Say in one sentence what went wrong."""
        if isinstance(error, sa.exc.IntegrityError):
            return LedgerConflict(f"The ledger cannot be {doing}: {error.orig}.")
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        sentence = f"The ledger cannot be {doing}: {cause}."
        if is_busy(cause):
            return LedgerBusy(sentence, hint="Another process holds it.")
        if is_damaged(cause):
            return LedgerDamaged(sentence, hint="Its file is damaged.")
        if has_no_room(cause):
            return LedgerNoRoom(f"The ledger cannot be {doing}, the disk may be full: {cause}.")
        return LedgerFailed(sentence)


def _make_closed(path: Path) -> None:
    """Make a file that is not there yet, for its owner only: SQLite would go by the umask.

    What cannot be made is told by SQLite. A file that is there is not opened: closing it would
    let go of the locks that this process has on it.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _on_connect_alone(base: sqlite3.Connection, record: object) -> None:
    del record
    base.isolation_level = None
    use_alone(base)


def _on_connect(base: sqlite3.Connection, record: object) -> None:
    del record
    base.isolation_level = (
        None  # we begin transactions ourselves: of one kind to read, one to write
    )
    base.execute("PRAGMA page_size = 8192")  # of a new file: rows here have about 500 bytes
    use_wal(base)
    # 16 MiB: pages that every batch changes are copied into the file less often.
    base.execute("PRAGMA wal_autocheckpoint = 4000")


def _on_begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _with_text(row: tuple[Any, ...], money: list[int]) -> tuple[Any, ...]:
    changed = list(row)
    for at in money:
        if at < len(row) and changed[at] is not None:
            changed[at] = money_text(changed[at])
    return tuple(changed)
