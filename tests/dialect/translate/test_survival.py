"""Properties: whatever text goes in comes out in every dialect, and no body does harm."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.dialect.registry import TRANSLATED, dialect_for
from lightgate.dialect.request import Message, Request, Text, ToolCall
from lightgate.dialect.translate import read_request
from lightgate.errors import UsageError

DIALECTS = {
    "openai-chat": dialect_for("openai", "chat"),
    "openai-responses": dialect_for("openai", "responses"),
    "anthropic-messages": dialect_for("anthropic", "chat"),
    "gemini": dialect_for("gemini", "chat"),
}
PAIRS = [(source, target) for source in DIALECTS for target in DIALECTS]
words = st.text(min_size=1)
results = words.filter(lambda text: not text.lstrip().startswith("{"))


def talk(texts: list[str], result: str, arguments: dict[str, str]) -> Request:
    encoded = msgspec.json.encode(arguments).decode()
    call = ToolCall(id="call_0", name="look", arguments=encoded)
    system, question, aside, answer = texts
    return Request(
        model="m",
        stream=False,
        max_tokens=9,
        messages=(
            Message(role="system", content=system),
            Message(role="user", content=(Text(question), Text(aside))),
            Message(role="assistant", content=answer, tool_calls=(call,)),
            Message(role="tool", content=result, tool_call_id="call_0"),
        ),
    )


def heard(dialect: str, request: Request) -> Request:
    """Say a request in a dialect and read what was said."""
    return read_request(dialect, DIALECTS[dialect].build(request).body, model="m")


def spoken(request: Request) -> list[Any]:
    """Everything that was said, without what belongs to a dialect alone."""
    said: list[Any] = []
    for message in request.messages:
        parts = message.content
        texts = [parts] if isinstance(parts, str) else [p.text for p in parts]  # type: ignore[union-attr] # texts alone
        said.append((message.role, texts, message.tool_call_id))
        said += [(call.id, call.name, json.loads(call.arguments)) for call in message.tool_calls]
    return said


def unwrapped(request: Request) -> Request:
    """Undo the object that Gemini needs around a result."""
    last = request.messages[-1]
    assert isinstance(last.content, str)
    try:
        text = json.loads(last.content)["result"]
    except (ValueError, TypeError):
        return request
    result = msgspec.structs.replace(last, content=text)
    return msgspec.structs.replace(request, messages=(*request.messages[:-1], result))


@pytest.mark.parametrize(("source", "target"), PAIRS)
@given(
    texts=st.lists(words, min_size=4, max_size=4),
    result=results,
    arguments=st.dictionaries(st.text(), st.text(), max_size=3),
)
def test_any_text_survives_two_dialects(
    source: str, target: str, texts: list[str], result: str, arguments: dict[str, str]
) -> None:
    request = talk(texts, result, arguments)
    found = heard(target, heard(source, request))
    if "gemini" in {source, target}:
        found = unwrapped(found)
    assert spoken(found) == spoken(request)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(
    stop=st.lists(words, max_size=4),
    temperature=st.floats(0, 1),
    cap=st.integers(1, 1 << 40),
)
def test_wishes_survive_a_round_trip(
    dialect: str, stop: list[str], temperature: float, cap: int
) -> None:
    stop = [] if dialect == "openai-responses" else stop
    request = msgspec.structs.replace(
        talk(["a", "b", "c", "d"], "e", {}),
        stop=tuple(stop),
        temperature=temperature,
        max_tokens=cap,
    )
    found = heard(dialect, request)
    assert (found.stop, found.temperature, found.max_tokens) == (tuple(stop), temperature, cap)


KEYS = st.sampled_from(
    [
        *("messages", "input", "contents", "role", "content", "parts", "type", "text", "name"),
        *("tools", "function", "parameters", "functionDeclarations", "tool_choice", "toolConfig"),
        *("generationConfig", "thinking", "output_config", "response_format", "json_schema"),
        *("tool_calls", "tool_result", "functionCall", "functionResponse", "inlineData", "source"),
        *("system", "systemInstruction", "reasoning", "stop", "schema", "response_schema", "items"),
        *("image_url", "url", "id", "call_id", "arguments", "args", "properties", "anyOf", "enum"),
    ]
)
LEAVES = st.sampled_from(
    [
        *(None, True, False, 0, 1, -1, 1.5, 1 << 70, "", "x", "user", "assistant", "model", "tool"),
        *("text", "function", "image", "tool_use", "tool_result", "function_call", "reasoning"),
        *("json_schema", "object", "OBJECT", "data:image/png;base64,!", "https://x.test/"),
    ]
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=30,
)


@pytest.mark.parametrize("dialect", TRANSLATED)
@given(body=st.dictionaries(KEYS, JSON, max_size=6))
def test_no_body_does_harm(dialect: str, body: dict[str, Any]) -> None:
    try:
        request = read_request(dialect, json.dumps(body).encode(), model="m")
    except UsageError:
        return
    for target in DIALECTS.values():
        try:
            said = target.build(request).body
        except UsageError:
            continue
        assert isinstance(json.loads(said), dict)
