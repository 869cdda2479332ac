"""The official google-genai SDK through the gateway, to providers of every dialect."""

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
SDK = "google"
every_family = pytest.mark.parametrize("family", FAMILIES)


def test_the_list_of_models_begins_with_the_aliases(seen: dict[str, Any]) -> None:
    assert seen["models"]["ids"][: len(ALIASES)] == [f"models/{name}" for name in ALIASES]


@every_family
@pytest.mark.parametrize("kind", ["chat", "stream"])
def test_content(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert (len(case["text"]), case["finish"]) == (48, "STOP")
    assert case["usage"]["candidatesTokenCount"] == 12
    assert case["usage"]["totalTokenCount"] == case["usage"]["promptTokenCount"] + 12


@pytest.mark.parametrize("family", ACROSS["google"])
def test_a_translated_answer_names_the_model_that_was_asked_for(
    seen: dict[str, Any], family: str
) -> None:
    assert seen[f"chat-{family}"]["model"] == f"{family}/plain"


@every_family
def test_thoughts_beside_the_text(seen: dict[str, Any], family: str) -> None:
    case = seen[f"think-{family}"]
    assert case["error"] is None, case
    assert (len(case["thought"]), len(case["text"])) == (16, 24)
    assert case["usage"]["candidatesTokenCount"] + case["usage"]["thoughtsTokenCount"] == 10


@every_family
@pytest.mark.parametrize("kind", ["tool", "tool-stream"])
def test_a_tool_call(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    ((name, given),) = case["calls"]
    assert (name, list(given), case["finish"]) == ("look", ["a"], "STOP")


@every_family
@pytest.mark.parametrize("kind", ["schema", "schema-stream"])
def test_an_answer_by_schema(
    seen: dict[str, Any], reciter: Reciter, family: str, kind: str
) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert json.loads(case["text"]) == SCHEMA
    assert set(schema_at(family, reciter.asked(f"google-{kind}-{family}"))) == set(SCHEMA)


@every_family
@pytest.mark.parametrize("kind", ["parallel", "parallel-helper"])
def test_parallel_calls(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert case["calls"] == PARALLEL
    assert (case["text"], case["finish"]) == ("Looking both up.", "STOP")
    assert case["usage"]["totalTokenCount"] == 74


@every_family
def test_results_of_parallel_calls_reach_the_provider(
    seen: dict[str, Any], reciter: Reciter, family: str
) -> None:
    assert seen[f"history-{family}"]["error"] is None, seen[f"history-{family}"]
    again = history_at(family, reciter.asked(f"google-history-{family}"))
    if family != "gem":  # a result is an object at Google, and text elsewhere
        again["results"] = [json.loads(text)["output"] for text in again["results"]]
    assert again == AGAIN


def test_headers_and_a_failover_that_does_not_show(seen: dict[str, Any], gate: Gate) -> None:
    headers = seen["rescued"]["headers"]
    assert headers["x-request-id"] == "google-rescued"
    assert (headers["x-lightgate-attempts"], headers["x-lightgate-target"]) == ("2", "lab/plain")
    assert headers["x-lightgate-id"] in [one.id for one in gate.exchanges("google-rescued")]


@pytest.mark.parametrize(
    ("case", "error", "status", "said"),
    [
        ("wrong-key", "ClientError", 401, "UNAUTHENTICATED"),
        ("wrong-key-models", "ClientError", 401, "UNAUTHENTICATED"),
        ("unknown-model", "ClientError", 404, "Did you mean 'fast'?"),
        ("slow-second", "ClientError", 429, "RESOURCE_EXHAUSTED"),
        ("limited", "ClientError", 429, "lab/plain!rate-limited:22"),
        ("gone", "ServerError", 502, "lab/plain!status:562"),
        ("gone-stream", "ServerError", 502, "lab/plain!status:552"),
        ("refused", "ClientError", 400, "INVALID_ARGUMENT"),
        ("broken", "ServerError", 503, "The answer broke off."),
        ("broken-across", "ServerError", 503, "The answer broke off."),
        ("cut", "ServerError", 502, "without its terminal marker"),
        ("cut-across", "ServerError", 502, "without its terminal marker"),
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
    assert 20 <= int(seen["limited"]["retry_after"]) <= 22


@pytest.mark.parametrize(
    ("case", "times"), [("limited", 1), ("gone", 1), ("gone-stream", 1), ("gone-eager", 3)]
)
def test_this_sdk_tries_again_only_where_it_was_told_to(
    seen: dict[str, Any], gate: Gate, case: str, times: int
) -> None:
    # It does not read x-should-retry; its retries are off unless they are asked for.
    assert seen[case]["should_retry"] == "false"
    assert len(gate.exchanges(f"{SDK}-{case}")) == times


def test_keep_alives_are_not_heard(seen: dict[str, Any]) -> None:
    for case in ("quiet", "pausing"):
        assert (seen[case]["error"], len(seen[case]["text"])) == (None, 48)
    # The head went out with an empty line, before any target had answered.
    assert "x-lightgate-target" not in seen["quiet"]["headers"]
