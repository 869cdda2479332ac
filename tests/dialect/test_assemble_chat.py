"""Streams of chat and completions put together, chunk by chunk, against the object expected."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightgate.dialect.openai_chat.assemble import ChatAssembler, ChunkAssembler


def whole(*chunks: dict[str, Any], kind: type[ChunkAssembler] = ChatAssembler) -> dict[str, Any]:
    made = kind()
    for chunk in chunks:
        made.event(b"", json.dumps(chunk).encode())
    found: dict[str, Any] = json.loads(made.whole())
    return found


def chunk(delta: Any = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice], **more}


def message(*deltas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = whole(*[chunk(delta) for delta in deltas])["choices"][0]["message"]
    assert found.pop("role") == "assistant"
    return found


def test_the_head_the_choices_and_the_usage() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    found = whole(
        chunk({"role": "assistant", "content": "a"}, model="m", obfuscation="xx"),
        chunk({"content": "b"}, "stop", model="m"),
        {"choices": [], "usage": usage, "x_groq": {"id": "g", "usage": {"prompt_tokens": 9}}},
    )
    assert found == {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "x_groq": {"id": "g"},
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "ab"},
                "finish_reason": "stop",
            }
        ],
        "usage": usage,
    }
    alone = whole({"choices": [], "x_groq": {"usage": usage}})
    assert alone == {"id": "", "object": "chat.completion", "choices": [], "usage": usage}
    assert "usage" not in whole(chunk({"content": "a"}))
    assert whole(chunk(usage=usage), chunk(usage=None))["usage"] == usage


@pytest.mark.parametrize(
    ("reasons", "finish"),
    [
        ([None, None], None),
        ([None, "stop"], "stop"),
        (["stop", None], "stop"),
        (["stop", "length"], "length"),
        (["length", "stop"], "length"),
        (["length", None], "length"),
        (["tool_calls", "length"], "tool_calls"),
    ],
)
def test_a_mere_stop_takes_back_no_other_reason(reasons: list[Any], finish: Any) -> None:
    found = whole(*[chunk({}, reason) for reason in reasons])
    assert found["choices"][0]["finish_reason"] == finish


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([{}], {"content": None}),
        ([{"content": ""}], {"content": ""}),
        ([{"content": "a"}, {"content": "b"}], {"content": "ab"}),
        ([{"refusal": ""}], {"content": None, "refusal": None}),
        ([{"refusal": "n"}, {"refusal": "o"}], {"content": None, "refusal": "no"}),
        ([{"content": "a", "reasoning": ""}], {"content": "a"}),
        ([{"content": "a", "reasoning_content": ""}], {"content": "a"}),
        (
            [{"reasoning": "x"}, {"reasoning": "y"}, {"content": "a"}],
            {"content": "a", "reasoning": "xy"},
        ),
        (
            [{"content": [{"type": "text", "text": "a"}]}, {"content": "b"}],
            {"content": [{"type": "text", "text": "ab"}]},
        ),
        (
            [{"content": "a"}, {"content": [{"type": "text", "text": "b"}]}],
            {"content": [{"type": "text", "text": "ab"}]},
        ),
        (
            [{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": t}]}]}
             for t in "xy"] + [{"content": "a"}],
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "xy"}]},
                         {"type": "text", "text": "a"}]},
        ),
        ([{"content": [{"type": "text", "text": "a"}]}, {"content": ""}],
         {"content": [{"type": "text", "text": "a"}]}),
        (
            [{"function_call": {"name": "f"}}, {"function_call": {"arguments": "{}"}}],
            {"content": None, "function_call": {"name": "f", "arguments": "{}"}},
        ),
        (
            [{"content": "", "function_call": {"name": "f"}}],
            {"content": None, "function_call": {"name": "f", "arguments": "{}"}},
        ),
        (
            [{"function_call": {"name": "f", "arguments": {"a": 1}}}],
            {"content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}},
        ),
    ],
)  # fmt: skip
def test_messages(deltas: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    assert message(*deltas) == expected


def piece(**more: Any) -> dict[str, Any]:
    return {"tool_calls": [more]}


def call(id_: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id_, "function": {"name": name, "arguments": arguments}, "type": "function"}


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        (
            [piece(index=0, id="1", function={"name": "f", "arguments": ""}),
             piece(index=0, function={"arguments": '{"a"'}),
             piece(index=0, function={"arguments": ":1}"})],
            [call("1", "f", '{"a":1}')],
        ),
        (
            [piece(index=1, id="2", function={"name": "g"}),
             piece(index=0, id="1", function={"name": "f"}),
             piece(index=1, function={"arguments": "[]"})],
            [call("1", "f", "{}"), call("2", "g", "[]")],
        ),
        ([piece(index=0, id="1", function={"name": "f", "arguments": {"a": 1}})],
         [call("1", "f", '{"a":1}')]),
        ([piece(id="1", function={"name": "f"}), piece(id="2", function={"name": "g"})],
         [call("1", "f", "{}"), call("2", "g", "{}")]),
    ],
)  # fmt: skip
def test_calls(deltas: list[dict[str, Any]], calls: list[dict[str, Any]]) -> None:
    assert message(*deltas) == {"content": None, "tool_calls": calls}
    beside = message({"content": ""}, *deltas)
    assert beside["content"] is None
    assert message({"content": "x"}, *deltas)["content"] == "x"


def test_calls_of_custom_tools() -> None:
    begun = piece(index=0, id="1", type="custom", custom={"name": "f", "input": "a"})
    found = message(begun, piece(index=0, custom={"input": "b"}))
    assert found["tool_calls"] == [
        {"id": "1", "type": "custom", "custom": {"name": "f", "input": "ab"}}
    ]


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        (
            [{"type": "t", "text": "a", "index": 0}, {"type": "t", "text": "b", "index": 0}],
            [{"type": "t", "text": "ab", "index": 0}],
        ),
        (
            [{"type": "t", "text": "a", "index": 0}, {"type": "t", "text": "b", "index": 1},
             {"type": "t", "text": "c", "index": 0}],
            [{"type": "t", "text": "ac", "index": 0}, {"type": "t", "text": "b", "index": 1}],
        ),
        (
            [{"type": "t", "text": "a"}, {"type": "t", "text": "b"}, {"type": "s", "data": "x"}],
            [{"type": "t", "text": "ab"}, {"type": "s", "data": "x"}],
        ),
        (
            [{"type": "t", "text": "a", "index": 0}, {"type": "s", "data": "x", "index": 0}],
            [{"type": "t", "text": "a", "index": 0}, {"type": "s", "data": "x", "index": 0}],
        ),
    ],
)  # fmt: skip
def test_details_of_reasoning(
    details: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    deltas = [{"reasoning_details": [detail]} for detail in details]
    assert message(*deltas)["reasoning_details"] == expected


def test_a_message_that_came_dressed_as_a_delta() -> None:
    said = {"role": "assistant", "content": "whole"}
    found = whole({"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]})
    assert found["choices"][0]["message"] == said
    twice = whole(chunk({"content": "a"}), {"choices": [{"index": 0, "message": said}]})
    assert twice["choices"][0]["message"]["content"] == "a"  # it has been said


def test_choices_stand_in_their_order_with_their_own_facts() -> None:
    found = whole(
        {"choices": [{"index": 1, "delta": {"content": "b"}, "logprobs": {"content": [1]}}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "seed": 5}]},
        {"choices": [{"index": 1, "delta": {}, "logprobs": {"content": [2]}}]},
    )
    first, second = found["choices"]
    assert (first["index"], first["message"]["content"], first["seed"]) == (0, "a", 5)
    assert (second["index"], second["logprobs"]) == (1, {"content": [1, 2]})


def test_completions() -> None:
    found = whole(
        {"id": "x", "choices": [{"index": 0, "text": "a", "finish_reason": None}]},
        {"choices": [{"index": 0, "text": "b", "finish_reason": "length"}]},
        {"choices": [{"index": 0, "text": None}]},
        kind=ChunkAssembler,
    )
    assert found == {
        "id": "x",
        "object": "text_completion",
        "choices": [{"index": 0, "text": "ab", "finish_reason": "length"}],
    }


def test_a_call_of_a_function_takes_its_room() -> None:
    made = ChatAssembler()
    sizes = [0]
    for arguments in ("a" * 40, "b" * 90):
        call = {"function_call": {"arguments": arguments}}
        made.event(b"", json.dumps(chunk(call)).encode())
        sizes.append(made.size)
    assert sizes[1] - sizes[0] >= 40
    assert sizes[2] - sizes[1] >= 90


@pytest.mark.parametrize("index", [None, "0", 0.0, [0]])
def test_a_choice_whose_index_is_no_number_is_told_as_the_first(index: Any) -> None:
    said = {"index": index, "delta": {"content": "a"}, "finish_reason": "stop"}
    found = whole({"id": "c", "choices": [said]})
    assert json.dumps(found["choices"][0]["index"]) == "0"
