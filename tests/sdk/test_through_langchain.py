"""LangChain's ChatOpenAI through the gateway, to providers of every dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sdk.expected import AGAIN, PARALLEL, SCHEMA, history_at, schema_at
from sdk.gate import FAMILIES

if TYPE_CHECKING:
    from sdk.gate import Gate
    from sdk.reciter import Reciter

pytestmark = pytest.mark.sdk
SDK = "langchain"
every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
@pytest.mark.parametrize("kind", ["chat", "stream"])
def test_chat(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert (len(case["text"]), case["finish"]) == (48, "stop")
    assert case["usage"]["output_tokens"] == 12


@every_family
@pytest.mark.parametrize("kind", ["tool", "tool-stream"])
def test_a_tool_call(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    ((name, given),) = case["calls"]
    assert (name, list(given), case["finish"]) == ("look", ["a"], "tool_calls")


@every_family
def test_structured_output(seen: dict[str, Any], reciter: Reciter, family: str) -> None:
    case = seen[f"schema-{family}"]
    assert case["error"] is None, case
    assert case["said"] == SCHEMA
    assert set(schema_at(family, reciter.asked(f"langchain-schema-{family}"))) == set(SCHEMA)


@every_family
@pytest.mark.parametrize("kind", ["parallel", "parallel-helper"])
def test_parallel_calls(seen: dict[str, Any], family: str, kind: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert (case["text"], case["calls"]) == ("Looking both up.", PARALLEL)
    assert case["usage"]["total_tokens"] == 74


@every_family
def test_results_of_parallel_calls_reach_the_provider(
    seen: dict[str, Any], reciter: Reciter, family: str
) -> None:
    assert seen[f"history-{family}"]["error"] is None, seen[f"history-{family}"]
    assert history_at(family, reciter.asked(f"langchain-history-{family}")) == AGAIN


def test_embeddings(seen: dict[str, Any]) -> None:
    assert seen["embed"]["sizes"] == [64, 64]


@pytest.mark.parametrize(
    ("case", "kind", "status", "said"),
    [
        ("wrong-key", "AuthenticationError", 401, "missing or not valid"),
        ("unknown-model", "NotFoundError", 404, "Did you mean 'fast'?"),
        ("slow-second", "RateLimitError", 429, "1 requests in a minute"),
        ("limited", "RateLimitError", 429, "lab/plain!rate-limited:23"),
        ("gone", "InternalServerError", 502, "lab/plain!status:563"),
        ("broken", "APIError", None, "The answer broke off."),
    ],
)
def test_errors_are_the_sdks_own(
    seen: dict[str, Any], case: str, kind: str, status: int | None, said: str
) -> None:
    found = seen[case]
    assert kind in found["kinds"]
    assert found["status"] == status
    assert said in found["message"]


@pytest.mark.parametrize("case", ["limited", "gone"])
def test_where_all_targets_were_tried_it_does_not_try_again(
    seen: dict[str, Any], gate: Gate, case: str
) -> None:
    assert seen[case]["should_retry"] == "false"
    assert len(gate.exchanges(f"{SDK}-{case}")) == 1


def test_a_failover_and_keep_alives_do_not_show(seen: dict[str, Any]) -> None:
    for case in ("rescued", "quiet", "pausing"):
        assert (seen[case]["error"], len(seen[case]["text"])) == (None, 48)
