"""A field that nobody knows is named by its place, wherever in a body it stands."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from dialect.translate.test_plain_values import HI, SAID
from lightgate.dialect.errors import Untranslatable
from lightgate.dialect.translate import read_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    Path = tuple[str | int, ...]

PNG, PDF = "iVBORw0KGgo=", "JVBERi0="
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
# Conversations of all kinds of parts, in each dialect.
TALKS: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "A"}]},
            {"role": "user", "content": [
                {"type": "text", "text": "B"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF}"}},
            ]},
            {"role": "assistant", "content": "C", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "D"}]},
        ],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {
            "mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}],
        }},
    },
    "openai-responses": {
        "input": [
            {"role": "system", "content": [{"type": "input_text", "text": "A"}]},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "B"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                {"type": "input_file", "file_data": f"data:application/pdf;base64,{PDF}"},
            ]},
            {"type": "message", "role": "assistant", "content": [
                {"type": "output_text", "text": "C", "annotations": []},
            ]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": [
                {"type": "input_text", "text": "D"},
            ]},
        ],
        "tool_choice": {"type": "function", "name": "f"},
    },
    "anthropic-messages": {
        "system": [{"type": "text", "text": "A"}],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "B"},
                {"type": "image", "source": {
                    "type": "base64", "media_type": "image/png", "data": PNG,
                }},
                {"type": "document", "title": "a", "source": {
                    "type": "base64", "media_type": "application/pdf", "data": PDF,
                }},
            ]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "C"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": [
                    {"type": "text", "text": "D"},
                ]},
            ]},
        ],
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "A"}]},
        "contents": [
            {"role": "user", "parts": [
                {"text": "B"},
                {"inlineData": {"mimeType": "image/png", "data": PNG}},
                {"fileData": {"mimeType": "application/pdf", "fileUri": "https://a.test/x.pdf"}},
            ]},
            {"role": "model", "parts": [
                {"text": "C"}, {"functionCall": {"id": "c", "name": "f", "args": {}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "c", "name": "f", "response": {}}},
            ]},
        ],
    },
}  # fmt: skip
# Objects whose fields are the client's own, and a container, which is named as a whole.
FREE = frozenset(
    (
        *("schema", "parameters", "input_schema", "responseJsonSchema", "input", "args"),
        *("response", "container"),
    )
)
# Tools that the provider carries out: their options are named, and no reason to refuse.
HOSTED = {
    "openai-chat": ("web_search_options",),
    "openai-responses": ("tools[1]", "tools[2]"),
    "anthropic-messages": ("tools[1]", "tools[2]"),
    "gemini": ("tools[1].googleSearch", "tools[2].codeExecution"),
}


def objects(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all objects of a body that have fields of the dialect."""
    if isinstance(value, dict):
        yield path
        for name, one in value.items():
            if not (name in FREE and isinstance(one, dict)):
                yield from objects(one, (*path, name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from objects(one, (*path, number))


def named(path: Path) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    return "".join(steps).removeprefix(".")


def bodies(dialect: str) -> list[dict[str, Any]]:
    said = SAID[dialect][0]
    return [HI[dialect] | said, HI[dialect] | {"tools": said["tools"]} | TALKS[dialect]]


CASES = [
    pytest.param(dialect, number, path, id=f"{dialect}-{number}-{named(path)}")
    for dialect in HI
    for number, body in enumerate(bodies(dialect))
    for path in objects(body)
]


@pytest.mark.parametrize(("dialect", "number", "path"), CASES)
def test_an_unknown_field_is_named(dialect: str, number: int, path: Path) -> None:
    body = copy.deepcopy(bodies(dialect)[number])
    inside: Any = body
    for step in path:
        inside = inside[step]
    inside["later"] = 1
    raw, place = json.dumps(body).encode(), named((*path, "later"))
    if named(path) in HOSTED[dialect]:
        assert place in read_request(dialect, raw, model="m").dropped
        return
    with pytest.raises(Untranslatable) as caught:
        read_request(dialect, raw, model="m")
    assert caught.value.field == place
    assert place in read_request(dialect, raw, model="m", untranslatable="drop").dropped
