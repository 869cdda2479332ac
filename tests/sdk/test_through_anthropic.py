"""What the official anthropic SDK alone has, through the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sdk.gate import FAMILIES

if TYPE_CHECKING:
    from sdk.gate import Gate

pytestmark = pytest.mark.sdk
SDK = "anthropic"


@pytest.mark.parametrize("case", [*(f"stream-{family}" for family in FAMILIES), "quiet", "pausing"])
def test_the_events_of_a_stream(seen: dict[str, Any], case: str) -> None:
    types = seen[case]["types"]
    assert (types[0], types[-1]) == ("message_start", "message_stop")
    assert types.count("text") == 12


def test_headers(seen: dict[str, Any], gate: Gate) -> None:
    headers = seen["headers"]["headers"]
    assert headers["x-request-id"] == "anthropic-headers"
    assert headers["x-lightgate-target"] == "claude/plain"
    (exchange,) = gate.exchanges("anthropic-headers")
    assert exchange.id == headers["x-lightgate-id"]


def test_a_failover_does_not_show(seen: dict[str, Any]) -> None:
    headers = seen["rescued"]["headers"]
    assert (headers["x-lightgate-attempts"], headers["x-lightgate-target"]) == ("2", "lab/plain")
