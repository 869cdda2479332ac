"""Connections to a PostgreSQL server that is not there: what is asked of it, and for how long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import _WaitTimeout

from lightgate.errors import ConfigError
from lightgate.ledger.database.connection import LedgerConnection, PostgresAddress, _session

HOST = "postgresql://me:secret@db.internal/x"


class Session:
    """A session that keeps what it is asked."""

    def __init__(self, trouble: BaseException | None = None) -> None:
        self.autocommit = True
        self.patience_s: float | None = None
        self.asked: list[bytes] = []
        self.closed = False
        self.info = SimpleNamespace(parameter_status=lambda _: "UTF8")
        self._trouble = trouble

    def execute(self, query: bytes) -> None:
        self.asked.append(query)
        if self._trouble is not None:
            raise self._trouble

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The facts that connections are made with."""
    facts: list[dict[str, Any]] = []

    def connect(conninfo: str, **more: Any) -> Session:
        facts.append({**conninfo_to_dict(conninfo), **more})
        return Session()

    monkeypatch.setattr(LedgerConnection, "connect", connect)
    return facts


def test_a_connection_has_a_name_and_five_seconds_to_be_made(made: list[dict[str, Any]]) -> None:
    session: Any = PostgresAddress(HOST, 1.5, 2.0).connect()
    assert made == [
        {
            "user": "me", "password": "secret", "host": "db.internal", "dbname": "x",
            "connect_timeout": "5", "application_name": "lightgate", "autocommit": True,
        }
    ]  # fmt: skip
    assert (session.autocommit, session.patience_s, session.closed) == (False, 2.0, False)
    assert session.asked == [
        (
            b"SET lock_timeout = 1500; SET statement_timeout = 7000;"
            b" SET idle_in_transaction_session_timeout = 60000; SET timezone = 'UTC';"
            b" SET client_encoding = 'UTF8';"
            b" SET default_transaction_isolation = 'read committed'"
        )
    ]


def test_what_a_url_says_itself_stays(made: list[dict[str, Any]]) -> None:
    session: Any = PostgresAddress(
        f"{HOST}?connect_timeout=9&application_name=y", 1, None
    ).connect()
    assert (made[0]["connect_timeout"], made[0]["application_name"]) == ("9", "y")
    assert session.patience_s is None
    assert b"SET statement_timeout = 0;" in session.asked[0]


@pytest.mark.parametrize("trouble", [psycopg.OperationalError("no"), KeyboardInterrupt()])
def test_a_connection_whose_settings_fail_is_closed(
    trouble: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(trouble)
    monkeypatch.setattr(LedgerConnection, "connect", lambda *_, **__: session)
    with pytest.raises(type(trouble)):
        PostgresAddress(HOST, 1.0, 2.0).connect()
    assert session.closed


@pytest.mark.parametrize(
    ("url", "where", "user"),
    [
        ("postgresql:///x", "localhost:5432", ""),
        (HOST, "db.internal:5432", "me"),
        ("postgresql://u@a:1,b:2/x", "a:1, b:2", "u"),
        ("postgresql://a,b/x?port=7", "a:7, b:7", ""),
        ("postgresql://a,b:7/x", "a:5432, b:7", ""),
    ],
)
def test_the_servers_of_a_url_are_shown_without_secrets(url: str, where: str, user: str) -> None:
    address = PostgresAddress(url, 1.0, 2.0)
    assert (address.where, address.user) == (where, user)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:p@ss@host/x", "with a character that ends it"),
        ("postgresql://u:p/a@host/x", "with a character that ends it"),
        ("postgresql://u:secret@host:port/x", "is no URL of PostgreSQL"),
        ("nothing at all", "is no URL of PostgreSQL"),
        ("", "is no URL of PostgreSQL"),
    ],
)
def test_a_wrong_url_is_refused_and_not_shown(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PostgresAddress(url, 1.0, 2.0)
    assert said in refused.value.message
    assert "secret" not in f"{refused.value.message}{refused.value.hint}"


# Answers that do not come


class Waiting(LedgerConnection):
    """A connection without a server."""

    row: tuple[int] | None = (7,)
    info = SimpleNamespace(backend_pid=7)  # type: ignore[assignment]

    def __init__(self) -> None:  # nothing is opened
        self.ended = 0

    def __del__(self, *_: Any) -> None:
        """Nothing is open."""

    def close(self) -> None:
        self.ended += 1

    def execute(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(fetchone=lambda: self.row)


def test_an_answer_is_waited_for_as_long_as_patience_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[tuple[float, float | None]] = []

    def wait(_self: Any, gen: str, interval: float, timeout: float | None) -> str:
        waited.append((interval, timeout))
        return gen

    monkeypatch.setattr(psycopg.Connection, "wait", wait)
    connection = Waiting()
    assert connection.wait("answer") == "answer"
    connection.patience_s = 3.0
    connection.wait("answer")
    connection.wait("answer", 0.5, 1.0)
    assert waited == [(0.1, None), (0.1, 3.0), (0.5, 1.0)]
    assert connection.ended == 0


def test_a_connection_without_an_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: Any) -> None:
        raise _WaitTimeout

    monkeypatch.setattr(psycopg.Connection, "wait", wait)
    connection = Waiting()
    connection.patience_s = 2.5
    with pytest.raises(psycopg.OperationalError, match=r"no answer within 2\.5 seconds"):
        connection.wait("answer")
    assert connection.ended == 1


def test_a_session_that_is_not_the_one_of_the_connection_is_a_poolers() -> None:
    connection = Waiting()
    assert (connection.pooled, _session(connection)) == (False, 7)
    connection.row = (8,)
    assert (connection.pooled, _session(connection)) == (True, 8)
    connection.row = None
    assert (connection.pooled, _session(connection)) == (False, 0)
