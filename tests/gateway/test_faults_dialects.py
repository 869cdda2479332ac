"""Faults as clients of the other dialects see them: their own error shapes, in-band where begun."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.faulted import SHORT, Field, model
from sim.conftest import SAY

if TYPE_CHECKING:
    from gateway.conftest import Start
    from lightgate.ledger.journal.notes import Settled
    from sim.conftest import Answer

DIALECTS = ("anthropic", "gemini")
EARLY = {  # fault: (status, outcome)
    "status:529": (503, "http_error"),
    "status:401": (502, "http_error"),
    "status:400": (400, "http_error"),
    "rate-limited:20": (429, "rate_limited"),
    "hang": (504, "timeout"),
    "empty": (502, "empty"),
    "early-close": (502, "reset"),
    "stream-error:0": (503, "stream_error"),
    "html": (502, "stream_error"),
}
LATE = {
    "stream-error:3": "stream_error",
    "truncated:5": "truncated",
    "reset:5": "reset",
    "stall:5": "timeout",
}
FINE = ("crlf", "comments", "utf8-split", "no-last-chunk", "double-done")
ANTHROPIC_TYPES = {400: "invalid_request_error", 429: "rate_limit_error"}
GEMINI_STATUSES = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}


async def ask(field: Field, dialect: str, *, stream: bool) -> tuple[Answer, Settled]:
    rig = field.rig
    secret = rig.keys["key"]
    if dialect == "anthropic":
        body: Any = {"model": "m", "max_tokens": 12, "messages": SAY, "stream": stream}
        answer = await rig.ask("/v1/messages", body, x_api_key=secret)
    else:
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        body = {
            "contents": [{"role": "user", "parts": [{"text": "Say something."}]}],
            "generationConfig": {"maxOutputTokens": 12},
        }
        answer = await rig.ask(f"/v1beta/models/m:{verb}", body, x_goog_api_key=secret)
    await field.at_peace()
    return answer, rig.settled()[-1]


def assert_error(document: dict[str, Any], dialect: str, status: int | None) -> None:
    if dialect == "anthropic":
        assert document["type"] == "error"
        assert document["error"]["message"]
        kind = document["error"]["type"]
        assert kind == ANTHROPIC_TYPES.get(status or 0, kind)
        assert kind.endswith("_error")
    else:
        assert document["error"]["message"]
        assert document["error"]["code"] == status or status is None
        word = document["error"]["status"]
        assert word == GEMINI_STATUSES.get(status or 0, word)
        assert word.isupper()


def assert_whole(answer: Answer, dialect: str, *, stream: bool) -> None:
    assert answer.status == 200, answer.body
    assert answer.end == "complete"
    if dialect == "anthropic":
        if stream:
            assert answer.events[0][0] == "message_start"
            assert answer.events[-1][0] == "message_stop"
            assert sum(name == "message_stop" for name, _ in answer.events) == 1
        else:
            assert answer.json["content"][0]["text"]
    else:
        last = answer.chunks[-1] if stream else answer.json
        assert last["candidates"][0]["finishReason"] == "STOP"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("fault", EARLY)
async def test_an_early_fault_alone(start: Start, dialect: str, stream: bool, fault: str) -> None:
    status, outcome = EARLY[fault]
    field = await Field.open(start, model("m", [f"{dialect}/plain!{fault}"]))
    answer, settled = await ask(field, dialect, stream=stream)
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert_error(answer.json, dialect, status)
    assert settled.exchange.outcome == outcome
    assert settled.exchange.status == status


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("fault", [fault for fault in EARLY if fault != "status:400"])
async def test_an_early_fault_with_a_fallback(
    start: Start, dialect: str, stream: bool, fault: str
) -> None:
    targets = [f"{dialect}/plain!{fault}", f"{dialect}/plain"]
    field = await Field.open(start, model("m", targets, ttft=SHORT if fault == "hang" else "1s"))
    answer, settled = await ask(field, dialect, stream=stream)
    assert_whole(answer, dialect, stream=stream)
    assert settled.exchange.outcome == "ok"
    assert [note.outcome for note in settled.attempts] == [EARLY[fault][1], "ok"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("fault", LATE)
async def test_a_late_fault_is_told_in_band(start: Start, dialect: str, fault: str) -> None:
    targets = [f"{dialect}/plain!{fault}", f"{dialect}/plain"]
    field = await Field.open(start, model("m", targets))
    answer, settled = await ask(field, dialect, stream=True)
    assert answer.status == 200
    assert answer.end == "complete"
    name, data = answer.events[-1]
    assert name == ("error" if dialect == "anthropic" else "")
    assert_error(json.loads(data), dialect, None)
    assert b"message_stop" not in answer.body
    assert b'"STOP"' not in answer.body
    assert settled.exchange.outcome == LATE[fault]
    assert len(settled.attempts) == 1


@pytest.mark.parametrize(
    ("dialect", "fault"),
    [
        (dialect, fault)
        for dialect in DIALECTS
        for fault in FINE
        if (dialect, fault) != ("gemini", "no-last-chunk")  # the test below
    ],
)
async def test_what_is_odd_but_sound_passes(start: Start, dialect: str, fault: str) -> None:
    field = await Field.open(start, model("m", [f"{dialect}/plain!{fault}"]))
    answer, settled = await ask(field, dialect, stream=True)
    assert_whole(answer, dialect, stream=True)
    assert b"\r" not in answer.body
    assert settled.exchange.outcome == "ok"
    assert settled.exchange.tokens_out == 12


async def test_a_finish_reason_alone_does_not_end_a_body_that_broke(start: Start) -> None:
    """Gemini has no terminal marker: its answer is complete once the body has ended too."""
    field = await Field.open(start, model("m", ["gemini/plain!no-last-chunk", "gemini/plain"]))
    answer, settled = await ask(field, "gemini", stream=True)
    assert answer.status == 200
    assert_error(json.loads(answer.events[-1][1]), "gemini", None)
    assert settled.exchange.outcome == "reset"
    assert settled.attempts[0].ended_by is None
