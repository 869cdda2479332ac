"""Clients that leave, in every window; providers that do not care; connections that went stale."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from gateway.faulted import NOWHERE, Field, Names, model
from lightgate.route.health.failure import SERVER
from lightgate.wire.client.client import Client
from lightgate.wire.client.dns import Resolver
from sim.conftest import SAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.conftest import Start
    from lightgate.sim.log import SimLogEntry

SOON_S = 1.0  # benchmarks/rescue.py prints the real number, which is a hundredth of it


async def leave(field: Field, fields: dict[str, Any], when: Callable[[], bool]) -> float:
    """Ask, hang up when it is time; the instant of the hang-up in seconds of the loop."""
    rig = field.rig
    line = await rig.line()
    body = {"model": "m", "messages": SAY, "max_tokens": 50} | fields
    line.send("POST", "/v1/chat/completions", json.dumps(body).encode(), field.headers)
    await rig.until(when)
    await line.close()
    return asyncio.get_running_loop().time()


def heard(field: Field, count: int) -> Callable[[], bool]:
    """Whether so many requests have reached the simulator."""

    def said() -> bool:
        providers = field.rig.sim._providers.values()
        return field.rig.upstream >= count and sum(one.in_flight for one in providers) >= count

    return said


def spoken(field: Field) -> Callable[[], bool]:
    return lambda: any(exchange.reply.started for exchange in field.rig.exchanges)


WINDOWS = {
    "before-the-first-token": (["lab/far"], "", True, 1),
    "mid-stream": (["lab/plain!stall:3"], "", True, 1),
    "whole": (["lab/far"], "", False, 1),
    "on-the-fallback": (["lab/plain!status:500", "lab/far"], "", True, 1),
    "in-a-race": (["lab/far", "lab/far!hang"], "race = 2", True, 2),
    "no-race-of-wholes": (["lab/far", "lab/far!hang"], "race = 2", False, 1),
    "after-a-race": (["lab/plain!stall:3", "lab/far"], "race = 2", True, 1),
}


@pytest.mark.parametrize("window", WINDOWS)
async def test_a_client_that_leaves_closes_every_upstream(start: Start, window: str) -> None:
    targets, more, stream, count = WINDOWS[window]
    field = await Field.open(start, model("m", targets, more))
    rig = field.rig
    late = window in {"mid-stream", "after-a-race"}
    left = await leave(field, {"stream": stream}, spoken(field) if late else heard(field, count))

    def gone() -> list[SimLogEntry]:
        return [entry for entry in rig.sim.log.entries if entry.gone]

    open_then = 2 if "race" in window and stream else 1
    await rig.until(lambda: len(gone()) >= open_then, within_s=SOON_S)
    assert all(entry.ended_ns / 1e9 - left < SOON_S for entry in gone() if entry.ended_ns)
    await rig.until(lambda: len(rig.settled()) == 1)
    await field.at_peace()
    [settled] = rig.settled()
    assert settled.exchange.outcome == "cancelled"
    assert settled.exchange.status == (200 if late else 499)
    assert settled.attempts[-1].outcome == "cancelled"
    for target in targets:  # a client that leaves says nothing about a target
        if "status" not in target:
            assert rig.state.learned.breakers.allows(target, rig.state.now_ns())


async def test_a_client_that_leaves_while_we_connect_ends_that_too(start: Start) -> None:
    field = await Field.open(start, NOWHERE + model("m", ["nowhere/plain"]))
    rig = field.rig
    await rig.state.client.close()
    names = Names(60)
    rig.state.client = Client(watch_lag=False, resolver=Resolver(names))
    await leave(field, {"stream": True}, lambda: names.asked == 1)
    await rig.until(lambda: len(rig.settled()) == 1, within_s=SOON_S)
    await field.at_peace()
    [settled] = rig.settled()
    assert settled.exchange.outcome == "cancelled"
    assert settled.attempts[0].facts.cost_nano is None  # nothing had left us


async def test_a_client_that_leaves_during_a_probe_leaves_the_next_one_free(start: Start) -> None:
    """Half open lets one request through; if its client leaves, the next one is the probe."""
    field = await Field.open(start, '[gateway.breaker]\nopen = "1ms"\n' + model("m", ["lab/far"]))
    rig = field.rig
    now = rig.state.now_ns()
    for _ in range(3):
        rig.state.learned.breakers.failed("lab/far", now, SERVER, None, now)
    await rig.until(lambda: rig.state.learned.breakers.allows("lab/far", rig.state.now_ns()))
    await leave(field, {"stream": True}, heard(field, 1))
    await rig.until(lambda: len(rig.settled()) == 1)
    assert rig.state.learned.breakers.allows("lab/far", rig.state.now_ns())


PROMPT_NANO = 28_000  # of the prompt, where the provider did not count it: a quarter of its bytes
GREEDY = """
[providers.greedy]
base_url = "http://127.0.0.1:{port}/lab/v1"
dialect = "openai"
api_key = "none"
abort_stops_billing = false
"""


@pytest.mark.parametrize(
    ("target", "tokens"),
    [("lab/far!ignore-cancel", 0), ("greedy/far!ignore-cancel", 50), ("greedy/plain!stall:3", 50)],
)
async def test_a_client_that_leaves_pays_by_the_providers_policy(
    start: Start, target: str, tokens: int
) -> None:
    """F36: where an abort does not stop the bill, the whole answer is paid."""
    field = await Field.open(start, GREEDY + model("m", [target]))
    when = spoken(field) if "stall" in target else heard(field, 1)
    await leave(field, {"stream": True}, when)
    await field.rig.until(lambda: len(field.rig.settled()) == 1)
    await field.at_peace()
    [settled] = field.rig.settled()
    [reserved] = field.rig.reserved()
    paid = settled.exchange.cost_nano
    if settled.exchange.winner is None:
        paid = settled.exchange.loser_cost_nano
    assert settled.attempts[0].facts.cost_source == "estimated"
    assert paid == settled.attempts[0].facts.cost_nano
    assert paid is not None
    assert paid == PROMPT_NANO + tokens * 2000
    assert paid < reserved.nano_usd


@pytest.mark.parametrize("after", range(0, 12, 3))
async def test_a_stream_that_is_left_is_billed_for_what_came(start: Start, after: int) -> None:
    """T20: within ten tokens of what the provider had sent."""
    field = await Field.open(start, model("m", [f"lab/plain!stall:{after}"]))
    when = spoken(field) if after else heard(field, 1)
    await leave(field, {"stream": True, "max_tokens": 100}, when)
    await field.rig.until(lambda: len(field.rig.settled()) == 1)
    await field.rig.until(lambda: len(field.rig.sim.log) == 1)
    [settled], [entry] = field.rig.settled(), field.rig.sim.log.entries
    cost = settled.attempts[0].facts.cost_nano
    assert cost is not None
    tokens = (cost - PROMPT_NANO) / 2000
    assert abs(tokens - entry.tokens_billed) <= 10


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stale_connection_is_replaced_unseen(start: Start, stream: bool) -> None:
    """F37: the server closes a kept connection as we send; no byte of an answer came."""
    field = await Field.open(start, model("m", ["lab/plain"]) + model("s", ["lab/plain!stale"]))
    await field.fly("m", stream=False)
    assert field.rig.state.client.open_connections == 1
    answer, settled, _ = await field.fly("s", stream=stream)
    assert answer.status == 200
    assert answer.headers["x-lightgate-attempts"] == "1"
    [note] = settled.attempts
    assert note.resent
    assert note.outcome == "ok"
    await field.rig.until(lambda: len(field.rig.sim.log) == 3)
    assert Counter(e.outcome for e in field.rig.sim.log.entries) == {"ok": 2, "reset": 1}
