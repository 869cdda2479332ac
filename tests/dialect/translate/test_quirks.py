"""What providers do in the wild, and what a client is told of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dialect.translate.cases import events, made
from dialect.translate.heard import STREAMS, WHOLES
from dialect.translate.speakers import event, typed
from dialect.translate.tables import READ, WRITE
from lightgate.dialect.errors import Fault
from lightgate.dialect.registry import TRANSLATED as DIALECTS
from lightgate.errors import Malformed, StreamError

CHAT = "openai-chat"
USAGE = {"prompt_tokens": 5, "completion_tokens": 2}
DONE = (b"", b"[DONE]")


def chunk(delta: Any = None, finish: Any = None, **more: Any) -> tuple[bytes, bytes]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return event({"choices": [choice], **more})


def calls(*given: dict[str, Any]) -> tuple[bytes, bytes]:
    return chunk({"tool_calls": list(given)})


def told(source: str, target: str, *said: tuple[bytes, bytes], usage: bool = True) -> bytes:
    telling = made(source, target, include_usage=usage)
    return b"".join([telling.event(name, data) for name, data in said]) + telling.finish()


def heard(source: str, target: str, *said: tuple[bytes, bytes]) -> dict[str, Any]:
    return STREAMS[target](told(source, target, *said))


def failure(target: str, stream: bytes) -> dict[str, Any]:
    """The last event, which must be an error in the client's dialect."""
    name, data = list(events(stream))[-1]
    last: dict[str, Any] = json.loads(data)
    if target == "openai-responses":
        assert name in {b"error", b"response.failed"}
        return last if name == b"error" else last["response"]["error"]
    assert name == (b"error" if target == "anthropic-messages" else b"")
    found: dict[str, Any] = last["error"]
    return found


# Reasoning


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "Hm."},
        {"reasoning": "Hm."},
        {"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]},
        {"reasoning_content": "Hm.", "reasoning": "Hm."},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "Hm."}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]},
    ],
)
def test_reasoning_by_any_name_is_told_once(delta: Any) -> None:
    found = heard(CHAT, "anthropic-messages", chunk(delta), chunk({"content": "Yes"}), DONE)
    assert (found["reasoning"], found["text"]) == ("Hm.", "Yes")


def test_a_signature_comes_along_with_its_reasoning() -> None:
    detail = {"type": "reasoning.text", "text": "Hm.", "signature": "c2ln"}
    said = (chunk({"reasoning_details": [detail]}), chunk({"content": "Yes"}), DONE)
    for target in DIALECTS:
        assert heard(CHAT, target, *said)["signature"] == "c2ln"


def test_a_signature_without_reasoning_stays_with_its_call() -> None:
    part = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}
    said = event({"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]})
    told_parts = json.loads(next(events(told("gemini", "gemini", said)))[1])
    assert told_parts["candidates"][0]["content"]["parts"][0]["thoughtSignature"] == "c2ln"
    kinds = [e["content_block"]["type"] for e in blocks(told("gemini", "anthropic-messages", said))]
    assert kinds == ["thinking", "tool_use"]


def blocks(stream: bytes) -> list[Any]:
    found = [json.loads(data) for _, data in events(stream)]
    return [one for one in found if one["type"] == "content_block_start"]


def test_paragraphs_of_a_summary_stay_apart() -> None:
    name = "response.reasoning_summary_text.delta"
    said = (
        typed(name, output_index=0, summary_index=0, delta="One."),
        typed("response.reasoning_summary_part.added", output_index=0, summary_index=1),
        typed(name, output_index=0, summary_index=1, delta="Two."),
        typed("response.completed", response={"status": "completed", "output": []}),
    )
    assert heard("openai-responses", CHAT, *said)["reasoning"] == "One.\n\nTwo."


# Choices, usage and finish


def test_empty_choices_and_usage_in_every_chunk() -> None:
    first = event({"choices": [], "prompt_filter_results": []})
    said = [
        chunk({"content": c}, usage={**USAGE, "completion_tokens": n}) for n, c in enumerate("ab")
    ]
    found = heard(CHAT, "anthropic-messages", first, *said, chunk(finish="stop", usage=USAGE), DONE)
    assert (found["text"], found["finish"]) == ("ab", "end_turn")
    assert (found["usage"]["input_tokens"], found["usage"]["output_tokens"]) == (5, 2)


@pytest.mark.parametrize("word", ["", None, "null", "stop"])
def test_a_finish_reason_on_every_chunk(word: Any) -> None:
    said = [chunk({"content": c}, word) for c in "abc"]
    found = heard(CHAT, "anthropic-messages", *said, chunk(finish="length"), DONE)
    assert (found["text"], found["finish"]) == ("abc", "max_tokens")


def test_a_stop_takes_nothing_back() -> None:
    said = (chunk({"content": "a"}, "content_filter"), chunk(finish="stop"), DONE)
    assert heard(CHAT, "anthropic-messages", *said)["finish"] == "refusal"


def test_no_finish_reason_before_the_marker_is_a_stop() -> None:
    assert heard(CHAT, "gemini", chunk({"content": "a"}), DONE)["finish"] == "STOP"


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("word", ["abort", "error", "insufficient_system_resource", "what?"])
def test_an_unknown_finish_is_an_error_and_no_good_end(target: str, word: str) -> None:
    stream = told(CHAT, target, chunk({"content": "a"}), chunk(finish=word), DONE)
    assert word in failure(target, stream)["message"]
    for marker in (b"[DONE]", b"message_stop", b"response.completed", b"finishReason"):
        assert marker not in stream
    body = {"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": word}]}
    with pytest.raises(StreamError, match="ended the answer with"):
        made(CHAT, target).whole(json.dumps(body).encode())


@pytest.mark.parametrize(
    "word", ["MALFORMED_FUNCTION_CALL", "OTHER", "TOO_MANY_TOOL_CALLS", "NO_IMAGE"]
)
def test_the_broken_finishes_of_gemini(word: str) -> None:
    candidate = {"finishReason": word, "finishMessage": "The call was odd."}
    stream = told("gemini", CHAT, event({"candidates": [candidate]}))
    assert failure(CHAT, stream)["message"].endswith(f"{word!r}: The call was odd.")


def test_every_reason_is_read_somewhere_and_written_everywhere() -> None:
    reasons = {reason for words in READ.values() for reason in words.values()} | {"refusal"}
    assert all(set(words) == reasons for words in WRITE.values())
    assert set(READ) == set(WRITE) == set(DIALECTS)


@pytest.mark.parametrize("target", DIALECTS)
def test_a_call_and_then_a_mere_stop(target: str) -> None:
    call = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": '{"a":1}'}}
    found = heard(CHAT, target, calls(call), chunk(finish="stop"), DONE)
    assert found["calls"] == [["call_1", "f", {"a": 1}]]
    assert found["finish"] == WRITE[target]["tool"]


def test_usage_is_hidden_from_a_chat_client_that_did_not_ask() -> None:
    said = (chunk({"content": "a"}), chunk(finish="stop"), event({"choices": [], "usage": USAGE}))
    assert b"usage" not in told("openai-chat", CHAT, *said, DONE, usage=False)
    assert told("openai-chat", CHAT, *said, DONE).count(b'"usage":{') == 1


@pytest.mark.parametrize("target", DIALECTS)
def test_an_answer_without_usage_and_text_is_whole_all_the_same(target: str) -> None:
    stream = told(CHAT, target, chunk({"role": "assistant", "content": ""}, "stop"), DONE)
    assert STREAMS[target](stream)["text"] == ""
    body = {"choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "stop"}]}
    assert json.loads(made(CHAT, target).whole(json.dumps(body).encode()))


def test_nothing_follows_the_end() -> None:
    telling = made(CHAT, "anthropic-messages")
    telling.event(*chunk({"content": "a"}, "stop"))
    assert telling.event(*DONE).endswith(b'"message_stop"}\n\n')
    assert telling.closed
    assert (
        telling.event(*chunk({"content": "b"})) == telling.event(*DONE) == telling.finish() == b""
    )


# Calls


def test_a_call_in_one_chunk_and_as_an_object() -> None:
    whole = {"id": "c", "function": {"name": "f", "arguments": {"a": [1, 2.5]}}}
    found = heard(CHAT, "anthropic-messages", calls(whole), chunk(finish="tool_calls"), DONE)
    assert found["calls"] == [["c", "f", {"a": [1, 2.5]}]]


@pytest.mark.parametrize("target", DIALECTS)
def test_mixed_pieces_of_parallel_calls_are_put_in_order(target: str) -> None:
    said = (
        calls({"index": 0, "id": "x", "function": {"name": "f", "arguments": ""}}),
        calls({"index": 1, "id": "y", "function": {"name": "g", "arguments": ""}}),
        calls({"index": 1, "function": {"arguments": '{"b":'}}),
        calls({"index": 0, "function": {"arguments": '{"a":'}}),
        chunk({"content": "Also:"}),
        calls({"index": 0, "function": {"arguments": "1}"}}),
        calls({"index": 1, "function": {"arguments": "2}"}}),
        chunk(finish="tool_calls"),
        DONE,
    )
    found = heard(CHAT, target, *said)
    assert found["calls"] == [["x", "f", {"a": 1}], ["y", "g", {"b": 2}]]
    assert found["text"] == "Also:"


def test_calls_in_order_are_not_held_back() -> None:
    telling = made(CHAT, "anthropic-messages")
    first = {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":1}'}}
    second = {"index": 1, "id": "y", "function": {"name": "g", "arguments": '{"b"'}}
    telling.event(*calls(first))
    assert b'"name":"g"' in telling.event(*calls(second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"index": 0, "id": "x"}, {"index": 0, "id": "y"}),  # all calls have the same index
        ({"id": "x"}, {"id": "y"}),  # none has one
        ({}, {}),  # neither index nor id
        ({"index": 0, "id": "x"}, {"index": 1, "id": "x"}),  # the same id twice
        ({"index": 0, "id": ""}, {"index": 1, "id": ""}),
    ],
)
def test_two_calls_are_two(first: dict[str, Any], second: dict[str, Any]) -> None:
    one = {**first, "function": {"name": "f", "arguments": "{}"}}
    two = {**second, "function": {"name": "g", "arguments": '{"b":2}'}}
    found = heard(CHAT, "openai-responses", calls(one), calls(two), DONE)
    assert [(name, given) for _, name, given in found["calls"]] == [("f", {}), ("g", {"b": 2})]
    assert len({call_id for call_id, _, _ in found["calls"]}) == 2


def test_a_call_that_repeats_its_id_and_name_is_one() -> None:
    head = {"index": 0, "id": "x"}
    said = [calls({**head, "function": {"name": "f", "arguments": a}}) for a in ('{"a"', ":1}")]
    assert heard(CHAT, "gemini", *said, DONE)["calls"] == [["x", "f", {"a": 1}]]


def test_a_name_after_the_id() -> None:
    said = (
        calls({"index": 0, "id": "x", "function": {"arguments": ""}}),
        calls({"index": 0, "function": {"arguments": "{"}}),
        calls({"index": 0, "function": {"name": "f", "arguments": "}"}}),
    )
    assert heard(CHAT, "anthropic-messages", *said, DONE)["calls"] == [["x", "f", {}]]


@pytest.mark.parametrize("target", DIALECTS)
def test_a_call_without_parameters_has_an_empty_object(target: str) -> None:
    block = {"type": "tool_use", "id": "x", "name": "f", "input": {}}
    said = (
        typed("content_block_start", index=0, content_block=block),
        typed("content_block_stop", index=0),
        typed("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 3}),
        typed("message_stop"),
    )
    assert heard("anthropic-messages", target, *said)["calls"] == [["x", "f", {}]]


def test_a_call_that_was_cut_off() -> None:
    cut = calls({"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a'}})
    found = heard(CHAT, "gemini", cut, chunk(finish="length"), DONE)
    assert (found["calls"], found["finish"]) == ([], "MAX_TOKENS")
    found = heard(CHAT, "gemini", cut, chunk(finish="tool_calls"), DONE)
    assert (found["calls"], found["finish"]) == ([], "MALFORMED_FUNCTION_CALL")
    function = {"name": "f", "arguments": '{"a'}
    message = {"content": None, "tool_calls": [{"id": "x", "function": function}]}
    choice = {"index": 0, "message": message, "finish_reason": "length"}
    body = json.dumps({"choices": [choice]}).encode()
    assert WHOLES["anthropic-messages"](made(CHAT, "anthropic-messages").whole(body))["calls"] == []
    body = body.replace(b"length", b"stop")
    with pytest.raises(StreamError, match="no JSON object"):
        made(CHAT, "anthropic-messages").whole(body)


def test_pieces_for_the_providers_own_tools_are_passed_over() -> None:
    block = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"query":"x"}'}
    said = (
        typed("content_block_start", index=0, content_block=block),
        typed("content_block_delta", index=0, delta=delta),
        typed("content_block_stop", index=0),
        typed("content_block_delta", index=1, delta={"type": "text_delta", "text": "Found."}),
        typed("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}),
        typed("message_stop"),
    )
    found = heard("anthropic-messages", CHAT, *said)
    assert (found["text"], found["calls"], found["finish"]) == ("Found.", [], "stop")


def test_responses_that_come_without_deltas() -> None:
    items = [
        {"type": "reasoning", "summary": [{"text": "Hm."}], "encrypted_content": "c2ln"},
        {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "x", "name": "f", "arguments": '{"a":1}'},
    ]
    last = typed("response.completed", response={"status": "completed", "output": items})
    done = [
        typed("response.output_item.done", output_index=at, item=item)
        for at, item in enumerate(items)
    ]
    for said in ([last], [*done, last]):
        found = heard("openai-responses", "anthropic-messages", *said)
        assert (found["reasoning"], found["signature"], found["text"]) == ("Hm.", "c2ln", "Hi")
        assert found["calls"] == [["x", "f", {"a": 1}]]


def test_a_stop_sequence_is_named() -> None:
    said = (
        typed("content_block_delta", index=0, delta={"type": "text_delta", "text": "a"}),
        typed(
            "message_delta", usage={"output_tokens": 1},
            delta={"stop_reason": "stop_sequence", "stop_sequence": "END"},
        ),
        typed("message_stop"),
    )  # fmt: skip
    stream = told("anthropic-messages", "anthropic-messages", *said)
    assert b'"stop_reason":"stop_sequence","stop_sequence":"END"' in stream
    assert heard("anthropic-messages", CHAT, *said)["finish"] == "stop"


# Errors inside an answer


ERRORS = {
    "openai-chat": event({"error": {"message": "Too much.", "type": "server_error", "code": 503}}),
    "openai-responses": typed("error", code="server_error", message="Too much.", param=None),
    "anthropic-messages": typed(
        "error", error={"type": "overloaded_error", "message": "Too much."}
    ),
    "gemini": event({"error": {"code": 503, "message": "Too much.", "status": "UNAVAILABLE"}}),
}


@pytest.mark.parametrize("source", DIALECTS)
@pytest.mark.parametrize("target", DIALECTS)
def test_an_error_event_is_the_clients_error_event(source: str, target: str) -> None:
    telling = made(source, target)
    stream = telling.event(*ERRORS[source])
    assert failure(target, stream)["message"] == "Too much."
    assert telling.failed is not None
    assert telling.finish() == b""
    with pytest.raises(StreamError, match="Too much"):
        made(source, target).whole(ERRORS[source][1])


def test_an_overloaded_provider_is_overloaded_in_every_dialect() -> None:
    found = ERRORS["anthropic-messages"]
    assert failure("gemini", told("anthropic-messages", "gemini", found))["status"] == "UNAVAILABLE"
    assert failure(CHAT, told("anthropic-messages", CHAT, found))["type"] == "server_error"
    again = told("anthropic-messages", "anthropic-messages", found)
    assert failure("anthropic-messages", again)["type"] == "overloaded_error"


def test_a_begun_response_fails_in_sequence() -> None:
    telling = made(CHAT, "openai-responses")
    stream = telling.event(*chunk({"content": "a"}))
    stream += telling.fail(Fault("timeout", "No token for 60 s.", 504))
    said = [(name, json.loads(data)) for name, data in events(stream)]
    assert [one["sequence_number"] for _, one in said] == list(range(len(said)))
    assert said[-1][0] == b"response.failed"
    assert said[-1][1]["response"]["error"]["message"] == "No token for 60 s."


@pytest.mark.parametrize("source", DIALECTS)
def test_rubbish_is_no_answer(source: str) -> None:
    with pytest.raises(Malformed, match="Not an answer"):
        made(source, CHAT).whole(b"<html><title>Bad gateway</title>")
    with pytest.raises(Malformed):
        made(source, CHAT).whole(b"{}")
    telling = made(source, CHAT)
    assert b"Not an answer" in telling.event(b"", b"rubbish")


@pytest.mark.parametrize("word", ["SAFETY", "OTHER", "BLOCK_REASON_UNSPECIFIED"])
def test_a_blocked_prompt_was_filtered(word: str) -> None:
    said = event({"promptFeedback": {"blockReason": word}})
    assert b'"finish_reason":"content_filter"' in told("gemini", CHAT, said)
