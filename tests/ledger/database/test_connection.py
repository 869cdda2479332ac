"""Sessions of a PostgreSQL server: their settings, and poolers that give them to other clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest

from lightgate.errors import ConfigError
from lightgate.ledger.database.connection import LedgerConnection, PostgresAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from postgres import PostgresServer

URI = "postgresql://u:secret@pool.internal:6432/x"


class Pool:
    """A pooler, played: it has sessions, and gives one to a client that begins a transaction."""

    def __init__(self, take: Callable[[list[int]], int] | None) -> None:
        self.free = [1, 2, 3]
        self.take = take  # None: a client keeps its session
        self.clients: list[PooledClient] = []

    def connect(self) -> LedgerConnection:
        self.clients.append(PooledClient(self))
        return cast("LedgerConnection", self.clients[-1])


class PooledClient:
    """A connection to that pooler; its number is the pooler's, not the server's."""

    pooled = True

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._session = 0
        self.closed = False

    def execute(self, _query: bytes) -> Any:
        if not self._session:
            free = self._pool.free
            self._session = free.pop(0 if self._pool.take is None else self._pool.take(free))
        return self

    def fetchone(self) -> tuple[int]:
        return (self._session,)

    def commit(self) -> None:
        if self._pool.take is not None:
            self._pool.free.append(self._session)
            self._session = 0

    def close(self) -> None:
        self.closed = True


def address(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> PostgresAddress:
    made = PostgresAddress(URI, 1.0, 2.0)
    monkeypatch.setattr(made, "connect", pool.connect)
    return made


@pytest.mark.parametrize("last", [True, False])
def test_a_pooler_that_changes_sessions_is_refused_whichever_it_gives(
    last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(lambda free: len(free) - 1 if last else 0)
    with pytest.raises(ConfigError) as said:
        address(pool, monkeypatch).check_session(pool.connect())
    assert said.value.message == (
        "The pooler at pool.internal:6432 gives each transaction another session;"
        " the ledger's locks need one that stays."
    )
    assert [client.closed for client in pool.clients] == [False, True, True]


def test_a_pooler_with_sessions_that_stay_is_taken_and_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = Pool(None)
    made = address(pool, monkeypatch)
    made.check_session(pool.connect())
    made.check_session(pool.connect())
    assert [client.closed for client in pool.clients] == [False, True, True, False]


def test_a_server_itself_is_no_pooler(postgres: PostgresServer) -> None:
    with PostgresAddress(postgres.url("postgres"), 1.0, 2.0).connect() as connection:
        assert not connection.pooled


def test_settings_of_a_session_are_ours_whatever_the_role_has(postgres: PostgresServer) -> None:
    names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "timezone")
    asked = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)
    postgres.run("CREATE ROLE hasty LOGIN PASSWORD 'hasty'")
    postgres.run("ALTER ROLE hasty SET statement_timeout = '5s'")
    postgres.run("ALTER ROLE hasty SET timezone = 'Asia/Tokyo'")
    url = postgres.url("postgres", "hasty", "hasty")
    for patience_s, longest in ((2.0, "7s"), (None, "0")):
        with PostgresAddress(url, 1.5, patience_s).connect() as connection:
            row = connection.execute(asked.encode()).fetchone()
        assert row == ("1500ms", longest, "1min", "UTC")
    postgres.run("DROP ROLE hasty")


def test_options_of_a_url_stay(postgres: PostgresServer) -> None:
    url = f"{postgres.url('postgres')}?options=-c%20work_mem%3D5MB&application_name=gate"
    with PostgresAddress(url, 1.0, 2.0).connect() as connection:
        row = connection.execute(
            b"SELECT current_setting('work_mem'), current_setting('application_name')"
        ).fetchone()
    assert row == ("5MB", "gate")


def test_a_session_whose_settings_are_refused_is_closed(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = PostgresAddress(postgres.url("postgres"), 1.0, 2.0)
    monkeypatch.setattr(made, "_settings", "SET nothing_of_ours = 1")
    with pytest.raises(psycopg.Error):
        made.connect()
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lightgate'"
    assert postgres.run(count) == [(0,)]
