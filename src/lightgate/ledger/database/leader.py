"""The leader among control processes that share a PostgreSQL ledger: one of them cleans up.

Whoever holds an advisory lock leads. The server frees the lock when the leader's session ends: with
its process, with its connection, or when the leader has not been heard of for a while.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import psycopg

from lightgate.clock.source import SYSTEM

if TYPE_CHECKING:
    from lightgate.clock.source import Clock
    from lightgate.ledger.database.connection import LedgerConnection
    from lightgate.ledger.database.postgres import PostgresDatabase

LOCK: Final = 0x6C67_6C65  # advisory
ASK_NS: Final = 15_000_000_000  # between two looks
SILENT_S: Final = 60  # after which the server ends the session of a leader that is frozen


class Leader:
    """One candidate; used by one thread."""

    def __init__(self, database: PostgresDatabase, clock: Clock = SYSTEM) -> None:
        self._database = database
        self._clock = clock
        self._base: LedgerConnection | None = None
        self._leads = False
        self._asked_ns: int | None = None

    def leads(self) -> bool:
        """Whether this process leads now; the server is asked now and then."""
        now_ns = self._clock.now_ns()
        if self._asked_ns is None or now_ns - self._asked_ns >= ASK_NS:
            self._asked_ns = now_ns
            try:
                self._leads = self._ask()
            except (psycopg.Error, OSError):
                self.close()
        return self._leads

    def close(self) -> None:
        """Stand down."""
        self._leads = False
        base, self._base = self._base, None
        if base is not None:
            with contextlib.suppress(psycopg.Error):
                base.close()

    def _ask(self) -> bool:
        if self._base is None or self._base.closed:
            self._leads = False
            self._base = self._database.connect()
            self._base.autocommit = True
            self._base.execute(f"SET idle_session_timeout = {SILENT_S * 1000}".encode())
        wanted = b"SELECT true" if self._leads else f"SELECT pg_try_advisory_lock({LOCK})".encode()
        row = self._base.execute(wanted).fetchone()
        return bool(row and row[0])
