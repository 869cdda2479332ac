"""The page on translation says what the code does: every row is tried, every field has one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.dialect.anthropic.build import DEFAULT_MAX_TOKENS
from lightgate.dialect.neutral.fields import Fields
from lightgate.dialect.registry import TRANSLATED, dialect_for
from lightgate.dialect.request import (
    File,
    Image,
    Message,
    Request,
    Schema,
    Text,
    Tool,
    ToolCall,
)
from lightgate.dialect.translate import Untranslatable, read_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.dialect.request import Untold

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "translation.md").read_text("utf-8")
FILES = Path(__file__).parents[2] / "fixtures" / "translate" / "requests"
DIALECTS = {
    "openai-chat": dialect_for("openai", "chat"),
    "openai-responses": dialect_for("openai", "responses"),
    "anthropic-messages": dialect_for("anthropic", "chat"),
    "gemini": dialect_for("gemini", "chat"),
}
OBJECT = {"type": "object"}
FORM = {"type": "json_schema", "name": "x", "schema": OBJECT}
CONFIG = "generationConfig."
HI: dict[str, dict[str, Any]] = {
    "openai-chat": {"messages": [{"role": "user", "content": "Hi."}]},
    "openai-responses": {"input": "Hi."},
    "anthropic-messages": {"messages": [{"role": "user", "content": "Hi."}]},
    "gemini": {"contents": [{"parts": [{"text": "Hi."}]}]},
}
# What a field may say, by its name; a dialect's own where it differs.
SAMPLES: dict[str, Any] = {
    "model": "other",
    "messages": [{"role": "user", "content": "Ho."}],
    "input": "Ho.",
    "contents": [{"parts": [{"text": "Ho."}]}],
    "instructions": "Be brief.",
    "system": "Be brief.",
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "stream": True,
    "stop": "END",
    "stop_sequences": ["END"],
    "logprobs": True,
    "reasoning_effort": "low",
    "verbosity": "low",
    "web_search_options": {},
    "text.verbosity": "low",
    "parallel_tool_calls": False,
    "tool_choice": "none",
    "response_format": {"type": "json_object"},
    "text.format": FORM,
    "include": ["message.output_text.logprobs"],
    "reasoning.effort": "low",
    "reasoning.summary": "auto",
    "reasoning.generate_summary": "auto",
    "anthropic-messages tools": [{"name": "f", "input_schema": OBJECT}],
    "openai-chat tools": [{"type": "function", "function": {"name": "f"}}],
    "openai-responses tools": [{"type": "function", "name": "f"}],
    "gemini tools": [{"functionDeclarations": [{"name": "f"}]}],
    "anthropic-messages tool_choice": {"type": "any"},
    "tool_choice.disable_parallel_tool_use": True,
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "thinking.display": "omitted",
    "output_config.effort": "low",
    "output_config.format": {"type": "json_schema", "schema": OBJECT},
    "output_format": {"type": "json_schema", "schema": OBJECT},
    "toolConfig.functionCallingConfig": {"mode": "ANY"},
    CONFIG + "stopSequences": ["END"],
    CONFIG + "responseLogprobs": True,
    CONFIG + "responseMimeType": "application/json",
    CONFIG + "responseSchema": {"type": "OBJECT"},
    CONFIG + "responseJsonSchema": OBJECT,
    CONFIG + "_responseJsonSchema": OBJECT,
    CONFIG + "thinkingConfig.thinkingLevel": "LOW",
    CONFIG + "thinkingConfig.includeThoughts": True,
}
NUMBER = 1  # what every other field may say
BESIDE: dict[str, dict[str, Any]] = {  # what a field needs beside it
    "tool_choice.disable_parallel_tool_use": {"tool_choice": {"type": "auto"}},
    "thinking.display": {"thinking": {"type": "adaptive"}},
} | {
    CONFIG + name: {"generationConfig": {"responseMimeType": "application/json"}}
    for name in ("responseSchema", "responseJsonSchema", "_responseJsonSchema")
}


def rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"\n{heading}\n")[1].split("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


FIELDS = [
    (dialect, field, row[1])
    for dialect in TRANSLATED
    for row in rows(f"### {dialect}")
    for field in re.findall(r"`([^`]+)`", row[0])
]


def body_with(dialect: str, field: str, value: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(HI[dialect] | BESIDE.get(field, {})))
    *above, last = field.split(".")
    inner = body
    for name in above:
        inner = inner.setdefault(name, {})
    inner[last] = value
    return body


def read(dialect: str, body: dict[str, Any], untranslatable: Untold = "refuse") -> Request:
    model = None if "model" in body else "m"
    raw = json.dumps(body).encode()
    request = read_request(dialect, raw, model=model, untranslatable=untranslatable)
    return msgspec.structs.replace(request, places={}, untranslatable="refuse")


def check_fate(fate: str, dialect: str, body: dict[str, Any], field: str, bare: Request) -> None:
    """Try a field that cannot be carried."""
    named = msgspec.structs.replace(bare, dropped=(field,))
    if fate == "left out":
        assert read(dialect, body) == read(dialect, body, "drop") == named
        return
    with pytest.raises(Untranslatable) as caught:
        read(dialect, body)
    assert caught.value.field == field
    if fate == "dropped":
        assert read(dialect, body, "drop") == named
        return
    assert fate == "refused"
    with pytest.raises(Untranslatable) as caught:
        read(dialect, body, "drop")
    assert caught.value.field == field


@pytest.mark.parametrize(("dialect", "field", "becomes"), FIELDS)
def test_every_field_becomes_what_its_row_says(dialect: str, field: str, becomes: str) -> None:
    bare = read(dialect, HI[dialect] | BESIDE.get(field, {}))
    conditional = re.match(r"plain if (.*), else (.*)", becomes)
    sample = SAMPLES.get(f"{dialect} {field}", SAMPLES.get(field, NUMBER))
    if conditional:
        for plain in re.findall(r"`([^`]+)`", conditional[1]):
            assert read(dialect, body_with(dialect, field, json.loads(plain))) == bare
        odd = True if field == "store" else {"odd": 2}
        check_fate(conditional[2], dialect, body_with(dialect, field, odd), field, bare)
        return
    if becomes in {"left out", "dropped", "refused"} or becomes.startswith("left out,"):
        fate = becomes.split(",", maxsplit=1)[0]
        check_fate(fate, dialect, body_with(dialect, field, {"odd": 2}), field, bare)
        return
    if field == "logprobs" and dialect == "gemini":
        sample = NUMBER
    found = read(dialect, body_with(dialect, field, sample))
    if becomes.startswith("honoured"):
        assert found == bare
        return
    facts = re.findall(r"`(\w+)`", becomes.split(";", maxsplit=1)[0])
    facts = [fact for fact in facts if fact in Request.__struct_fields__]
    assert facts
    assert any(getattr(found, fact) != getattr(bare, fact) for fact in facts)


def noted(look: Callable[[Fields, str], Any], seen: set[str]) -> Callable[[Fields, str], Any]:
    """Note the path of every field that is looked at."""

    def looked(fields: Fields, name: str) -> Any:
        seen.add(fields.at(name))
        return look(fields, name)

    return looked


@pytest.mark.parametrize("dialect", TRANSLATED)
def test_every_field_that_is_read_has_its_row(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()
    for name in ("take", "peek"):
        monkeypatch.setattr(Fields, name, noted(getattr(Fields, name), seen))
    for path in FILES.glob(f"*.{dialect}.json"):
        if ".to." not in path.name:
            read_request(dialect, path.read_bytes(), model="m")
    named = {field for where, field, _ in FIELDS if where == dialect}
    missing = {
        field
        for field in seen
        if "[" not in field
        and not any(field == name or field.startswith(f"{name}.") for name in named)
        and not any(name.startswith(f"{field}.") for name in named)
    }
    assert len(seen) > 20
    assert missing == set()


SEARCH: dict[str, Any] = {"hosted": ("web_search",), "places": {"hosted.web_search": "tools[0]"}}
SHUT: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
PDF = File(url="data:application/pdf;base64,AA==")
CALL = ToolCall(id="c", name="f", arguments="{}")
HELLO = Message(role="user", content="Hi.")
TOOL = Tool(name="f")
PICTURE = Image(url="https://x.test/a.png")


def result(**fields: Any) -> dict[str, Any]:
    calling = Message(role="assistant", tool_calls=(CALL,))
    return {"messages": (calling, Message(role="tool", tool_call_id="c", **fields))}


SAID: dict[str, list[dict[str, Any]]] = {
    "`messages`": [{"messages": (Message(role="user", content="Ho."),)}],
    "`stream`": [{"stream": True}],
    "`max_tokens`": [{"max_tokens": 5}],
    "`temperature`": [{"temperature": 0.5}],
    "`temperature` above 1": [{"temperature": 1.5}],
    "`top_p`": [{"top_p": 0.5}],
    "`top_k`": [{"top_k": 5}],
    "`presence_penalty`": [{"presence_penalty": 0.5}],
    "`frequency_penalty`": [{"frequency_penalty": 0.5}],
    "`seed`": [{"seed": 0}],
    "`stop`": [{"stop": ("END",)}],
    "`logprobs`": [{"logprobs": True}],
    "`top_logprobs`": [{"top_logprobs": 2}],
    "`tools`": [{"tools": (TOOL,)}],
    "`tool_choice`": [
        {"tools": (TOOL,), "tool_choice": w} for w in ("auto", "none", "required", "f")
    ],
    "`parallel_tool_calls` false": [{"tools": (TOOL,), "parallel_tool_calls": False}],
    "`schema`": [{"schema": Schema(name="answer", schema=OBJECT, strict=False)}],
    "`json_object`": [{"json_object": True}],
    "`reasoning` low, medium, high": [{"reasoning": w} for w in ("low", "medium", "high")],
    "`reasoning` none": [{"reasoning": "none"}],
    "`reasoning` minimal": [{"reasoning": "minimal"}],
    "`reasoning` xhigh": [{"reasoning": "xhigh"}],
    "`reasoning` in tokens": [{"reasoning": 2048}],
    "`thoughts`": [{"reasoning": "low", "thoughts": "auto"}],
    "`verbosity`": [{"verbosity": "low"}],
    "message `name`": [{"messages": (Message(role="user", content="Hi.", name="ann"),)}],
    "image by address or value": [
        {"messages": (Message(role="user", content=(image,)),)}
        for image in (PICTURE, Image(url="data:image/png;base64,AA=="))
    ],
    "image `detail`": [
        {"messages": (Message(role="user", content=(Image(url="https://x.test/", detail="low"),)),)}
    ],
    "`hosted`": [SEARCH],
    "image in a tool's result": [result(content=(Text("x"), PICTURE))],
    "PDF by value": [{"messages": (Message(role="user", content=(PDF,)),)}],
    "PDF by address": [
        {"messages": (Message(role="user", content=(File(url="https://x.test/a.pdf"),)),)}
    ],
    "sound": [
        {
            "messages": (
                Message(
                    role="user",
                    content=(File(url="data:audio/wav;base64,AA==", media_type="audio/wav"),),
                ),
            )
        }
    ],
    "system text in the middle": [
        {"messages": (HELLO, Message(role="system", content="Now be brief."), HELLO)}
    ],
    "tool result `is_error`": [result(content="x", is_error=True)],
    "tool `strict`": [{"tools": (Tool(name="f", strict=True, parameters=SHUT),)}],
}


@pytest.mark.parametrize("row", rows("## What a provider can be told"), ids=lambda row: row[0])
def test_every_fact_is_said_as_its_row_says(row: list[str]) -> None:
    plain = Request(model="m", messages=(HELLO,), stream=False, max_tokens=9000, client="another")
    for dialect, verdict in zip(DIALECTS, row[1:], strict=True):
        for facts in SAID[row[0]]:
            request = msgspec.structs.replace(plain, **facts)
            lenient = msgspec.structs.replace(request, untranslatable="drop")
            if verdict in {"refused", "dropped"}:
                with pytest.raises(Untranslatable):
                    DIALECTS[dialect].build(request)
            if verdict == "refused":
                with pytest.raises(Untranslatable):
                    DIALECTS[dialect].build(lenient)
                continue
            said = DIALECTS[dialect].build(lenient)
            assert bool(said.dropped) == (verdict == "dropped"), (dialect, facts)
            if verdict == "dropped":
                continue
            without = "thoughts" if "thoughts" in facts else "model"
            bare = (
                msgspec.structs.replace(request, **{without: None}) if without != "model" else plain
            )
            other = DIALECTS[dialect].build(bare)
            same = (said.path, said.body) == (other.path, other.body)
            # Gemini shows thoughts with any wish for reasoning; only "omitted" makes a difference.
            if dialect == "gemini" and without == "thoughts":
                same = b"includeThoughts" not in said.body
            assert same == (verdict == "left out"), (dialect, facts)


def test_every_fact_has_its_row() -> None:
    own = {
        "model",
        "kind",
        "client",
        "places",
        "untranslatable",
        "dropped",
        "generation",
        "extra",
        "prompt",
        "inputs",
        "dimensions",
        "min_tokens",
        "ignore_eos",
    }
    facts = {word for row in rows("## What a provider can be told") for word in row[0].split("`")}
    assert set(Request.__struct_fields__) - own <= facts


def test_the_default_cap_is_as_documented() -> None:
    assert f"get {DEFAULT_MAX_TOKENS:,}" in PAGE


def test_the_examples_are_what_is_said() -> None:
    with pytest.raises(Untranslatable) as caught:
        read("openai-chat", {"messages": [], "logit_bias": {"a": 1}})
    assert caught.value.message in PAGE
    named = {"messages": [{"role": "user", "content": "x", "name": "ann"}]}
    with pytest.raises(Untranslatable) as caught:
        DIALECTS["gemini"].build(read("openai-chat", named))
    assert caught.value.message in PAGE
