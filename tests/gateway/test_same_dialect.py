"""OpenAI clients at OpenAI-compatible providers that refuse what they do not know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.security.conftest import chat_body, chat_stream, events, whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Heard, Upstream

# What each provider takes, from its own documentation; anything else is an error there.
TAKES: dict[str, set[str]] = {
    "mistral": {"model", "messages", "stream", "temperature", "top_p", "max_tokens", "random_seed",
                "stop", "tools", "tool_choice", "response_format", "n", "metadata",
                "parallel_tool_calls", "prompt_cache_key", "service_tier", "reasoning_effort"},
    "cohere": {"model", "messages", "stream", "temperature", "top_p", "max_tokens", "seed", "stop",
               "tools", "tool_choice", "response_format", "frequency_penalty", "presence_penalty",
               "reasoning_effort"},
    "together": {"model", "messages", "stream", "stream_options", "temperature", "top_p", "seed",
                 "max_tokens", "stop", "tools", "tool_choice", "response_format", "n", "user"},
    "deepseek": {"model", "messages", "stream", "stream_options", "temperature", "top_p", "seed",
                 "max_tokens", "max_completion_tokens", "stop", "tools", "tool_choice", "user",
                 "response_format"},
}  # fmt: skip
ROLES = {"system", "user", "assistant", "tool"}


def strict(name: str) -> Any:
    """A provider that answers 422 with the name of the first thing that it does not take."""

    def wrong(body: dict[str, Any]) -> str:
        for field in body:
            if field not in TAKES[name]:
                return field
        for place, turn in enumerate(body["messages"]):
            if turn["role"] not in ROLES | ({"developer"} if name == "cohere" else set()):
                return f"messages.{place}.role"
        form = body.get("response_format") or {}
        if name == "deepseek" and form.get("type") == "json_schema":
            return "response_format"
        return ""

    async def told(heard: Heard) -> AsyncIterator[bytes]:
        body = heard.json
        field = wrong(body)
        play = chat_stream() if body.get("stream") else whole(chat_body())
        if field:
            loc = ["body", *field.split(".")]
            said = {"detail": [{"type": "extra_forbidden", "loc": loc, "msg": "Extra inputs"}]}
            play = whole(json.dumps(said).encode(), status=b"422 Unprocessable Entity")
        async for piece in play(heard):
            yield piece

    return told


ASKED: dict[str, Any] = {
    "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    "max_completion_tokens": 9, "seed": 7, "store": False,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
}  # fmt: skip


async def behind(start: Start, upstream: Upstream, name: str, models: str = "") -> Rig:
    return await start(
        f'[providers.{name}]\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\napi_key = "none"\n'
        f'[providers.raw]\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\napi_key = "none"\n'
        + models
    )


@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_openai_client_is_answered_by_a_strict_provider(
    start: Start, upstream: Upstream, name: str, stream: bool
) -> None:
    rig = await behind(start, upstream, name)
    upstream.script = strict(name)
    fields = ASKED | ({"stream_options": {"include_usage": True}} if stream else {})
    answer = await rig.chat(f"{name}/m", stream=stream, max_tokens=None, **fields)
    assert answer.status == 200, answer.body
    dropped = answer.headers.get("x-lightgate-dropped", "")
    assert ("stream_options" in dropped) == (stream and name in {"mistral", "cohere"})
    [settled] = rig.settled()
    assert len(settled.attempts) == 1
    assert settled.attempts[0].tokens_source != "usage"  # estimated, and marked so


async def test_a_target_that_cannot_be_told_is_passed_over(
    start: Start, upstream: Upstream
) -> None:
    models = '[models.two]\ntargets = ["groq/a", "raw/b"]\npolicy = "ordered"\n'
    rig = await behind(start, upstream, "groq", models)
    upstream.script = chat_stream()
    answer = await rig.chat("two", logprobs=True)
    assert answer.status == 200
    assert answer.headers["x-lightgate-target"] == "raw/b"
    alone = await rig.chat("groq/a", logprobs=True)
    assert alone.status == 400
    error = alone.json["error"]
    assert error["param"] == "logprobs"
    assert error["message"] == (
        "Groq cannot express the field 'logprobs': this provider does not know it."
        " Leave 'logprobs' out, or ask for a model with a target that takes it."
    )


words = st.text(max_size=20)
more = st.dictionaries(st.sampled_from(["id", "x", "provider", "usage_"]), words, max_size=3)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=words.filter(bool), extra=more, indent=st.sampled_from([None, 1]), ascii_=st.booleans())
async def test_a_whole_answer_keeps_every_byte(
    shared: tuple[Rig, Upstream], text: str, extra: dict[str, str], indent: int | None, ascii_: bool
) -> None:
    rig, upstream = shared
    message = {"role": "assistant", "content": text, **extra}
    body = {"choices": [{"message": message, "finish_reason": "stop"}], **extra}
    sent = json.dumps(body, indent=indent, ensure_ascii=ascii_).encode()
    upstream.script = whole(sent)
    answer = await rig.chat("raw/m", stream=False)
    assert answer.status == 200
    assert answer.body == sent


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(words.filter(bool), min_size=1, max_size=5),
    extra=more,
    together=st.booleans(),
    ascii_=st.booleans(),
)
async def test_every_event_of_a_stream_keeps_its_bytes(
    shared: tuple[Rig, Upstream],
    texts: list[str],
    extra: dict[str, str],
    together: bool,
    ascii_: bool,
) -> None:
    rig, upstream = shared
    chunks = [{"choices": [{"index": 0, "delta": {"content": text}}], **extra} for text in texts]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    sent = [b"data: %b\n\n" % json.dumps(chunk, ensure_ascii=ascii_).encode() for chunk in chunks]
    sent.append(b"data: [DONE]\n\n")
    upstream.script = events(*([b"".join(sent)] if together else sent))
    answer = await rig.chat("raw/m")
    assert answer.status == 200
    assert answer.body == b"".join(sent)


@pytest.fixture
async def shared(start: Start, upstream: Upstream) -> tuple[Rig, Upstream]:
    return await behind(start, upstream, "mistral"), upstream
