"""PostgreSQL under the ledger: connections that never wait for ever, COPY, and plain sentences.

Writers of rows that belong to one journal run side by side; what several of them change (sums,
keys, tables) is changed under one advisory lock. A server that is frozen keeps its sockets open and
says nothing: every wait for it has an end, after which the connection is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import _WaitTimeout

from lightgate.errors import ConfigError
from lightgate.ledger.database.partitions import DAY_NS, PARTITIONED, DayPartitions
from lightgate.ledger.failed import LedgerAway, LedgerBusy, LedgerConflict, LedgerFailed
from lightgate.ledger.store.schema import Money

if TYPE_CHECKING:
    from collections.abc import Sequence

OLDEST: Final = 140000  # the server that is asked for, as it counts its versions
CONNECT_S: Final = 5  # to make a connection
PATIENCE_S: Final = 60.0  # the longest that one statement may take
IDLE_S: Final = 60  # after which the server ends a transaction in which nothing is asked
WRITERS: Final = 0x6C67_7772  # the advisory lock of all who change what others change too
_BUSY: Final = frozenset({"55P03", "40P01", "40001", "57014"})  # locks, deadlocks, time-outs
_CONFLICT: Final = frozenset({"23505", "23514"})  # a row that is there; a day that is not
_NO_TABLES: Final = frozenset({"42P01", "42703", "3F000", "42P07", "42701", "42710"})
_NO_RIGHT: Final = "42501"
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


class LedgerConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits for its server for `patience_s` at most, then is closed."""

    patience_s: float | None = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Run one step of the protocol."""
        try:
            return super().wait(gen, interval, timeout or self.patience_s)
        except _WaitTimeout:
            self.close()
            raise psycopg.OperationalError(
                f"no answer within {self.patience_s:g} seconds"
            ) from None


class PostgresDatabase:
    """A PostgreSQL database; nothing is connected before it is needed."""

    name: Final = "postgresql"
    errors: Final = (sa.exc.SQLAlchemyError, psycopg.Error)
    path: Final = None

    def __init__(self, url: sa.URL, busy_s: float, patience_s: float | None = PATIENCE_S) -> None:
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        try:
            known = conninfo_to_dict(plain)
        except psycopg.ProgrammingError:
            # What is wrong with it may be a part of the password: it is not shown.
            raise ConfigError(
                "[ledger] url is no URL of PostgreSQL.",
                hint="postgresql://USER:PASSWORD@HOST:5432/DATABASE?sslmode=require",
            ) from None
        settings = f"-c lock_timeout={int(busy_s * 1000)} -c timezone=UTC"
        settings += f" -c idle_in_transaction_session_timeout={IDLE_S * 1000}"
        known.setdefault("connect_timeout", CONNECT_S)
        known.setdefault("application_name", "lightgate")
        known["options"] = f"{known.get('options') or ''} {settings}".strip()
        self._conninfo = make_conninfo("", **known)
        self.where = f"{known.get('host') or 'localhost'}:{known.get('port') or 5432}"
        self._user = str(known.get("user") or "")
        self._patience_s = patience_s
        self._cleans = False  # whether null characters are looked for
        self._copies: dict[str, tuple[str, list[str]]] = {}
        self.engine = sa.create_engine(
            "postgresql+psycopg://", creator=self.connect, pool_pre_ping=True, pool_size=4,
            max_overflow=12,
        )  # fmt: skip
        self.partitions = DayPartitions(self.engine)

    def connect(self) -> LedgerConnection:
        """Make a connection."""
        made = LedgerConnection.connect(self._conninfo)
        made.patience_s = self._patience_s
        return made

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
        encoding = info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise ConfigError(
                f"The ledger's database has the encoding {encoding}; it needs UTF8.",
                hint="CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
            )
        if info.parameter_status("in_hot_standby") == "on":
            raise ConfigError(
                f"The server at {self.where} is a standby, which takes no rows.",
                hint="Name the primary, or add target_session_attrs=read-write to the URL.",
            )

    def be_patient(self, connection: sa.Connection) -> None:
        """Let the statements of this connection take as long as they do, until it is closed."""
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
            rows = [tuple(map(_without_null, row)) for row in rows]
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
        if state == _NO_RIGHT:
            return LedgerFailed(
                f"The ledger cannot be {doing}: its role{self._role()} lacks a right: {said}.",
                hint="Let the role own the database: ALTER DATABASE … OWNER TO …",
            )
        if state in _NO_TABLES:
            return LedgerFailed(
                f"The tables of the ledger are not as its steps left them: {said}.",
                hint="Restore the database, or name an empty one.",
            )
        if state == _NO_TEXT:
            self._cleans = True  # from the next time on
        if isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
            return LedgerAway(f"The ledger's PostgreSQL at {self.where} is away: {said}.")
        return LedgerFailed(sentence)

    def _role(self) -> str:
        return f" {self._user}" if self._user else ""


_LOCK: Final = sa.select(sa.func.pg_advisory_xact_lock(WRITERS))
_HURRY: Final = sa.text("SET LOCAL synchronous_commit = off")


def _driver(connection: sa.Connection) -> LedgerConnection:
    """The driver's own connection."""
    found = connection.connection.driver_connection
    if not isinstance(found, LedgerConnection):
        raise LedgerAway("The ledger's connection is closed.")
    return found


def _without_null(value: Any) -> Any:
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


def _one_line(error: BaseException | None) -> str:
    """The first line of what the driver or the server says, without their preambles."""
    line = str(error).strip().partition("\n")[0]
    for before in ("failed: ", "FATAL:  ", "ERROR:  "):
        line = line.rpartition(before)[2]
    return line.rstrip(".") or type(error).__name__
