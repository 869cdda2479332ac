"""The official SDKs read every golden answer as what was written by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dialect.translate.cases import ANSWERS, ID, PAIRS, expectation
from dialect.translate.heard import expected
from lightgate.dialect.neutral.seal import opened
from sdk.environment import HERE, run_in

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.sdk
SDKS = {
    "openai": ("openai-chat", "openai-responses"),
    "anthropic": ("anthropic-messages",),
    "google": ("gemini",),
}


def likeness(heard: dict[str, Any]) -> dict[str, Any]:
    """Forget what an SDK adds to usage, fields that nobody sent, and open sealed signatures."""
    seal = opened(heard["signature"])
    signature = heard["signature"] if seal is None else seal.signature
    return {**heard, "signature": signature, "usage": strip(heard["usage"])}


def strip(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: strip(one) for key, one in value.items() if one is not None}


@pytest.mark.parametrize("sdk", SDKS)
def test_an_sdk_hears_what_was_said(sdk: str, require: Callable[[str], None]) -> None:
    require(sdk)
    done = run_in(sdk, HERE / f"retold_{sdk}.py", ANSWERS)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    pairs = [pair for pair in PAIRS if pair[2] in SDKS[sdk]]
    assert len(found) == len(pairs)
    for case, source, target in pairs:
        read = found[f"{case}.{source}--{target}"]
        want = expected(expectation(case, source), target, ID)
        assert read["invalid"] == [], (case, source)
        assert likeness(read["stream"]) == want, (case, source)
        assert likeness(read["whole"]) == want, (case, source)
