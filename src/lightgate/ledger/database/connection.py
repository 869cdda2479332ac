"""Connections to a PostgreSQL server: the URL as libpq reads it, and settings of each session.

Settings are statements, not options of the connection: poolers refuse options that they do not
know. A session must be one session of the server: locks of the ledger belong to it.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import _WaitTimeout

from lightgate.errors import ConfigError

CONNECT_S: Final = 5  # to make a connection
IDLE_S: Final = 60  # after which the server ends a transaction in which nothing is asked
LATER_S: Final = 5  # the server ends a statement so much later than its client stops waiting
_PID: Final = b"SELECT pg_backend_pid()"


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

    @property
    def pooled(self) -> bool:
        """Return whether something between here and the server gives its sessions to clients."""
        row = self.execute(_PID).fetchone()
        return row is not None and row[0] != self.info.backend_pid


class PostgresAddress:
    """The server that a URL names, with the settings of the sessions there."""

    def __init__(self, uri: str, busy_s: float, patience_s: float | None) -> None:
        known = _parts(uri)
        known.setdefault("connect_timeout", CONNECT_S)
        known.setdefault("application_name", "lightgate")
        self._conninfo = make_conninfo("", **known)
        self._patience_s = patience_s
        longest_s = 0 if patience_s is None else patience_s + LATER_S
        settings = {
            "lock_timeout": int(busy_s * 1000),
            "statement_timeout": int(longest_s * 1000),
            "idle_in_transaction_session_timeout": IDLE_S * 1000,
            "timezone": "'UTC'",
            "client_encoding": "'UTF8'",
            # A writer waits for the lock and then sees what was committed meanwhile.
            "default_transaction_isolation": "'read committed'",
        }
        self._settings = "; ".join(f"SET {name} = {value}" for name, value in settings.items())
        self._stays = False  # whether sessions are known to stay
        self.where = _where(known)
        self.user = str(known.get("user") or "")

    def connect(self) -> LedgerConnection:
        """Make a connection."""
        made = LedgerConnection.connect(self._conninfo, autocommit=True)
        try:
            _check_encoding(made.info.parameter_status("server_encoding"))
            made.patience_s = self._patience_s
            made.execute(self._settings.encode())
            made.autocommit = False
        except BaseException:
            made.close()
            raise
        return made

    def check_session(self, connection: LedgerConnection) -> None:
        """Refuse a pooler that gives a session to another client after each transaction."""
        if self._stays:
            return
        if connection.pooled and self._changes_sessions():
            raise ConfigError(
                f"The pooler at {self.where} gives each transaction another session;"
                " the ledger's locks need one that stays.",
                hint="Name the server itself, or a pool with pool_mode = session.",
            )
        self._stays = True

    def _changes_sessions(self) -> bool:
        """Have two clients begin in turn, and look whether one gets the other's session.

        Poolers give the session that was used last, or the one that was used first.
        """
        with contextlib.closing(self.connect()) as one, contextlib.closing(self.connect()) as other:
            for first, second in ((one, other), (other, one)):
                before = _session(one), _session(other)
                one.commit()
                other.commit()
                after = {first: _session(first), second: _session(second)}
                one.commit()
                other.commit()
                if before != (after[one], after[other]):
                    return True
        return False


def _check_encoding(encoding: str | None) -> None:
    """Refuse a database whose text is in another encoding, before any text is read from it."""
    if encoding != "UTF8":
        raise ConfigError(
            f"The ledger's database has the encoding {encoding}; it needs UTF8.",
            hint="CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )


def _session(connection: LedgerConnection) -> int:
    """The server's process behind a connection, which stays until the transaction ends."""
    row = connection.execute(_PID).fetchone()
    return int(row[0]) if row else 0


def _parts(uri: str) -> dict[str, Any]:
    """The parts of a URL; what is wrong with it may be a part of the password, and is not shown."""
    known: dict[str, Any] = {}
    with contextlib.suppress(psycopg.ProgrammingError):
        known = conninfo_to_dict(uri)
    if any("@" in str(known.get(name) or "") for name in ("host", "dbname")):
        raise ConfigError(
            "[ledger] url has a user or a password with a character that ends it.",
            hint="Write @ as %40, / as %2F, : as %3A, ? as %3F and % as %25.",
        )
    ports = str(known.get("port") or "").split(",")
    if not known or any(port and not port.isdecimal() for port in ports):
        raise ConfigError(
            "[ledger] url is no URL of PostgreSQL.",
            hint="postgresql://USER:PASSWORD@HOST:5432/DATABASE?sslmode=require",
        )
    return known


def _where(known: dict[str, Any]) -> str:
    """The server that a URL names, or its servers, as a sentence says it."""
    hosts = str(known.get("host") or "localhost").split(",")
    ports = str(known.get("port") or "").split(",")
    ports += ports[:1] * (len(hosts) - len(ports))  # one port is that of all
    return ", ".join(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=True))
