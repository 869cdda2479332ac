"""The ledger, open: one database with one writer at a time, brought up to date when it is opened.

All that is SQLite's own is in this module and in `ledger.sqlite`.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import sqlalchemy as sa

from lightgate.clock.attempt import wall_time
from lightgate.clock.source import SYSTEM
from lightgate.errors import ConfigError, LightgateError
from lightgate.ledger.migrations import HEAD
from lightgate.ledger.sqlite import BUSY_S, FILE, is_busy, use_wal
from lightgate.ledger.store.file_watch import FileWatch
from lightgate.ledger.store.schema import Money, meta, money_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from types import TracebackType

CREATED: Final = "created"  # in `meta`: when this ledger began, RFC 3339
_WRITES: Final = "lightgate_writes"  # execution option of a connection that will write
_PLAIN_SQLITE: Final = "sqlite"


class LedgerFailed(LightgateError):  # noqa: N818 - names the event
    """The ledger could not be read or written; what was in it stays."""

    label = "ledger"


class LedgerBusy(LedgerFailed):
    """Another process held the ledger for longer than we wait; later it will do."""


class LedgerConflict(LedgerFailed):
    """A row with this key is there already; nothing of the transaction was kept."""


class Ledger:
    """The database, open; use it as a context manager."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._watch: FileWatch | None = None
        if engine.dialect.name == "sqlite" and engine.url.database:
            self._watch = FileWatch(Path(engine.url.database))

    @classmethod
    def open(
        cls,
        url: str | Path = _PLAIN_SQLITE,
        data_folder: Path | None = None,
        *,
        busy_s: float = BUSY_S,
    ) -> Self:
        """Open the ledger and bring its tables up to date.

        `url` is a database URL, the path of a SQLite file, or "sqlite": the one in `data_folder`.
        """
        ledger = cls(_engine(_url(url, data_folder), busy_s))
        try:
            ledger._upgrade()
        except BaseException:
            ledger.close()
            raise
        if ledger._watch is not None:
            ledger._watch.note()
        return ledger

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
        return self._watch is not None and self._watch.moved()

    def leave_moved(self) -> None:
        """Let go of a file that has moved, and of what lies beside its place."""
        self.close()
        if self._watch is not None:
            self._watch.clear()

    def reopen(self) -> None:
        """Use the file that is there now, made where there is none."""
        self._upgrade()
        if self._watch is not None:
            self._watch.note()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """One consistent view of the ledger."""
        try:
            with self._engine.connect() as connection, connection.begin():
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise _failed(error, "read") from None

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """One transaction that has the write lock from its start, so it never has to be redone."""
        try:
            with self._engine.connect() as connection:
                marked = connection.execution_options(**{_WRITES: True})
                with marked.begin():
                    yield marked
        except sa.exc.SQLAlchemyError as error:
            raise _failed(error, "written") from None

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
            names = [column.name for column in columns[:size]]
            if not self._engine.dialect.positional:
                named = [dict(zip(names, row, strict=True)) for row in some]
                connection.execute(table.insert(), named)
                continue
            quoted = ", ".join(f'"{name}"' for name in names)
            connection.exec_driver_sql(
                f"INSERT INTO {table.name} ({quoted}) VALUES ({', '.join('?' * size)})",  # noqa: S608 - own names
                [_with_text(row, money) for row in some] if money else some,
            )

    def _upgrade(self) -> None:
        """Run the migrations that are missing; two openers do it one after the other."""
        revision = self._revision()
        if revision == HEAD:
            return
        if revision is not None and revision > HEAD:
            raise ConfigError(
                f"The ledger was written by a newer Lightgate (its tables are at {revision}).",
                hint="Upgrade, or name another data folder.",
            )
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", "lightgate.ledger:migrations")
        with self.writing() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            if revision is None:
                self._remember_start(connection)

    def _remember_start(self, connection: sa.Connection) -> None:
        known = connection.execute(meta.select().where(meta.c.name == CREATED)).first()
        if known is None:  # else another opener was faster
            started = wall_time(SYSTEM.wall_ns())
            connection.execute(meta.insert().values(name=CREATED, value=started))

    def _revision(self) -> str | None:
        with self.reading() as connection:
            if not sa.inspect(connection).has_table("alembic_version"):
                return None
            found = connection.execute(sa.text("SELECT version_num FROM alembic_version"))
            return found.scalar()


def _url(url: str | Path, data_folder: Path | None) -> sa.URL:
    if isinstance(url, Path):
        return _file_url(url)
    if url == _PLAIN_SQLITE:
        if data_folder is None:
            raise ConfigError('A ledger at "sqlite" needs a data folder.')
        return _file_url(data_folder / FILE)
    try:
        return sa.make_url(url)
    except sa.exc.ArgumentError:
        # The URL may hold a password: it is not shown.
        raise ConfigError(
            "[ledger] url is no database URL.", hint='Use "sqlite" or "postgresql://…".'
        ) from None


def _file_url(path: Path) -> sa.URL:
    return sa.URL.create("sqlite", database=str(path))


def _engine(url: sa.URL, busy_s: float) -> sa.Engine:
    lite = url.get_backend_name() == "sqlite"
    try:
        if lite and url.database:
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(url, connect_args={"timeout": busy_s} if lite else {})
    except OSError as error:
        raise LedgerFailed(f"The ledger cannot be opened: {error.strerror}.") from None
    except (ImportError, sa.exc.NoSuchModuleError):
        raise ConfigError(
            f"No driver for a {url.get_backend_name()} ledger is installed.",
            hint='Use [ledger] url = "sqlite".',
        ) from None
    if lite:
        sa.event.listen(engine, "connect", _on_connect)
        sa.event.listen(engine, "begin", _on_begin)
    return engine


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


def _failed(error: sa.exc.SQLAlchemyError, doing: str) -> LedgerFailed:
    if isinstance(error, sa.exc.IntegrityError):
        return LedgerConflict(f"The ledger cannot be {doing}: {error.orig}.")
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    sentence = f"The ledger cannot be {doing}: {cause}."
    if is_busy(cause):
        return LedgerBusy(sentence, hint="Another process holds it.")
    return LedgerFailed(sentence)


def _with_text(row: tuple[Any, ...], money: list[int]) -> tuple[Any, ...]:
    changed = list(row)
    for at in money:
        if at < len(row) and changed[at] is not None:
            changed[at] = money_text(changed[at])
    return tuple(changed)
