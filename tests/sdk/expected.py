"""What the drivers' cases come to, whoever asks and whoever answers."""

from __future__ import annotations

import json
from typing import Any

# The families whose dialect an SDK does not speak.
ACROSS = {"openai": ("claude", "gem"), "anthropic": ("lab", "gem"), "google": ("lab", "claude")}
SCHEMA = {"name": "Ada", "quote": 'a "new"\nworld'}
PARALLEL = [["get_weather", {"city": "Oslo"}], ["get_weather", {"city": "Bergen"}]]
TOKEN_CHARS = 4  # of every simulated token
AGAIN = {
    "system": "Be brief.",
    "calls": [("Oslo", "c1"), ("Bergen", "c2")],
    "results": ["rain", "more rain"],
}


def words(entry: dict[str, Any], kind: str) -> int:
    """Characters that the simulator's plan has of a kind of token."""
    return TOKEN_CHARS * int(entry["tokens"][kind])


def schema_at(family: str, body: dict[str, Any]) -> list[str]:
    """The required properties, from where a provider's dialect keeps a schema."""
    if family == "lab":
        found = body["response_format"]["json_schema"]["schema"]
    elif family == "claude":
        found = body["output_config"]["format"]["schema"]
    else:
        config = body["generationConfig"]
        assert config["responseMimeType"] == "application/json"
        found = config["responseJsonSchema"]
    required: list[str] = found["required"]
    return required


def history_at(family: str, body: dict[str, Any]) -> dict[str, Any]:
    """System prompt, calls and results, from where a provider's dialect keeps them."""
    return {"lab": _openai, "claude": _anthropic, "gem": _gemini}[family](body)


def _openai(body: dict[str, Any]) -> dict[str, Any]:
    system, _, said, *results = body["messages"]
    calls = said["tool_calls"]
    assert [result["tool_call_id"] for result in results] == ["c1", "c2"]
    return {
        "system": _text(system["content"]),
        "calls": [(json.loads(c["function"]["arguments"])["city"], c["id"]) for c in calls],
        "results": [_text(result["content"]) for result in results],
    }


def _anthropic(body: dict[str, Any]) -> dict[str, Any]:
    _, said, answered = body["messages"]
    calls = [block for block in said["content"] if block["type"] == "tool_use"]
    assert [block["tool_use_id"] for block in answered["content"]] == ["c1", "c2"]
    return {
        "system": _text(body["system"]),
        "calls": [(call["input"]["city"], call["id"]) for call in calls],
        "results": [_text(block["content"]) for block in answered["content"]],
    }


def _gemini(body: dict[str, Any]) -> dict[str, Any]:
    _, said, answered = body["contents"]
    calls = [part["functionCall"] for part in said["parts"] if "functionCall" in part]
    results = [part["functionResponse"] for part in answered["parts"]]
    assert {result["name"] for result in results} == {"get_weather"}
    # Gemini needs no ids: a result belongs to the call at its own place.
    ids = [call.get("id", own) for call, own in zip(calls, ("c1", "c2"), strict=True)]
    return {
        "system": _text(body["systemInstruction"]["parts"]),
        "calls": [(call["args"]["city"], id_) for call, id_ in zip(calls, ids, strict=True)],
        "results": [_only(result["response"]) for result in results],
    }


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _only(response: dict[str, Any]) -> Any:
    (value,) = response.values()
    return value
