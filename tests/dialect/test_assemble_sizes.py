"""The bytes that an answer is said to have while it is assembled: a limit is held against them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightgate.dialect.assemble import assembler
from lightgate.dialect.neutral.folding import ITEM, PIECE, VALUE
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


def field(name: str) -> int:
    """What a field adds beside its value, where it is new."""
    return PIECE + len(name)


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
    ) == [
        ITEM + PIECE + 2 + field("id") + 3,
        PIECE + 3,
        field("reasoning") + PIECE + 2,
        ITEM + PIECE + 2,
        0,
    ]
    first, again = sizes("openai-chat", choice(tool_calls=[call]), choice(tool_calls=[call]))
    assert first - again > ITEM  # and the choice, which is there again
    assert again >= PIECE + len("{}")


def test_a_completion_grows_by_its_texts_and_its_facts() -> None:
    assert sizes(
        "openai-completions",
        {"id": "x-1", "choices": [{"index": 0, "text": "ab"}]},
        {"id": "x-1", "choices": [{"index": 0, "text": "cde"}]},
    ) == [ITEM + PIECE + 2 + field("id") + 3, PIECE + 3]


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
        field("id") + 3 + field("content") + VALUE + 2,  # a list is an object of its own
        ITEM + field("type") + len("text") + PIECE + 1,
        PIECE + PIECE + 2,
        PIECE + field("signature") + 4,
        PIECE + PIECE + 2 + PIECE,  # its input is an object
        PIECE + 2 * VALUE + len("[{}]"),
        field("stop_reason") + 1 + field("usage") + VALUE + 2,
        0,
    ]


def test_the_values_of_an_input_in_pieces_count_before_they_are_read() -> None:
    """Two MiB of them took a fifth of a second to translate, in one turn of the loop."""
    delta = {"type": "content_block_delta", "index": 0}
    piece = {"type": "input_json_delta", "partial_json": "[[]]," * 1000}
    (size,) = sizes("anthropic-messages", {**delta, "delta": piece})
    assert size == ITEM + PIECE + 5000 + 2500 * PIECE


def test_a_choice_grows_by_its_finish_reason() -> None:
    first, again, late = sizes(
        "openai-chat",
        {"choices": [{"index": 0, "finish_reason": None}]},
        {"choices": [{"index": 0, "finish_reason": "a" * 1000}]},
        {"choices": [{"index": 0, "finish_reason": "b" * 1000}]},  # which is not kept
    )
    assert (again, late) == (1000, 0)
    assert first < 1000 + ITEM


def test_a_gemini_answer_grows_by_its_parts_and_its_facts() -> None:
    def said(**part: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": [part]}}]}

    first, more, other, fact = sizes(
        "gemini", said(text="a"), said(text="bcd"), said(inlineData={}), {"modelVersion": "abcd"}
    )
    assert first > more > 3
    assert other > 0
    assert fact == field("modelVersion") + 4


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


SMALL: dict[str, dict[str, Any]] = {  # events that say little, again and again; N is their number
    "openai-chat": {"choices": [{"index": "N", "delta": {"content": "a"}}]},
    "openai-completions": {"N": 1, "choices": []},
    "openai-responses": {
        "type": "response.output_item.done",
        "output_index": "N",
        "item": {"type": "message", "content": []},
    },
    "anthropic-messages": {"type": "message_delta", "delta": {"N": None}},
    "gemini": {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f"}}]}}]},
}


@pytest.mark.parametrize("dialect", SMALL)
def test_an_answer_of_many_small_things_grows_by_more_than_their_bytes(dialect: str) -> None:
    """Fields with nothing in them, choices and calls are told one by one at the end."""
    made, data = assembler(dialect), json.dumps(SMALL[dialect])
    for number in range(1000):
        said = data.replace('_index": "N"', f'_index": {number}')
        said = said.replace('"index": "N"', f'"index": {number}').replace("N", f"f{number}")
        made.event(b"", said.encode())
    assert made.size >= 1000 * (PIECE if '"N":' in data else ITEM)


def test_the_bytes_of_a_text_count_and_not_its_characters() -> None:
    said = choice(content="\U0001f600" * 1000)
    assert sizes("openai-chat", choice(content=""), said)[1] == 4000 + PIECE
