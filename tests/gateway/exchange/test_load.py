"""A worker that has too much to do says so at once, and blames no provider."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from lightgate.gateway.exchange.load import (
    BEAT_S,
    BEATS,
    BEHIND_NS,
    LAG_BOUNDS_NS,
    SAY_NS,
    STOOD_NS,
    Load,
)
from lightgate.gateway.request.refusal import Refusing
from lightgate.gateway.served.served import Served
from lightgate.gateway.served.snapshot import LoadTerms
from lightgate.ledger.store.keys import KeyTerms

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start

MS = 1_000_000


def beaten(*lags_ms: int) -> Load:
    load = Load(lambda: 0)
    for lag in lags_ms:
        load.beat(lag * MS)
    return load


@pytest.mark.parametrize(
    ("lags", "behind"),
    [
        ((500,), False),  # a peak
        ((500, 500, 500), False),
        ((500, 500, 500, 500), True),
        ((500, 500, 20, 500, 500), False),
        ((120,) * BEATS, True),
        ((500,) * BEATS + (80,), True),  # not caught up yet
        ((500,) * BEATS + (40,), False),
    ],
)
def test_only_a_lag_that_stands_counts(lags: tuple[int, ...], behind: bool) -> None:
    assert beaten(*lags).behind is behind


def test_a_worker_that_is_behind_refuses() -> None:
    load = beaten(*(BEHIND_NS // MS + 1,) * BEATS)
    with pytest.raises(Refusing) as refused:
        load.check(0, None)
    assert (refused.value.refusal.status, refused.value.refusal.code) == (503, "overloaded")
    assert sum(load.shed.values()) == 1


def refusal(load: Load, under_way: int = 0, key: Any = None) -> str:
    try:
        load.check(under_way, key)
    except Refusing as refusing:
        return f"{refusing.refusal.status} {refusing.refusal.code}"
    return ""


def test_limits_on_requests_and_on_those_of_a_key() -> None:
    load, mine, other = Load(lambda: 0), SimpleNamespace(id="a"), SimpleNamespace(id="b")
    key: Any = mine
    picky = [load.picky]
    load.use(LoadTerms(requests=2))
    picky.append(load.picky)
    assert [bool(refusal(load, count)) for count in (0, 1, 2, 3)] == [False, False, True, True]
    assert load.shed == {"lag": 0, "requests": 2, "key_requests": 0}
    load.use(LoadTerms(requests_per_key=2))
    picky.append(load.picky)
    assert refusal(load, 99) == ""
    load.began(key)
    load.began(None)
    assert refusal(load, 1, key) == ""
    load.began(key)
    assert refusal(load, 2, key).startswith("429")
    assert refusal(load, 2, other) == refusal(load, 2) == ""
    assert load.shed == {"lag": 0, "requests": 2, "key_requests": 1}
    assert load.keys == {"a": 2}
    for left in ({"a": 1}, {}, {}):
        load.ended(key)
        load.ended(None)
        assert load.keys == left
    load.use(LoadTerms())
    assert [*picky, load.picky] == [False, True, True, False]


def test_lags_are_counted_and_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = [5 * STOOD_NS]
    load = Load(lambda: now[0])
    for lag_ns in (-1, MS, MS + 1, 5000 * MS, 5000 * MS + 1):
        load.beat(lag_ns)
    assert (load.lags[0], load.lags[1], load.lags[-2], load.lags[-1]) == (2, 1, 1, 1)
    assert (sum(load.lags), len(load.lags)) == (5, len(LAG_BOUNDS_NS) + 1)
    assert (load.lag_ns, load.lag_total_ns) == (5000 * MS + 1, 10_002 * MS + 2)
    assert load.stood_since(now[0] - 1)
    assert not load.stood_since(now[0])
    told = 0
    for passed_ns in (0, SAY_NS - 1, 1):
        now[0] += passed_ns
        load.beat(0)
        for _ in range(BEATS):
            assert not load.behind
            load.beat(200 * MS)
        told += passed_ns != SAY_NS - 1
        assert (load.behind, load.picky) == (True, True)
        said = ["The worker is 200 ms behind; new requests get 503"] * told
        assert caplog.messages == said
    load.beat(50 * MS - 1)
    assert (load.behind, load.picky) == (False, False)


async def test_the_lag_is_what_a_beat_came_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    load = Load(lambda: now[0])
    asked: list[float] = []

    async def sleep(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) == 3:
            raise asyncio.CancelledError
        now[0] += int(seconds * 1e9) + 7 * len(asked)

    monkeypatch.setattr("lightgate.gateway.exchange.load.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await load.watch()
    monkeypatch.undo()
    assert asked == [BEAT_S] * 3
    assert (load.lag_ns, load.lag_total_ns) == (14, 21)


HANGING = '[models.hanging]\ntargets = ["lab/plain!hang"]\ntimeout = "5s"\n'


async def under_way(rig: Rig, count: int, **more: Any) -> list[asyncio.Future[Any]]:
    """Requests to a target that says nothing, all of them under way."""
    asked: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(rig.chat("hanging", **more)) for _ in range(count)
    ]
    await rig.until(lambda: len(rig.state.exchanges) == count)
    return asked


async def test_a_limit_on_requests_under_way(start: Start) -> None:
    rig = await start(HANGING + "[gateway.limits]\nrequests = 2\n")
    asked = await under_way(rig, 2)
    refused = await rig.chat()
    assert refused.status == 503
    assert refused.json["error"]["code"] == "overloaded"
    assert refused.headers["retry-after"] == "1"
    assert [(await one).status for one in asked] == [504, 504]
    assert (await rig.chat()).status == 200


async def test_a_limit_for_each_key(start: Start) -> None:
    terms = {"one": KeyTerms(name="one"), "two": KeyTerms(name="two")}
    rig = await start(HANGING + "[gateway.limits]\nrequests_per_key = 1\n", terms=terms)
    one, two = ({"authorization": f"Bearer {rig.keys[name]}"} for name in terms)
    asked = await under_way(rig, 1, headers=one)
    refused = await rig.chat(headers=one)
    assert (refused.status, refused.json["error"]["code"]) == (429, "concurrency")
    assert (await rig.chat(headers=two)).status == 200
    assert (await asked[0]).status == 504
    assert (await rig.chat(headers=one)).status == 200
    assert rig.state.load.keys == {}


async def test_a_deadline_that_passes_while_the_worker_stands_blames_nobody(start: Start) -> None:
    rig = await start(HANGING)
    for stands, status in ((False, 504), (True, 503)):
        (asked,) = await under_way(rig, 1)
        if stands:
            rig.state.load.beat(STOOD_NS + 1)
        answer = await asked
        assert answer.status == status
    assert answer.json["error"]["code"] == "overloaded"


async def test_another_snapshot_brings_its_limits(start: Start) -> None:
    rig = await start()
    state, snapshot = rig.state, rig.state.served.snapshot
    assert (state.load.requests, state.load.per_key) == (0, 0)
    terms = replace(snapshot.terms, limits=LoadTerms(requests=7, requests_per_key=3))
    state.move(Served(replace(snapshot, terms=terms), {}))
    assert (state.load.requests, state.load.per_key) == (7, 3)


def test_what_finds_no_room_is_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = [0]
    load = Load(lambda: now[0])
    load.tell({"connections": 0, "bodies": 0})
    assert caplog.messages == []
    load.use(LoadTerms(requests=1))
    assert refusal(load, 1)
    load.tell({"connections": 7, "bodies": 0})
    said = ["Turned away for want of room, by limit: requests 1, connections 7"]
    assert caplog.messages == said
    now[0] = SAY_NS - 1
    load.tell({"connections": 9, "bodies": 0})
    assert caplog.messages == said
    now[0] = SAY_NS
    load.tell({"connections": 9, "bodies": 1})
    assert caplog.messages == [*said, said[0].split(":")[0] + ": connections 2, bodies 1"]
    now[0] = 2 * SAY_NS
    load.tell({"connections": 9, "bodies": 1})
    assert len(caplog.messages) == 2
