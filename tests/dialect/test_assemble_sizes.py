"""The bytes that an answer is said to have while it is assembled: a limit is held against them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightgate.dialect.assemble import assembler
from lightgate.dialect.neutral.folding import PIECE
from lightgate.errors import UsageError


def sizes(dialect: str, *events: dict[str, Any]) -> list[int]:
    """How many bytes each event adds."""
    made = assembler(dialect)
    found = []
    for event in events:
        before = made.size
        made.event(b"", json.dumps(event).encode())
        found.append(made.size - before)
    return found


def choice(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def test_a_chat_answer_grows_by_its_texts_its_calls_and_its_facts() -> None:
    call = {"index": 0, "id": "c-1", "function": {"name": "f", "arguments": "{}"}}
    assert sizes(
        "openai-chat",
        {"id": "x-1", **choice(content="ab")},  # a choice, a piece of text, and an id
        choice(content="cde"),
        choice(reasoning="ab"),
        {"choices": [{"index": 1, "delta": {"content": "ab"}}]},  # another choice
        {"id": "x-1", "choices": []},
    ) == [PIECE + PIECE + 2 + 3, PIECE + 3, PIECE + 2, PIECE + PIECE + 2, 0]
    first, again = sizes("openai-chat", choice(tool_calls=[call]), choice(tool_calls=[call]))
    assert first > again >= PIECE + len("{}")


def test_a_completion_grows_by_its_texts_and_its_facts() -> None:
    assert sizes(
        "openai-completions",
        {"id": "x-1", "choices": [{"index": 0, "text": "ab"}]},
        {"id": "x-1", "choices": [{"index": 0, "text": "cde"}]},
    ) == [PIECE + PIECE + 2 + 3, PIECE + 3]


def test_a_message_grows_by_its_beginning_its_blocks_and_their_pieces() -> None:
    delta = {"type": "content_block_delta", "index": 0}
    assert sizes(
        "anthropic-messages",
        {"type": "message_start", "message": {"id": "m-1", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
        {**delta, "delta": {"type": "text_delta", "text": "bc"}},
        {**delta, "delta": {"type": "signature_delta", "signature": "abcd"}},
        {**delta, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {**delta, "delta": {"type": "citations_delta", "citation": {}}},
        {"type": "message_delta", "delta": {"stop_reason": "x"}, "usage": {}},
        {"type": "ping"},
    ) == [
        3 + PIECE + 2,  # the list of contents is an object of its own
        PIECE + len("text") + PIECE + 1,
        PIECE + PIECE + 2,
        PIECE + 4,
        PIECE + PIECE + 2,
        PIECE + PIECE + len("[{}]"),
        1 + PIECE + 2,
        0,
    ]


def test_a_gemini_answer_grows_by_its_parts_and_its_facts() -> None:
    def said(**part: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": [part]}}]}

    first, more, other, fact = sizes(
        "gemini", said(text="a"), said(text="bcd"), said(inlineData={}), {"modelVersion": "abcd"}
    )
    assert first > more > 3
    assert other > 0
    assert fact == 4


def test_citations_and_signatures_of_a_message_are_in_its_block() -> None:
    made = assembler("anthropic-messages")
    delta = {"type": "content_block_delta", "index": 0}
    start = {"type": "text", "text": "", "citations": None}
    for one in (
        {"type": "message_start", "message": {"id": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {**delta, "delta": {"type": "citations_delta", "citation": {"a": 1}}},
        {**delta, "delta": {"type": "citations_delta", "citation": {"b": 2}}},
        {**delta, "delta": {"type": "signature_delta", "signature": "s"}},
        {**delta, "delta": {"type": "text_delta", "text": "ab"}},
    ):
        made.event(b"", json.dumps(one).encode())
    (block,) = json.loads(made.whole())["content"]
    assert block == {
        "type": "text",
        "text": "ab",
        "citations": [{"a": 1}, {"b": 2}],
        "signature": "s",
    }


@pytest.mark.parametrize("dialect", ["openai-embeddings", "openai-speech"])
def test_a_stream_of_no_one_answer_is_not_assembled(dialect: str) -> None:
    with pytest.raises(UsageError, match=f"'{dialect}' cannot be assembled"):
        assembler(dialect)
