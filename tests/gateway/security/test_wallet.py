"""T19, T20: what a key may spend, alone and many times over, and what leaving early costs."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from gateway.security.conftest import chat_body, chunk, whole
from lightgate.gateway.served.price import SLACK
from lightgate.ledger.store.keys import KeyTerms
from sim.conftest import SAY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Behind, Heard, Upstream

NANO = 10**9
PRICES = """
[prices."lab/think"]
input = 1
output = 2
[prices."lab/mixed"]
input = 1
output = 2
[models.three]
targets = ["lab/plain", "lab/think", "lab/mixed"]
policy = "ordered"
hedge = "off"
race = {race}
"""


def standing(rig: Rig) -> Any:
    spend, [key] = rig.state.spend, rig.state.served.snapshot.keys
    assert spend is not None
    found = spend.standing(key.id)
    assert found is not None
    return found


async def test_a_hundred_races_of_three_stay_within_a_budget_for_fifty(start: Start) -> None:
    probe = await start(PRICES.replace("{race}", "3"))
    await probe.chat("three")
    [reserved] = probe.reserved()
    # Of one attempt: without a key nothing is multiplied, and bytes count half as much.
    alone = 2 * reserved.nano_usd + SLACK * 2000
    budget = Decimal(3 * 50 * alone) / NANO
    terms = KeyTerms(name="me", budget_usd=budget, may_race=True, max_fanout=3)
    rig = await start(PRICES.replace("{race}", "3"), terms={"me": terms})
    headers = {"x_api_key": rig.keys["me"], "x_lightgate_race": "3"}
    answers = await asyncio.gather(*(rig.chat("three", headers=headers) for _ in range(100)))
    admitted = [answer for answer in answers if answer.status == 200]
    assert {answer.status for answer in answers} <= {200, 402}
    assert len(admitted) >= 50
    await rig.until(lambda: len(rig.settled()) == len(admitted))
    # As many as fit beside each other; what is settled for less makes room for the next.
    assert standing(rig).spent_nano <= budget * NANO
    assert standing(rig).held_nano == 0
    costs = [note.facts.cost_nano or 0 for s in rig.settled() for note in s.attempts]
    assert sum(costs) == standing(rig).spent_nano  # losers are paid for by the key, too


HANGING = """
[models.three]
targets = ["lab/plain!hang", "lab/think!hang", "lab/mixed!hang"]
policy = "ordered"
hedge = "off"
race = 3
[prices."lab/plain!hang"]
input = 1
output = 2
[prices."lab/think!hang"]
input = 1
output = 2
[prices."lab/mixed!hang"]
input = 1
output = 2
"""


async def test_no_more_run_at_once_than_the_budget_covers(start: Start) -> None:
    body = {"model": "three", "messages": SAY, "max_tokens": 50, "stream": True}
    worst = (len(json.dumps(body)) // 2 + 1) * 1000 + (50 + SLACK) * 2000
    terms = KeyTerms(
        name="me", budget_usd=Decimal(3 * 50 * worst) / NANO, may_race=True, max_fanout=3
    )
    rig = await start(HANGING, terms={"me": terms})
    lines = [await rig.line() for _ in range(100)]
    for line in lines:
        raw = json.dumps(body).encode()
        line.send("POST", "/v1/chat/completions", raw, {"x-api-key": rig.keys["me"]})
    asking = [asyncio.ensure_future(line.answer()) for line in lines]
    await rig.until(lambda: sum(task.done() for task in asking) == 50)
    assert [task.result().status for task in asking if task.done()] == [402] * 50
    assert standing(rig).held_nano == 3 * 50 * worst
    for line in lines:
        await line.close()
    await asyncio.gather(*asking)
    await rig.until(lambda: len(rig.settled()) == 50)
    assert standing(rig).held_nano == 0


@pytest.mark.parametrize(
    ("terms", "headers", "status", "attempts"),
    [
        ({}, {"x_lightgate_race": "1"}, 200, 1),
        ({}, {"x_lightgate_race": "2"}, 403, 0),
        ({}, {"x_lightgate_hedge": "off"}, 200, 1),
        ({}, {"x_lightgate_hedge": "1ms"}, 403, 0),
        ({}, {"x_lightgate_hedge": "auto"}, 403, 0),
        ({"may_race": True}, {"x_lightgate_race": "2"}, 200, 2),
        ({"may_race": True}, {"x_lightgate_race": "3"}, 403, 0),
        ({"may_race": True, "max_fanout": 3}, {"x_lightgate_race": "3"}, 200, 3),
        ({"may_race": True}, {"x_lightgate_hedge": "10s"}, 200, 1),
    ],
)
async def test_a_key_races_within_its_rights(
    start: Start, terms: dict[str, Any], headers: dict[str, str], status: int, attempts: int
) -> None:
    rig = await start(PRICES.replace("{race}", "1"), terms={"me": KeyTerms(name="me", **terms)})
    answer = await rig.chat("three", headers={**headers, "x_api_key": rig.keys["me"]})
    assert answer.status == status, answer.body
    if status == 200:
        await rig.until(lambda: bool(rig.settled()))
        assert len(rig.settled()[0].attempts) == attempts
    else:
        assert len(rig.sim.log) == 0


@pytest.mark.parametrize(
    ("terms", "attempts"),
    [({}, 1), ({"may_race": True}, 2), ({"may_race": True, "max_fanout": 4}, 3)],
)
async def test_a_configured_race_goes_as_far_as_the_key_may(
    start: Start, terms: dict[str, Any], attempts: int
) -> None:
    rig = await start(PRICES.replace("{race}", "3"), terms={"me": KeyTerms(name="me", **terms)})
    await rig.chat("three", headers={"x_api_key": rig.keys["me"]})
    await rig.until(lambda: bool(rig.settled()))
    assert len(rig.settled()[0].attempts) == attempts


@pytest.mark.parametrize(
    ("path", "fields", "times"),
    [
        ("/v1/chat/completions", {"n": 8}, 8),
        ("/v1/completions", {"prompt": "x", "n": 2, "best_of": 5}, 5),
        ("/v1/completions", {"prompt": ["x", "y", "z"], "n": 2}, 6),
        ("/v1/completions", {"prompt": [[1, 2], [3]]}, 2),
        ("/v1/completions", {"prompt": [1, 2, 3]}, 1),
    ],
)
async def test_every_answer_that_is_asked_for_is_reserved(
    behind: Behind, upstream: Upstream, path: str, fields: dict[str, Any], times: int
) -> None:
    upstream.script = whole(chat_body())
    rig = await behind(terms={"me": KeyTerms(name="me", budget_usd=Decimal(1))})
    body = {"model": "raw/m", "max_tokens": 100, **fields}
    await rig.ask(path, body, x_api_key=rig.keys["me"])
    tokens_in = len(json.dumps(body)) // 2 + 1
    assert rig.reserved()[0].nano_usd == tokens_in * 1000 + (times * 100 + SLACK) * 2000


async def test_every_candidate_of_gemini_is_reserved(behind: Behind) -> None:
    rig = await behind(terms={"me": KeyTerms(name="me", budget_usd=Decimal(1))})
    config = {"maxOutputTokens": 100, "candidate_count": 4}
    body = {"contents": [], "generationConfig": config}
    await rig.ask("/v1beta/models/rawgem/m:generateContent", body, x_api_key=rig.keys["me"])
    tokens_in = len(json.dumps(body)) // 2 + 1
    assert rig.reserved()[0].nano_usd == tokens_in * 1000 + (4 * 100 + SLACK) * 2000


@pytest.mark.parametrize("count", [0, 1, 2, 5, 20, 100])
async def test_who_leaves_after_so_many_tokens_pays_for_them(
    behind: Behind, upstream: Upstream, count: int
) -> None:
    sent = asyncio.Event()

    async def until_left(_: Heard) -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + chunk(None)
        for place in range(count):
            yield chunk(f" w{place:02d}")  # four characters: a token of the usual estimate
        sent.set()
        await asyncio.sleep(60)

    upstream.script = until_left
    rig = await behind(terms={"me": KeyTerms(name="me", budget_usd=Decimal(1))})
    line = await rig.line()
    body = {"model": "raw/m", "messages": SAY, "stream": True, "max_tokens": 500}
    raw = json.dumps(body).encode()
    line.send("POST", "/v1/chat/completions", raw, {"x-api-key": rig.keys["me"]})
    await sent.wait()
    await rig.until(lambda: rig.upstream == 1)
    attempts = [attempt for exchange in rig.exchanges for attempt in exchange.attempts]
    assert len(attempts) == 1
    await rig.until(lambda: sum(attempts[0].marks.burst_pieces) == count)
    await line.close()
    await rig.until(lambda: bool(rig.settled()), within_s=5)
    [settled] = rig.settled()
    [note] = settled.attempts
    assert note.facts.cost_source == "estimated"
    tokens_in = len(raw) // 4 + 1
    spent_out = (note.facts.cost_nano or 0) - tokens_in * 1000
    assert abs(spent_out / 2000 - count) <= max(10, 0.05 * count)
    assert standing(rig).spent_nano == note.facts.cost_nano
    assert standing(rig).held_nano == 0
    await rig.until(lambda: upstream.open == 0)


async def test_leaving_a_provider_that_bills_on_costs_the_whole_answer(
    behind: Behind, upstream: Upstream
) -> None:
    async def slow(_: Heard) -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        await asyncio.sleep(60)

    upstream.script = slow
    rig = await behind(terms={"me": KeyTerms(name="me", budget_usd=Decimal(1))})
    line = await rig.line()
    body = json.dumps({"contents": [], "generationConfig": {"maxOutputTokens": 300}}).encode()
    path = "/v1beta/models/rawgem/m:streamGenerateContent?alt=sse"
    line.send("POST", path, body, {"x-api-key": rig.keys["me"]})
    await rig.until(lambda: upstream.open == 1 and bool(upstream.heard))
    await line.close()
    await rig.until(lambda: bool(rig.settled()), within_s=5)
    assert standing(rig).spent_nano == (len(body) // 4 + 1) * 1000 + 300 * 2000


async def test_pictures_by_address_cannot_overdraw_a_budget(
    behind: Behind, upstream: Upstream
) -> None:
    """A provider bills thousands of tokens for sixty bytes; 200 requests at once."""
    dear = chat_body(usage={"prompt_tokens": 36_000, "completion_tokens": 10})
    upstream.script = whole(dear)
    budget = Decimal("0.50")
    rig = await behind(terms={"me": KeyTerms(name="me", budget_usd=budget)})
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    asked = {"messages": [{"role": "user", "content": [picture]}], "max_tokens": 10}
    headers = {"x_api_key": rig.keys["me"]}
    answers = await asyncio.gather(
        *(rig.chat("raw/m", headers=headers, stream=False, **asked) for _ in range(200))
    )
    admitted = [answer for answer in answers if answer.status == 200]
    assert {answer.status for answer in answers} == {200, 402}
    await rig.until(lambda: len(rig.settled()) == len(admitted))
    assert 0 < standing(rig).spent_nano <= budget * NANO


async def test_leaving_does_not_make_pictures_free(behind: Behind, upstream: Upstream) -> None:
    """A client that hangs up before the usage comes pays the most that its prompt can cost."""

    async def slow(_: Heard) -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + chunk("a")
        await asyncio.sleep(60)

    upstream.script = slow
    rig = await behind(terms={"me": KeyTerms(name="me", budget_usd=Decimal(5))})
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    body = {"model": "raw/m", "stream": True, "max_tokens": 10}
    body["messages"] = [{"role": "user", "content": [picture] * 20}]
    line = await rig.line()
    raw = json.dumps(body).encode()
    line.send("POST", "/v1/chat/completions", raw, {"x-api-key": rig.keys["me"]})
    await rig.until(lambda: any(one.attempts and one.attempts[0].heard for one in rig.exchanges))
    reserved = standing(rig).held_nano
    assert reserved > 20 * 48_000 * 1000  # at a dollar for a million tokens
    await line.close()
    await rig.until(lambda: bool(rig.settled()), within_s=5)
    assert reserved - (10 + SLACK) * 2000 <= standing(rig).spent_nano <= reserved


@pytest.mark.parametrize("many", [0, 2000])  # a large body is read beside the loop
async def test_a_name_that_stands_twice_is_no_way_around_a_budget(
    behind: Behind, upstream: Upstream, many: int
) -> None:
    """The provider may read the picture that stands first; what was counted is the text."""
    upstream.script = whole(chat_body())
    terms = {"me": KeyTerms(name="me", budget_usd=Decimal(1)), "free": KeyTerms(name="free")}
    rig = await behind(terms=terms)
    twice = (
        b'{"type":"image_url","image_url":{"url":"https://a.test/b.png"},"type":"text","text":"a"}'
    )
    filler = b',{"type":"text","text":"a"}' * many
    body = b'{"model":"raw/m","max_tokens":5,"messages":[{"role":"user","content":[%b%b]}]}'
    head = {"x_api_key": rig.keys["me"]}
    refused = await rig.ask("/v1/chat/completions", body % (twice, filler), **head)
    assert (refused.status, refused.json["error"]["code"]) == (400, "doubled_name")
    assert upstream.heard == []
    once = twice.replace(b',"type":"text","text":"a"', b"")
    assert (await rig.ask("/v1/chat/completions", body % (once, filler), **head)).status == 200
    free = {"x_api_key": rig.keys["free"]}
    assert (await rig.ask("/v1/chat/completions", body % (twice, filler), **free)).status == 200
