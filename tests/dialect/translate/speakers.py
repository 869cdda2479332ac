"""Says a script as each provider would, event by event; the test's own words, not the writers'."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# An item: its kind, a call's name or "", and its pieces.
Item = tuple[str, str, list[str]]
Event = tuple[bytes, bytes]


def event(value: dict[str, Any], name: str = "") -> Event:
    return name.encode(), json.dumps(value).encode("ascii")


def typed(kind: str, **fields: Any) -> Event:
    return event({"type": kind, **fields}, kind)


def chat(script: list[Item]) -> Iterator[Event]:
    calls = 0
    for kind, name, pieces in script:
        if kind == "call":
            head = {"index": calls, "id": f"call_{calls}", "function": {"name": name}}
            yield event({"choices": [{"index": 0, "delta": {"tool_calls": [head]}}]})
        for piece in pieces:
            delta: dict[str, Any] = {"content": piece}
            if kind == "reasoning":
                delta = {"reasoning_content": piece}
            elif kind == "call":
                delta = {"tool_calls": [{"index": calls, "function": {"arguments": piece}}]}
            yield event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        calls += kind == "call"
    yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield b"", b"[DONE]"


def responses(script: list[Item]) -> Iterator[Event]:
    deltas = {
        "text": "response.output_text.delta",
        "reasoning": "response.reasoning_summary_text.delta",
        "call": "response.function_call_arguments.delta",
    }
    types = {"text": "message", "reasoning": "reasoning", "call": "function_call"}
    for index, (kind, name, pieces) in enumerate(script):
        item: dict[str, Any] = {"id": f"item_{index}", "type": types[kind]}
        if kind == "call":
            item |= {"call_id": f"call_{index}", "name": name, "arguments": ""}
        yield typed("response.output_item.added", output_index=index, item=item)
        for piece in pieces:
            yield typed(deltas[kind], output_index=index, delta=piece)
        if kind == "call":
            item["arguments"] = "".join(pieces)
        yield typed("response.output_item.done", output_index=index, item=item)
    yield typed("response.completed", response={"status": "completed", "output": []})


def messages(script: list[Item]) -> Iterator[Event]:
    deltas = {
        "text": ("text_delta", "text"),
        "reasoning": ("thinking_delta", "thinking"),
        "call": ("input_json_delta", "partial_json"),
    }
    for index, (kind, name, pieces) in enumerate(script):
        block: dict[str, Any] = {"type": "text", "text": ""}
        if kind == "reasoning":
            block = {"type": "thinking", "thinking": "", "signature": ""}
        elif kind == "call":
            block = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
        yield typed("content_block_start", index=index, content_block=block)
        for piece in pieces:
            word, field = deltas[kind]
            yield typed("content_block_delta", index=index, delta={"type": word, field: piece})
        yield typed("content_block_stop", index=index)
    yield typed("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 1})
    yield typed("message_stop")


def gemini(script: list[Item]) -> Iterator[Event]:
    for kind, name, pieces in script:
        parts: list[dict[str, Any]] = [{"text": piece} for piece in pieces]
        if kind == "reasoning":
            parts = [{"text": piece, "thought": True} for piece in pieces]
        elif kind == "call":
            given = json.loads("".join(pieces))
            parts = [{"functionCall": {"name": name, "args": given}}]
        for part in parts:
            yield event({"candidates": [{"content": {"parts": [part]}}]})
    yield event({"candidates": [{"finishReason": "STOP"}]})


SPEAKERS = {
    "openai-chat": chat,
    "openai-responses": responses,
    "anthropic-messages": messages,
    "gemini": gemini,
}
