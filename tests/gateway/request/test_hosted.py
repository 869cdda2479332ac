"""Tools that the provider carries out itself: which kinds a request offers, and how many calls."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lightgate.gateway.request.body import read_request_body
from lightgate.gateway.request.endpoint import find
from lightgate.gateway.request.hosted import (
    NONE_OFFERED,
    answer_kinds,
    billed_parts,
    offered_tools,
    refers,
)

CHAT, RESPONSES = b"/v1/chat/completions", b"/v1/responses"
MESSAGES, GEMINI = b"/v1/messages", b"/v1beta/models/m:generateContent"


def request(path: bytes, **fields: Any) -> Any:
    found = find(path)
    assert found is not None
    return read_request_body(found.endpoint, json.dumps({"model": "m", **fields}).encode())


def offered(path: bytes = CHAT, **fields: Any) -> dict[str, int]:
    return dict(offered_tools(request(path, **fields)))


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        *[
            (word, None)
            for word in (
                *("function", "custom", "namespace", "local_shell", "shell", "apply_patch"),
                *("computer_use_preview", "bash_20250124", "text_editor_20250728"),
                *("memory_20250818", "tool_search_tool_regex"),
            )
        ],
        ("web_search_20250305", "web_search"),
        ("web_search_preview", "web_search"),
        ("browser_search", "web_search"),
        ("x_search", "web_search"),
        ("web_fetch_20250910", "web_fetch"),
        ("file_search", "file_search"),
        ("collections_search", "file_search"),
        ("code_interpreter", "code_execution"),
        ("code_execution_20250825", "code_execution"),
        ("mcp", "mcp"),
        ("something_new", "something_new"),
        ("x" * 100, "x" * 64),
    ],
)
def test_kinds_by_the_type_of_a_tool(word: str, kind: str | None) -> None:
    expected = {} if kind is None else {kind: 10}
    assert offered(RESPONSES, tools=[{"type": word}]) == expected
    known = {"web_search", "web_fetch", "file_search", "code_execution", "mcp"}
    named = kind if kind in known else None
    limited = offered(MESSAGES, tools=[{"type": word, "max_uses": 3}])
    assert limited == ({named: 3} if named else expected)  # of an unknown one nothing is known


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("functionDeclarations", None),
        ("function_declarations", None),
        ("computerUse", None),
        ("googleSearch", "web_search"),
        ("google_search", "web_search"),
        ("googleSearchRetrieval", "web_search"),
        ("enterpriseWebSearch", "web_search"),
        ("googleMaps", "maps"),
        ("urlContext", "web_fetch"),
        ("codeExecution", "code_execution"),
        ("fileSearch", "file_search"),
        ("somethingNew", "somethingNew"),
        ("x" * 100, "x" * 64),
    ],
)
def test_kinds_by_the_name_of_a_tool_of_geminis(name: str, kind: str | None) -> None:
    assert offered(GEMINI, tools=[{name: {}}]) == ({} if kind is None else {kind: 10})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"max_tool_calls": 3}, {}),
        ({"tools": [{"type": "web_search"}], "max_tool_calls": 3}, {"web_search": 3}),
        ({"tools": [{"type": "web_search"}], "max_tool_calls": 0}, {"web_search": 0}),
        ({"tools": [{"type": "web_search"}], "max_tool_calls": 1000}, {"web_search": 1000}),
        ({"tools": [{"type": "web_search"}], "max_tool_calls": 1001}, {"web_search": 10}),
        ({"tools": [{"type": "web_search"}], "max_tool_calls": -1}, {"web_search": 10}),
        ({"tools": [{"type": "web_search"}], "max_tool_calls": True}, {"web_search": 10}),
        ({"tools": [{"type": "web_search"}], "max_tool_calls": "9"}, {"web_search": 10}),
        ({"tools": [{"type": "web_search", "max_uses": "x"}]}, {"web_search": 10}),
        ({"tools": [{"type": "web_search"}, {"type": "x_search"}]}, {"web_search": 20}),
        (
            {"tools": [{"type": "mcp", "max_uses": 900}, {"type": "mcp", "max_uses": 900}]},
            {"mcp": 1000},
        ),
        ({"tools": [{"type": 3}, 4, None, {}]}, {}),
        ({"tools": {"type": "web_search"}}, {}),
        ({"web_search_options": {}}, {"web_search": 1}),
        ({"web_search_options": None}, {}),
        ({"search_parameters": {}}, {"source": 20}),
        ({"search_parameters": {"mode": "off"}}, {}),
        ({"search_parameters": {"mode": "on", "max_search_results": 5}}, {"source": 5}),
        ({"mcp_servers": [{"url": "u"}]}, {"mcp": 10}),
        ({"mcp_servers": []}, {}),
        ({"plugins": [{"id": "web"}, {}, 3]}, {"plugin:web": 10, "plugin:None": 10, "plugin:": 10}),
        ({"plugins": [{"id": "y" * 100}]}, {"plugin:" + "y" * 57: 10}),
        ({"plugins": "x"}, {}),
    ],
)
def test_what_a_request_offers(fields: dict[str, Any], expected: dict[str, int]) -> None:
    assert offered(**fields) == expected
    if not expected:
        assert offered_tools(request(CHAT, **fields)) is NONE_OFFERED


@pytest.mark.parametrize(
    ("path", "field", "expected"),
    [
        (RESPONSES, "previous_response_id", True),
        (RESPONSES, "conversation", True),
        (RESPONSES, "prompt", True),
        (RESPONSES, "input", False),
        (CHAT, "conversation", False),
        (GEMINI, "cachedContent", True),
        (GEMINI, "cached_content", True),
        (MESSAGES, "container", True),
        (MESSAGES, "system", False),
    ],
)
def test_requests_that_stand_for_a_prompt_that_the_provider_keeps(
    path: bytes, field: str, expected: bool
) -> None:
    assert refers(request(path, **{field: "x"})) is expected


def test_a_prompt_that_is_kept_for_an_hour() -> None:
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert billed_parts(request(MESSAGES, system=[hour]))[1] is True
    assert billed_parts(request(MESSAGES, system="x"))[1] is False


@pytest.mark.parametrize("spelled", [rb"\u0031h", rb"1\u0068", rb"\u0031\u0068"])
def test_an_escape_does_not_hide_the_hour(spelled: bytes) -> None:
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    asked = request(MESSAGES, system=[hour])
    asked.body = asked.body.replace(b"1h", spelled)
    assert billed_parts(asked)[1] is True


@pytest.mark.parametrize("raw", [b"{", b"nothing", b"[" * 5000, b"\xff"])
def test_fields_that_are_no_json_offer_nothing(raw: bytes) -> None:
    one = request(CHAT)
    one.fields["tools"] = one.fields["plugins"] = msgspec.Raw(raw)
    assert offered_tools(one) is NONE_OFFERED


def test_what_was_found_beside_the_loop_is_not_looked_for_again() -> None:
    asked = request(CHAT, messages=[])
    known = (object(), True)
    for found, told in (
        (SimpleNamespace(billed=known), known),
        (SimpleNamespace(billed=None), billed_parts(asked)),
    ):
        body = SimpleNamespace(found=found, body=asked.body, endpoint=asked.endpoint)
        assert billed_parts(body) == told  # type: ignore[arg-type] # what it looks at


@pytest.mark.parametrize(
    ("path", "fields", "kinds"),
    [
        (CHAT, {}, set()),
        (CHAT, {"modalities": ["text", "Audio"]}, {"audio"}),
        (CHAT, {"modalities": ["text"], "audio": {"voice": "v"}}, {"audio"}),
        (CHAT, {"audio": "loud"}, set()),
        (CHAT, {"modalities": "audio"}, set()),
        (CHAT, {"modalities": ["x" * 33, 5]}, {"x" * 32}),
        (GEMINI, {}, set()),
        (GEMINI, {"generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}}, {"image"}),
        (GEMINI, {"generationConfig": {"response_modalities": ["VIDEO"]}}, {"video"}),
        (GEMINI, {"generationConfig": {"speechConfig": {"x": 1}}}, {"audio"}),
        (GEMINI, {"generationConfig": {"speech_config": {"x": 1}}}, {"audio"}),
        (GEMINI, {"generationConfig": {"imageConfig": {"x": 1}}}, {"image"}),
        (GEMINI, {"generationConfig": {"imageConfig": {}}}, set()),
        (GEMINI, {"modalities": ["audio"]}, set()),
    ],
)
def test_the_kinds_of_answers_that_are_asked_for(
    path: bytes, fields: dict[str, Any], kinds: set[str]
) -> None:
    assert answer_kinds(request(path, **fields)) == kinds
