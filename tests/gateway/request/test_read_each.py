"""The facts of a body are the same, whether it is read at once or field by field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lightgate.gateway.request.body import read_request_body
from lightgate.gateway.request.endpoint import find

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
TEXTS, VECTORS = "/v1/completions", "/v1/embeddings"
USAGE = {"stream_options": {"include_usage": True}}


def facts(path: str, **fields: Any) -> tuple[object, ...]:
    found = find(path.encode())
    assert found is not None
    assert found.endpoint is not None
    body = msgspec.json.encode({"model": "m", **fields})
    read = read_request_body(found.endpoint, body)
    assert read.tokens_in == len(body) // 4 + 1
    assert {name: bytes(raw) for name, raw in read.fields.items()} == {
        name: msgspec.json.encode(value) for name, value in {"model": "m", **fields}.items()
    }
    return read.model, read.streamed, read.include_usage, read.max_tokens, read.answers


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("m", False, False, None, 1)),
        ({"stream": True}, ("m", True, False, None, 1)),
        ({"stream": False, "max_tokens": 7}, ("m", False, False, 7, 1)),
        ({"stream": True, "stream_options": None}, ("m", True, False, None, 1)),
        ({"stream": True, "stream_options": {}}, ("m", True, False, None, 1)),
    ],
)
def test_a_plain_body(path: str, fields: dict[str, Any], expected: tuple[object, ...]) -> None:
    assert facts(path, **fields) == expected
    # A field of another endpoint is read past, one by one.
    assert facts(path, **fields, prompt="x") == expected


@pytest.mark.parametrize(
    ("path", "unusual", "told"),
    [
        (CHAT, {}, True),
        (CHAT, {"best_of": 1}, True),
        (TEXTS, {}, True),
        (TEXTS, {"prompt": "x"}, True),
        (MESSAGES, {}, False),  # which has no such option
        (MESSAGES, {"prompt": "x"}, False),
    ],
)
def test_who_asks_for_the_usage_of_a_stream(path: str, unusual: dict[str, Any], told: bool) -> None:
    assert facts(path, stream=True, **USAGE, **unusual)[:3] == ("m", True, told)


def test_vectors_are_never_streamed() -> None:
    assert facts(VECTORS, input="x", stream=True)[:2] == ("m", False)
