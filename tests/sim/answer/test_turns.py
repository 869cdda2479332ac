"""A model with scripted turns, in every dialect: a call, its result, the last words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.errors import ConfigError
from lightgate.sim.answer.request import (
    FAMILY_OF,
    SOUND,
    WHOLE_KINDS,
    BadSimRequest,
    Kind,
    SimRequest,
    read_request,
)
from lightgate.sim.dialects.registry import renderer_of
from lightgate.sim.provider import SimProvider
from lightgate.sim.world_file import parse

if TYPE_CHECKING:
    from lightgate.sim.world import World

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
ARGUMENTS = {"path": "/tmp/ä.txt", "content": 'say "hi"'}
TREE: dict[str, Any] = {
    "name": "w", "title": "w", "source": "tests",
    "providers": {
        "lab": {
            "models": {
                "agent": {
                    "exact": {"ttft_ms": 1, "gap_ms": 0},
                    "turns": [
                        {"calls": [
                            {"tool": "absent"},
                            {"tool": "write", "arguments": ARGUMENTS},
                        ]},
                        {"say": "Done: it is written."},
                    ],
                },
                "free": {
                    "exact": {"ttft_ms": 1, "gap_ms": 0},
                    "turns": [{"calls": [{"tool": "run", "arguments": {"input": "ls"}}],
                               "say": "Done."}],
                },
                "echo": {"exact": {"ttft_ms": 1, "gap_ms": 0}, "turns": [{"echo": True}]},
                "thing": {
                    "exact": {"ttft_ms": 1, "gap_ms": 0},
                    "turns": [{"calls": [{"tool": "*", "arguments": {"a": 1}}], "say": '{"a":1}'}],
                },
            }
        }
    },
}  # fmt: skip
NAMES = ("read", "write")
TOOLS: dict[str, Any] = {
    "chat": [
        {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES
    ],
    "responses": [
        {"type": "function", "name": "read", "parameters": SCHEMA},
        {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "write"}]},
    ],
    "messages": [{"name": name, "input_schema": SCHEMA} for name in NAMES],
    "gemini": [{"functionDeclarations": [{"name": name} for name in NAMES]}],
}
RESULTS: dict[str, Any] = {
    "chat": {"role": "tool", "tool_call_id": "c", "content": "ok"},
    "responses": {"type": "function_call_output", "call_id": "c", "output": "ok"},
    "messages": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]},
    "gemini": {"role": "user", "parts": [{"functionResponse": {"name": "write"}}]},
}
CALLS: dict[str, Any] = {
    "chat": {"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]},
    "responses": {"type": "function_call", "call_id": "c", "name": "write"},
    "messages": {"role": "assistant", "content": [{"type": "tool_use", "id": "c"}]},
    "gemini": {"role": "model", "parts": [{"functionCall": {"name": "write"}}]},
}
FIRST: dict[str, Any] = {
    "gemini": {"role": "user", "parts": [{"text": "Write."}]},
    "other": {"role": "user", "content": "Write."},
}
KINDS: tuple[Kind, ...] = ("chat", "responses", "messages", "gemini")


def asked(kind: Kind, model: str, *more: Any, **fields: Any) -> SimRequest:
    field = {"gemini": "contents", "responses": "input"}.get(kind, "messages")
    talk = [FIRST.get(kind, FIRST["other"]), *more]
    tree = {"model": model, "max_tokens": 500, field: talk, "tools": TOOLS[kind], **fields}
    return read_request(kind, msgspec.json.encode(tree), model if kind == "gemini" else "")


def answered(request: SimRequest) -> tuple[dict[str, Any], str]:
    """The whole document and why it ends."""
    world: World = parse(TREE, "tests")
    planned = SimProvider("lab", world, seed=1, born_ns=0).plan(request, 0, None)
    document = msgspec.json.decode(renderer_of(request, planned, array=False).whole())
    return document, planned.reason


def call_in(kind: str, document: dict[str, Any]) -> tuple[str, Any]:
    if kind == "chat":
        function = document["choices"][0]["message"]["tool_calls"][0]["function"]
        return function["name"], msgspec.json.decode(function["arguments"])
    if kind == "responses":
        item = document["output"][0]
        return item["name"], msgspec.json.decode(item["arguments"])
    if kind == "messages":
        block = document["content"][0]
        return block["name"], block["input"]
    call = document["candidates"][0]["content"]["parts"][0]["functionCall"]
    return call["name"], call["args"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_call_whose_tool_is_on_offer_is_made(kind: Kind) -> None:
    document, reason = answered(asked(kind, "agent"))
    assert call_in(kind, document) == ("write", ARGUMENTS)
    assert reason == "tool"


@pytest.mark.parametrize("kind", KINDS)
def test_after_the_result_comes_the_text(kind: Kind) -> None:
    document, reason = answered(asked(kind, "agent", RESULTS[kind]))
    assert "Done: it is written." in msgspec.json.encode(document).decode()
    assert reason == "stop"


@pytest.mark.parametrize("kind", KINDS)
def test_without_its_tool_a_turn_says_the_last_text(kind: Kind) -> None:
    document, _ = answered(asked(kind, "agent", tools=[]))
    assert "Done: it is written." in msgspec.json.encode(document).decode()


def test_a_star_is_the_demanded_tool_and_no_call_where_none_is_allowed() -> None:
    choice = {"type": "function", "function": {"name": "write"}}
    document, _ = answered(asked("chat", "thing", tool_choice=choice))
    assert call_in("chat", document) == ("write", {"a": 1})
    document, _ = answered(asked("chat", "thing", tool_choice="none"))
    assert document["choices"][0]["message"]["content"] == '{"a":1}'


@pytest.mark.parametrize("place", ["tools", "input"])
def test_free_text_and_namespaces_of_responses(place: str) -> None:
    offered = [{"type": "namespace", "name": "files", "tools": [{"type": "custom", "name": "run"}]}]
    item = {"type": "additional_tools", "role": "developer", "tools": offered}
    more, tools = ([], offered) if place == "tools" else ([item], [])
    document, _ = answered(asked("responses", "free", *more, tools=tools))
    (call,) = document["output"]
    assert (call["type"], call["input"], call["namespace"]) == ("custom_tool_call", "ls", "files")
    assert "arguments" not in call


def test_gemini_is_read_in_snake_case_too() -> None:
    tools = [{"function_declarations": [{"name": name} for name in NAMES]}]
    document, _ = answered(asked("gemini", "agent", tools=tools))
    assert call_in("gemini", document) == ("write", ARGUMENTS)
    result = {"role": "user", "parts": [{"function_response": {"name": "write"}}]}
    document, _ = answered(asked("gemini", "agent", result, tools=tools))
    assert "Done" in msgspec.json.encode(document).decode()
    forbidden = {"function_calling_config": {"mode": "NONE"}}
    document, _ = answered(asked("gemini", "agent", tools=tools, tool_config=forbidden))
    assert "Done" in msgspec.json.encode(document).decode()


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_without_its_call_is_stray(kind: Kind) -> None:
    request = asked(kind, "agent", RESULTS[kind])
    assert request.results.stray == ("write" if kind == "gemini" else "c")
    request = asked(kind, "agent", CALLS[kind], RESULTS[kind])
    assert request.results == (1, None)


def test_conversations_that_anthropic_would_keep_are_refused_as_its_sdks_expect() -> None:
    with pytest.raises(BadSimRequest) as refused:
        asked("messages", "agent", thread={"type": "create"})
    assert refused.value.details == {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    }


def test_a_call_that_does_not_fit_is_not_begun() -> None:
    document, reason = answered(asked("messages", "agent", max_tokens=3))
    assert (document["content"], reason) == ([], "length")


def test_streamed_pieces_are_the_same_words() -> None:
    request = asked("chat", "agent", RESULTS["chat"], stream=True)
    world = parse(TREE, "tests")
    planned = SimProvider("lab", world, seed=1, born_ns=0).plan(request, 0, None)
    renderer = renderer_of(request, planned, array=False)
    pieces, at = [], 0
    for kind, tokens in zip(planned.plan.script.kind, planned.plan.script.tokens, strict=True):
        if tokens:
            data = renderer.beat(kind, at, tokens).removeprefix(b"data: ").splitlines()[-2]
            event = msgspec.json.decode(data.removeprefix(b"data: "))
            pieces.append(event["choices"][0]["delta"]["content"])
            at += tokens
    assert "".join(pieces) == "Done: it is written."


@pytest.mark.parametrize("kind", KINDS)
def test_an_echo_says_the_text_of_the_request(kind: Kind) -> None:
    document, reason = answered(asked(kind, "echo"))
    assert '"Write."' in msgspec.json.encode(document).decode()
    assert reason == "stop"


def test_the_last_turn_needs_a_text() -> None:
    tree = msgspec.json.decode(msgspec.json.encode(TREE))
    tree["providers"]["lab"]["models"]["agent"]["turns"].pop()
    with pytest.raises(ConfigError, match="has no text"):
        parse(tree, "tests")


def test_every_kind_with_tools_is_covered() -> None:
    assert set(FAMILY_OF) - set(KINDS) == {"completions", *WHOLE_KINDS, *SOUND}
