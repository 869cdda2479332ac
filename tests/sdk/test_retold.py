"""The official SDKs read every golden answer as what was written by hand."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retell.cases import ANSWERS, ID, PAIRS, expectation
from retell.heard import expected

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.sdk
HERE = Path(__file__).parent
SDKS = {
    "openai": ("openai-chat", "openai-responses"),
    "anthropic": ("anthropic-messages",),
    "google": ("gemini",),
}


def likeness(heard: dict[str, Any]) -> dict[str, Any]:
    """Forget what an SDK adds to usage: fields that nobody sent."""
    return {**heard, "usage": strip(heard["usage"])}


def strip(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: strip(one) for key, one in value.items() if one is not None}


@pytest.mark.parametrize("sdk", SDKS)
def test_an_sdk_hears_what_was_said(sdk: str, missing: Callable[[str], None]) -> None:
    python = HERE.parents[1] / f".venv-sdk-{sdk}" / "bin" / "python"
    if not python.exists():
        missing(f"the {sdk} SDK's environment is missing: make .venv-sdk-{sdk}/stamp")
    env = {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "")}
    env["PYTHONPATH"] = str(HERE.parent)
    done = subprocess.run(
        [python, HERE / f"retold_{sdk}.py", ANSWERS],
        capture_output=True, text=True, timeout=110, check=False, env=env,
    )  # fmt: skip
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
