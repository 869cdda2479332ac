"""Fields of a client's body that change nothing in the answer, wherever in a body they stand.

They are no reason to refuse the request, and are named where they say something.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from dialect.translate.test_plain_values import HI
from lightgate.dialect.translate import Untranslatable, read_request

X: dict[str, Any] = {"x": 1}
CACHED = {"cache_control": {"type": "ephemeral"}}
PNG = "data:image/png;base64,AA=="


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [*messages, {"role": "user", "content": "Hi."}], **more}


def user(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def block(**fields: Any) -> dict[str, Any]:
    return user({"type": "text", "text": "a", **fields})


def called(calls: Any = None, result: Any = None) -> dict[str, Any]:
    """A call and its result, with more fields in either, as Anthropic writes them."""
    return chat(
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}, **(calls or {})}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "b", **(result or {})}
            ],
        },
    )


def document(source: Any, **more: Any) -> dict[str, Any]:
    return user({"type": "document", "source": source, **more})


PDF = {"type": "base64", "media_type": "application/pdf", "data": "AA=="}
WORDS = {"type": "text", "media_type": "text/plain", "data": "a"}
FUNCTION = {"type": "function", "function": {"name": "f"}}


def gemini(part: Any, **more: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [part]}], **more}


def responded(**more: Any) -> dict[str, Any]:
    return {
        "contents": [
            {"role": "model", "parts": [{"functionCall": {"name": "f"}, "thought": False}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", **more}}]},
        ]
    }


def declared(**more: Any) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": [{"name": "f", **more}]}]}


def items(*said: Any, **more: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": "a"}, *said], **more}


OUT = {"type": "function_call_output", "call_id": "c", "output": "b"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
FIRST = "messages[0].content[0]"
EMPTY: tuple[Any, ...] = ([], {}, "standard")
NAMED: list[tuple[str, dict[str, Any], str]] = [
    ("anthropic-messages", {"metadata": X}, "metadata"),
    ("anthropic-messages", CACHED, "cache_control"),
    ("anthropic-messages", {"system": [{"type": "text", "text": "a", **CACHED}]},
     "system[0].cache_control"),
    ("anthropic-messages", {"system": [{"type": "text", "text": "a", "citations": [X]}]},
     "system[0].citations"),
    ("anthropic-messages", {"tools": [{"name": "f", **CACHED}]}, "tools[0].cache_control"),
    ("anthropic-messages", {"tools": [{"name": "f", "eager_input_streaming": True}]},
     "tools[0].eager_input_streaming"),
    ("anthropic-messages", block(citations=[X]), f"{FIRST}.citations"),
    ("anthropic-messages", block(**CACHED), f"{FIRST}.cache_control"),
    ("anthropic-messages", document(PDF, context="a"), f"{FIRST}.context"),
    ("anthropic-messages", document(WORDS, context="a"), f"{FIRST}.context"),
    ("anthropic-messages", document(PDF, **CACHED), f"{FIRST}.cache_control"),
    ("anthropic-messages",
     user({"type": "search_result", "title": "a", "source": "b", "content": [], "citations": X}),
     f"{FIRST}.citations"),
    ("anthropic-messages", called(CACHED), "messages[1].content[0].cache_control"),
    ("anthropic-messages", called(None, CACHED), "messages[2].content[0].cache_control"),
    ("gemini", {"labels": X}, "labels"),
    ("gemini", {"store": True}, "store"),
    ("gemini", declared(response=X), "tools[0].functionDeclarations[0].response"),
    ("gemini", declared(responseJsonSchema=X),
     "tools[0].functionDeclarations[0].responseJsonSchema"),
    *(("gemini", gemini({"text": "a", name: X}), f"contents[0].parts[0].{name}")
      for name in ("videoMetadata", "mediaResolution", "partMetadata")),
    ("openai-chat", {"store": True}, "store"),
    *(("openai-chat", {name: "x"}, name)
      for name in ("user", "metadata", "safety_identifier", "prompt_cache_key",
                   "prompt_cache_retention")),
    ("openai-chat", {"tools": [FUNCTION | CACHED]}, "tools[0].cache_control"),
    ("openai-chat", chat({"role": "assistant", "content": "a", "annotations": [X]}),
     "messages[0].annotations"),
    ("openai-chat", chat({"role": "assistant", "content": "a", "reasoning_details": [X]}),
     "messages[0].reasoning_details"),
    ("openai-chat", block(**CACHED), f"{FIRST}.cache_control"),
    ("openai-responses", {"client_metadata": X}, "client_metadata"),
    *(("openai-responses", {name: "x"}, name)
      for name in ("user", "metadata", "safety_identifier", "prompt_cache_key",
                   "prompt_cache_retention")),
    *(("openai-responses",
       items({"role": "assistant", "content": [{"type": "output_text", "text": "a", name: [X]}]},
             {"role": "user", "content": "b"}),
       f"input[1].content[0].{name}")
      for name in ("annotations", "logprobs")),
]  # fmt: skip
SILENT: list[tuple[str, dict[str, Any]]] = [
    *(("anthropic-messages", {"service_tier": word}) for word in ("auto", "standard_only")),
    ("anthropic-messages", {"inference_geo": "global"}),
    *(("anthropic-messages", {name: value})
      for name in ("context_management", "container", "mcp_servers", "speed")
      for value in EMPTY),
    ("anthropic-messages", {"tools": [{"name": "f", "defer_loading": False}]}),
    ("anthropic-messages", called({"caller": {"type": "direct"}})),
    ("anthropic-messages", document(PDF, citations={"enabled": False})),
    ("anthropic-messages", document(WORDS)),
    ("gemini", {"safetySettings": []}),
    ("gemini", {"store": False}),
    *(("gemini", {"systemInstruction": {"role": role, "parts": [{"text": "a"}]}})
      for role in ("user", "system", "model", "")),
    *(("gemini", declared(behavior=word)) for word in ("UNSPECIFIED", "BLOCKING")),
    ("gemini", {"toolConfig": {"functionCallingConfig": {"mode": "MODE_UNSPECIFIED"}}}),
    ("gemini",
     {"generationConfig": {"thinkingConfig": {"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}}}),
    ("gemini", responded(willContinue=False)),
    ("gemini", responded(scheduling="SCHEDULING_UNSPECIFIED")),
    *(("openai-chat", {"service_tier": word}) for word in ("auto", "default")),
    ("openai-chat", {"stream_options": {"include_usage": True, "include_obfuscation": False}}),
    ("openai-chat",
     chat({"role": "assistant", "tool_calls": [{**FUNCTION, "id": "c", "index": 0}]},
          {"role": "tool", "tool_call_id": "c", "content": "b"})),
    ("openai-responses", {"store": True}),
    ("openai-responses", {"truncation": "disabled"}),
    ("openai-responses", {"context_management": []}),
    ("openai-responses", {"tools": [{"type": "function", "name": "f", "defer_loading": False}]}),
    ("openai-responses", items(CALL | {"status": "completed", "phase": "x"}, OUT)),
    ("openai-responses", items(CALL, OUT | {"name": "f", "success": True, "status": "x"})),
    ("openai-responses", items({"type": "additional_tools", "role": "developer", "tools": []})),
]  # fmt: skip


def dropped(dialect: str, fields: dict[str, Any]) -> tuple[str, ...]:
    body = json.dumps(HI[dialect] | fields).encode()
    return read_request(dialect, body, model="m", untranslatable="refuse").dropped


@pytest.mark.parametrize(("dialect", "fields", "place"), NAMED)
def test_what_has_no_effect_on_the_answer_is_named(
    dialect: str, fields: dict[str, Any], place: str
) -> None:
    assert dropped(dialect, fields) == (place,)


@pytest.mark.parametrize(("dialect", "fields"), SILENT)
def test_what_is_so_in_any_case_is_not_named(dialect: str, fields: dict[str, Any]) -> None:
    assert dropped(dialect, fields) == ()


def test_words_for_no_wish_at_all_are_no_wish() -> None:
    plain = {"thinkingConfig": {"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}}
    mode = {"functionCallingConfig": {"mode": "MODE_UNSPECIFIED"}}
    body = json.dumps(HI["gemini"] | {"generationConfig": plain, "toolConfig": mode}).encode()
    asked = read_request("gemini", body, model="m")
    assert (asked.reasoning, asked.tool_choice) == (None, None)


@pytest.mark.parametrize(
    ("dialect", "fields", "place"),
    [
        ("anthropic-messages", {"tools": [{"name": "f", "defer_loading": True}]},
         "tools[0].defer_loading"),
        ("anthropic-messages", called({"caller": {"type": "code"}}),
         "messages[1].content[0].caller.type"),
        ("anthropic-messages", document(PDF, citations={"enabled": True}), f"{FIRST}.citations"),
        ("anthropic-messages", {"service_tier": "priority"}, "service_tier"),
        ("anthropic-messages", {"thinking": {"type": "enabled", "budget_tokens": 1024,
                                             "display": "loud"}}, "thinking.display"),
        ("gemini", declared(behavior="NON_BLOCKING"), "tools[0].functionDeclarations[0].behavior"),
        ("gemini", responded(willContinue=True),
         "contents[1].parts[0].functionResponse.willContinue"),
        ("gemini", responded(scheduling="SILENT"),
         "contents[1].parts[0].functionResponse.scheduling"),
        ("gemini", {"toolConfig": {"functionCallingConfig": {"mode": "WILD"}}},
         "toolConfig.functionCallingConfig.mode"),
        ("gemini", {"systemInstruction": {"role": "judge", "parts": [{"text": "a"}]}},
         "systemInstruction.role"),
        ("openai-chat", {"stream_options": {"include_obfuscation": True}},
         "stream_options.include_obfuscation"),
        ("openai-responses",
         {"tools": [{"type": "function", "name": "f", "defer_loading": True}]},
         "tools[0].defer_loading"),
    ],
)  # fmt: skip
def test_what_says_how_to_answer_is_refused_by_its_place(
    dialect: str, fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(Untranslatable) as caught:
        dropped(dialect, fields)
    assert caught.value.field == place
