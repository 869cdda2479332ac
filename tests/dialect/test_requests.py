"""Golden request builds: neutral facts in, a body out, or the field that has no words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lightgate.dialect.generation import Generation
from lightgate.dialect.neutral.build import cannot
from lightgate.dialect.quirks import Quirks
from lightgate.dialect.registry import Dialect, dialect_for
from lightgate.dialect.request import File, Image, Message, Request, Text, ToolCall
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


@pytest.mark.parametrize("wish", ["low", "none", 0, 512])
@pytest.mark.parametrize("style", ["none", "effort"])
def test_a_model_that_does_not_think_is_not_told_to(style: Any, wish: str | int) -> None:
    """Where the provider has no words for it at all, not even the wish for none is said."""
    asked = Request(
        model="m",
        messages=(Message(role="user", content="x"),),
        reasoning=wish,
        generation=Generation(thinking="none"),
        untranslatable="drop",
    )
    built = dialect_for("openai", "chat").build(asked, Quirks(reasoning_style=style))
    assert not any(name.startswith("reasoning") for name in json.loads(built.body))
    unsaid = style == "none" or wish not in ("none", 0)
    assert built.dropped == (("reasoning",) if unsaid else ())


def test_parts_of_a_system_message_and_of_a_tools_result_are_blocks_of_anthropic() -> None:
    image = Image(data=b"x", media_type="image/png")
    asked = Request(
        model="m",
        max_tokens=1,
        messages=(
            Message(role="system", content="A"),
            Message(role="system", content=(Text("B"), Text(""), Text("C"))),
            Message(role="user", content="x"),
            Message(role="assistant", tool_calls=(ToolCall(id="c", name="f", arguments="{}"),)),
            Message(role="tool", tool_call_id="c", content=(Text("D"), image)),
        ),
    )
    body = json.loads(dialect_for("anthropic", "chat").build(asked).body)
    assert body["system"] == [{"type": "text", "text": text} for text in "ABC"]
    (result,) = body["messages"][-1]["content"]
    source = {"type": "base64", "media_type": "image/png", "data": "eA=="}
    assert result["content"] == [
        {"type": "text", "text": "D"},
        {"type": "image", "source": source},
    ]


def test_a_document_of_anthropic_has_its_name_and_a_text_is_said_as_one() -> None:
    def told(file: File) -> Any:
        asked = Request(
            model="m", max_tokens=1, messages=(Message(role="user", content=(file, Text("x"))),)
        )
        body = json.loads(dialect_for("anthropic", "chat").build(asked).body)
        return body["messages"][0]["content"][0]

    pdf = "data:application/pdf;base64,eA=="
    source = {"type": "base64", "media_type": "application/pdf", "data": "eA=="}
    assert told(File(url=pdf)) == {"type": "document", "source": source}
    assert told(File(url=pdf, name="a.pdf")) == {
        "type": "document",
        "source": source,
        "title": "a.pdf",
    }
    address = "https://a.test/x.pdf"
    assert told(File(url=address)) == {
        "type": "document",
        "source": {"type": "url", "url": address},
    }
    plain = File(url="data:text/plain;base64,eA==", media_type="text/plain")
    assert told(plain) == {"type": "text", "text": "x"}


def test_a_result_of_gemini_finds_its_function_by_any_id_even_an_empty_one() -> None:
    asked = Request(
        model="m",
        messages=(
            Message(role="assistant", tool_calls=(ToolCall(id="", name="f", arguments="{}"),)),
            Message(role="tool", content="b"),
        ),
    )
    body = json.loads(dialect_for("gemini", "chat").build(asked).body)
    (result,) = body["contents"][-1]["parts"]
    assert result["functionResponse"]["name"] == "f"


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
