"""The official anthropic SDK through the gateway, to providers of every dialect."""

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
SDK = "anthropic"
every_family = pytest.mark.parametrize("family", FAMILIES)


def test_the_list_of_models_begins_with_the_aliases(seen: dict[str, Any]) -> None:
    assert seen["models"]["ids"][: len(ALIASES)] == list(ALIASES)


@every_family
@pytest.mark.parametrize("kind", ["chat", "stream"])
def test_messages(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert (len(case["text"]), case["finish"]) == (48, "end_turn")
    assert (case["usage"]["output_tokens"], case["usage"]["input_tokens"]) == (12, 3)
    if kind == "stream":
        assert (case["types"][0], case["types"][-1]) == ("message_start", "message_stop")
        assert case["types"].count("text") == 12


@pytest.mark.parametrize("family", ACROSS["anthropic"])
def test_a_translated_answer_names_the_model_that_was_asked_for(
    seen: dict[str, Any], family: str
) -> None:
    assert seen[f"chat-{family}"]["model"] == f"{family}/plain"


@every_family
def test_thoughts_beside_the_text(seen: dict[str, Any], family: str) -> None:
    case = seen[f"think-{family}"]
    assert case["error"] is None, case
    assert (len(case["thought"]), len(case["text"])) == (16, 24)
    assert case["usage"]["output_tokens"] == 10


@every_family
@pytest.mark.parametrize("kind", ["tool", "tool-stream"])
def test_a_tool_call(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    ((name, given),) = case["calls"]
    assert (name, list(given), case["finish"]) == ("look", ["a"], "tool_use")


@every_family
@pytest.mark.parametrize("kind", ["schema", "schema-stream"])
def test_an_answer_by_schema(
    seen: dict[str, Any], reciter: Reciter, family: str, kind: str
) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert json.loads(case["text"]) == SCHEMA
    assert set(schema_at(family, reciter.asked(f"anthropic-{kind}-{family}"))) == set(SCHEMA)


@every_family
@pytest.mark.parametrize("kind", ["parallel", "parallel-helper"])
def test_parallel_calls(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert case["calls"] == PARALLEL
    assert (case["text"], case["finish"]) == ("Looking both up.", "tool_use")
    assert (case["usage"]["input_tokens"], case["usage"]["output_tokens"]) == (41, 33)


@every_family
def test_results_of_parallel_calls_reach_the_provider(
    seen: dict[str, Any], reciter: Reciter, family: str
) -> None:
    assert seen[f"history-{family}"]["error"] is None, seen[f"history-{family}"]
    assert history_at(family, reciter.asked(f"anthropic-history-{family}")) == AGAIN


def test_headers(seen: dict[str, Any], gate: Gate) -> None:
    headers = seen["headers"]["headers"]
    assert headers["x-request-id"] == "anthropic-headers"
    assert headers["x-lightgate-target"] == "claude/plain"
    (exchange,) = gate.exchanges("anthropic-headers")
    assert exchange.id == headers["x-lightgate-id"]


def test_a_failover_does_not_show(seen: dict[str, Any]) -> None:
    headers = seen["rescued"]["headers"]
    assert (headers["x-lightgate-attempts"], headers["x-lightgate-target"]) == ("2", "lab/plain")


@pytest.mark.parametrize(
    ("case", "error", "status", "said"),
    [
        ("wrong-key", "AuthenticationError", 401, "authentication_error"),
        ("wrong-key-models", "AuthenticationError", 401, "'type': 'error'"),
        ("unknown-model", "NotFoundError", 404, "Did you mean 'fast'?"),
        ("slow-second", "RateLimitError", 429, "rate_limit_error"),
        ("limited", "RateLimitError", 429, "lab/plain!rate-limited:21"),
        ("gone", "InternalServerError", 502, "lab/plain!status:561"),
        ("gone-stream", "InternalServerError", 502, "lab/plain!status:551"),
        ("refused", "BadRequestError", 400, "Simulated status 400"),
        ("broken", "APIStatusError", 200, "overloaded_error"),
        ("broken-across", "APIStatusError", 200, "The answer broke off."),
        ("cut", "APIStatusError", 200, "without its terminal marker"),
        ("cut-across", "APIStatusError", 200, "without its terminal marker"),
    ],
)
def test_errors_are_the_sdks_own(
    seen: dict[str, Any], case: str, error: str, status: int, said: str
) -> None:
    found = seen[case]
    assert (found["error"], found["status"]) == (error, status)
    assert said in found["message"]


def test_the_wait_after_a_rate_limit(seen: dict[str, Any]) -> None:
    assert seen["slow-first"]["error"] is None
    assert 50 <= int(seen["slow-second"]["retry_after"]) <= 61
    assert 19 <= int(seen["limited"]["retry_after"]) <= 21


@pytest.mark.parametrize("case", ["limited", "gone", "gone-stream", "refused"])
def test_where_all_targets_were_tried_the_sdk_does_not_try_again(
    seen: dict[str, Any], gate: Gate, case: str
) -> None:
    assert seen[case]["should_retry"] == "false"
    assert len(gate.exchanges(f"{SDK}-{case}")) == 1


def test_keep_alives_are_not_heard(seen: dict[str, Any]) -> None:
    for case in ("quiet", "pausing"):
        assert (seen[case]["error"], len(seen[case]["text"])) == (None, 48)
        assert seen[case]["types"].count("text") == 12
    # The head went out with a comment, before any target had answered.
    assert seen["quiet"]["target"] is None
