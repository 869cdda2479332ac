"""Every dialect: the whole answer and the pieces of its stream say the same."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.sim.answer.answer import JsonText, Prose, plain, split_tokens
from sim.conftest import SAY

if TYPE_CHECKING:
    from sim.conftest import Answer, Serve, Sim

N = 12


def said(chunks: list[Any], field: str) -> str:
    """The text of one field in the deltas of a chat stream."""
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get(field) or "" for delta in deltas)


def test_every_token_is_four_characters() -> None:
    for words in (Prose(3), Prose(wide=True), JsonText(200)):
        for first in range(0, 150, 7):
            assert len(plain(words.piece(first, 1))) == 4
        joined = b"".join(words.piece(n, 1) for n in range(200))
        assert joined == words.piece(0, 200)
    assert all(len(Prose(wide=True).piece(n, 1)) == 10 for n in range(10))
    assert all(plain(Prose().piece(n, 1))[0] == " " for n in range(100))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 100])
def test_json_text_is_json_of_the_right_length(count: int) -> None:
    words = JsonText(count)
    assert isinstance(json.loads(words.text), dict)
    assert len(plain(words.piece(0, count))) == 4 * count


@settings(derandomize=True, max_examples=100)
@given(first=st.integers(0, 50), tokens=st.integers(1, 50), events=st.integers(1, 9))
def test_a_burst_is_spread_whole(first: int, tokens: int, events: int) -> None:
    pieces = split_tokens(first, tokens, events)
    assert pieces[0][0] == first
    assert sum(count for _, count in pieces) == tokens
    assert all(a + n == b for (a, n), (b, _) in itertools.pairwise(pieces))
    assert all(count >= 1 for _, count in pieces)


async def test_chat(sim: Sim) -> None:
    options: dict[str, Any] = {"stream_options": {"include_usage": True}}
    stream = await sim.chat(**options)
    whole = (await sim.chat(stream=False)).json
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.events[-1] == ("", "[DONE]")
    *chunks, last = stream.chunks
    assert len(said(chunks, "content")) == len(whole["choices"][0]["message"]["content"]) == 4 * N
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * (N + 1) + ["stop"]
    assert {c["id"] for c in chunks} == {last["id"]}
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert whole["object"] == "chat.completion"
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    assert whole["usage"]["completion_tokens"] == N
    assert whole["usage"]["prompt_tokens"] == len("Say something.") // 4
    assert (chunks[0]["model"], whole["model"]) == ("plain", "plain")


@pytest.mark.parametrize(
    ("limit", "tokens"), [(16_384, 16_384), (16_385, 100), (32_000, 100), (None, 100)]
)
async def test_a_limit_that_means_none_makes_no_endless_answer(
    sim: Sim, limit: int | None, tokens: int
) -> None:
    answer = await sim.chat(stream=False, max_tokens=limit)
    assert answer.json["usage"]["completion_tokens"] == tokens
    assert answer.json["choices"][0]["finish_reason"] == "stop"


async def test_chat_without_asking_has_no_usage(sim: Sim) -> None:
    assert all("usage" not in chunk for chunk in (await sim.chat()).chunks)


async def test_chat_reasoning_comes_first_and_hidden_reasoning_not_at_all(sim: Sim) -> None:
    chunks = (await sim.chat("think")).chunks
    assert len(said(chunks, "reasoning_content")) == 4 * 5
    assert len(said(chunks, "content")) == 4 * 7
    whole = (await sim.chat("hidden", stream=False)).json
    assert len(whole["choices"][0]["message"]["content"]) == 4 * 7
    assert whole["usage"]["completion_tokens"] == N
    assert whole["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}


async def test_chat_tool_calls(sim: Sim) -> None:
    chunks = (await sim.chat("tool")).chunks
    calls = [
        call
        for chunk in chunks
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", [])
    ]
    assert calls[0]["function"] == {"name": "look", "arguments": ""}
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert json.loads(arguments)
    assert len("look" + arguments) == 4 * N
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    whole = (await sim.chat("tool", stream=False)).json["choices"][0]["message"]
    assert whole["tool_calls"][0]["function"] == {"name": "look", "arguments": arguments}
    assert whole["content"] is None


async def test_a_demanded_tool_is_called_by_its_name(sim: Sim) -> None:
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]
    answer = await sim.chat(stream=False, tools=tools, tool_choice="required")
    (call,) = answer.json["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    free = await sim.chat(stream=False, tools=tools)
    assert "tool_calls" not in free.json["choices"][0]["message"]


async def test_json_is_json_when_asked_for(sim: Sim) -> None:
    chunks = (await sim.chat(response_format={"type": "json_object"})).chunks
    assert isinstance(json.loads(said(chunks, "content")), dict)


@pytest.mark.parametrize(
    ("style", "places"),
    [
        ("absent", []),
        ("finish", [N + 1]),
        ("separate", [N + 2]),
        ("late", [N + 2]),
        ("every", list(range(1, N + 2))),
        ("fused", [N]),
    ],
)
async def test_usage_is_where_its_style_says(sim: Sim, style: str, places: list[int]) -> None:
    options: dict[str, Any] = {"stream_options": {"include_usage": True}}
    chunks = (await sim.chat(fault=f"usage-{style}", **options)).chunks
    assert [n for n, chunk in enumerate(chunks) if chunk.get("usage")] == places
    if places:
        assert chunks[places[-1]]["usage"]["completion_tokens"] == N
    unasked = (await sim.chat(fault=f"usage-{style}")).chunks
    always = style in {"finish", "every", "fused"}
    assert any(chunk.get("usage") for chunk in unasked) == always


async def test_running_usage_counts_up(sim: Sim) -> None:
    chunks = (await sim.chat("hidden", fault="usage-every")).chunks
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks if "usage" in chunk]
    assert counts == [6, 7, 8, 9, 10, 11, 12, 12]


async def test_completions(sim: Sim) -> None:
    body = {"model": "think", "prompt": "Say", "max_tokens": N}
    whole = (await sim.ask("/lab/v1/completions", body)).json
    stream = await sim.ask("/lab/v1/completions", {**body, "stream": True})
    text = "".join(chunk["choices"][0]["text"] for chunk in stream.chunks)
    assert len(text) == len(whole["choices"][0]["text"]) == 4 * N
    assert whole["object"] == "text_completion"
    assert stream.chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert stream.events[-1][1] == "[DONE]"


@pytest.mark.parametrize("model", ["plain", "think", "tool", "mixed", "hidden"])
async def test_responses(sim: Sim, model: str) -> None:
    body = {"model": model, "input": "Say", "max_output_tokens": N}
    whole = (await sim.ask("/lab/v1/responses", body)).json
    stream = await sim.ask("/lab/v1/responses", {**body, "stream": True})
    chunks = stream.chunks
    assert [name for name, _ in stream.events] == [chunk["type"] for chunk in chunks]
    assert [chunk["sequence_number"] for chunk in chunks] == list(range(len(chunks)))
    assert chunks[0]["type"] == "response.created"
    final = chunks[-1]
    assert final["type"] == "response.completed"
    assert whole["object"] == "response"
    assert [item["type"] for item in final["response"]["output"]] == [
        item["type"] for item in whole["output"]
    ]
    assert final["response"]["usage"] == whole["usage"]
    assert whole["usage"]["output_tokens"] == N
    deltas = "".join(chunk["delta"] for chunk in chunks if chunk["type"].endswith(".delta"))
    assert len(deltas) == 4 * (7 if model == "hidden" else N)
    added = [chunk["item"]["id"] for chunk in chunks if chunk["type"].endswith("item.added")]
    assert added == [item["id"] for item in final["response"]["output"]]


def message_text(answer: Answer) -> dict[str, str]:
    out: dict[str, str] = {}
    for chunk in answer.chunks:
        if chunk["type"] == "content_block_delta":
            delta = chunk["delta"]
            kind = delta["type"]
            if kind == "signature_delta":  # no token, and after the thinking that it signs
                assert "thinking_delta" in out
                continue
            text = delta[
                {"text_delta": "text", "thinking_delta": "thinking"}.get(kind, "partial_json")
            ]
            out[kind] = out.get(kind, "") + text
    return out


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        ("plain", {"text_delta": N}),
        ("think", {"thinking_delta": 5, "text_delta": 7}),
        ("tool", {"input_json_delta": N}),
        ("mixed", {"text_delta": 6, "input_json_delta": 6}),
    ],
)
async def test_messages(sim: Sim, model: str, sizes: dict[str, int]) -> None:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Say"}]}],
        "max_tokens": N,
    }
    whole = (await sim.ask("/anthropic/v1/messages", body)).json
    stream = await sim.ask("/anthropic/v1/messages", {**body, "stream": True})
    chunks = stream.chunks
    assert [name for name, _ in stream.events] == [chunk["type"] for chunk in chunks]
    assert {kind: len(text) // 4 for kind, text in message_text(stream).items()} == sizes
    assert chunks[0]["type"] == "message_start"
    assert chunks[-1] == {"type": "message_stop"}
    assert chunks[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"] == N
    starts = [c["index"] for c in chunks if c["type"] == "content_block_start"]
    stops = [c["index"] for c in chunks if c["type"] == "content_block_stop"]
    assert starts == stops == list(range(len(sizes)))
    assert len(whole["content"]) == len(sizes)
    reason = "tool_use" if "input_json_delta" in sizes else "end_turn"
    assert whole["stop_reason"] == chunks[-2]["delta"]["stop_reason"] == reason
    assert stream.headers["request-id"] == stream.headers["x-request-id"]


@pytest.mark.parametrize("model", ["plain", "think", "tool", "mixed", "hidden"])
async def test_gemini(sim: Sim, model: str) -> None:
    body = {
        "contents": [{"role": "user", "parts": [{"text": "Say"}]}],
        "generationConfig": {"maxOutputTokens": N},
    }
    base = f"/gemini/v1beta/models/{model}"
    whole = (await sim.ask(f"{base}:generateContent", body)).json
    stream = await sim.ask(f"{base}:streamGenerateContent?alt=sse", body)
    array = await sim.ask(f"{base}:streamGenerateContent", body)
    assert array.headers["content-type"] == "application/json"
    for chunks in (stream.chunks, array.json):
        last = chunks[-1]
        assert last["candidates"][0]["finishReason"] == "STOP"
        assert last["usageMetadata"] == whole["usageMetadata"]
        parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
        texts = [len(part["text"]) for part in parts if "text" in part]
        calls = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        tools = {"tool": N, "mixed": 6}.get(model, 0)
        hidden = 5 if model == "hidden" else 0
        assert sum(texts) == 4 * (N - tools - hidden)
        assert calls == (["look"] if tools else [])
    usage = whole["usageMetadata"]
    assert usage["totalTokenCount"] - usage["promptTokenCount"] == N
    assert usage.get("thoughtsTokenCount", 0) == (5 if model in {"think", "hidden"} else 0)


async def test_embeddings(sim: Sim) -> None:
    body = {"model": "plain", "input": ["one", "two", "one"], "dimensions": 5}
    answer = (await sim.ask("/lab/v1/embeddings", body)).json
    vectors = [item["embedding"] for item in answer["data"]]
    assert [len(vector) for vector in vectors] == [5, 5, 5]
    assert vectors[0] == vectors[2] != vectors[1]
    assert sum(x * x for x in vectors[0]) == pytest.approx(1.0, abs=1e-5)
    packed = await sim.ask("/lab/v1/embeddings", {**body, "encoding_format": "base64"})
    assert isinstance(packed.json["data"][0]["embedding"], str)


async def test_a_rough_stream_says_the_same_as_a_smooth_one(sim: Sim) -> None:
    rough = await sim.chat("rough")
    assert rough.body.count(b": sim keep-alive\r\n") > 5
    assert b"\n" not in rough.body.replace(b"\r\n", b"")
    text = said(rough.chunks, "content")
    assert len(text) == 4 * N
    assert "光" in text
    torn = [piece for piece in rough.pieces if not _is_utf8(piece)]
    assert torn


def _is_utf8(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


async def test_min_tokens_and_ignore_eos_make_an_answer_longer(serve: Serve) -> None:
    short = {"exact": {"ttft_ms": 1, "gap_ms": 0}, "shape": {"tokens": 5}}
    sim = await serve(lab={"models": {"short": short}})

    async def answered(**fields: Any) -> tuple[int, str]:
        whole = (await sim.chat("short", stream=False, **fields)).json
        return whole["usage"]["completion_tokens"], whole["choices"][0]["finish_reason"]

    assert await answered() == (5, "stop")
    assert await answered(min_tokens=9) == (9, "stop")
    assert await answered(min_tokens=12) == (12, "stop")
    assert await answered(ignore_eos=True) == (12, "length")
    assert (await sim.chat("short", min_tokens=13)).status == 400


@pytest.mark.parametrize(("mode", "calls"), [("ANY", True), ("NONE", False), ("AUTO", False)])
async def test_gemini_calls_a_tool_as_its_mode_says(sim: Sim, mode: str, *, calls: bool) -> None:
    body = {
        "contents": [{"parts": [{"text": "Look."}]}],
        "tools": [{"functionDeclarations": [{"name": "look"}, {"name": "see"}]}],
        "toolConfig": {"functionCallingConfig": {"mode": mode, "allowedFunctionNames": ["see"]}},
    }
    answer = await sim.ask("/gemini/v1beta/models/plain:generateContent", body)
    parts = answer.json["candidates"][0]["content"]["parts"]
    assert [part["functionCall"]["name"] for part in parts if "functionCall" in part] == (
        ["see"] if calls else []
    )


async def test_a_forbidden_tool_is_not_called(sim: Sim) -> None:
    whole = (await sim.chat("tool", stream=False, tool_choice="none")).json
    assert "tool_calls" not in whole["choices"][0]["message"]
    assert whole["choices"][0]["message"]["content"]


async def test_a_text_at_its_limit_ends_with_length(serve: Serve) -> None:
    """As a real provider's does; a length of its own, and a call that is whole, end otherwise."""
    exact = {"ttft_ms": 1, "gap_ms": 0}
    models = {
        "open": {"exact": exact},
        "own": {"exact": exact, "shape": {"tokens": 12}},
        "calls": {"exact": exact, "shape": {"answer": "tool"}},
    }
    sim = await serve(lab={"models": models})

    async def end(model: str, **fields: Any) -> str:
        whole = (await sim.chat(model, stream=False, **fields)).json
        return str(whole["choices"][0]["finish_reason"])

    assert await end("open") == "length"
    assert [await end("open", max_tokens=limit) for limit in (None, 16_385)] == ["stop", "stop"]
    assert [await end("own", max_tokens=limit) for limit in (11, 12, 13)] == [
        "length", "stop", "stop",
    ]  # fmt: skip
    assert await end("calls") == "tool_calls"
    assert await end("calls", tool_choice="none") == "length"


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
async def test_several_answers_come_side_by_side(sim: Sim, path: str) -> None:
    asked = {"model": "plain", "messages": SAY, "prompt": "Say.", "max_tokens": 5, "n": 3}
    whole = (await sim.ask(f"/lab/v1/{path}", asked)).json
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert whole["usage"]["completion_tokens"] == 15
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = (await sim.ask(f"/lab/v1/{path}", {**asked, **options})).chunks
    texts, ends = ["", "", ""], [None, None, None]
    for choice in (chunk["choices"][0] for chunk in chunks):
        texts[choice["index"]] += choice.get("text") or choice.get("delta", {}).get("content") or ""
        ends[choice["index"]] = choice["finish_reason"]
    assert [len(text) for text in texts] == [20, 20, 20]
    assert ends == ["stop", "stop", "stop"]
    assert last["usage"]["completion_tokens"] == 15
    assert list(sim.server.log.entries)[-1].tokens_billed == 15
    assert (await sim.ask(f"/lab/v1/{path}", {**asked, "n": 0})).status == 400


async def test_several_candidates_of_gemini(sim: Sim) -> None:
    config = {"candidateCount": 2, "maxOutputTokens": 4}
    asked = {"contents": [{"parts": [{"text": "Say."}]}], "generationConfig": config}
    whole = (await sim.ask("/gemini/v1beta/models/plain:generateContent", asked)).json
    assert [one["index"] for one in whole["candidates"]] == [0, 1]
    assert whole["usageMetadata"]["candidatesTokenCount"] == 8
