"""SQLite files that several processes open at once: the ledger and the history of runs.

SQLite itself is loaded with the first file: most workers of a gateway never open one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3

FILE: Final = "ledger.sqlite"  # in the data folder
BUSY_S: Final = 5.0  # how long one writer waits for another


def use_wal(base: sqlite3.Connection) -> None:
    """Switch a database to WAL mode with synchronous NORMAL, waiting for whoever holds the file.

    What was committed then survives the death of a process, and readers never wait for the writer.
    SQLite waits for a lock (its connection's `timeout`) in every statement but the one that changes
    the journal mode of a new file: of two openers, the later one is told "database is locked" at
    once. The wait is therefore a transaction of its own, which SQLite does wait for; each round
    means that another opener is done, so the rounds end.
    """
    import sqlite3

    while True:
        try:
            base.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            base.execute("BEGIN IMMEDIATE")
            base.execute("ROLLBACK")
        else:
            break
    base.execute("PRAGMA synchronous = NORMAL")


def has_no_room(error: BaseException | None) -> bool:
    """Whether an error says that the disk takes nothing more, or answers with an error itself.

    To read a database in WAL mode a first connection makes a file beside it, which takes room.
    """
    import sqlite3

    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}


def use_alone(base: sqlite3.Connection) -> None:
    """Read a database that no other connection has open, without a file beside it.

    What lies in its WAL is read too: its index is in memory then.
    """
    base.execute("PRAGMA locking_mode = EXCLUSIVE")
    base.execute("PRAGMA query_only = ON")


def is_damaged(error: BaseException | None) -> bool:
    """Whether an error says that the file is no sound database."""
    import sqlite3

    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_busy(error: BaseException | None) -> bool:
    """Whether an error says that another connection holds the file; later it will do."""
    import sqlite3

    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
