"""An event of a stream with very many values ends the answer, since to read it holds the loop."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightgate.dialect.neutral.events import TOO_MANY
from lightgate.dialect.neutral.json_text import MOST_MARKS, MOST_OBJECTS, marks_of, too_full
from lightgate.dialect.registry import DIALECTS
from lightgate.dialect.scanner import Scanner
from lightgate.dialect.translate import translator
from lightgate.wire.sse import EVENT_LIMIT

# An event with a text and one more field, by dialect.
SAID: dict[str, dict[str, Any]] = {
    "openai-chat": {"choices": [{"delta": {"content": "a"}}]},
    "openai-completions": {"choices": [{"text": "a"}]},
    "openai-responses": {"type": "response.output_text.delta", "delta": "a"},
    "anthropic-messages": {
        "type": "content_block_delta",
        "delta": {"type": "text_delta", "text": "a"},
    },
    "gemini": {"candidates": [{"content": {"parts": [{"text": "a"}]}}]},
}
MANY: dict[str, Any] = {
    "numbers": [1] * (MOST_MARKS + 1),
    "fields": {f"f{number}": None for number in range(MOST_MARKS // 2 + 1)},
    "lists": [[]] * (MOST_OBJECTS + 1),
    "texts": ["long enough"] * (MOST_MARKS + 1),
}


def scanned(dialect: str, event: Any) -> Scanner:
    data = json.dumps(event).encode()
    assert len(data) < EVENT_LIMIT
    scanner = Scanner(DIALECTS[dialect].reader)
    scanner.event(b"", data)
    return scanner


@pytest.mark.parametrize("kind", MANY)
@pytest.mark.parametrize("dialect", SAID)
def test_an_event_of_too_many_values_is_malformed(dialect: str, kind: str) -> None:
    padded = {"y": "z" * 70_000}  # small events are not counted
    assert scanned(dialect, {**SAID[dialect], "x": MANY[kind], **padded}).error == TOO_MANY


@pytest.mark.parametrize("text", [",:{[" * 100_000, '",' * 100_000, "\\{" * 100_000])
@pytest.mark.parametrize("dialect", SAID)
def test_what_stands_in_a_text_is_no_value(dialect: str, text: str) -> None:
    scanner = scanned(dialect, {**SAID[dialect], "x": text})
    assert scanner.error is None
    assert scanner.kinds


def test_marks_are_counted_up_to_the_limit() -> None:
    most = b"[%b]" % b",".join([b"1"] * (MOST_MARKS - 1))
    assert len(marks_of(most)) == MOST_MARKS
    assert not too_full(most)
    assert too_full(most.replace(b"]", b",1]"))
    nested = b"[%b]" % b",".join([b"[]"] * (MOST_OBJECTS - 1))
    assert not too_full(nested)
    assert too_full(nested.replace(b"]]", b"],[]]"))
    assert marks_of(b'{"a,b":[1,"\\"]{",{}],"":"\\\\"}') == b"{:[,,{}],:}"


def whole_response(tokens: int, **more: Any) -> dict[str, Any]:
    """The last event of a response with log probabilities, which says all of it again."""
    token = {"token": "a", "logprob": -0.5, "bytes": [97]}
    likely = [{**token, "top_logprobs": [token] * 5}] * tokens
    part = {"type": "output_text", "text": "a" * tokens, "logprobs": likely}
    item = {"type": "message", "content": [part]}
    return {
        "type": "response.completed",
        "response": {"status": "completed", "output": [item], **more},
    }


def test_the_log_probabilities_of_a_whole_response_are_no_values_of_its_last_event() -> None:
    last = whole_response(5000)
    scanner = scanned("openai-responses", last)
    assert scanner.error is None
    assert scanner.done
    told = translator("openai-responses", "openai-chat", model="m", id="x", created=1)
    out = told.event(b"", json.dumps(last).encode())
    assert told.failed is None
    assert b"a" * 5000 in out
    assert scanned("openai-responses", whole_response(10_000)).error == TOO_MANY
    for more in ({"x": MANY["numbers"]}, {"x": MANY["lists"]}, {"output": {"x": MANY["texts"]}}):
        assert scanned("openai-responses", whole_response(2000, **more)).error == TOO_MANY
