"""Golden request builds: neutral facts in, a body out, or the field that has no words."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from lightgate.dialect.neutral.build import cannot
from lightgate.dialect.quirks import Quirks
from lightgate.dialect.registry import Dialect, dialect_for
from lightgate.dialect.request import Message, Request
from lightgate.errors import UsageError

GOLDEN = Path(__file__).parent / "golden" / "requests"
CASES = sorted(path.relative_to(GOLDEN) for path in GOLDEN.glob("*/*.json"))
DIALECTS: dict[str, Dialect] = {
    "openai-chat": dialect_for("openai", "chat"),
    "openai-completions": dialect_for("openai", "completion"),
    "openai-responses": dialect_for("openai", "responses"),
    "openai-embeddings": dialect_for("openai", "embedding"),
    "anthropic-messages": dialect_for("anthropic", "chat"),
    "gemini": dialect_for("gemini", "chat"),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_facts_become_the_body_or_are_refused_by_name(case: Path) -> None:
    golden = json.loads((GOLDEN / case).read_text("utf-8"))
    request = msgspec.convert(golden["request"], Request)
    quirks = msgspec.convert(golden.get("quirks", {}), Quirks)
    dialect = DIALECTS[case.parts[0]]
    if "refuses" in golden:
        with pytest.raises(UsageError, match=golden["refuses"]):
            dialect.build(request, quirks)
        return
    built = dialect.build(request, quirks)
    assert built.path == golden["path"]
    assert json.loads(built.body) == golden["body"]
    streamed = request.stream and request.kind != "embedding"
    accept = "text/event-stream" if streamed else "application/json"
    assert built.headers == (("content-type", "application/json"), ("accept", accept))


def test_facts_that_are_set_to_zero_are_said() -> None:
    request = Request(model="m", messages=(Message(role="user", content="x"),), seed=0, top_p=0.0)
    body = json.loads(dialect_for("openai", "chat").build(request).body)
    assert (body["seed"], body["top_p"]) == (0, 0.0)


def test_each_dialect_builds_everything_it_can_say() -> None:
    built = {case.parts[0] for case in CASES if not case.stem.startswith("refuses_")}
    refused = {case.parts[0] for case in CASES if case.stem.startswith("refuses_")}
    assert built == refused == set(DIALECTS)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("anthropic", "completion"),
        ("anthropic", "responses"),
        ("anthropic", "embedding"),
        ("gemini", "completion"),
        ("gemini", "responses"),
    ],
)
def test_a_family_without_the_endpoint_says_so(family: str, kind: str) -> None:
    with pytest.raises(UsageError, match=f"{family}.*{kind}"):
        dialect_for(family, kind)  # type: ignore[arg-type] # parametrised literals


def test_the_advice_about_a_field_can_be_followed() -> None:
    # `extra` is a word of our own Python request: a client's body with it is refused.
    hint = cannot("anthropic", "logit_bias").hint
    assert hint == "Leave 'logit_bias' out, or ask for a model whose provider has it."
