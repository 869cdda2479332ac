"""Half of an emoji, a number that is none, names of our own: they lose no answer and no request.

Text that was cut between the halves of an emoji comes as `\\ud83d`, which some decoders refuse.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from dialect.translate.cases import events as events_of
from lightgate.dialect.assemble import assembler
from lightgate.dialect.neutral.dialect import DEFAULT_QUIRKS
from lightgate.dialect.registry import DIALECTS
from lightgate.dialect.request import CallForm
from lightgate.dialect.scanner import Scanner
from lightgate.dialect.translate import read_request, translator

HALF = "\ud83d"
SHELL = {"shell": CallForm("local_shell", "", "local_shell")}


def whole(dialect: str, *said: dict[str, Any]) -> dict[str, Any]:
    made = assembler(dialect)
    for one in said:
        made.event(b"", json.dumps(one).encode())
    found: dict[str, Any] = json.loads(made.whole(), parse_constant=pytest.fail)
    return found


def test_a_response_that_ends_in_half_an_emoji_is_put_together_whole() -> None:
    reasoning = {"type": "reasoning", "id": "r", "summary": []}
    message = {"type": "message", "content": [{"type": "output_text", "text": f"Hi {HALF}"}]}
    last = {"status": "incomplete", "output": [reasoning, message]}
    begin = {"type": "response.created", "response": {"status": "in_progress", "output": []}}
    done = "response.output_item.done"
    items: list[dict[str, Any]] = [
        {"type": done, "output_index": 0, "item": reasoning},
        {"type": done, "output_index": 1, "item": message},
    ]
    end = {"type": "response.incomplete", "response": last}
    assert whole("openai-responses", begin, *items, end) == last
    bare = {"type": "response.incomplete", "response": {"status": "incomplete"}}
    assert whole("openai-responses", begin, *items, bare) == last


def test_an_emoji_that_two_pieces_of_an_input_share_is_one() -> None:
    start = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    delta = {"type": "content_block_delta", "index": 0}
    message = whole(
        "anthropic-messages",
        {"type": "message_start", "message": {"role": "assistant"}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {**delta, "delta": {"type": "input_json_delta", "partial_json": '{"a":"\ud83d'}},
        {**delta, "delta": {"type": "input_json_delta", "partial_json": '\ude00"}'}},
    )
    assert message["content"][0]["input"] == {"a": "\U0001f600"}


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ('{"command":["ls"],"note":"\\ud83d"}', {"command": ["ls"]}),
        ('{"command":["\\ud83d"],"user":"me"}', {"command": [HALF], "user": "me"}),
        ('{"\\ud83d":1}', {}),
    ],
)
def test_a_local_shell_is_told_half_an_emoji(arguments: str, action: dict[str, Any]) -> None:
    function = {"name": "shell", "arguments": arguments}
    call = {"index": 0, "id": "c", "type": "function", "function": function}
    expected = {"type": "exec", "command": [], "env": {}, **action}
    told = translator("openai-chat", "openai-responses", model="m", id="x", created=1)
    told.know(SHELL)
    out = told.event(b"", json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]}).encode())
    out += told.finish()
    (done,) = [
        json.loads(data) for name, data in events_of(out) if name == b"response.output_item.done"
    ]
    assert done["item"]["action"] == expected
    body = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    told = translator("openai-chat", "openai-responses", model="m", id="x", created=1)
    told.know(SHELL)
    assert json.loads(told.whole(json.dumps(body).encode()))["output"][0]["action"] == expected


def test_a_number_that_is_none_is_null_beside_half_an_emoji() -> None:
    made = assembler("openai-chat")
    made.event(b"", b'{"choices":[{"delta":{"content":"\\ud83d","x":[NaN,1e999]}}]}')
    message = json.loads(made.whole(), parse_constant=pytest.fail)["choices"][0]["message"]
    assert (message["content"], message["x"]) == (HALF, [None, None])


@pytest.mark.parametrize("name", [" calls", " details"])
@pytest.mark.parametrize("value", [1, [], {}, "a"])
def test_a_field_that_is_called_like_one_of_ours_is_left_out(name: str, value: Any) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    detail = {"index": 0, "type": "t", "text": "a"}
    answer = whole(
        "openai-chat",
        {"choices": [{"delta": {name: value, "content": "a"}}]},
        {"choices": [{"delta": {"tool_calls": [call], "reasoning_details": [detail]}}]},
    )
    message = answer["choices"][0]["message"]
    assert name not in message
    assert [one["id"] for one in message["tool_calls"]] == ["c"]
    assert message["reasoning_details"] == [detail]


ODD = ['{"a":"\\ud83d"}', '{"a":{"b":["x\\ud83d y"]}}', '{"\\ud83d":1}', '{"a":NaN}']


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize(
    "target", ["anthropic-messages", "gemini", "anthropic-count-tokens", "gemini-count-tokens"]
)
def test_a_request_hands_no_half_emoji_on_as_json(target: str, text: str) -> None:
    """Providers refuse it, and the rest of the conversation with it; as a text it is taken."""
    function = {"name": "f", "arguments": text}
    turns = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": text},
    ]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    body = json.dumps({"messages": turns, "tools": tools}).encode()
    request = read_request("openai-chat", body, model="m", untranslatable="drop")
    sent = DIALECTS[target].build(request, DEFAULT_QUIRKS).body
    assert HALF not in json.dumps(json.loads(sent), ensure_ascii=False)
    assert json.dumps({"arguments": text}).encode().replace(b": ", b":") in sent
    if target.startswith("gemini"):
        assert json.dumps({"result": text}).encode().replace(b": ", b":") in sent


def test_what_an_answer_cost_is_read_whole_beside_half_an_emoji() -> None:
    kept = {"ephemeral_1h_input_tokens": 7, "ephemeral_5m_input_tokens": 0}
    usage = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_creation_input_tokens": 7,
        "cache_creation": kept,
        "server_tool_use": {"web_search_requests": 3},
        "service_tier": "batch",
    }
    body = {"content": [{"type": "text", "text": HALF}], "stop_reason": "end_turn", "usage": usage}
    scanner = Scanner(DIALECTS["anthropic-messages"].reader)
    scanner.whole(json.dumps(body).encode())
    found = scanner.usage
    assert found is not None
    assert (found.tokens_cache_write_1h, found.tier) == (7, "batch")
    assert found.calls == (("web_search", 3),)
