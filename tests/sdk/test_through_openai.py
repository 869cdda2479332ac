"""What the official openai SDK alone has, through the gateway: responses, completions and more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sdk.expected import ACROSS
from sdk.gate import FAMILIES

if TYPE_CHECKING:
    from sdk.gate import Gate

pytestmark = pytest.mark.sdk
SDK = "openai"


@pytest.mark.parametrize("kind", ["respond", "respond-stream"])
@pytest.mark.parametrize("family", ["", "-lab", "-claude", "-gem"])
def test_responses(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}{family}"]
    assert case["error"] is None, case
    assert (case["status"], len(case["text"])) == ("completed", 48)
    assert case["usage"]["output_tokens"] == 12
    if kind == "respond-stream":
        assert (case["types"][0], case["types"][-1]) == ("response.created", "response.completed")
    if family[1:] in ACROSS[SDK]:
        assert case["model"] == f"{family[1:]}/plain"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["respond-tool", "respond-tool-stream"])
def test_a_tool_call_in_responses(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    ((name, arguments),) = case["calls"]
    assert (name, list(arguments)) == ("look", ["a"])


def test_completions_and_embeddings(seen: dict[str, Any]) -> None:
    assert len(seen["complete"]["text"]) == len(seen["complete-stream"]["text"]) == 48
    assert seen["complete"]["usage"]["completion_tokens"] == 12
    assert seen["embed"]["sizes"] == [64, 64]
    assert seen["embed-claude"]["error"] == "BadRequestError"
    assert "no endpoint for openai-embeddings" in seen["embed-claude"]["message"]


def test_the_usage_chunk_is_for_those_who_ask(seen: dict[str, Any]) -> None:
    assert seen["stream-without-usage"]["usage"] is None
    assert len(seen["stream-without-usage"]["text"]) == 48


def test_the_sdks_own_accumulator(seen: dict[str, Any]) -> None:
    assert (seen["chat-helper"]["finish"], len(seen["chat-helper"]["text"])) == ("stop", 48)


def test_a_failover_does_not_show(seen: dict[str, Any], gate: Gate) -> None:
    headers = seen["rescued"]["headers"]
    assert headers["x-request-id"] == "openai-rescued"
    assert (headers["x-lightgate-attempts"], headers["x-lightgate-target"]) == ("2", "lab/plain")
    for case in ("rescued-stream", "late-stream"):
        assert (seen[case]["error"], len(seen[case]["text"])) == (None, 48)
        (exchange,) = gate.exchanges(f"{SDK}-{case}")
        assert (exchange.outcome, exchange.winner) == ("ok", "lab/plain")


def test_the_request_id_is_the_clients_own(seen: dict[str, Any], gate: Gate) -> None:
    assert seen["chat-lab"]["request_id"] == "openai-chat-lab"
    assert len(gate.exchanges("openai-chat-lab")) == 1


@pytest.mark.parametrize("case", ["respond-silent", "respond-stream-silent"])
@pytest.mark.parametrize("family", ["", "-lab", "-claude", "-gem"])
def test_a_response_cut_off_before_its_first_word(
    seen: dict[str, Any], case: str, family: str
) -> None:
    found = seen[f"{case}{family}"]
    assert found["error"] is None, found
    assert (found["status"], found["text"], found["calls"]) == ("incomplete", "", [])
    assert found["usage"]["output_tokens"] == 12
    assert found["usage"]["output_tokens_details"]["reasoning_tokens"] == 12
