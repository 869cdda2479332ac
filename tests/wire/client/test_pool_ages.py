"""Idle connections by their exact age: which are used again, which are dropped, which are watched.

The client's clock is put in the place of the real one; the connections only pretend.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.errors import PeerReset
from lightgate.wire.client import client as client_module
from lightgate.wire.client.client import KEEP_IDLE_NS, Client
from lightgate.wire.client.pool import CLOSES, KEPT_NS, SOON_NS, Pool
from lightgate.wire.client.proxy import Proxies
from lightgate.wire.origin import Origin

HERE = Origin("http", "api.test", 80)
NOW = 500 * 1_000_000_000


class Played:
    """A connection that was idle for so long."""

    def __init__(self, age_ns: int, *, ended: bool = False, **facts: Any) -> None:
        self.idle_since = NOW - age_ns
        self.origin = HERE
        self.link = SimpleNamespace(is_open=facts.pop("is_open", True), abort=self._abort)
        self.response = SimpleNamespace(chunked=facts.get("chunked", False))
        self.looks = 0
        self.aborted = self.gone = False
        self.answered = self.pooled = True
        self.chunked = False
        self._ended = ended
        for name, value in facts.items():
            setattr(self, name, value)

    def _abort(self) -> None:
        self.aborted = True

    def look(self, wait: int) -> list[int]:
        assert wait == 0
        self.looks += 1
        return [1] if self._ended else []

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(client_module, "time", SimpleNamespace(monotonic_ns=lambda: NOW))
    made = Client(proxies=Proxies())
    yield made
    await made.close()


def pool_of(client: Client, *idle: Any) -> Pool:
    pool = client._pools[HERE] = Pool(None)
    pool.idle.extend(idle)
    pool.open = len(idle)
    return pool


async def test_a_connection_is_used_again_until_its_age(client: Client) -> None:
    young, old = Played(KEEP_IDLE_NS - 1), Played(KEEP_IDLE_NS)
    pool = pool_of(client, young, old)  # the newest is at the end, whatever its age says
    found: Any = client._reuse(pool)
    assert found is young
    assert (old.aborted, old.gone, young.aborted, pool.open) == (True, True, False, 1)
    assert client._reuse(pool) is None


async def test_only_a_young_connection_is_looked_at(client: Client) -> None:
    """An end that came a while ago the loop has told."""
    for age_ns, looks in ((SOON_NS + 1, 0), (SOON_NS, 1)):
        one = Played(age_ns)
        found: Any = client._reuse(pool_of(client, one))
        assert (found is one, one.looks) == (True, looks)


async def test_an_end_that_a_look_finds_is_counted_if_it_came_soon(client: Client) -> None:
    for age_ns, counted in ((SOON_NS - 1, 1), (SOON_NS, 0)):
        ended = Played(age_ns, ended=True)
        pool = pool_of(client, ended)
        assert client._reuse(pool) is None
        assert (pool.shut, ended.aborted, pool.open) == ([counted, 0], True, 0)
    closed = Played(1, is_open=False)
    pool = pool_of(client, closed)
    assert client._reuse(pool) is None
    assert (pool.shut, closed.looks, pool.open) == ([0, 0], 0, 0)


async def test_those_beyond_their_age_are_dropped_with_each_that_comes_back(client: Client) -> None:
    over, just = Played(KEEP_IDLE_NS + 1), Played(KEEP_IDLE_NS)
    pool = pool_of(client, over, just)
    back: Any = Played(7)
    pool.open += 1
    client._release(back)
    assert (list(pool.idle), over.aborted, just.aborted, pool.open) == (
        [just, back],
        True,
        False,
        2,
    )
    assert (back.idle_since, back.pooled) == (NOW, True)


async def test_an_answer_on_a_kept_connection_ends_the_count_of_its_kind(client: Client) -> None:
    for pooled, before, after in ((True, 1, 0), (False, 1, 1), (True, CLOSES, 0)):
        pool = pool_of(client)
        pool.shut = [before, 1]
        back: Any = Played(7, pooled=pooled)
        client._release(back)
        assert (pool.shut, list(pool.idle)) == ([after, 1], [back])


@pytest.mark.parametrize("kind", [False, True])
async def test_one_connection_of_an_origin_that_closes_is_watched(
    client: Client, kind: bool
) -> None:
    pool = pool_of(client)
    pool.shut = [CLOSES, CLOSES]
    first: Any = Played(0, chunked=kind, pooled=False)
    client._release(first)
    assert (pool.watched, list(pool.idle)) == (first, [])
    first.idle_since = NOW - KEPT_NS + 1
    second: Any = Played(0, chunked=kind, pooled=False)
    client._release(second)
    assert (pool.watched, second.aborted, list(pool.idle)) == (first, True, [])
    first.idle_since = NOW - KEPT_NS  # it stayed open
    third: Any = Played(0, chunked=kind, pooled=False)
    client._release(third)
    assert (pool.watched, list(pool.idle), third.aborted) == (None, [first, third], False)
    assert (pool.shut[kind], pool.shut[not kind]) == (0, CLOSES)


async def test_a_connection_of_the_other_kind_is_watched_next(client: Client) -> None:
    pool = pool_of(client)
    pool.shut = [CLOSES, CLOSES]
    whole: Any = Played(0, chunked=False, pooled=False)
    stream: Any = Played(0, chunked=True, pooled=False)
    client._release(whole)
    whole.idle_since = NOW - KEPT_NS
    client._release(stream)
    assert (pool.watched, list(pool.idle), pool.shut) == (stream, [whole], [0, CLOSES])


@pytest.mark.parametrize(
    ("limit", "opened", "idle", "promised", "watched", "room", "may", "full"),
    [
        (None, 99, 0, 9, False, True, 5, False),
        (3, 3, 0, 0, False, False, 0, True),
        (3, 3, 1, 0, False, True, 0, True),
        (3, 3, 1, 1, False, False, 0, True),
        (3, 3, 0, 0, True, True, 0, True),
        (3, 2, 0, 0, False, True, 1, False),
        (3, 2, 0, 1, False, False, 0, False),
        (3, 0, 0, 1, False, True, 2, False),
        (9, 0, 0, 0, False, True, 5, False),
    ],
)
def test_the_room_of_a_pool(
    limit: int | None, opened: int, idle: int, promised: int, watched: bool, room: bool,
    may: int, full: bool,
) -> None:  # fmt: skip
    pool = Pool(limit)
    held: Any = Played(0)
    pool.open, pool.promised = opened, promised
    pool.idle.extend([held] * idle)
    pool.watched = held if watched else None
    assert (pool.has_room(), pool.may_open(5), pool.is_full()) == (room, may, full)


def test_the_watched_connection_makes_room_before_the_oldest_idle_one() -> None:
    pool = Pool(2)
    oldest: Any = Played(3)
    newest: Any = Played(2)
    watched: Any = Played(1)
    pool.idle.extend([oldest, newest])
    pool.watched = watched
    assert [pool.spared() for _ in range(3)] == [watched, oldest, newest]
    assert pool.watched is None


async def test_a_connection_that_comes_back_to_a_closed_client_is_closed(client: Client) -> None:
    back: Any = Played(7)
    client._release(back)
    assert (back.aborted, client._pools) == (True, {})


@pytest.mark.parametrize("shut", [[0, 0], [CLOSES, CLOSES]], ids=["kept", "watched"])
async def test_a_connection_that_comes_back_is_promised_to_who_waits(
    client: Client, shut: list[int]
) -> None:
    pool = client._pools[HERE] = Pool(1)
    pool.open, pool.shut = 1, shut
    waiter = asyncio.get_running_loop().create_future()
    pool.waiting.append(waiter)
    back: Any = Played(7, pooled=False)
    client._release(back)
    assert (waiter.done(), pool.promised, len(pool.waiting)) == (True, 1, 0)


async def test_a_pool_is_made_once_for_an_origin(client: Client) -> None:
    assert client._pool(HERE) is client._pool(HERE)
    assert client._pool(HERE) is not client._pool(Origin("http", "api.test", 81))


async def test_only_an_end_of_a_kept_connection_soon_after_an_answer_is_counted(
    client: Client,
) -> None:
    for facts, counted in (
        ({}, 1),
        ({"pooled": False}, 0),
        ({"gone": True}, 0),
        ({"answered": False}, 0),
    ):
        ended: Any = Played(SOON_NS - 1, **facts)
        pool = pool_of(client, ended)
        client._gone(ended)
        assert pool.shut == [counted, 0]


@pytest.mark.parametrize(
    ("sent_ns", "idle_ns", "counted"),
    [(NOW - 10, SOON_NS + 5, 1), (0, SOON_NS + 5, 0), (0, SOON_NS - 1, 1), (NOW, SOON_NS, 0)],
)
async def test_a_reset_counts_by_the_time_between_the_answer_and_the_next_request(
    client: Client, monkeypatch: pytest.MonkeyPatch, sent_ns: int, idle_ns: int, counted: int
) -> None:
    again: list[Any] = []
    monkeypatch.setattr(client, "_connect", lambda trip, *, fresh: again.append((trip, fresh)))
    one: Any = Played(idle_ns, trip=None)
    pool = pool_of(client)
    pool.open = 1
    error = PeerReset("gone")
    error.early = True
    request = SimpleNamespace(once=False, marks=SimpleNamespace(resent=False))
    trip: Any = SimpleNamespace(
        connection=one, keep_alive=True, request=request, sent_ns=sent_ns, over=True
    )
    client.ended(trip, error)
    assert pool.shut == [counted, 0]
    assert again == [(trip, True)]
    assert (request.marks.resent, trip.over, one.aborted) == (True, False, True)


@pytest.mark.parametrize("error", [None, PeerReset("late")], ids=["an answer", "an error"])
async def test_a_roundtrip_that_is_over_lets_go_of_its_request(
    client: Client, error: PeerReset | None
) -> None:
    """Its taker holds the roundtrip: either would keep the other in memory."""
    told: list[Any] = []
    one: Any = Played(0, trip=None)
    pool_of(client)
    request = SimpleNamespace(once=True, over=told.append)
    trip: Any = SimpleNamespace(connection=one, keep_alive=True, request=request, sent_ns=1)
    client.ended(trip, error)
    assert told == [error]
    assert not hasattr(trip, "request")
    assert one.aborted is (error is not None)
