"""The official openai SDK, from its own environment, against the simulator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from sdk.expected import words

if TYPE_CHECKING:
    from sdk.conftest import Driven

pytestmark = pytest.mark.sdk
SDK = "openai"


def test_models(driven: Driven) -> None:
    assert driven.cases["models"] == {"listed": driven.models, "one": driven.models[0]}


@pytest.mark.parametrize("case", ["chat", "chat-stream", "complete", "complete-stream"])
def test_text_and_usage_are_exact(driven: Driven, case: str) -> None:
    seen, entry = driven.cases[case], driven.log[case]
    assert entry["tokens"]["text"] == 12
    assert len(seen["text"]) == words(entry, "text")
    assert seen["finish"] == "stop"
    assert seen["usage"]["completion_tokens"] == 12
    assert seen["usage"]["prompt_tokens"] == entry["tokens_in"]
    assert seen["usage"]["total_tokens"] == entry["tokens_in"] + 12
    assert entry["streamed"] == case.endswith("stream")


@pytest.mark.parametrize("case", ["chat", "chat-stream", "complete", "complete-stream"])
def test_the_usage_is_the_one_that_was_logged(driven: Driven, case: str) -> None:
    assert driven.cases[case]["usage"] == driven.log[case]["usage"]


def test_every_token_comes_as_its_own_chunk(driven: Driven) -> None:
    assert driven.cases["chat-stream"]["chunks"] == 12


def test_usage_only_when_it_was_asked_for(driven: Driven) -> None:
    assert driven.cases["chat-stream-no-usage"]["usage"] is None
    assert len(driven.cases["chat-stream-no-usage"]["text"]) == 48


def test_a_cap_ends_the_answer_for_its_length(driven: Driven) -> None:
    seen = driven.cases["chat-capped"]
    assert (seen["finish"], seen["usage"]["completion_tokens"], len(seen["text"])) == (
        "length", 5, 20,
    )  # fmt: skip


def test_reasoning_beside_text(driven: Driven) -> None:
    seen, entry = driven.cases["chat-stream-think"], driven.log["chat-stream-think"]
    assert entry["tokens"]["reasoning"] == 4
    assert len(seen["reasoning"]) == words(entry, "reasoning")
    assert len(seen["text"]) == words(entry, "text")
    assert seen["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4


def test_comments_crlf_and_split_characters_do_not_show(driven: Driven) -> None:
    seen = driven.cases["chat-stream-rough"]
    assert len(seen["text"]) == 48
    assert "\ufffd" not in seen["text"]
    assert seen["usage"]["completion_tokens"] == 12


def test_a_streamed_tool_call(driven: Driven) -> None:
    seen, entry = driven.cases["chat-stream-tool"], driven.log["chat-stream-tool"]
    assert seen["name"] == "look"
    assert list(json.loads(seen["arguments"])) == ["a"]
    assert len(seen["name"] + seen["arguments"]) == words(entry, "tool")
    assert len(seen["call_ids"]) == 1
    assert (seen["text"], seen["finish"]) == ("", "tool_calls")
    assert seen["usage"]["completion_tokens"] == entry["tokens"]["tool"] == 12


@pytest.mark.parametrize("case", ["chat-tool", "chat-helper-tool"])
def test_a_tool_call_as_a_whole(driven: Driven, case: str) -> None:
    seen, entry = driven.cases[case], driven.log[case]
    ((name, arguments),) = seen["tools"]
    assert list(json.loads(arguments)) == ["a"]
    assert len(name + arguments) == words(entry, "tool")
    assert seen["finish"] == "tool_calls"
    assert seen["usage"]["completion_tokens"] == entry["tokens"]["tool"]


def test_the_sdks_own_accumulator(driven: Driven) -> None:
    seen, entry = driven.cases["chat-helper"], driven.log["chat-helper"]
    assert len(seen["text"]) == words(entry, "text") == 160
    assert (seen["finish"], seen["usage"]["completion_tokens"]) == ("stop", 40)


@pytest.mark.parametrize("case", ["respond", "respond-stream"])
def test_responses(driven: Driven, case: str) -> None:
    seen, entry = driven.cases[case], driven.log[case]
    assert (seen["status"], seen["items"]) == ("completed", ["message"])
    assert len(seen["text"]) == words(entry, "text") == 48
    assert seen["usage"]["output_tokens"] == 12
    assert seen["usage"] == entry["usage"]


@pytest.mark.parametrize("case", ["respond-think", "respond-stream-think"])
def test_responses_with_reasoning(driven: Driven, case: str) -> None:
    seen, entry = driven.cases[case], driven.log[case]
    assert seen["items"] == ["reasoning", "message"]
    assert len(seen["reasoning"]) == words(entry, "reasoning") == 16
    assert len(seen["text"]) == words(entry, "text") == 24
    assert seen["usage"]["output_tokens_details"]["reasoning_tokens"] == 4


def test_the_deltas_of_a_response_are_its_text(driven: Driven) -> None:
    plain, think = driven.cases["respond-stream"], driven.cases["respond-stream-think"]
    assert plain["deltas"] == plain["text"]
    assert think["deltas"] == think["reasoning"] + think["text"]
    for seen in (plain, think):
        assert seen["numbers"] == list(range(len(seen["numbers"])))
        assert seen["types"][0] == "response.created"
        assert seen["types"][-1] == "response.completed"


def test_a_response_that_calls_a_tool(driven: Driven) -> None:
    seen, entry = driven.cases["respond-stream-tool"], driven.log["respond-stream-tool"]
    name, arguments = seen["tool"]
    assert (name, arguments) == ("look", seen["deltas"])
    assert list(json.loads(arguments)) == ["a"]
    assert len(arguments) == words(entry, "tool")
    assert seen["usage"]["output_tokens"] == 12


def test_a_response_that_hits_its_cap(driven: Driven) -> None:
    seen = driven.cases["respond-capped"]
    assert (seen["last"], seen["status"]) == ("response.incomplete", "incomplete")
    assert (len(seen["text"]), seen["usage"]["output_tokens"]) == (20, 5)


def test_embeddings(driven: Driven) -> None:
    packed, plain = driven.cases["embed"], driven.cases["embed-float"]
    assert packed["sizes"] == [64, 64]
    assert plain["sizes"] == [8, 8]
    for seen in (packed, plain):
        assert seen["lengths"] == pytest.approx([1.0, 1.0], abs=1e-6)
        assert seen["usage"]["prompt_tokens"] == driven.log["embed"]["tokens_in"]


@pytest.mark.parametrize(
    ("case", "error", "status", "said"),
    [
        ("unknown-model", "NotFoundError", 404, "The model `nobody` does not exist."),
        ("wrong-key", "AuthenticationError", 401, "The key is missing or wrong."),
        ("rate-limited", "RateLimitError", 429, ""),
        ("overloaded", "InternalServerError", 503, ""),
        ("bad-request", "BadRequestError", 400, ""),
        ("in-stream-error", "APIError", None, "Overloaded."),
        ("reset", "APIConnectionError", None, ""),
    ],
)
def test_errors_become_the_sdks_own(
    driven: Driven, case: str, error: str, status: int | None, said: str
) -> None:
    seen = driven.cases[case]
    assert (seen["error"], seen["status"]) == (error, status)
    assert "APIError" in seen["kinds"]
    assert said in seen["message"]


def test_the_wait_that_a_refusal_asks_for(driven: Driven) -> None:
    assert driven.cases["rate-limited"]["retry_after"] == "7"
    assert driven.log["rate-limited"]["status"] == 429


def test_the_right_key_is_let_in(driven: Driven) -> None:
    assert driven.cases["right-key"]["error"] is None


def test_the_sdk_does_not_notice_a_truncated_stream(driven: Driven) -> None:
    # A clean end without finish and marker: no error in this SDK, only a missing finish reason.
    seen = driven.cases["truncated"]
    assert seen["error"] is None
    assert (seen["said"]["finish"], len(seen["said"]["text"])) == (None, 20)
    assert driven.log["truncated"]["outcome"] == "truncated"
