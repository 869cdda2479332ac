"""Judges bodies by the types that the makers' own SDKs have; reads JSON, prints complaints.

What reaches a provider has to be a request of its dialect: a simulated provider ignores fields that
it does not know, and a real one refuses them.
"""

from __future__ import annotations

import json
import sys
import typing
from functools import cache
from typing import Any

from anthropic.types import message_create_params as anthropic
from google.genai import types as google
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError


class Generate(BaseModel):
    """The body of Gemini's generateContent, for which its SDK has no type of its own."""

    model_config = ConfigDict(extra="forbid")
    contents: list[google.Content]
    systemInstruction: google.Content | None = None  # noqa: N815 - Google's name
    tools: list[google.Tool] | None = None
    toolConfig: google.ToolConfig | None = None  # noqa: N815 - Google's name
    generationConfig: google.GenerationConfig | None = None  # noqa: N815 - Google's name
    safetySettings: list[google.SafetySetting] | None = None  # noqa: N815 - Google's name


TYPES: dict[str, Any] = {
    "/messages": anthropic.MessageCreateParamsNonStreaming,
    "/chat/completions": chat.CompletionCreateParamsNonStreaming,
    "/responses": responses.ResponseCreateParamsNonStreaming,
}


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """The check of a type, which takes seconds to build."""
    return TypeAdapter(kind)


def complaints(path: str, body: dict[str, Any]) -> list[str]:
    """What is wrong with one body."""
    if "enerateContent" in path:
        return _faults("gemini", Generate, body)
    for end, kind in TYPES.items():
        if path.endswith(end):
            rest = {name: value for name, value in body.items() if name != "stream"}
            extra = sorted(set(rest) - set(typing.get_type_hints(kind)))
            return [f"{end}: {name} is not a field" for name in extra] + _faults(end, kind, rest)
    return []


def _faults(place: str, kind: Any, body: dict[str, Any]) -> list[str]:
    try:
        adapter(kind).validate_python(body)
    except ValidationError as error:
        found = max(error.errors(), key=lambda one: len(one["loc"]))
        where = ".".join("*" if isinstance(step, int) else str(step)[:30] for step in found["loc"])
        return [f"{place}: {where}: {found['msg']}"]
    return []


if __name__ == "__main__":
    seen = {said for path, body in json.load(sys.stdin) for said in complaints(path, body)}
    json.dump(sorted(seen), sys.stdout)
