"""What the official SDKs see of the endpoints beside chat, of every provider's dialect."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import pytest

from sdk.environment import HERE, run_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

    from sdk.gate import Gate

pytestmark = pytest.mark.sdk
every_sdk = pytest.mark.parametrize("sdk", ["openai", "anthropic", "google"])
every_target = pytest.mark.parametrize(
    "target", ["openai/plain", "anthropic/plain", "gemini/plain", "lab/plain"]
)
WORDS = "Tell me what a lighthouse is for, and who keeps it."
COUNTED = len(WORDS) // 4


@pytest.fixture(scope="session")
def drive_beside(gate: Gate) -> Callable[[str], CompletedProcess[str]]:
    """Run an SDK's driver of these endpoints, once, against the gateway."""

    @functools.cache
    def run(sdk: str) -> CompletedProcess[str]:
        facts = json.dumps({"url": gate.url, "keys": gate.keys})
        return run_in(sdk, HERE / f"endpoints_{sdk}.py", facts)

    return run


@pytest.fixture
def beside(
    sdk: str, require: Callable[[str], None], drive_beside: Callable[[str], CompletedProcess[str]]
) -> dict[str, Any]:
    """What came of an SDK's calls, by case."""
    require(sdk)
    done = drive_beside(sdk)
    assert done.returncode == 0, done.stderr
    cases: dict[str, Any] = json.loads(done.stdout)
    return cases


@every_sdk
@every_target
def test_tokens_are_counted(beside: dict[str, Any], target: str) -> None:
    """By the provider where it counts, else by an estimate that says so."""
    case = beside[f"count-{target}"]
    assert case["error"] is None, case
    if case["source"] == "provider":
        assert case["tokens"] == COUNTED
    else:
        assert COUNTED * 0.7 <= case["tokens"] <= COUNTED * 1.8
    assert case["source"] == ("estimate" if target == "lab/plain" else "provider")


@pytest.mark.parametrize("sdk", ["openai"])
@every_target
def test_a_response_is_kept_and_gone_on_from(beside: dict[str, Any], target: str) -> None:
    """By the provider where it keeps responses, else by the gateway: the client cannot tell."""
    case = beside[f"talk-{target}"]
    assert case["error"] is None, case
    assert (case["same"], case["items"], case["gone"]) == (True, [WORDS], 404)
    first, second = case["tokens"]
    assert second > first + 2
    assert len(case["text"]) == 48


@pytest.mark.parametrize("sdk", ["openai", "google"])
@pytest.mark.parametrize("target", ["openai/plain", "gemini/plain", "lab/plain"])
def test_embeddings_of_either_dialect(
    beside: dict[str, Any],
    drive_beside: Callable[[str], CompletedProcess[str]],
    require: Callable[[str], None],
    target: str,
) -> None:
    """Every SDK reads the same vectors, whoever makes them."""
    case = beside[f"embed-{target}"]
    assert case["error"] is None, case
    require("google")
    theirs = json.loads(drive_beside("google").stdout)["embed-gemini/plain"]["plain"]
    for given in (case["plain"], case.get("packed", case["plain"])):
        assert [len(vector) for vector in given] == [16, 16]
        for vector, other in zip(given, theirs, strict=True):
            assert vector == pytest.approx(other, abs=1e-6)


@pytest.mark.parametrize("sdk", ["openai"])
@pytest.mark.parametrize("target", ["openai/plain", "speaking"])
def test_speech_and_transcripts(beside: dict[str, Any], target: str) -> None:
    """Also where the first target fails."""
    spoken, heard = beside[f"speak-{target}"], beside[f"transcribe-{target}"]
    assert spoken["error"] is None, spoken
    assert (spoken["type"], spoken["same"]) == ("audio/mpeg", True)
    assert spoken["size"] == 12 * 480
    assert heard["error"] is None, heard
    assert (set(heard["lengths"]), heard["pieces"]) == ({48}, True)


@pytest.mark.parametrize("sdk", ["openai"])
def test_a_provider_that_cannot_speak_says_so(beside: dict[str, Any]) -> None:
    case = beside["speak-lab/plain"]
    assert (case["error"], case["status"]) == ("BadRequestError", 400)
    assert "no endpoint" in case["message"]
