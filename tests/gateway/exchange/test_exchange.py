"""A request's way through the gateway: answered, failed over, broken off, abandoned."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from lightgate.gateway.exchange.exchange import Exchange
from sim.conftest import QUICK, SAY

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start
    from lightgate.gateway.exchange.attempt import Attempt

PAIR = """
[models.pair]
targets = ["lab/plain!{{fault}}", "lab/plain"]
policy = "ordered"
hedge = "off"
ttft_timeout = "300ms"
timeout = "5s"
"""


def pair(fault: str) -> str:
    return PAIR.replace("{{fault}}", fault)


async def test_a_whole_answer_passes_untouched(rig: Rig) -> None:
    answer = await rig.chat(stream=False)
    assert answer.status == 200
    assert answer.json["usage"]["completion_tokens"] == 12
    assert answer.headers["x-lightgate-target"] == "lab/plain"
    assert answer.headers["x-lightgate-attempts"] == "1"
    [settled] = rig.settled()
    assert settled.exchange.id == answer.headers["x-lightgate-id"]
    assert settled.exchange.cost_nano == settled.exchange.tokens_in * 1000 + 12 * 2000  # type: ignore[operator]
    assert settled.exchange.outcome == "ok"
    [reserved] = rig.reserved()
    assert reserved.exchange_id == settled.exchange.id


async def test_a_stream_passes_and_the_extra_usage_chunk_stays_here(rig: Rig) -> None:
    answer = await rig.chat()
    assert answer.status == 200
    assert answer.end == "complete"
    assert answer.events[-1] == ("", "[DONE]")
    assert all(chunk["choices"] for chunk in answer.chunks)
    [settled] = rig.settled()
    assert settled.exchange.tokens_out == 12
    assert settled.attempts[0].tokens_source == "usage"


async def test_usage_reaches_those_who_asked_for_it(rig: Rig) -> None:
    answer = await rig.chat(stream_options={"include_usage": True})
    assert answer.chunks[-1]["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "fault", ["status:503", "status:529", "rate-limited", "error-200", "empty", "html", "garbage",
              "early-close", "reset:0", "choices-null", "hang"],
)  # fmt: skip
async def test_a_failure_before_the_first_token_is_not_seen(
    start: Start, fault: str, stream: bool
) -> None:
    rig = await start(pair(fault))
    answer = await rig.chat("pair", stream=stream)
    assert answer.status == 200, answer.body
    assert answer.headers["x-lightgate-target"] == "lab/plain"
    assert answer.headers["x-lightgate-attempts"] == "2"
    text = answer.body.decode()
    assert "error" not in text
    [settled] = rig.settled()
    assert [note.facts.won for note in settled.attempts] == [False, True]
    assert settled.exchange.outcome == "ok"
    assert settled.attempts[0].outcome != "ok"
    await rig.until(lambda: rig.upstream == 0)


@pytest.mark.parametrize("fault", ["truncated:5", "reset:5", "stream-error:5"])
async def test_a_stream_that_breaks_later_ends_with_an_error(start: Start, fault: str) -> None:
    rig = await start(pair(fault))
    answer = await rig.chat("pair")
    assert answer.status == 200
    assert answer.end == "complete"
    last = json.loads(answer.events[-1][1])
    assert last["error"]["message"].startswith("The answer broke off.")
    assert "[DONE]" not in answer.body.decode()
    [settled] = rig.settled()
    assert len(settled.attempts) == 1
    assert settled.exchange.outcome in {"truncated", "reset", "stream_error"}


@pytest.mark.parametrize("window", ["before", "during", "whole"])
async def test_a_client_that_leaves_ends_the_call(start: Start, window: str) -> None:
    model = {"before": "lab/far", "during": "lab/plain!stall:3", "whole": "lab/far"}[window]
    rig = await start()
    line = await rig.line()
    body = {"model": model, "messages": SAY, "stream": window != "whole", "max_tokens": 50}
    line.send("POST", "/v1/chat/completions", json.dumps(body).encode(), {})
    await rig.until(lambda: rig.upstream == 1)
    if window == "during":
        await rig.until(lambda: any(exchange.reply.started for exchange in rig.exchanges))
    await line.close()
    await rig.until(lambda: rig.upstream == 0, within_s=1)
    await rig.until(lambda: bool(rig.settled()))
    [settled] = rig.settled()
    assert settled.exchange.outcome == "cancelled"
    assert settled.attempts[0].outcome == "cancelled"


async def test_all_targets_down_names_them(start: Start) -> None:
    rig = await start(
        '[models.gone]\ntargets = ["lab/plain!status:500", "lab/plain!status:503"]\n'
        'policy = "ordered"\nhedge = "off"\n'
    )
    answer = await rig.chat("gone")
    assert answer.status == 503
    assert answer.headers["x-should-retry"] == "false"
    said = answer.json["error"]["message"]
    assert "lab/plain!status:500" in said
    assert "lab/plain!status:503" in said


async def test_two_race_and_the_first_token_wins(start: Start) -> None:
    rig = await start(
        '[models.race]\ntargets = ["lab/far", "lab/plain"]\npolicy = "ordered"\nrace = 2\n'
        'hedge = "off"\n'
    )
    answer = await asyncio.wait_for(rig.chat("race"), 5)
    assert answer.status == 200
    assert answer.headers["x-lightgate-target"] == "lab/plain"
    await rig.until(lambda: bool(rig.settled()))
    [settled] = rig.settled()
    assert sorted(note.facts.won for note in settled.attempts) == [False, True]  # type: ignore[type-var]
    await rig.until(lambda: rig.upstream == 0)


async def test_tokens_after_the_first_take_the_short_way_to_the_client(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first piece is delivered by the exchange; what follows goes to the reply at once."""
    world = json.loads(json.dumps(QUICK))
    world["providers"]["lab"]["models"]["plain"]["exact"]["gap_ms"] = 20
    rig = await start(world=world)
    delivered: list[bool] = []
    real = Exchange.deliver

    def deliver(self: Exchange, attempt: Attempt, data: bytes, *, ended: bool) -> None:
        delivered.append(ended)
        real(self, attempt, data, ended=ended)

    monkeypatch.setattr(Exchange, "deliver", deliver)
    answer = await rig.chat()
    assert len(answer.chunks) >= 12
    assert len(delivered) <= 3
    assert delivered[-1]
    assert rig.settled()[0].exchange.outcome == "ok"
