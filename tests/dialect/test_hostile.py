"""No bytes of a provider make a scanner raise."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.dialect.registry import dialect_for

if TYPE_CHECKING:
    from lightgate.dialect.registry import Family
    from lightgate.dialect.request import Kind

SPEAKERS: list[tuple[Family, Kind]] = [
    ("openai", "chat"),
    ("openai", "completion"),
    ("openai", "responses"),
    ("openai", "embedding"),
    ("anthropic", "chat"),
    ("gemini", "chat"),
]
FIELDS = [
    "type",
    "choices",
    "delta",
    "message",
    "content",
    "text",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "refusal",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "audio",
    "data",
    "transcript",
    "finish_reason",
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "error",
    "x_groq",
    "item",
    "response",
    "status",
    "output",
    "summary",
    "incomplete_details",
    "reason",
    "content_block",
    "thinking",
    "partial_json",
    "stop_reason",
    "input",
    "input_tokens",
    "output_tokens",
    "candidates",
    "parts",
    "thought",
    "functionCall",
    "args",
    "inlineData",
    "finishReason",
    "usageMetadata",
    "candidatesTokenCount",
    "promptFeedback",
    "blockReason",
    "embedding",
    "detail",
    "code",
]
TYPES = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "response.output_text.delta",
    "response.output_item.added",
    "response.completed",
    "function_call",
    "tool_use",
    "error",
]
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(TYPES),
    st.text(max_size=4),
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
    ),
    max_leaves=15,
)
names = st.sampled_from([b"", b"error", b"ping", b"message_delta", b"\xff\xfe"])


@pytest.mark.parametrize("speaker", SPEAKERS, ids=str)
def test_random_values_and_bytes_are_survived(speaker: tuple[Family, Kind]) -> None:
    @settings(max_examples=250, derandomize=True, deadline=None, database=None)
    @given(st.lists(st.tuples(names, values | st.binary(max_size=30)), max_size=4))
    def check(events: list[tuple[bytes, object]]) -> None:
        streamed, whole = dialect_for(*speaker).scanner(), dialect_for(*speaker).scanner()
        for name, value in events:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            kinds = streamed.event(name, data)
            assert kinds == kinds & streamed.kinds
            whole.whole(data)
            assert whole.done is (whole.error is None)
        streamed.eof()

    check()


@pytest.mark.parametrize("speaker", SPEAKERS, ids=str)
@pytest.mark.parametrize(
    "data",
    [
        b"<html><title>Down</title>",
        b"\x00\x01\x02",
        b"[" * 100_000,
        b'{"error":' * 2000 + b"1" + b"}" * 2000,
        b'{"choices":[{"delta":{"content":"' + b"x" * 10,
        b"null",
        b'"text"',
        b"42",
        b"\xff" * 50,
    ],
    ids=range(9),
)
def test_rubbish_is_a_malformed_answer(speaker: tuple[Family, Kind], data: bytes) -> None:
    streamed, whole = dialect_for(*speaker).scanner(), dialect_for(*speaker).scanner()
    assert streamed.event(b"", data) == 0
    assert whole.whole(data) == 0
    for scanner in (streamed, whole):
        assert scanner.error is not None
        assert scanner.error.code == "malformed"
        assert not scanner.done


@pytest.mark.parametrize("odd", [[], {}, 7, True])
def test_a_type_that_is_no_word_is_survived(odd: object) -> None:
    item = {"type": "response.output_item.added", "item": {"type": odd}}
    assert dialect_for("openai", "responses").scanner().event(b"", json.dumps(item).encode()) == 0
    block = {"type": "content_block_start", "index": odd, "content_block": {"type": odd}}
    assert dialect_for("anthropic", "chat").scanner().event(b"", json.dumps(block).encode()) == 0


@pytest.mark.parametrize("count", [-1, 1.5, 1e300, True, "7", None, [1], 1 << 70])
def test_a_count_that_cannot_be_one_is_unknown(count: object) -> None:
    scanner = dialect_for("openai", "chat").scanner()
    usage = {"prompt_tokens": 3.0, "completion_tokens": count}
    scanner.event(b"", json.dumps({"choices": [], "usage": usage}).encode())
    assert scanner.usage is not None
    assert (scanner.usage.tokens_in, scanner.usage.tokens_out) == (3, None)


@pytest.mark.parametrize("speaker", SPEAKERS[:3] + SPEAKERS[4:], ids=str)
@pytest.mark.parametrize("odd", [7, "much", [], [1], {"input_tokens_details": 3, "total": {}}])
def test_an_answer_is_not_refused_for_its_bill(speaker: tuple[Family, Kind], odd: object) -> None:
    bodies: dict[str, dict[str, object]] = {
        "chat": {"choices": [{"message": {"content": "a"}, "text": "a"}], "usage": odd},
        "responses": {"output": [], "status": "completed", "usage": odd},
        "anthropic": {"content": [], "usage": odd, "stop_details": odd},
        "gemini": {"candidates": [], "usageMetadata": odd},
    }
    family, kind = speaker
    name = family if family != "openai" else "responses" if kind == "responses" else "chat"
    scanner = dialect_for(*speaker).scanner()
    scanner.whole(json.dumps(bodies[name]).encode())
    assert scanner.error is None


def test_an_answer_without_a_marker_ends_at_the_end_of_the_body() -> None:
    chunk = b'{"choices":[{"delta":{"content":"a"},"finish_reason":%b}]}'
    ends = ((b'"stop"', "finish"), (b"null", None), (b'""', None), (b'"null"', None))
    for finish, end in ends:
        scanner = dialect_for("openai", "chat").scanner()
        scanner.event(b"", chunk % finish)
        assert (scanner.done, scanner.ended_by) == (False, None)
        scanner.eof()
        assert (scanner.done, scanner.ended_by) == (end is not None, end)


def test_a_marker_is_the_end_whatever_follows() -> None:
    scanner = dialect_for("openai", "chat").scanner()
    scanner.event(b"", b'{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}')
    scanner.event(b"", b"[DONE]")
    scanner.eof()
    assert (scanner.done, scanner.ended_by) == (True, "marker")


def test_a_finish_reason_is_a_short_word() -> None:
    scanner = dialect_for("openai", "chat").scanner()
    choice = {"delta": {}, "finish_reason": "very\n" * 1000}
    scanner.event(b"", json.dumps({"choices": [choice]}).encode())
    assert scanner.finish is not None
    assert len(scanner.finish) <= 64
    assert scanner.finish.isprintable()
