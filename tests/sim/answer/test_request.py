from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.sim.answer.request import BadSimRequest, Kind, SimRequest, read_request
from lightgate.sim.server.routes import find_endpoint, find_key, read_path

SAY = [{"role": "user", "content": "12345678"}]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = [
    "min_tokens",
    "toolConfig",
    "systemInstruction",
    "instructions",
    "model",
    "messages",
    "prompt",
    "input",
    "contents",
    "tools",
    "tool_choice",
    "max_tokens",
    "stream",
    "stream_options",
    "response_format",
    "generationConfig",
    "text",
    "system",
    "dimensions",
    "encoding_format",
]


def ask(kind: Kind, **fields: Any) -> SimRequest:
    return read_request(kind, json.dumps({"model": "m", **fields}).encode())


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
def test_a_cap_by_any_name(name: str) -> None:
    assert ask("chat", messages=SAY, **{name: 9}).cap == 9


def test_gemini_keeps_its_facts_elsewhere() -> None:
    body = {
        "contents": [{"parts": [{"text": "12345678"}]}],
        "generationConfig": {"maxOutputTokens": 5},
    }
    got = read_request("gemini", json.dumps(body).encode(), "m!reset:3", stream=True)
    assert (got.cap, got.stream, got.tokens_in) == (5, True, 2)
    assert (got.model_name, got.fault) == ("m", "reset:3")


def test_text_is_counted_wherever_it_is() -> None:
    parts = [
        {"type": "text", "text": "1234"},
        {"type": "image_url", "image_url": {"url": "x" * 99}},
    ]
    got = ask(
        "chat", messages=[{"role": "system", "content": "1234"}, {"role": "user", "content": parts}]
    )
    assert got.tokens_in == 2
    assert ask("messages", messages=SAY, system="1234", max_tokens=1).tokens_in == 3
    assert ask("embeddings", input=[1, 2, 3]).tokens_in == 3


def test_embedding_inputs() -> None:
    assert ask("embeddings", input="a").inputs == ("a",)
    assert ask("embeddings", input=["a", "b"]).inputs == ("a", "b")
    assert len(ask("embeddings", input=[1, 2, 3]).inputs) == 1
    assert len(ask("embeddings", input=[[1], [2]]).inputs) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"model":"m"}',
        b'{"messages":[{}]}',
        b"\xff\xfe",
        b'{"model":3,"messages":[1]}',
    ],
)
def test_a_bad_body_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(BadSimRequest) as caught:
        read_request("chat", body)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("cap", [0, -1, 1.5, "9", True, 10**9])
def test_a_bad_cap_is_refused(cap: Any) -> None:
    with pytest.raises(BadSimRequest, match="max_tokens"):
        ask("chat", messages=SAY, max_tokens=cap)


def test_anthropic_demands_a_cap() -> None:
    with pytest.raises(BadSimRequest, match="max_tokens"):
        ask("messages", messages=SAY)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(
    st.sampled_from(["chat", "completions", "responses", "embeddings", "messages", "gemini"]),
    st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=10),
)
def test_any_object_is_an_ask_or_refused(kind: Kind, tree: dict[str, Any]) -> None:
    try:
        got = read_request(kind, json.dumps(tree).encode())
    except BadSimRequest:
        return
    assert got.tokens_in >= 1
    assert got.cap is None or got.cap >= 1


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_read(body: bytes) -> None:
    with pytest.raises(BadSimRequest):
        read_request("chat", body)


def test_targets() -> None:
    known = {"lab", "gem"}
    got = read_path(b"/lab/v1/models?a=1&b=", known, None)
    assert (got.provider, got.path, got.query) == ("lab", "v1/models", {"a": "1", "b": ""})
    assert read_path(b"/sim/log?since=3", known, None).provider is None
    assert read_path(b"/v1/models", known, "lab").provider == "lab"
    stream = read_path(b"/gem/v1beta/models/a%2Fb:streamGenerateContent?alt=sse", known, None)
    call = find_endpoint("gemini", stream)
    assert call == ("gemini", "a/b", True, False)
    assert find_endpoint("openai", stream) is None
    assert (
        find_endpoint("gemini", read_path(b"/gem/v1beta/models/a:countToken", known, None)) is None
    )


def test_keys() -> None:
    assert find_key(((b"authorization", b"Bearer abc"),), {}) == "abc"
    for name in (b"x-api-key", b"api-key", b"x-goog-api-key"):
        assert find_key(((b"host", b"x"), (name, b"abc")), {}) == "abc"
    assert find_key((), {"key": "abc"}) == "abc"
    assert find_key((), {}) is None


@pytest.mark.parametrize(
    ("fields", "demanded", "forbidden", "name"),
    [
        ({"tool_choice": "required"}, True, False, "first"),
        ({"tool_choice": "auto"}, False, False, "first"),
        ({"tool_choice": "none"}, False, True, "first"),
        ({"tool_choice": {"type": "none"}}, False, True, "first"),
        ({"tool_choice": {"type": "tool", "name": "b"}}, True, False, "b"),
        ({"tool_choice": {"type": "function", "function": {"name": "b"}}}, True, False, "b"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, True, False, "first"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}, False, True, "first"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}, False, False, "first"),
        (
            {
                "toolConfig": {
                    "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["b"]}
                }
            },
            True,
            False,
            "b",
        ),
    ],
)
def test_a_tool_is_demanded_or_forbidden(
    fields: dict[str, Any], *, demanded: bool, forbidden: bool, name: str
) -> None:
    got = ask("chat", messages=SAY, tools=[{"function": {"name": "first"}}], **fields)
    assert (got.tool, got.no_tool, got.tool_name) == (demanded, forbidden, name)


def test_the_fewest_tokens() -> None:
    assert ask("chat", messages=SAY).least == 0
    assert ask("chat", messages=SAY, min_tokens=5, max_tokens=9).least == 5
    with pytest.raises(BadSimRequest, match="min_tokens"):
        ask("chat", messages=SAY, min_tokens=10, max_tokens=9)


def test_the_prompt_is_its_text_in_order() -> None:
    messages = [{"content": "one "}, {"content": [{"text": "two "}, {"text": "three"}]}]
    assert ask("messages", system="zero ", messages=messages, max_tokens=1).prompt == (
        "zero one two three"
    )
    body = {
        "systemInstruction": {"parts": [{"text": "a"}]},
        "contents": [{"parts": [{"text": "b"}]}],
    }
    assert read_request("gemini", json.dumps(body).encode(), "m").prompt == "ab"
