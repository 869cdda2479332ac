"""streamGenerateContent without alt=sse: the stream as one JSON array."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start
    from sim.conftest import Answer

BODY = {
    "contents": [{"role": "user", "parts": [{"text": "Say something."}]}],
    "generationConfig": {"maxOutputTokens": 12},
}


async def stream(rig: Rig, model: str, query: str = "", **headers: str) -> Answer:
    return await rig.ask(f"/v1beta/models/{model}:streamGenerateContent{query}", BODY, **headers)


def text_of(chunks: list[Any]) -> str:
    parts = [part for c in chunks for part in c["candidates"][0]["content"]["parts"]]
    return "".join(part.get("text", "") for part in parts)


@pytest.mark.parametrize("query", ["", "?alt=json", "?$alt=json;enum-encoding=int"])
@pytest.mark.parametrize("target", ["gemini/plain", "lab/plain", "anthropic/plain"])
async def test_the_stream_is_an_array(rig: Rig, target: str, query: str) -> None:
    """Piece by piece, as the events of alt=sse are."""
    answer = await stream(rig, target, query)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    events = await stream(rig, target, "?alt=sse")
    assert len(answer.json) == len(events.chunks) > 2
    assert len(text_of(answer.json)) == len(text_of(events.chunks)) == 48
    assert answer.json[-1]["candidates"][0]["finishReason"] in {"STOP", "MAX_TOKENS"}
    assert "content-length" not in answer.headers
    assert (answer.body[:1], answer.body[-1:]) == (b"[", b"]")  # google-generativeai takes no other
    assert all(settled.exchange.streamed for settled in rig.settled())


@pytest.mark.parametrize("fault", ["status:500", "stream-error:3", "truncated:5"])
async def test_errors_are_elements(start: Start, fault: str) -> None:
    rig = await start(f'[models.m]\ntargets = ["gemini/plain!{fault}"]\n')
    answer = await stream(rig, "m")
    begun = fault != "status:500"
    assert answer.status == (200 if begun else 502)
    assert "error" in answer.json[-1]
    assert len(answer.json) > begun


async def test_a_kept_answer_is_an_array_too(start: Start) -> None:
    rig = await start('[models.m]\ntargets = ["lab/plain"]\ncache = {{ mode = "any" }}\n')
    first, again = [await stream(rig, "m") for _ in range(2)]
    assert again.headers["x-lightgate-cache"] == "hit"
    assert text_of(first.json) == text_of(again.json)
    assert again.headers["content-type"] == "application/json"


async def test_a_client_that_waits_gets_white_space(start: Start) -> None:
    rig = await start('[models.m]\ntargets = ["gemini/far"]\ntimeout = "50ms"\n')
    line = await rig.line()
    path = "/v1beta/models/m:streamGenerateContent"
    line.send("POST", path, json.dumps(BODY).encode(), {})
    await rig.until(lambda: bool(rig.exchanges))
    next(iter(rig.exchanges)).comment()  # as a tick does after a long silence
    answer = await line.answer()
    await line.close()
    assert answer.body.startswith(b"[\n")  # google-generativeai takes no white space before it
    assert "error" in answer.json[-1]
