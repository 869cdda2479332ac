"""The official anthropic SDK, from its own environment, against the simulator."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

import pytest

from sdk.expected import words

if TYPE_CHECKING:
    from lightgate.sim.server.spawn import SimProcess
    from sdk.conftest import Driven

pytestmark = pytest.mark.sdk
SDK = "anthropic"


def test_models(driven: Driven) -> None:
    assert driven.cases["models"] == {"listed": driven.models, "one": driven.models[0]}


@pytest.mark.parametrize("case", ["create", "stream", "stream-rough"])
def test_text_and_usage_are_exact(driven: Driven, case: str) -> None:
    seen, entry = driven.cases[case], driven.log[case]
    assert (seen["blocks"], seen["stop"]) == (["text"], "end_turn")
    assert len(seen["text"]) == words(entry, "text") == 48
    assert seen["usage"]["output_tokens"] == entry["usage"]["output_tokens"] == 12
    assert seen["usage"]["input_tokens"] == entry["tokens_in"]


def test_the_deltas_are_the_text(driven: Driven) -> None:
    for case in ("stream", "stream-think", "stream-rough"):
        seen = driven.cases[case]
        assert seen["text_deltas"] == seen["text"]
        assert seen["thinking_deltas"] == seen["thinking"]
        assert "\ufffd" not in seen["text"]


@pytest.mark.parametrize("case", ["create-think", "stream-think"])
def test_thinking_comes_before_the_text(driven: Driven, case: str) -> None:
    seen, entry = driven.cases[case], driven.log[case]
    assert seen["blocks"] == ["thinking", "text"]
    assert len(seen["thinking"]) == words(entry, "reasoning") == 16
    assert len(seen["text"]) == words(entry, "text") == 24
    assert seen["usage"]["output_tokens"] == 10
    assert seen["usage"]["output_tokens_details"]["thinking_tokens"] == 4


@pytest.mark.parametrize("case", ["create-tool", "stream-tool"])
def test_tool_use(driven: Driven, case: str) -> None:
    seen, entry = driven.cases[case], driven.log[case]
    name, given = seen["tool"]
    assert (seen["blocks"], seen["stop"]) == (["tool_use"], "tool_use")
    assert (name, list(given)) == ("look", ["a"])
    assert seen["usage"]["output_tokens"] == entry["tokens"]["tool"] == 12


def test_the_json_of_a_tool_comes_in_pieces(driven: Driven) -> None:
    seen, entry = driven.cases["stream-tool"], driven.log["stream-tool"]
    assert json.loads(seen["json"]) == seen["tool"][1]
    assert len(seen["json"]) == words(entry, "tool")
    assert seen["types"].count("input_json") == 12


def test_text_and_then_a_tool(driven: Driven) -> None:
    seen, entry = driven.cases["stream-mixed"], driven.log["stream-mixed"]
    assert seen["blocks"] == ["text", "tool_use"]
    assert len(seen["text"]) == words(entry, "text")
    assert len(seen["json"]) == words(entry, "tool")
    assert seen["usage"]["output_tokens"] == 20


def test_a_cap_ends_the_answer(driven: Driven) -> None:
    seen = driven.cases["create-capped"]
    assert (seen["stop"], seen["usage"]["output_tokens"], len(seen["text"])) == (
        "max_tokens", 5, 20,
    )  # fmt: skip


def test_pings_are_sent_and_ignored(driven: Driven, simulator: SimProcess) -> None:
    body = {"model": "plain", "max_tokens": 3, "stream": True}
    body |= {"messages": [{"role": "user", "content": "hi"}]}
    request = urllib.request.Request(  # noqa: S310 - our own simulator
        f"{simulator.facts.providers['claude']}/messages", json.dumps(body).encode()
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own simulator
        assert b"event: ping" in answer.read()
    for case in ("stream", "stream-raw"):
        types = driven.cases[case]["types"]
        assert "ping" not in types
        assert (types[0], types[-1]) == ("message_start", "message_stop")


@pytest.mark.parametrize(
    ("case", "error", "status", "kind"),
    [
        ("unknown-model", "NotFoundError", 404, "not_found_error"),
        ("wrong-key", "AuthenticationError", 401, "authentication_error"),
        ("rate-limited", "RateLimitError", 429, "rate_limit_error"),
        ("overloaded", "OverloadedError", 529, "overloaded_error"),
        ("bad-request", "BadRequestError", 400, "invalid_request_error"),
        ("in-stream-error", "APIStatusError", 200, "overloaded_error"),
    ],
)
def test_errors_become_the_sdks_own(
    driven: Driven, case: str, error: str, status: int, kind: str
) -> None:
    seen = driven.cases[case]
    assert (seen["error"], seen["status"]) == (error, status)
    assert seen["body"]["error"]["type"] == kind
    assert "APIError" in seen["kinds"]


def test_the_wait_that_a_refusal_asks_for(driven: Driven) -> None:
    assert driven.cases["rate-limited"]["retry_after"] == "7"


def test_the_right_key_is_let_in(driven: Driven) -> None:
    assert driven.cases["right-key"]["error"] is None


def test_a_reset_is_an_error(driven: Driven) -> None:
    assert driven.cases["reset"]["error"] is not None
    assert driven.log["reset"]["outcome"] == "reset"


def test_the_sdk_does_not_notice_a_truncated_stream(driven: Driven) -> None:
    # A clean end without message_stop: no error in this SDK, only a missing stop reason.
    seen = driven.cases["truncated"]
    assert seen["error"] is None
    assert (seen["said"]["stop"], len(seen["said"]["text"])) == (None, 20)
    assert driven.log["truncated"]["outcome"] == "truncated"
