"""What a key with a budget reserves for unknown parts, sound and pictures, and what is billed."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from gateway.http.test_audio import form
from gateway.security.conftest import ENV, chat_body, providers, whole
from gateway.workers import Workers
from lightgate.gateway.served.price import SLACK, WORST_TOKENS_PER_CHARACTER
from lightgate.ledger.store.keys import KeyTerms
from sim.conftest import SAY

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Upstream

NANO = 10**9
BUDGET = Decimal("0.50")
SPEAKS = """
[prices."rawant/m"]
input = 1
output = 2
[prices."raw/voice"]
input = 1
output = 2
input_audio = 32
output_audio = 64
[prices."raw/draws"]
input = 1
output = 2
output_image = 30
[prices."raw/own-audio"]
input = 1
output = 2
"""
EAR = """
api_key = "none"
[prices."openai/hears"]
input = 1
output = 2
audio_hour = 0.36
"""
MADE_UP = {"type": "hologram", "hologram": {"url": "https://example.com/a"}}
SPOKEN: dict[str, Any] = {
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "wav"},
}


async def started(start: Start, upstream: Upstream) -> Rig:
    terms = {"me": KeyTerms(name="me", budget_usd=BUDGET)}
    return await start(providers(upstream.port) + SPEAKS, env=ENV, terms=terms)


def chat(model: str = "raw/m", content: Any = "Hi", **fields: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": content}]
    return {"model": model, "messages": said, "max_tokens": 100, **fields}


UNKNOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", chat(content=[MADE_UP])),
    "messages": ("/v1/messages", chat("rawant/m", [MADE_UP])),
    "a result of a tool": (
        "/v1/messages",
        chat("rawant/m", [{"type": "tool_result", "tool_use_id": "t", "content": [MADE_UP]}]),
    ),
    "responses": (
        "/v1/responses",
        {"model": "raw/m", "input": [MADE_UP], "max_output_tokens": 100},
    ),
    "gemini": (
        "/v1beta/models/rawgem/m:generateContent",
        {
            "contents": [{"parts": [{"hologram": {"uri": "x"}}]}],
            "generationConfig": {"maxOutputTokens": 100},
        },
    ),
}


@pytest.mark.parametrize(("path", "body"), UNKNOWN.values(), ids=list(UNKNOWN))
async def test_a_part_of_an_unknown_kind_reserves_all_that_is_left(
    start: Start, upstream: Upstream, path: str, body: dict[str, Any]
) -> None:
    rig = await started(start, upstream)
    await rig.ask(path, body, x_api_key=rig.keys["me"])
    assert rig.reserved()[0].nano_usd == BUDGET * NANO


async def test_without_a_budget_an_unknown_part_is_passed_on(
    start: Start, upstream: Upstream
) -> None:
    upstream.script = whole(chat_body())
    rig = await start(providers(upstream.port), env=ENV)
    answer = await rig.ask("/v1/chat/completions", chat(content=[MADE_UP]))
    assert answer.status == 200
    assert upstream.heard[0].json["messages"][0]["content"] == [MADE_UP]


async def test_a_video_by_address_is_as_long_as_a_file(start: Start, upstream: Upstream) -> None:
    rig = await started(start, upstream)
    body = chat(content=[{"type": "video_url", "video_url": {"url": "https://example.com/v"}}])
    answer = await rig.ask("/v1/chat/completions", body, x_api_key=rig.keys["me"])
    assert answer.status == 402  # a million tokens at a dollar; half a dollar is left
    assert "may cost $1.00" in answer.json["error"]["message"]


def text(body: dict[str, Any], out: int = 2000) -> int:
    """What is reserved for a body of text and an answer of 100 tokens, in nano-dollars."""
    return (len(json.dumps(body)) // 2 + 1) * 1000 + (100 + SLACK) * out


ANSWERS: dict[str, tuple[dict[str, Any], int]] = {
    "sound": (chat("raw/voice", **SPOKEN), 64_000),
    "sound, said by its settings alone": (chat("raw/voice", audio=SPOKEN["audio"]), 64_000),
    "text of a model that speaks": (chat("raw/voice"), 2000),
    "a picture": (chat("raw/draws", modalities=["image", "text"]), 30_000),
    "a picture that nobody asked for": (chat("raw/draws"), 30_000),
}


@pytest.mark.parametrize(("body", "out"), ANSWERS.values(), ids=list(ANSWERS))
async def test_an_answer_is_reserved_at_the_dearest_price_of_its_kinds(
    start: Start, upstream: Upstream, body: dict[str, Any], out: int
) -> None:
    upstream.script = whole(chat_body())
    rig = await started(start, upstream)
    assert (await rig.ask("/v1/chat/completions", body, x_api_key=rig.keys["me"])).status == 200
    assert rig.reserved()[0].nano_usd == text(body, out)


SPEECH = {"responseModalities": ["AUDIO"], "speechConfig": {}}
LACKING: dict[str, tuple[str, dict[str, Any], str]] = {
    "chat": ("/v1/chat/completions", chat(**SPOKEN), "audio"),
    "a picture": ("/v1/chat/completions", chat(modalities=["image"]), "image"),
    "a word that nobody knows": ("/v1/chat/completions", chat(modalities=["smell"]), "smell"),
    "gemini": (
        "/v1beta/models/rawgem/m:generateContent",
        {"contents": [], "generationConfig": {"maxOutputTokens": 100, **SPEECH}},
        "audio",
    ),
    "gemini in its other spelling": (
        "/v1beta/models/rawgem/m:generateContent",
        {"contents": [], "generationConfig": {"response_modalities": ["audio"]}},
        "audio",
    ),
}


@pytest.mark.parametrize(("path", "body", "kind"), LACKING.values(), ids=list(LACKING))
async def test_an_answer_of_a_kind_without_a_price_is_refused_to_a_budget(
    start: Start, upstream: Upstream, path: str, body: dict[str, Any], kind: str
) -> None:
    rig = await started(start, upstream)
    answer = await rig.ask(path, body, x_api_key=rig.keys["me"])
    assert answer.status == 403
    assert f"Add `output_{kind}` under [prices]" in answer.body.decode()
    assert upstream.heard == []


async def test_sound_in_a_prompt_is_reserved_at_its_own_price(
    start: Start, upstream: Upstream
) -> None:
    upstream.script = whole(chat_body())
    sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    terms = {"me": KeyTerms(name="me", budget_usd=Decimal(5))}
    rig = await start(providers(upstream.port) + SPEAKS, env=ENV, terms=terms)
    body = chat("raw/voice", [sound])
    await rig.ask("/v1/chat/completions", body, x_api_key=rig.keys["me"])
    heard = rig.state.served.targets["raw/voice"].target.provider.part_tokens.sound
    assert rig.reserved()[0].nano_usd == text(body) + heard * 32_000
    # A model that is named for sound has a price for it, or is left out.
    body = chat("raw/own-audio", [sound])
    answer = await rig.ask("/v1/chat/completions", body, x_api_key=rig.keys["me"])
    assert answer.status == 403
    assert "Add `input_audio` under [prices]" in answer.json["error"]["message"]


COUNTED = {
    "prompt_tokens": 50,
    "completion_tokens": 90,
    "prompt_tokens_details": {"audio_tokens": 40, "cached_tokens": 0},
    "completion_tokens_details": {"audio_tokens": 60, "reasoning_tokens": 0},
}


async def test_tokens_of_sound_are_billed_at_their_own_price(
    start: Start, upstream: Upstream
) -> None:
    upstream.script = whole(chat_body(usage=COUNTED))
    rig = await started(start, upstream)
    headers = {"x_api_key": rig.keys["me"]}
    answer = await rig.ask("/v1/chat/completions", chat("raw/voice", **SPOKEN), **headers)
    billed = Decimal(10 * 1 + 40 * 32 + 30 * 2 + 60 * 64) / 10**6
    assert Decimal(answer.headers["x-lightgate-cost-usd"]) == billed
    # Where the provider does not say which tokens were sound, all of them may have been.
    plain = {"prompt_tokens": 50, "completion_tokens": 90}
    upstream.script = whole(chat_body(usage=plain))
    answer = await rig.ask("/v1/chat/completions", chat("raw/voice", **SPOKEN), **headers)
    assert Decimal(answer.headers["x-lightgate-cost-usd"]) == Decimal(50 + 90 * 64) / 10**6
    assert rig.settled()[-1].exchange.cost_source == "estimated"


async def test_speech_by_the_token_is_reserved_at_its_longest(
    start: Start, upstream: Upstream
) -> None:
    rig = await started(start, upstream)
    body = {"model": "raw/voice", "input": "1" * 50, "voice": "a", "speed": 0.5}
    await rig.ask("/v1/audio/speech", body, x_api_key=rig.keys["me"])
    spoken = 50 * WORST_TOKENS_PER_CHARACTER * 2 * 64_000
    asked = (len(json.dumps(body)) // 2 + 1) * 1000
    assert rig.reserved()[0].nano_usd == asked + spoken


async def test_recordings_overdraw_no_budget(start: Start, upstream: Upstream) -> None:
    """50 at once, each said to be two weeks long: $121 an answer, of 64 kB."""
    upstream.script = whole(json.dumps({"text": "Hi", "duration": 1_209_600.0}).encode())
    provider = f'[providers.openai]\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\n'
    terms = {"me": KeyTerms(name="me", budget_usd=BUDGET)}
    rig = await start(provider + EAR, terms=terms)
    body, headers = form("openai/hears")
    headers["x-api-key"] = rig.keys["me"]
    asking = (rig.ask("/v1/audio/transcriptions", body, **headers) for _ in range(50))
    answers = await asyncio.gather(*asking)
    assert {answer.status for answer in answers} == {200, 402}
    spent = sum(note.exchange.cost_nano or 0 for note in rig.settled())
    each = 128 * 100_000  # 64,000 bytes at 500 a second, at 36 cents an hour
    assert spent == each * sum(answer.status == 200 for answer in answers)
    assert BUDGET * NANO - each < spent <= BUDGET * NANO


async def test_prompts_that_the_provider_keeps_overdraw_no_budget(
    start: Start, upstream: Upstream
) -> None:
    """20 at once, each counted at nearly twice the longest prompt there is."""
    said = {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
    usage = {"input_tokens": 1_900_000, "output_tokens": 50}
    upstream.script = whole(json.dumps({**said, "usage": usage}).encode())
    terms = {"me": KeyTerms(name="me", budget_usd=Decimal("2.50"))}
    rig = await start(providers(upstream.port) + SPEAKS, env=ENV, terms=terms)
    body = chat("rawant/m", container="c")
    asking = (rig.ask("/v1/messages", body, x_api_key=rig.keys["me"]) for _ in range(20))
    answers = await asyncio.gather(*asking)
    assert {answer.status for answer in answers} == {200, 402}
    # Two that are reserved in full, and one that takes the rest: the overdraft is of one.
    assert sum(answer.status == 200 for answer in answers) == 3
    spent = sum(note.exchange.cost_nano or 0 for note in rig.settled())
    assert spent <= 3 * (1_000_000 * 1000 + text(body))


# An upstream that bills a hundred times as much, many requests at once, two workers.

LIAR = """
[providers.liar]
base_url = "http://127.0.0.1:{lie}/v1"
api_key = "none"
[prices."liar/m"]
input = 1
output = 2
output_audio = 64
"""
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "unknown parts": ("0.05", {"messages": [{"role": "user", "content": [MADE_UP]}]}),
    "sound": ("0.05", {"messages": SAY, **SPOKEN}),
}


@pytest.mark.parametrize("name", CASES)
async def test_many_at_once_overdraw_no_budget(
    tmp_path: Path, upstream: Upstream, name: str
) -> None:
    """100 requests at once over two workers, each billed at a million tokens both ways."""
    budget, fields = CASES[name]
    lie = {"prompt_tokens": 10**6, "completion_tokens": 10**6}
    upstream.script = whole(chat_body(usage=lie))
    models = LIAR.replace("{lie}", str(upstream.port))
    terms = KeyTerms(name="key", budget_usd=Decimal(budget))
    workers = await Workers.open(tmp_path, models, terms)
    try:
        await workers.start(0)
        await workers.start(1)
        asking = (
            workers.chat("liar/m", stream=False, max_tokens=100, **fields) for _ in range(100)
        )
        answers = await asyncio.gather(*asking)
        assert {answer.status for answer in answers} == {200, 402}
        notes = [note.exchange for note in workers.settled()]
        assert len(notes) == sum(answer.status == 200 for answer in answers)
        spent = Decimal(sum(note.cost_nano or 0 for note in notes)) / NANO
        assert Decimal(budget) / 2 < spent <= Decimal(budget)
        if name == "unknown parts":
            assert len(notes) == 1  # it took all that there was
    finally:
        await workers.close()
