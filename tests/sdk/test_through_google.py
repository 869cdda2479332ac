"""What the official google-genai SDK alone has, through the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sdk.gate import Gate

pytestmark = pytest.mark.sdk
SDK = "google"


def test_headers_and_a_failover_that_does_not_show(seen: dict[str, Any], gate: Gate) -> None:
    headers = seen["rescued"]["headers"]
    assert headers["x-request-id"] == "google-rescued"
    assert (headers["x-lightgate-attempts"], headers["x-lightgate-target"]) == ("2", "lab/plain")
    assert headers["x-lightgate-id"] in [one.id for one in gate.exchanges("google-rescued")]


@pytest.mark.parametrize(
    ("case", "times"), [("limited", 1), ("gone", 1), ("gone-stream", 1), ("gone-eager", 3)]
)
def test_this_sdk_tries_again_only_where_it_was_told_to(
    seen: dict[str, Any], gate: Gate, case: str, times: int
) -> None:
    # It does not read x-should-retry; its retries are off unless they are asked for.
    assert seen[case]["should_retry"] == "false"
    assert len(gate.exchanges(f"{SDK}-{case}")) == times
