"""The ledger, open: one database, brought up to date when it is opened.

What is SQLite's or PostgreSQL's own is in `ledger.database`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

import sqlalchemy as sa

from lightgate.clock.attempt import wall_time
from lightgate.clock.source import SYSTEM
from lightgate.errors import ConfigError
from lightgate.ledger.database.file_check import HEAD_BYTES, damage_of, misshapen
from lightgate.ledger.database.lite import LiteDatabase
from lightgate.ledger.database.place import PLAIN_SQLITE, database_url, postgres_uri
from lightgate.ledger.failed import LedgerConflict, LedgerDamaged, LedgerFailed, LedgerNewer
from lightgate.ledger.migrations import HEAD
from lightgate.ledger.sqlite import BUSY_S
from lightgate.ledger.store.file_watch import FileWatch
from lightgate.ledger.store.schema import meta, metadata, views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from lightgate.ledger.database.postgres import PostgresDatabase

CREATED: Final = "created"  # in `meta`: when this ledger began, RFC 3339


class Ledger:
    """The database, open; use it as a context manager.

    `postgres` is the PostgreSQL that the ledger is in, None where it is a SQLite file.
    """

    def __init__(self, database: LiteDatabase | PostgresDatabase) -> None:
        self._database = database
        self._engine = database.engine
        self._current = False  # whether the tables are known to be up to date
        self._watch = None if database.path is None else FileWatch(database.path)
        self.damage = ""  # what is known to be damaged in its file
        self.postgres = None if isinstance(database, LiteDatabase) else database

    @classmethod
    def open(
        cls,
        url: str | Path = PLAIN_SQLITE,
        data_folder: Path | None = None,
        *,
        busy_s: float = BUSY_S,
        patience_s: float | None = None,
    ) -> Self:
        """Open the ledger and bring its tables up to date.

        `url` is a database URL, the path of a SQLite file, or "sqlite": the one in `data_folder`.
        `patience_s` is how long one statement of a server may take.
        """
        return cls.later(url, data_folder, busy_s=busy_s, patience_s=patience_s).opened()

    @classmethod
    def later(
        cls,
        url: str | Path = PLAIN_SQLITE,
        data_folder: Path | None = None,
        *,
        busy_s: float = BUSY_S,
        patience_s: float | None = None,
    ) -> Self:
        """Make a ledger that is opened when it is used: its server may be away, its disk full."""
        return cls(_database(url, data_folder, busy_s, patience_s))

    @classmethod
    def alone(cls, url: str | Path, data_folder: Path | None = None) -> Self:
        """Open a SQLite ledger to read it where the disk has no room to open it as usual.

        Others wait until it is closed. One whose tables are not up to date cannot be read so.
        """
        return cls(LiteDatabase(database_url(url, data_folder), BUSY_S, alone=True)).opened()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def moved(self) -> bool:
        """Whether the ledger's file was deleted or replaced since it was opened."""
        return self._watch is not None and self._current and self._watch.moved()

    def leave_moved(self) -> None:
        """Let go of a file that has moved, and of what lies beside its place."""
        self.close()
        if self._watch is not None:
            self._watch.clear()

    def look_at_file(self) -> None:
        """Look at the head and the length of a SQLite ledger's file, and read it if they are odd.

        A file whose pages are all in its write-ahead log is sound however it looks.
        """
        path, watch = self._database.path, self._watch
        if path is None or watch is None or not self._current or self.damage:
            return
        found = watch.head(HEAD_BYTES)
        if found is not None and misshapen(*found):
            self.damage = damage_of(path, lambda: False)

    def check_file(self, stopped: Callable[[], bool]) -> None:
        """Read all of a SQLite ledger's file, and note in `damage` what is wrong with it."""
        path = self._database.path
        if path is not None and self._current and not self.damage:
            self.damage = damage_of(path, stopped)

    def put_aside(self, stamp: str) -> Path | None:
        """Close a damaged file and give it another name, which is told; `reopen` makes another."""
        self.close()
        self.damage = ""
        aside = None if self._watch is None else self._watch.put_aside(stamp)
        self.close()  # a connection that a reader has opened since is one to the damaged file
        return aside

    def reopen(self) -> None:
        """Use the file that is there now, made where there is none."""
        self._current = False
        self.bring_up_to_date()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One consistent view of the ledger."""
        self.bring_up_to_date()
        with self._reading() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One transaction that has the write lock from its start, so it never has to be redone."""
        with self.appending() as connection:
            self.lock(connection)
            yield connection

    @contextmanager
    def appending(self) -> Iterator[sa.Connection]:
        """One transaction that adds rows of its own beside those of others.

        Call `lock` before anything is changed that others change too.
        """
        self.bring_up_to_date()
        with self._writing() as connection:
            yield connection

    def lock(self, connection: sa.Connection) -> None:
        """Wait until no other process changes sums, keys or tables; until the transaction ends."""
        self._database.lock(connection)

    def hurry(self, connection: sa.Connection) -> None:
        """Let the commit of this transaction return early: a crash may take it back, whole."""
        self._database.hurry(connection)

    def insert(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[tuple[Any, ...]]
    ) -> None:
        """Insert rows that have a value for every column, in the table's order."""
        self._database.insert(connection, table, rows)

    def drop_days(self, table: sa.Table, before_ns: int) -> int | None:
        """Drop the days of a table that ended before an instant; how many rows they had.

        None where the table has no days of its own: its rows are deleted then.
        """
        if self.postgres is None:
            return None
        self.bring_up_to_date()
        try:
            return self.postgres.partitions.drop(table.name, before_ns)
        except self._database.errors as error:
            raise self._failed(error, "written") from None

    def days(self, table: sa.Table) -> list[int] | None:
        """The days of a table, oldest first, counted from 1970; None where it has none apart."""
        if self.postgres is None:
            return None
        self.bring_up_to_date()
        try:
            return [day for day, _ in self.postgres.partitions.days(table.name)]
        except self._database.errors as error:
            raise self._failed(error, "read") from None

    def bring_up_to_date(self) -> None:
        """Run the migrations that are missing; two openers do it one after the other."""
        if self._current:
            return
        revision = self._revision()
        _refuse_newer(revision)
        if revision != HEAD:
            self._upgrade(revision)
        self._current = True
        if self._watch is not None:
            self._watch.note()

    def examined(self) -> str:
        """Look at the database without changing it; a sentence about its tables.

        What keeps a ledger from being in it is raised, as when it is opened.
        """
        revision = self._revision()
        _refuse_newer(revision)
        with self._reading() as connection:
            self._database.check_rights(connection)
        if revision is None:
            self._refuse_strange()
            return "It has no tables yet: the first process that opens it makes them."
        if revision != HEAD:
            return f"Its tables are at step {revision}: the next start brings them to {HEAD}."
        with self._reading() as connection:
            for table in (*metadata.sorted_tables, *views.sorted_tables):
                connection.execute(sa.select(table).limit(0))
        return "Its tables are up to date."

    def _refuse_strange(self) -> None:
        """Refuse tables that have the names of a ledger's and were made by no step of its."""
        with self._reading() as connection:
            found = sa.inspect(connection)
            there = {*found.get_table_names(), *found.get_view_names()}
        strange = sorted(there & {*metadata.tables, *views.tables})
        if strange:
            raise LedgerFailed(
                f"The database has a table {strange[0]} that no step of the ledger has made.",
                hint="Restore the database, or name an empty one.",
            )

    def opened(self) -> Self:
        """Bring the tables up to date, or close what is open and raise."""
        try:
            self.bring_up_to_date()
        except BaseException:
            self.close()
            raise
        return self

    def _upgrade(self, revision: str | None) -> None:
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", "lightgate.ledger:migrations")
        with self._writing() as connection:
            if self.postgres is not None:
                self.postgres.be_patient(connection)
            self.lock(connection)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            if revision is None:
                self._remember_start(connection)
        if self.postgres is not None:
            self.close()  # the connection that was patient

    def _remember_start(self, connection: sa.Connection) -> None:
        known = connection.execute(meta.select().where(meta.c.name == CREATED)).first()
        if known is None:  # else another opener was faster
            started = wall_time(SYSTEM.wall_ns())
            connection.execute(meta.insert().values(name=CREATED, value=started))

    def _revision(self) -> str | None:
        with self._reading() as connection:
            self._database.check(connection)
            if not sa.inspect(connection).has_table("alembic_version"):
                return None
            found = connection.execute(sa.text("SELECT version_num FROM alembic_version"))
            return found.scalar()

    def _reading(self) -> AbstractContextManager[sa.Connection]:
        return self._transaction(self._database.to_read, "read")

    def _writing(self) -> AbstractContextManager[sa.Connection]:
        return self._transaction(self._database.to_write, "written")

    @contextmanager
    def _transaction(
        self, prepare: Callable[[sa.Connection], sa.Connection], doing: str
    ) -> Iterator[sa.Connection]:
        try:
            with self._engine.connect() as connection:
                prepared = prepare(connection)
                with prepared.begin():
                    yield prepared
        except self._database.errors as error:
            raise self._failed(error, doing) from None

    def _failed(self, error: BaseException, doing: str) -> Exception:
        failure = self._database.failed(error, doing)
        if isinstance(failure, LedgerDamaged):
            self.damage = failure.message
        if self.postgres is not None and not isinstance(failure, LedgerConflict):
            self._current = False  # its tables may have gone with it
        return failure


def _refuse_newer(revision: str | None) -> None:
    if revision is not None and revision > HEAD:
        raise LedgerNewer(
            f"The ledger was written by a newer Lightgate (its tables are at {revision}).",
            hint="Upgrade, or name another data folder.",
        )


def _database(
    url: str | Path, data_folder: Path | None, busy_s: float, patience_s: float | None
) -> LiteDatabase | PostgresDatabase:
    uri = postgres_uri(url)
    if uri is not None:
        try:
            from lightgate.ledger.database.postgres import PATIENCE_S, PostgresDatabase
        except ImportError:
            raise ConfigError(
                "No driver for a PostgreSQL ledger is installed.",
                hint="pip install 'lightgate[postgres]'",
            ) from None
        return PostgresDatabase(uri, busy_s, patience_s or PATIENCE_S)
    found = database_url(url, data_folder)
    kind = found.get_backend_name()
    if kind == "sqlite":
        return LiteDatabase(found, busy_s)
    raise ConfigError(f"No driver for a {kind} ledger is installed.", hint=_KINDS)


_KINDS: Final = 'Use "sqlite" or "postgresql://…".'
