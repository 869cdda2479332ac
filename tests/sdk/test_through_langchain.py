"""What LangChain's ChatOpenAI alone has, through the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sdk.expected import SCHEMA, schema_at
from sdk.gate import FAMILIES

if TYPE_CHECKING:
    from sdk.reciter import Reciter

pytestmark = pytest.mark.sdk
SDK = "langchain"


@pytest.mark.parametrize("family", FAMILIES)
def test_structured_output(seen: dict[str, Any], reciter: Reciter, family: str) -> None:
    case = seen[f"schema-{family}"]
    assert case["error"] is None, case
    assert case["said"] == SCHEMA
    assert set(schema_at(family, reciter.asked(f"langchain-schema-{family}"))) == set(SCHEMA)


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
def test_errors_are_of_openais_kinds(
    seen: dict[str, Any], case: str, kind: str, status: int | None, said: str
) -> None:
    found = seen[case]
    assert kind in found["kinds"]
    assert found["status"] == status
    assert said in found["message"]


def test_a_failover_and_keep_alives_do_not_show(seen: dict[str, Any]) -> None:
    for case in ("rescued", "quiet", "pausing"):
        assert (seen[case]["error"], len(seen[case]["text"])) == (None, 48)
