"""The leader among consoles of one PostgreSQL ledger, with a server that is made here."""

from __future__ import annotations

from typing import Any, cast

import psycopg
import pytest

from lightgate.clock.source import ManualClock
from lightgate.ledger.database.leader import ASK_NS, LOCK, Leader

TRY = f"SELECT pg_try_advisory_lock({LOCK})".encode()


class Server:
    """A database that gives the lock or not, and its sessions, which note what they are asked."""

    def __init__(self) -> None:
        self.free = True
        self.away = False
        self.sessions: list[Session] = []

    def connect(self) -> Session:
        if self.away:
            raise psycopg.OperationalError
        self.sessions.append(Session(self))
        return self.sessions[-1]


class Session:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.autocommit = False
        self.closed = False
        self.asked: list[bytes] = []

    def execute(self, query: bytes) -> Session:
        if self._server.away:
            raise psycopg.OperationalError
        self.asked.append(query)
        return self

    def fetchone(self) -> tuple[bool] | None:
        return (True,) if self.asked[-1] == b"SELECT true" else (self._server.free,)

    def close(self) -> None:
        self.closed = True
        if self._server.away:
            raise psycopg.OperationalError


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def leader(server: Server, clock: ManualClock) -> Leader:
    return Leader(cast("Any", server), clock)


def test_a_console_that_gets_the_lock_leads_and_only_shows_that_it_lives(
    leader: Leader, server: Server, clock: ManualClock
) -> None:
    assert leader.leads()
    clock.advance(ASK_NS)
    assert leader.leads()
    (session,) = server.sessions
    assert session.asked == [b"SET idle_session_timeout = 60000", TRY, b"SELECT true"]
    assert session.autocommit


def test_the_server_is_asked_once_in_a_while(
    leader: Leader, server: Server, clock: ManualClock
) -> None:
    server.free = False
    assert not leader.leads()
    server.free = True
    clock.advance(ASK_NS - 1)
    assert not leader.leads()
    clock.advance(1)
    assert leader.leads()
    assert server.sessions[0].asked[1:] == [TRY, TRY]


def test_a_console_whose_session_has_ended_asks_for_the_lock_again(
    leader: Leader, server: Server, clock: ManualClock
) -> None:
    assert leader.leads()
    server.sessions[0].closed = True
    server.free = False  # another has it by now
    clock.advance(ASK_NS)
    assert not leader.leads()
    assert server.sessions[1].asked[1:] == [TRY]


def test_a_server_that_is_away_has_no_leader(
    leader: Leader, server: Server, clock: ManualClock
) -> None:
    assert leader.leads()
    server.away = True
    clock.advance(ASK_NS)
    assert not leader.leads()
    assert server.sessions[0].closed
    clock.advance(ASK_NS)
    assert not leader.leads()  # it cannot be connected to either
    server.away = False
    clock.advance(ASK_NS)
    assert leader.leads()


def test_a_leader_that_stands_down_gives_its_session_back(leader: Leader, server: Server) -> None:
    assert leader.leads()
    leader.close()
    assert not leader.leads()
    assert server.sessions[0].closed
    leader.close()
