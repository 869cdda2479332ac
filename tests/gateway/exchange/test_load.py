"""A worker that has too much to do says so at once, and blames no provider."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.gateway.exchange.load import BEATS, BEHIND_NS, STOOD_NS, Load
from lightgate.gateway.request.refusal import Refusing
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
