"""Providers that ask us to wait, names that are not found, and all of them down at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.faulted import NOWHERE, SHORT, Field, Names, model
from lightgate.route.health.failure import SERVER
from lightgate.wire.client.client import Client
from lightgate.wire.client.dns import Resolver

if TYPE_CHECKING:
    from gateway.conftest import Start


@pytest.mark.parametrize(
    ("fault", "least_s", "most_s"),
    [
        ("rate-limited:20", 19, 20),
        ("rate-limited:9999", 299, 300),
        ("rate-limited-date:30", 27, 30),  # a date has whole seconds
        ("rate-limited-ms:1500", 0.4, 1.5),
        ("rate-limited-epoch:30", 27, 31),
        ("rate-limited-silent:20", 0.01, 1),  # named in prose only: our own, growing hold
    ],
)
async def test_a_wait_holds_the_target_back(
    start: Start, fault: str, least_s: float, most_s: float
) -> None:
    target = f"lab/plain!{fault}"
    field = await Field.open(start, model("m", [target, "lab/plain"]))
    first = await field.fly("m")
    assert first.answer.headers["x-lightgate-target"] == "lab/plain"
    state = field.rig.state
    breaker = state.learned.breakers.get(target)
    assert breaker is not None
    left_s = (breaker.hold_until_ns - state.now_ns()) / 1e9
    assert least_s <= left_s <= most_s
    second = await field.fly("m")  # goes to the other one at once
    assert second.answer.headers["x-lightgate-attempts"] == "1"
    assert second.settled.exchange.winner == "lab/plain"


@pytest.mark.parametrize("fault", ["rate-limited-date:-300", "rate-limited:0"])
async def test_a_wait_that_is_over_holds_nobody(start: Start, fault: str) -> None:
    target = f"lab/plain!{fault}"
    field = await Field.open(start, model("m", [target, "lab/plain"]))
    await field.fly("m")
    assert field.rig.state.learned.breakers.allows(target, field.rig.state.now_ns())


@pytest.mark.parametrize("stream", [True, False])
async def test_a_lone_target_passes_its_wait_on(start: Start, stream: bool) -> None:
    field = await Field.open(start, model("m", ["lab/plain!rate-limited:20"]))
    answer, settled, _ = await field.fly("m", stream=stream)
    assert answer.status == 429
    assert answer.json["error"]["code"] == "rate_limit_exceeded"  # the provider's own word
    assert 18 <= int(answer.headers["retry-after"]) <= 20
    assert settled.exchange.outcome == "rate_limited"


async def test_all_down_says_when_to_come_back_and_storms_nobody(start: Start) -> None:
    targets = ["lab/plain!status:500", "lab/plain!status:503"]
    field = await Field.open(start, model("m", targets))
    rig = field.rig
    answers = [await rig.chat("m", headers=field.headers) for _ in range(100)]
    await field.at_peace()
    assert {answer.status for answer in answers} <= {502, 503}
    refused = [a for a in answers if a.json["error"]["code"] == "all_targets_down"]
    assert refused
    for answer in refused:
        assert answer.status == 503
        assert 1 <= int(answer.headers["retry-after"]) <= 300
        assert answer.headers["x-should-retry"] == "false"
        assert all(target in answer.json["error"]["message"] for target in targets)
    # Three in a row open each breaker; from then on second tries and probes share the budget:
    # 30 at once and a fifth of the requests.
    assert len(rig.sim.log) <= 6 + 30 + 20 + len(targets)


async def test_all_down_comes_back(start: Start) -> None:
    """A breaker that is open lets a probe through, and one good answer closes it."""
    field = await Field.open(start, model("m", ["lab/plain"]))
    state = field.rig.state
    breaker = state.learned.breakers
    now = state.now_ns()
    for _ in range(3):
        breaker.failed("lab/plain", now, SERVER, None, now)
    assert not breaker.allows("lab/plain", state.now_ns())
    answer, settled, _ = await field.fly("m")  # all are held: the budget allows a try
    assert answer.status == 200
    assert settled.exchange.outcome == "ok"
    assert breaker.allows("lab/plain", state.now_ns())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("wait_s", "outcome"), [(0, "reset"), (60, "timeout")])
@pytest.mark.parametrize("others", [[], ["lab/plain"]])
async def test_a_name_that_is_not_found(
    start: Start, stream: bool, wait_s: float, outcome: str, others: list[str]
) -> None:
    """F2; a slow resolver is a slow target."""
    models = NOWHERE + model("m", ["nowhere/plain", *others], ttft=SHORT)
    field = await Field.open(start, models)
    await field.rig.state.client.close()
    names = Names(wait_s)
    field.rig.state.client = Client(watch_lag=False, resolver=Resolver(names))
    answer, settled, _ = await field.fly("m", stream=stream)
    assert names.asked == 1
    assert settled.attempts[0].outcome == outcome
    assert settled.attempts[0].send is None
    assert settled.attempts[0].facts.cost_nano is None  # nothing left us, nothing is paid
    if others:
        assert answer.status == 200
        assert settled.exchange.winner == "lab/plain"
    else:
        assert answer.status == (502 if outcome == "reset" else 504)
        assert settled.exchange.outcome == outcome
