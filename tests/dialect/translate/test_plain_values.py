"""Values that mean nothing more than their absence, and the places that messages are named by."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightgate.dialect.errors import Untranslatable
from lightgate.dialect.translate import read_request

HI: dict[str, dict[str, Any]] = {
    "openai-chat": {"messages": [{"role": "user", "content": "Hi."}]},
    "openai-responses": {"input": "Hi."},
    "anthropic-messages": {"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 9},
    "gemini": {"contents": [{"parts": [{"text": "Hi."}]}]},
}
PLAIN: tuple[object, ...] = ([], {}, "standard")
CALLED = [
    {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "f"}}]},
    {"parts": [{"functionResponse": {"id": "c", "name": "f", "response": {}}}]},
]


def read(dialect: str, fields: dict[str, Any]) -> Any:
    body = json.dumps(HI[dialect] | fields).encode()
    return read_request(dialect, body, model="m", untranslatable="refuse")


def answered(**more: Any) -> dict[str, Any]:
    result = {"id": "c", "name": "f", "response": {}, **more}
    return {"contents": [CALLED[0], {"parts": [{"functionResponse": result}]}]}


def declared(**more: Any) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": [{"name": "f", **more}]}]}


def tool(**more: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "name": "f", "parameters": {}, **more}]}


def own(**more: Any) -> dict[str, Any]:
    return {"tools": [{"name": "f", "input_schema": {"type": "object"}, **more}]}


def instructed(**more: Any) -> dict[str, Any]:
    return {"systemInstruction": {"parts": [{"text": "Be brief."}], **more}}


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        ("openai-chat", {"service_tier": "auto"}),
        ("openai-chat", {"service_tier": "default"}),
        ("openai-chat", {"stream": True, "stream_options": {"include_obfuscation": False}}),
        ("openai-chat", {"n": 1}),
        ("openai-chat", {"logit_bias": {}}),
        ("openai-chat", {"modalities": ["text"]}),
        ("openai-chat", {"functions": []}),
        ("openai-chat", {"function_call": "none"}),
        ("openai-responses", {"background": False}),
        ("openai-responses", {"truncation": "disabled"}),
        ("openai-responses", {"context_management": []}),
        ("openai-responses", tool(defer_loading=False)),
        ("anthropic-messages", {"service_tier": "auto"}),
        ("anthropic-messages", {"service_tier": "standard_only"}),
        ("anthropic-messages", {"inference_geo": "global"}),
        ("anthropic-messages", own(defer_loading=False)),
        *[
            ("anthropic-messages", {name: plain})
            for name in ("context_management", "container", "mcp_servers", "speed")
            for plain in PLAIN
        ],
        ("gemini", {"safetySettings": []}),
        ("gemini", {"generationConfig": {"candidateCount": 1}}),
        ("gemini", {"generationConfig": {"responseModalities": ["TEXT"]}}),
        ("gemini", {"generationConfig": {"responseModalities": ["text"]}}),
        *[("gemini", instructed(role=role)) for role in ("user", "system", "model", "")],
        *[("gemini", declared(behavior=word)) for word in ("UNSPECIFIED", "BLOCKING")],
        ("gemini", answered(willContinue=False)),
        ("gemini", answered(scheduling="SCHEDULING_UNSPECIFIED")),
    ],
)
def test_a_plain_value_is_as_good_as_none(dialect: str, fields: dict[str, Any]) -> None:
    assert read(dialect, fields).dropped == ()


@pytest.mark.parametrize(
    ("dialect", "fields", "place"),
    [
        ("openai-chat", {"service_tier": "flex"}, "service_tier"),
        ("openai-chat", {"n": 2}, "n"),
        ("openai-chat", {"n": True}, "n"),  # which is no 1
        ("openai-chat", {"logit_bias": {"1": 2}}, "logit_bias"),
        ("openai-chat", {"modalities": ["audio"]}, "modalities"),
        ("openai-chat", {"function_call": "auto"}, "function_call"),
        ("openai-responses", {"background": True}, "background"),
        ("openai-responses", {"background": 0}, "background"),  # which is no false
        ("openai-responses", {"reasoning": {"effort": "low", "later": 1}}, "reasoning.later"),
        ("openai-responses", tool(defer_loading=True), "tools[0].defer_loading"),
        ("anthropic-messages", {"service_tier": "priority"}, "service_tier"),
        ("anthropic-messages", own(defer_loading=True), "tools[0].defer_loading"),
        ("gemini", instructed(role="judge"), "systemInstruction.role"),
        ("gemini", instructed(later=1), "systemInstruction.later"),
        (
            "gemini",
            {"systemInstruction": {"parts": [{"text": "A", "later": 1}]}},
            "systemInstruction.parts[0].later",
        ),
        ("gemini", {"contents": [{"parts": [{"text": "A"}], "later": 1}]}, "contents[0].later"),
        (
            "gemini",
            {"contents": [{"parts": [{"text": "A", "later": 1}]}]},
            "contents[0].parts[0].later",
        ),
        (
            "gemini",
            answered(willContinue=True),
            "contents[1].parts[0].functionResponse.willContinue",
        ),
        (
            "gemini",
            answered(scheduling="SILENT"),
            "contents[1].parts[0].functionResponse.scheduling",
        ),
        ("gemini", answered(later=1), "contents[1].parts[0].functionResponse.later"),
        ("gemini", {"tools": [{"later": 1}]}, "tools[0].later"),
    ],
)
def test_any_other_value_is_named_by_its_place(
    dialect: str, fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(Untranslatable) as caught:
        read(dialect, fields)
    assert caught.value.field == place


@pytest.mark.parametrize(
    ("dialect", "fields", "places"),
    [
        (
            "openai-chat",
            {"messages": [{"role": "system", "content": "A"}, {"role": "user", "content": "B"}]},
            ["messages[0]", "messages[1]"],
        ),
        ("openai-responses", {"instructions": "A"}, ["instructions", "input"]),
        (
            "openai-responses",
            {"input": [{"role": "user", "content": "A"}, {"role": "user", "content": "B"}]},
            ["input[0]", "input[1]"],
        ),
        ("anthropic-messages", {"system": "A"}, ["system", "messages[0]"]),
        ("gemini", instructed(), ["systemInstruction", "contents[0]"]),
        ("gemini", {"contents": CALLED}, ["contents[0]", "contents[1].parts[0].functionResponse"]),
    ],
)
def test_a_message_is_named_by_where_the_client_said_it(
    dialect: str, fields: dict[str, Any], places: list[str]
) -> None:
    assert [message.place for message in read(dialect, fields).messages] == places


SCHEMA = {"type": "object"}
# A body of each dialect with nearly all that it can say, and where each fact of it stands.
SAID: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "openai-chat": (
        {
            "max_completion_tokens": 9, "temperature": 0.5, "top_p": 0.9, "stop": ["a"],
            "seed": 3, "presence_penalty": 0.1, "frequency_penalty": 0.2, "logprobs": True,
            "top_logprobs": 2, "reasoning_effort": "low", "verbosity": "low",
            "parallel_tool_calls": False, "tool_choice": "required", "web_search_options": {},
            "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
            "response_format": {
                "type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA},
            },
        },
        {
            "messages": "messages", "max_tokens": "max_completion_tokens",
            "reasoning": "reasoning_effort", "schema": "response_format.json_schema",
            "hosted.web_search": "web_search_options",
        } | {name: name for name in (
            *("stream", "temperature", "top_p", "parallel_tool_calls", "presence_penalty"),
            *("frequency_penalty", "seed", "stop", "logprobs", "top_logprobs", "verbosity"),
            *("tools", "tool_choice"),
        )},
    ),
    "openai-responses": (
        {
            "max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_logprobs": 2,
            "include": ["message.output_text.logprobs"], "tool_choice": "required",
            "reasoning": {"effort": "low", "summary": "auto"}, "parallel_tool_calls": False,
            "text": {
                "format": {"type": "json_schema", "name": "n", "schema": SCHEMA},
                "verbosity": "low",
            },
            "tools": [
                {"type": "function", "name": "f", "parameters": SCHEMA},
                {"type": "web_search"},
                {"type": "code_interpreter", "container": {"type": "auto"}},
            ],
        },
        {
            "messages": "input", "max_tokens": "max_output_tokens", "logprobs": "include",
            "reasoning": "reasoning.effort", "thoughts": "reasoning.summary",
            "schema": "text.format", "verbosity": "text.verbosity",
            "hosted.web_search": "tools[1]", "hosted.code_execution": "tools[2]",
        } | {name: name for name in (
            *("stream", "temperature", "top_p", "parallel_tool_calls", "top_logprobs", "tools"),
            "tool_choice",
        )},
    ),
    "anthropic-messages": (
        {
            "max_tokens": 2000, "temperature": 0.5, "top_p": 0.9, "top_k": 4,
            "stop_sequences": ["a"], "thinking": {"type": "enabled", "budget_tokens": 1024},
            "tools": [
                {"name": "f", "input_schema": SCHEMA},
                {"type": "web_search_20250305", "name": "web_search"},
                {"type": "code_execution_20250825", "name": "code_execution"},
            ],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        },
        {
            "stop": "stop_sequences", "tool_choice": "tool_choice.type",
            "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
            "schema": "output_config.format", "reasoning": "thinking.budget_tokens",
            "hosted.web_search": "tools[1]", "hosted.code_execution": "tools[2]",
        } | {name: name for name in (
            "stream", "messages", "max_tokens", "top_k", "temperature", "top_p", "tools",
        )},
    ),
    "gemini": (
        {
            "generationConfig": {
                "maxOutputTokens": 9, "temperature": 0.5, "topP": 0.9, "topK": 4,
                "stopSequences": ["a"], "seed": 3, "presencePenalty": 0.1,
                "frequencyPenalty": 0.2, "responseLogprobs": True, "logprobs": 2,
                "thinkingConfig": {"thinkingBudget": 512, "includeThoughts": True},
                "responseMimeType": "application/json", "responseJsonSchema": SCHEMA,
            },
            "tools": [
                {"functionDeclarations": [{"name": "f"}]},
                {"googleSearch": {}},
                {"codeExecution": {}},
            ],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        },
        {
            "stream": "stream", "messages": "contents", "tools": "tools",
            "hosted.web_search": "tools[1].googleSearch",
            "hosted.code_execution": "tools[2].codeExecution",
            "tool_choice": "toolConfig.functionCallingConfig.mode",
        } | {name: f"generationConfig.{place}" for name, place in (
            ("max_tokens", "maxOutputTokens"), ("top_k", "topK"), ("seed", "seed"),
            ("top_logprobs", "logprobs"), ("temperature", "temperature"), ("top_p", "topP"),
            ("presence_penalty", "presencePenalty"), ("frequency_penalty", "frequencyPenalty"),
            ("stop", "stopSequences"), ("logprobs", "responseLogprobs"),
            ("schema", "responseJsonSchema"), ("reasoning", "thinkingConfig.thinkingBudget"),
            ("thoughts", "thinkingConfig.includeThoughts"),
        )},
    ),
}  # fmt: skip


@pytest.mark.parametrize("dialect", SAID)
def test_every_fact_is_named_by_where_the_client_said_it(dialect: str) -> None:
    fields, places = SAID[dialect]
    assert read(dialect, fields).places == places
