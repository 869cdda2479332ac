"""What every SDK sees alike through the gateway, whatever dialect the provider speaks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sdk.accents import ACCENTS, OFFICIAL
from sdk.expected import ACROSS, AGAIN, PARALLEL, SCHEMA, history_at, schema_at
from sdk.gate import ALIASES, FAMILIES, SDKS

if TYPE_CHECKING:
    from sdk.gate import Gate
    from sdk.reciter import Reciter

pytestmark = pytest.mark.sdk
every_sdk = pytest.mark.parametrize("sdk", ACCENTS)
every_official_sdk = pytest.mark.parametrize("sdk", OFFICIAL)
every_family = pytest.mark.parametrize("family", FAMILIES)


@every_official_sdk
def test_the_list_of_models_begins_with_the_aliases(seen: dict[str, Any], sdk: str) -> None:
    prefix = "models/" if sdk == "google" else ""
    assert seen["models"]["ids"][: len(ALIASES)] == [f"{prefix}{name}" for name in ALIASES]


@every_official_sdk
def test_a_model_by_its_name(seen: dict[str, Any]) -> None:
    """An alias, and a target, whose name is two steps of a path."""
    assert seen["model"]["error"] is None, seen["model"]
    ids = [name.removeprefix("models/") for name in seen["model"]["ids"]]
    assert ids == ["fast", "lab/plain"]


@every_family
@pytest.mark.parametrize("kind", ["chat", "stream"])
@every_sdk
def test_text(seen: dict[str, Any], sdk: str, kind: str, family: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert (len(case["text"]), case["finish"]) == (48, ACCENTS[sdk].stop)
    assert case["usage"] == case["usage"] | ACCENTS[sdk].counted(3, 12)


@every_family
@every_official_sdk
def test_a_stream_without_its_marker(seen: dict[str, Any], sdk: str, family: str) -> None:
    """In the client's own dialect it is handed on without the marker, and the SDK does not mind."""
    case = seen[f"unmarked-{family}"]
    assert case["error"] is None, case
    assert (len(case["text"]), case["finish"]) == (48, ACCENTS[sdk].stop)
    assert case["usage"] == case["usage"] | ACCENTS[sdk].counted(3, 12)


@every_family
@pytest.mark.parametrize("kind", ["silent", "silent-stream"])
@every_official_sdk
def test_an_answer_cut_off_before_its_first_word(
    seen: dict[str, Any], sdk: str, kind: str, family: str
) -> None:
    """Every token was hidden reasoning: the SDK has the reason and the bill, and no error."""
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert (case["text"], case["finish"]) == ("", ACCENTS[sdk].cut)
    usage = case["usage"]
    said = usage.get(ACCENTS[sdk].tokens[1], 0) + usage.get("thoughtsTokenCount", 0)
    assert said == 12


@pytest.mark.parametrize(("sdk", "family"), [(sdk, to) for sdk in ACROSS for to in ACROSS[sdk]])
def test_a_translated_answer_names_the_model_that_was_asked_for(
    seen: dict[str, Any], family: str
) -> None:
    assert seen[f"chat-{family}"]["model"] == f"{family}/plain"


@every_family
@every_official_sdk
def test_thoughts_beside_the_text(seen: dict[str, Any], sdk: str, family: str) -> None:
    case = seen[f"think-{family}"]
    assert case["error"] is None, case
    assert (len(case["thought"]), len(case["text"])) == (16, 24)
    beside = case["usage"]["thoughtsTokenCount"] if sdk == "google" else 0
    assert case["usage"][ACCENTS[sdk].tokens[1]] + beside == 10


@every_family
@pytest.mark.parametrize("kind", ["tool", "tool-stream"])
@every_sdk
def test_a_tool_call(seen: dict[str, Any], sdk: str, kind: str, family: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    ((name, given),) = case["calls"]
    assert (name, list(given), case["finish"]) == ("look", ["a"], ACCENTS[sdk].called)


@every_family
@pytest.mark.parametrize("kind", ["schema", "schema-stream"])
@every_official_sdk
def test_an_answer_by_schema(
    seen: dict[str, Any], reciter: Reciter, sdk: str, kind: str, family: str
) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert json.loads(case["text"]) == SCHEMA
    assert set(schema_at(family, reciter.asked(f"{sdk}-{kind}-{family}"))) == set(SCHEMA)


@every_family
@pytest.mark.parametrize("kind", ["parallel", "parallel-helper"])
@every_sdk
def test_parallel_calls(seen: dict[str, Any], sdk: str, kind: str, family: str) -> None:
    case = seen[f"{kind}-{family}"]
    assert case["error"] is None, case
    assert case["calls"] == PARALLEL
    assert (case["text"], case["finish"]) == ("Looking both up.", ACCENTS[sdk].called)
    assert case["usage"] == case["usage"] | ACCENTS[sdk].counted(41, 33)


@every_family
@every_sdk
def test_results_of_parallel_calls_reach_the_provider(
    seen: dict[str, Any], reciter: Reciter, sdk: str, family: str
) -> None:
    assert seen[f"history-{family}"]["error"] is None, seen[f"history-{family}"]
    again = history_at(family, reciter.asked(f"{sdk}-history-{family}"))
    if sdk == "google" and family != "gem":  # a result is an object at Google, and text elsewhere
        again["results"] = [json.loads(text)["output"] for text in again["results"]]
    assert again == AGAIN


@pytest.mark.parametrize(
    ("sdk", "case", "error", "status", "said"),
    [(sdk, *row) for sdk, accent in OFFICIAL.items() for row in accent.errors],
)
def test_errors_are_the_sdks_own(
    seen: dict[str, Any], case: str, error: str, status: int | None, said: str
) -> None:
    found = seen[case]
    assert (found["error"], found["status"]) == (error, status)
    assert said in found["message"]


@every_official_sdk
def test_the_wait_after_a_rate_limit(seen: dict[str, Any], sdk: str) -> None:
    assert seen["slow-first"]["error"] is None
    assert 50 <= int(seen["slow-second"]["retry_after"]) <= 61
    wait_s = 20 + SDKS.index(sdk)
    assert wait_s - 2 <= int(seen["limited"]["retry_after"]) <= wait_s


@pytest.mark.parametrize(
    ("sdk", "case"),
    [
        *(
            (sdk, case)
            for sdk in ("openai", "anthropic", "langchain")
            for case in ("limited", "gone")
        ),
        *((sdk, case) for sdk in ("openai", "anthropic") for case in ("gone-stream", "refused")),
    ],
)
def test_where_all_targets_were_tried_the_sdk_does_not_try_again(
    seen: dict[str, Any], gate: Gate, sdk: str, case: str
) -> None:
    assert seen[case]["should_retry"] == "false"
    assert len(gate.exchanges(f"{sdk}-{case}")) == 1


@every_official_sdk
def test_keep_alives_are_not_heard(seen: dict[str, Any]) -> None:
    for case in ("quiet", "pausing"):
        assert (seen[case]["error"], len(seen[case]["text"])) == (None, 48)
    # The head went out with a comment or an empty line, before any target had answered.
    assert seen["quiet"]["target"] is None
