"""PostgreSQL under the ledger: connections that never wait for ever, COPY, and plain sentences.

Writers of rows that belong to one journal run side by side; what several of them change (sums,
keys, tables) is changed under one advisory lock. A server that is frozen keeps its sockets open and
says nothing: every wait for it has an end, after which the connection is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
import sqlalchemy as sa

from lightgate.errors import ConfigError
from lightgate.ledger.database.connection import LedgerConnection, PostgresAddress
from lightgate.ledger.database.partitions import DAY_NS, PARTITIONED, DayPartitions
from lightgate.ledger.failed import LedgerAway, LedgerBusy, LedgerConflict, LedgerFailed
from lightgate.ledger.store.schema import PARTIAL, Money, metadata, without_null

if TYPE_CHECKING:
    from collections.abc import Sequence

OLDEST: Final = 140000  # the server that is asked for, as it counts its versions
PATIENCE_S: Final = 60.0  # the longest that one statement may take
WRITERS: Final = 0x6C67_7772  # the advisory lock of all who change what others change too
_BUSY: Final = frozenset({"55P03", "40P01", "40001", "57014"})  # locks, deadlocks, time-outs
_CONFLICT: Final = frozenset({"23505", "23514"})  # a row that is there; a day that is not
_NO_TABLES: Final = frozenset({"42P01", "42703", "42P07", "42701", "42710"})
_NO_RIGHT: Final = "42501"
_NO_SCHEMA: Final = "3F000"
_NO_ROOM: Final = "53100"  # on the server's disk
_NO_TEXT: Final = "22021"  # a null character, which no text of PostgreSQL has
_TYPES: Final = (
    (Money, "numeric"),
    (sa.Text, "text"),
    (sa.Boolean, "bool"),
    (sa.BigInteger, "int8"),
    (sa.Integer, "int4"),
    (sa.Double, "float8"),
    (sa.LargeBinary, "bytea"),
    (sa.JSON, "json"),
)
for _index, _where in PARTIAL:
    _index.dialect_options["postgresql"]["where"] = _where


class PostgresDatabase:
    """A PostgreSQL database; nothing is connected before it is needed."""

    name: Final = "postgresql"
    errors: Final = (sa.exc.SQLAlchemyError, psycopg.Error)
    path: Final = None

    def __init__(self, uri: str, busy_s: float, patience_s: float | None = PATIENCE_S) -> None:
        self._address = PostgresAddress(uri, busy_s, patience_s)
        self.where = self._address.where
        self._cleans = False  # whether null characters are looked for
        self._copies: dict[str, tuple[str, list[str]]] = {}
        self.engine = sa.create_engine(
            "postgresql+psycopg://", creator=self.connect, pool_pre_ping=True, pool_size=4,
            max_overflow=12,
        )  # fmt: skip
        self.partitions = DayPartitions(self.engine)

    def connect(self) -> LedgerConnection:
        """Make a connection."""
        return self._address.connect()

    def to_read(self, connection: sa.Connection) -> sa.Connection:
        """Make a connection's next transaction one that reads."""
        return connection.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

    def to_write(self, connection: sa.Connection) -> sa.Connection:
        """Make a connection's next transaction one that writes and sees what others commit."""
        return connection

    def lock(self, connection: sa.Connection) -> None:
        """Wait until no other transaction changes what many change."""
        connection.execute(_LOCK)

    def hurry(self, connection: sa.Connection) -> None:
        """Let this commit return before it is on disk: a crash takes it back as a whole."""
        connection.execute(_HURRY)

    def check(self, connection: sa.Connection) -> None:
        """Refuse a server that a ledger cannot be on."""
        info = _driver(connection).info
        if info.server_version < OLDEST:
            raise ConfigError(
                f"The ledger needs PostgreSQL {OLDEST // 10_000} or newer;"
                f" the server at {self.where} is version {info.server_version // 10_000}."
            )
        if info.parameter_status("in_hot_standby") == "on":
            raise ConfigError(
                f"The server at {self.where} is a standby, which takes no rows.",
                hint="Name the primary, or add target_session_attrs=read-write to the URL.",
            )
        self._address.check_session(_driver(connection))

    def check_rights(self, connection: sa.Connection) -> None:
        """Refuse a role that may make no tables, or not write or change one that is there.

        Each day of requests is a table, and only an owner of the whole can add or drop one.
        """
        lacks = None if connection.scalar(_MAY_MAKE) else "may make no tables"
        if lacks is None:
            names = [*metadata.tables, "alembic_version"]
            table = connection.scalar(_MAY_NOT, {"names": names})
            lacks = None if table is None else f"does not own the table {table} or may not write it"
        if lacks is not None:
            raise LedgerFailed(
                f"The ledger cannot be written: its role{self._role()} {lacks}.", hint=_OWN
            )

    def be_patient(self, connection: sa.Connection) -> None:
        """Let the statements of this connection take as long as they do, until it is closed."""
        connection.exec_driver_sql("SET statement_timeout = 0")
        _driver(connection).patience_s = None

    def insert(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[tuple[Any, ...]]
    ) -> None:
        """Insert rows that have a value for every column, in the table's order, by COPY."""
        if not rows:
            return
        if table.name in PARTITIONED:
            at = table.columns.keys().index("wall_ns")
            self.partitions.make(table.name, {row[at] // DAY_NS for row in rows})
        statement, types = self._copy(table)
        if self._cleans:
            rows = [tuple(map(without_null, row)) for row in rows]
        with _driver(connection).cursor().copy(statement) as copy:
            copy.set_types(types)
            write = copy.write_row
            for row in rows:
                write(row)

    def _copy(self, table: sa.Table) -> tuple[str, list[str]]:
        """The statement that copies rows of a table in, and the types of its columns."""
        known = self._copies.get(table.name)
        if known is None:
            names = ", ".join(f'"{column.name}"' for column in table.columns)
            kinds = [
                next(word for kind, word in _TYPES if isinstance(column.type, kind))
                for column in table.columns
            ]
            statement = f"COPY {table.name} ({names}) FROM STDIN (FORMAT BINARY)"
            known = self._copies[table.name] = statement, kinds
        return known

    def failed(self, error: BaseException, doing: str) -> LedgerFailed:
        """Say in one sentence what went wrong; the password is in none."""
        self.partitions.forget()
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        state, said = getattr(cause, "sqlstate", None), _one_line(cause)
        sentence = f"The ledger cannot be {doing}: {said}."
        if state in _CONFLICT:
            return LedgerConflict(sentence)
        if state in _BUSY:
            return LedgerBusy(sentence, hint="Another process holds it.")
        refused = self._refused(state, said, doing)
        if refused is not None:
            return refused
        if state == _NO_TEXT:
            self._cleans = True  # from the next time on
        if isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
            away = f"The ledger's PostgreSQL at {self.where} is away: {said}."
            full = f"The disk of the ledger's PostgreSQL at {self.where} is full."
            return LedgerAway(full if state == _NO_ROOM else away)
        return LedgerFailed(sentence)

    def _refused(self, state: str | None, said: str, doing: str) -> LedgerFailed | None:
        """What somebody has to put right in the database; None where it is nothing of that."""
        if state == _NO_RIGHT:
            sentence = (
                f"The ledger cannot be {doing}: its role{self._role()} lacks a right: {said}."
            )
            return LedgerFailed(sentence, hint=_OWN)
        if state == _NO_SCHEMA:
            return LedgerFailed(
                f"The ledger has no schema to be in: the search_path of its role{self._role()}"
                " names none that is there.",
                hint="CREATE SCHEMA …, or ALTER ROLE … SET search_path = public",
            )
        if state in _NO_TABLES:
            return LedgerFailed(
                f"The tables of the ledger are not as its steps left them: {said}.",
                hint="Restore the database, or name an empty one.",
            )
        return None

    def _role(self) -> str:
        return f" {self._address.user}" if self._address.user else ""


_OWN: Final = "Let the role own the database and its tables: ALTER DATABASE … OWNER TO …"
_MAY_MAKE: Final = sa.text("SELECT has_schema_privilege(current_schema(), 'CREATE')")
_MAY_NOT: Final = sa.text(
    "SELECT min(relname) FROM pg_class"
    " WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(:names) AND NOT"
    " (pg_has_role(relowner, 'USAGE') AND has_table_privilege(oid, 'INSERT')"
    " AND has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'UPDATE')"
    " AND has_table_privilege(oid, 'DELETE'))"
)
_LOCK: Final = sa.select(sa.func.pg_advisory_xact_lock(WRITERS))
_HURRY: Final = sa.text("SET LOCAL synchronous_commit = off")


def _driver(connection: sa.Connection) -> LedgerConnection:
    """The driver's own connection."""
    found = connection.connection.driver_connection
    if not isinstance(found, LedgerConnection):
        raise LedgerAway("The ledger's connection is closed.")
    return found


def _one_line(error: BaseException | None) -> str:
    """The first line of what the driver or the server says, without their preambles."""
    line = str(error).strip().partition("\n")[0]
    for before in ("failed: ", "FATAL:  ", "ERROR:  "):
        line = line.rpartition(before)[2]
    return line.rstrip(".") or type(error).__name__
