"""Answers that are complete although they lack what a simple reader waits for.

An engine that sends no terminal marker, and answers without a word of text whose finish reason says
why: each is one answer, handed on as it is, paid for once, and no fault of its target.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.faulted import Field, model
from gateway.security.conftest import ENV, chunk, events, providers, whole
from gateway.test_faults_race import save_up
from lightgate.route.cascade.verify import BUILT_IN
from recorded import recorded
from sim.conftest import SAY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Heard, Script, Upstream
    from lightgate.ledger.journal.notes import AttemptNote
    from sim.conftest import Answer

CONTENTS = [{"role": "user", "parts": [{"text": "Say something."}]}]
CLIENTS = ("chat", "responses", "anthropic", "gemini")
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
RECORDED = recorded()


def alias(*targets: str, more: str = "") -> str:
    """A model of targets whose prices are known already, or of no matter."""
    return (
        f'[models.m]\ntargets = {json.dumps(targets)}\npolicy = "ordered"\nhedge = "off"\n{more}\n'
    )


async def ask(rig: Rig, client: str, *, stream: bool, cap: int = 24, **key: str) -> Answer:
    """One request for the model m in the words of a client's dialect."""
    if client == "gemini":
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        body: Any = {
            "contents": CONTENTS,
            "generationConfig": {"maxOutputTokens": cap, "temperature": 0},
        }
        return await rig.ask(f"/v1beta/models/m:{verb}", body, **key)
    if client == "responses":
        body = {"model": "m", "input": "Hi", "max_output_tokens": cap, "stream": stream}
        return await rig.ask("/v1/responses", body, **key)
    path = "/v1/chat/completions" if client == "chat" else "/v1/messages"
    more = {"stream_options": {"include_usage": True}} if client == "chat" and stream else {}
    body = {"model": "m", "messages": SAY, "max_tokens": cap, "stream": stream, **more}
    body["temperature"] = 0
    return await rig.ask(path, body, **key)


def played(answer: bytes) -> Script:
    async def told(_: Heard) -> AsyncIterator[bytes]:
        yield answer

    return told


def note_of(rig: Rig, attempts: int = 1) -> AttemptNote:
    """The last attempt of the last exchange, which had so many."""
    settled = rig.settled()[-1]
    assert len(settled.attempts) == attempts
    return settled.attempts[-1]


# No terminal marker


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_engine_without_a_marker_answers_every_client(
    start: Start, upstream: Upstream, client: str
) -> None:
    """`transformers serve`, as it was recorded: a finish reason, usage, and the end of the body."""
    rig = await start(providers(upstream.port) + alias("raw/m"), env=ENV)
    upstream.script = played(RECORDED.chunked())
    answer = await ask(rig, client, stream=True)
    assert (answer.status, answer.end) == (200, "complete"), answer.body
    last = answer.events[-1]
    if client == "chat":  # the same dialect: the engine's own bytes, and nothing made up
        assert answer.body == RECORDED.body
    elif client == "responses":
        assert last[0] == "response.incomplete"
        assert json.loads(last[1])["response"]["usage"]["output_tokens"] == 4
    elif client == "anthropic":
        assert last[0] == "message_stop"
        assert answer.events[-2][0] == "message_delta"
        assert json.loads(answer.events[-2][1])["delta"]["stop_reason"] == "max_tokens"
    else:
        assert json.loads(last[1])["candidates"][0]["finishReason"] == "MAX_TOKENS"
    note = note_of(rig)
    assert (note.outcome, note.ended_by, note.finish_reason) == ("ok", "finish", "length")
    assert (note.tokens_in, note.tokens_out) == (9, 4)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", ["lab", "anthropic"])
async def test_a_missing_marker_is_made_up_for_other_dialects_only(
    start: Start, client: str, provider: str
) -> None:
    field = await Field.open(start, model("m", [f"{provider}/plain!no-marker"]))
    rig = field.rig
    answer = await ask(rig, client, stream=True, authorization=field.headers["authorization"])
    await field.at_peace()
    assert (answer.status, answer.end) == (200, "complete"), answer.body
    note = note_of(rig)
    assert (note.outcome, note.ended_by) == ("ok", "finish")
    names = [name for name, _ in answer.events]
    if client == "anthropic":
        assert (names[-1] == "message_stop") == (provider != "anthropic")
    elif client == "chat":
        assert (answer.events[-1][1] == "[DONE]") == (provider != "lab")
    elif client == "responses":
        assert names[-1] == "response.completed"
    else:
        assert json.loads(answer.events[-1][1])["candidates"][0]["finishReason"] == "STOP"


async def test_a_whole_answer_is_assembled_from_a_stream_without_a_marker(start: Start) -> None:
    targets = ["lab/plain!no-marker", "lab/plain!silence:0.3"]
    field = await Field.open(start, model("m", targets, "race = 2"))
    answer, settled, _ = await field.fly("m", stream=False)
    assert answer.status == 200
    assert len(answer.json["choices"][0]["message"]["content"]) > 12
    assert settled.exchange.winner == "lab/plain!no-marker"
    assert [note.ended_by for note in settled.attempts] == ["finish", None]


@pytest.mark.parametrize("client", CLIENTS)
@STREAMED
async def test_a_complete_answer_says_what_ended_it(
    start: Start, client: str, *, stream: bool
) -> None:
    for provider, end in (("lab", "marker"), ("anthropic", "marker"), ("gemini", "finish")):
        rig = await start(model("m", [f"{provider}/plain"]))
        answer = await ask(rig, client, stream=stream)
        assert answer.status == 200, answer.body
        assert note_of(rig).ended_by == (end if stream else "finish")


# No text


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", ["lab", "anthropic", "gemini"])
@STREAMED
async def test_an_answer_cut_off_while_it_thought_is_an_answer(
    start: Start, client: str, provider: str, *, stream: bool
) -> None:
    """Every token went into hidden reasoning: the client gets the reason and the bill, once."""
    targets = [f"{provider}/plain!no-text", "lab/plain"]
    field = await Field.open(start, model("m", targets))
    rig = field.rig
    answer = await ask(rig, client, stream=stream, authorization=field.headers["authorization"])
    await field.at_peace()
    assert (answer.status, answer.end) == (200, "complete"), answer.body
    assert answer.headers["x-lightgate-target"] == targets[0]
    assert finish_and_tokens(client, answer, stream=stream) == (CUT[client], 24)
    note = note_of(rig)
    assert note.outcome == "ok"
    assert (note.first, note.last, note.answer) == (None, None, None)
    assert (note.tokens_out, note.tokens_reasoning, note.tokens_source) == (24, 24, "usage")
    assert note.facts.cost_nano == (note.tokens_in or 0) * 1000 + 24 * 2000
    exchange = rig.settled()[-1].exchange
    assert (exchange.status, exchange.outcome, exchange.winner) == (200, "ok", targets[0])
    assert exchange.record(1).ttft_ms is None
    assert exchange.record(1).overhead_ms is not None
    assert targets[0] not in rig.state.learned.breakers.troubled
    assert rig.state.learned.forms.form(targets[0]).errors == 0


CUT = {
    "chat": "length",
    "responses": "max_output_tokens",
    "anthropic": "max_tokens",
    "gemini": "MAX_TOKENS",
}


def finish_and_tokens(client: str, answer: Answer, *, stream: bool) -> tuple[str, int]:
    """The finish reason and the answer's tokens, as a client's SDK would find them."""
    if client == "chat":
        chunks = answer.chunks if stream else [answer.json]
        assert not any(
            choice.get("delta", choice.get("message", {})).get("content")
            for chunk in chunks
            for choice in chunk["choices"]
        )
        reasons = [c["finish_reason"] for chunk in chunks for c in chunk["choices"]]
        usage = next(chunk["usage"] for chunk in reversed(chunks) if chunk.get("usage"))
        return next(reason for reason in reasons if reason), usage["completion_tokens"]
    if client == "responses":
        final = answer.chunks[-1]["response"] if stream else answer.json
        return final["incomplete_details"]["reason"], final["usage"]["output_tokens"]
    if client == "anthropic":
        if not stream:
            assert answer.json["content"] == []
            return answer.json["stop_reason"], answer.json["usage"]["output_tokens"]
        assert [name for name, _ in answer.events if name != "ping"] == [
            "message_start", "message_delta", "message_stop",
        ]  # fmt: skip
        delta = json.loads(answer.events[-2][1])
        return delta["delta"]["stop_reason"], delta["usage"]["output_tokens"]
    last = answer.chunks[-1] if stream else answer.json
    used = last["usageMetadata"]
    tokens = used.get("candidatesTokenCount", 0) + used.get("thoughtsTokenCount", 0)
    return last["candidates"][0]["finishReason"], tokens


# Answers as the providers document them: the shape, what it says of its end, and its usage.
CHAT_USAGE = b'"usage":{"prompt_tokens":11,"completion_tokens":2,"total_tokens":13}'
FILTERED = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":null},"finish_reason":"content_filter"}],' + CHAT_USAGE + b"}"
)
FILTERED_STREAM = (
    chunk(),
    chunk("", choice={"finish_reason": "content_filter"}),
    b'data: {"id":"c","choices":[],' + CHAT_USAGE + b"}\n\ndata: [DONE]\n\n",
)
GEMINI_USAGE = b'"usageMetadata":{"promptTokenCount":11,"thoughtsTokenCount":2}'
SAFETY = b'{"candidates":[{"finishReason":"SAFETY","index":0}],' + GEMINI_USAGE + b"}"
BLOCKED = b'{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},' + GEMINI_USAGE + b"}"
MESSAGE = (
    b'{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],'
    b'"stop_reason":%b,"stop_sequence":null,"usage":{"input_tokens":11,"output_tokens":2}}'
)


def message_stream(reason: bytes) -> tuple[bytes, ...]:
    begun = MESSAGE % b"null"
    return (
        b'event: message_start\ndata: {"type":"message_start","message":' + begun + b"}\n\n",
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":' + reason
        + b',"stop_sequence":null},"usage":{"output_tokens":2}}\n\n',
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    )  # fmt: skip


def of_gemini(body: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    return body, (b"data: " + body + b"\n\n",)


# target, its own client, (whole, stream), the provider's word, chat's word for it
EXPLAINED: dict[str, tuple[str, str, tuple[bytes, tuple[bytes, ...]], str, str]] = {
    "openai filter": ("raw/m", "chat", (FILTERED, FILTERED_STREAM), "content_filter",
                      "content_filter"),
    "gemini safety": ("rawgem/m", "gemini", of_gemini(SAFETY), "SAFETY", "content_filter"),
    "gemini prompt blocked": ("rawgem/m", "gemini", of_gemini(BLOCKED), "PROHIBITED_CONTENT",
                              "content_filter"),
    "claude refusal": ("rawant/m", "anthropic",
                       (MESSAGE % b'"refusal"', message_stream(b'"refusal"')), "refusal",
                       "content_filter"),
    "claude said nothing": ("rawant/m", "anthropic",
                            (MESSAGE % b'"end_turn"', message_stream(b'"end_turn"')), "end_turn",
                            "stop"),
}  # fmt: skip


@pytest.mark.parametrize("case", EXPLAINED)
@pytest.mark.parametrize("native", [True, False], ids=["native", "translated"])
@STREAMED
async def test_a_reason_makes_an_answer(
    start: Start, upstream: Upstream, case: str, *, native: bool, stream: bool
) -> None:
    target, own, (body, pieces), word, told = EXPLAINED[case]
    client = own if native else "chat" if own != "chat" else "anthropic"
    rig = await start(providers(upstream.port) + alias(target, "lab/plain"), env=ENV)
    upstream.script = events(*pieces) if stream else whole(body)
    answer = await ask(rig, client, stream=stream)
    assert (answer.status, answer.end) == (200, "complete"), answer.body
    if native:
        assert answer.body == (b"".join(pieces) if stream else body)
    elif client == "chat":
        found = [c["choices"] for c in (answer.chunks if stream else [answer.json])]
        reasons = [choice["finish_reason"] for choices in found for choice in choices]
        assert next(reason for reason in reasons if reason) == told
    else:
        assert b'"stop_reason":"refusal"' in answer.body
    note = note_of(rig)
    assert (note.outcome, note.finish_reason) == ("ok", word)
    assert (note.tokens_in, note.tokens_out) == (11, 2)
    assert len(upstream.heard) == 1
    assert target not in rig.state.learned.breakers.troubled


@STREAMED
async def test_a_mere_stop_without_a_token_is_asked_for_elsewhere(
    start: Start, *, stream: bool
) -> None:
    field = await Field.open(start, model("m", ["lab/plain!no-text:stop", "lab/plain"]))
    answer, settled, _ = await field.fly("m", stream=stream)
    assert answer.status == 200
    assert [note.outcome for note in settled.attempts] == ["empty", "ok"]
    assert settled.attempts[0].tokens_out == 12  # paid all the same


# Beside others


@pytest.mark.parametrize("fault", ["no-text", "no-text:content_filter"])
@STREAMED
async def test_an_answer_without_text_wins_a_race(
    start: Start, fault: str, *, stream: bool
) -> None:
    targets = [f"lab/plain!{fault}", "lab/plain!silence:0.3"]
    field = await Field.open(start, model("m", targets, "race = 2"))
    answer, settled, _ = await field.fly("m", stream=stream)
    assert answer.status == 200, answer.body
    assert settled.exchange.winner == targets[0]
    assert [note.outcome for note in settled.attempts] == ["ok", "cancelled"]
    assert [note.facts.won for note in settled.attempts] == [True, False]
    chunks = answer.chunks if stream else [answer.json]
    reasons = [choice["finish_reason"] for one in chunks for choice in one["choices"]]
    assert next(reason for reason in reasons if reason) in fault + ":length"
    assert settled.exchange.tokens_out == 12


@STREAMED
async def test_a_text_that_came_first_still_wins(start: Start, *, stream: bool) -> None:
    targets = ["lab/plain!drip:0.05", "lab/plain!no-text"]
    field = await Field.open(start, model("m", targets, "race = 2"))
    answer, settled, _ = await field.fly("m", stream=stream)
    assert answer.status == 200, answer.body
    assert sum(note.outcome == "ok" for note in settled.attempts) == 1
    assert settled.exchange.winner in targets


@STREAMED
async def test_a_hedge_that_says_why_it_is_silent_is_the_answer(
    start: Start, *, stream: bool
) -> None:
    targets = ["lab/plain!hang", "lab/plain!no-text"]
    field = await Field.open(start, model("m", targets).replace('"off"', '"100ms"'))
    save_up(field)
    answer, settled, _ = await field.fly("m", stream=stream)
    assert answer.status == 200, answer.body
    assert settled.exchange.winner == targets[1]
    assert [note.facts.role for note in settled.attempts] == ["primary", "hedge"]


TIERS = """
[models.m]
policy = "cascade"
timeout = "5s"
hedge = "off"
verify = ["%s"]
tiers = [{{ upto = "simple", targets = ["lab/plain!no-text"] }}, {{ targets = ["lab/plain"] }}]
"""


@pytest.mark.parametrize("client", ["chat", "anthropic"])
@STREAMED
async def test_a_cascade_checks_it_like_any_other(
    start: Start, client: str, *, stream: bool
) -> None:
    """What was cut off fails `not_truncated`; another check has nothing against it."""
    assert {"not_truncated", "not_refused"} <= set(BUILT_IN)
    for verify, winner in (("not_truncated", "lab/plain"), ("not_refused", "lab/plain!no-text")):
        rig = await start(TIERS % verify)
        answer = await ask(rig, client, stream=stream, cap=4096)
        assert (answer.status, answer.end) == (200, "complete"), answer.body
        settled = rig.settled()[-1]
        assert settled.exchange.winner == winner
        assert [note.outcome for note in settled.attempts] == ["ok"] * len(settled.attempts)
        if stream:
            last = answer.events[-1]
            assert last == ("", "[DONE]") if client == "chat" else last[0] == "message_stop"


CACHE = 'cache = {{ mode = "exact", ttl = "1h" }}'


@STREAMED
async def test_it_is_not_kept_for_others(start: Start, upstream: Upstream, *, stream: bool) -> None:
    """Claude's empty turn is an answer to this request, not to the next one like it."""
    cached = alias("rawant/m", more=CACHE)
    rig = await start(providers(upstream.port) + cached, env=ENV)
    reason = b'"end_turn"'
    upstream.script = events(*message_stream(reason)) if stream else whole(MESSAGE % reason)
    for _ in range(2):
        answer = await ask(rig, "anthropic", stream=stream)
        assert answer.status == 200
        assert answer.headers["x-lightgate-cache"] == "miss"
    assert len(upstream.heard) == 2


async def test_a_text_is_kept_whatever_ended_it(start: Start, upstream: Upstream) -> None:
    rig = await start(providers(upstream.port) + alias("raw/m", more=CACHE), env=ENV)
    upstream.script = played(RECORDED.chunked())
    found = [(await ask(rig, "chat", stream=True)).headers["x-lightgate-cache"] for _ in range(2)]
    assert found == ["miss", "hit"]


STREAM = b"content-type: text/event-stream\r\n"

# Answers that cannot be told


@pytest.mark.parametrize("client", ["responses", "anthropic", "gemini"])
@pytest.mark.parametrize("cache", ["", CACHE], ids=["alone", "shared"])
async def test_a_whole_stream_in_one_read_that_cannot_be_translated_is_a_failure(
    start: Start, upstream: Upstream, client: str, cache: str
) -> None:
    strange = chunk("Hi", choice={"finish_reason": "tired"}) + b"data: [DONE]\n\n"
    rig = await start(providers(upstream.port) + alias("raw/m", more=cache), env=ENV)
    upstream.script = whole(strange, fields=STREAM)
    answer = await ask(rig, client, stream=True)
    assert answer.status == 502
    assert "tired" in answer.body.decode()
    await rig.until(lambda: bool(rig.settled()))
    assert note_of(rig).outcome == "stream_error"
    assert not rig.exchanges


async def test_the_next_target_answers_in_its_place(start: Start, upstream: Upstream) -> None:
    text = providers(upstream.port) + alias("raw/m", "lab/plain")
    rig = await start(text, env=ENV)
    strange = chunk("Hi", choice={"finish_reason": "tired"}) + b"data: [DONE]\n\n"
    upstream.script = whole(strange, fields=STREAM)
    answer = await ask(rig, "anthropic", stream=True)
    assert answer.status == 200
    assert answer.headers["x-lightgate-target"] == "lab/plain"
