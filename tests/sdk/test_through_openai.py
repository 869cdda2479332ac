"""The official openai SDK through the gateway, to providers of every dialect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sdk.expected import ACROSS, AGAIN, PARALLEL, SCHEMA, history_at, schema_at
from sdk.gate import ALIASES, FAMILIES

if TYPE_CHECKING:
    from sdk.gate import Gate
    from sdk.reciter import Reciter

pytestmark = pytest.mark.sdk
SDK = "openai"
every_family = pytest.mark.parametrize("family", FAMILIES)


def calls(case: dict[str, Any]) -> list[list[Any]]:
    return [[name, json.loads(arguments)] for name, arguments in case["calls"]]


def test_the_list_of_models_begins_with_the_aliases(seen: dict[str, Any]) -> None:
    assert seen["models"]["ids"][: len(ALIASES)] == list(ALIASES)


@every_family
@pytest.mark.parametrize("kind", ["chat", "stream"])
def test_chat(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert (len(case["text"]), case["finish"]) == (48, "stop")
    assert case["usage"]["completion_tokens"] == 12
    assert case["usage"]["total_tokens"] == case["usage"]["prompt_tokens"] + 12


@pytest.mark.parametrize("family", ACROSS["openai"])
def test_a_translated_answer_names_the_model_that_was_asked_for(
    seen: dict[str, Any], family: str
) -> None:
    assert seen[f"chat-{family}"]["model"] == f"{family}/plain"
    assert seen[f"respond-{family}"]["model"] == f"{family}/plain"


@every_family
def test_thoughts_beside_the_text(seen: dict[str, Any], family: str) -> None:
    case = seen[f"think-{family}"]
    assert case["error"] is None, case
    assert (len(case["thought"]), len(case["text"])) == (16, 24)
    assert case["usage"]["completion_tokens"] == 10


@every_family
@pytest.mark.parametrize("kind", ["tool", "tool-stream"])
def test_a_tool_call(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    ((name, arguments),) = calls(case)
    assert (name, list(arguments), case["finish"]) == ("look", ["a"], "tool_calls")


@every_family
@pytest.mark.parametrize("kind", ["schema", "schema-stream"])
def test_an_answer_by_schema(
    seen: dict[str, Any], reciter: Reciter, family: str, kind: str
) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert json.loads(case["text"]) == SCHEMA
    assert set(schema_at(family, reciter.asked(f"openai-{kind}-{family}"))) == set(SCHEMA)


@every_family
@pytest.mark.parametrize("kind", ["parallel", "parallel-helper"])
def test_parallel_calls(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert calls(case) == PARALLEL
    assert (case["text"], case["finish"]) == ("Looking both up.", "tool_calls")
    assert case["usage"]["total_tokens"] == 74


@every_family
def test_results_of_parallel_calls_reach_the_provider(
    seen: dict[str, Any], reciter: Reciter, family: str
) -> None:
    assert seen[f"history-{family}"]["error"] is None, seen[f"history-{family}"]
    assert history_at(family, reciter.asked(f"openai-history-{family}")) == AGAIN


@pytest.mark.parametrize("kind", ["respond", "respond-stream"])
@pytest.mark.parametrize("family", ["", "-lab", "-claude", "-gem"])
def test_responses(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}{family}"]
    assert case["error"] is None, case
    assert (case["status"], len(case["text"])) == ("completed", 48)
    assert case["usage"]["output_tokens"] == 12
    if kind == "respond-stream":
        assert (case["types"][0], case["types"][-1]) == ("response.created", "response.completed")


@every_family
@pytest.mark.parametrize("kind", ["respond-tool", "respond-tool-stream"])
def test_a_tool_call_in_responses(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    ((name, arguments),) = calls(case)
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


@pytest.mark.parametrize(
    ("case", "error", "status", "said"),
    [
        ("wrong-key", "AuthenticationError", 401, "missing or not valid"),
        ("wrong-key-models", "AuthenticationError", 401, "missing or not valid"),
        ("unknown-model", "NotFoundError", 404, "Did you mean 'fast'?"),
        ("slow-second", "RateLimitError", 429, "1 requests in a minute"),
        ("limited", "RateLimitError", 429, "lab/plain!rate-limited:20"),
        ("gone", "InternalServerError", 502, "lab/plain!status:560"),
        ("gone-stream", "InternalServerError", 502, "lab/plain!status:550"),
        ("refused", "BadRequestError", 400, "Simulated status 400"),
        ("no-messages", "BadRequestError", 400, "messages"),
        ("broken", "APIError", None, "The answer broke off."),
        ("cut", "APIError", None, "without its terminal marker"),
    ],
)
def test_errors_are_the_sdks_own(
    seen: dict[str, Any], case: str, error: str, status: int | None, said: str
) -> None:
    found = seen[case]
    assert (found["error"], found["status"]) == (error, status)
    assert said in found["message"]


def test_the_wait_after_a_rate_limit(seen: dict[str, Any]) -> None:
    assert seen["slow-first"]["error"] is None
    assert 50 <= int(seen["slow-second"]["retry_after"]) <= 61
    assert 18 <= int(seen["limited"]["retry_after"]) <= 20


@pytest.mark.parametrize("case", ["limited", "gone", "gone-stream", "refused"])
def test_where_all_targets_were_tried_the_sdk_does_not_try_again(
    seen: dict[str, Any], gate: Gate, case: str
) -> None:
    assert seen[case]["should_retry"] == "false"
    assert len(gate.exchanges(f"{SDK}-{case}")) == 1


def test_keep_alives_are_not_heard(seen: dict[str, Any]) -> None:
    for case in ("quiet", "pausing"):
        assert (seen[case]["error"], len(seen[case]["text"])) == (None, 48)
    # The head went out with a comment, before any target had answered.
    assert seen["quiet"]["target"] is None
