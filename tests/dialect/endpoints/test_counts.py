"""Counts of tokens in three families: requests built, answers read and written."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lightgate.dialect.errors import BadField, Untranslatable
from lightgate.dialect.registry import DIALECTS, dialect_for
from lightgate.dialect.request import Message, Request, Tool
from lightgate.dialect.translate import read_request, translator
from lightgate.errors import Malformed

OPENAI, ANTHROPIC, GEMINI = "openai-input-tokens", "anthropic-count-tokens", "gemini-count-tokens"
REQUEST = Request(
    model="m",
    kind="count",
    messages=(Message(role="system", content="S"), Message(role="user", content="Hi")),
    tools=(Tool(name="f", parameters={"type": "object"}),),
    tool_choice="auto",
    stream=True,
    stop=("x",),
    seed=1,
    top_k=2,
    max_tokens=3,
    temperature=0.5,
    presence_penalty=0.1,
    frequency_penalty=0.1,
)


def built(family: Any, request: Request = REQUEST) -> tuple[str, dict[str, Any]]:
    made = dialect_for(family, "count").build(request)
    assert ("accept", "application/json") in made.headers
    return made.path, json.loads(made.body)


def test_openai_is_asked_about_the_input_alone() -> None:
    path, body = built("openai")
    assert path == "/responses/input_tokens"
    assert set(body) == {"model", "input", "tools", "tool_choice"}


def test_anthropic_is_asked_about_the_conversation_alone() -> None:
    bare = msgspec.structs.replace(
        REQUEST, seed=None, presence_penalty=None, frequency_penalty=None, max_tokens=None
    )
    path, body = built("anthropic", bare)
    assert path == "/messages/count_tokens"
    assert set(body) == {"model", "messages", "system", "tools", "tool_choice"}


@pytest.mark.parametrize("model", ["m", "models/m"])
def test_gemini_is_asked_about_a_whole_request(model: str) -> None:
    path, body = built("gemini", msgspec.structs.replace(REQUEST, model=model))
    assert path.endswith("m:countTokens")
    inner = body.pop("generateContentRequest")
    assert body == {}
    assert inner["model"] == "models/m"
    assert inner["contents"] == [{"role": "user", "parts": [{"text": "Hi"}]}]


def test_what_is_dropped_on_the_way_is_named() -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "model": "m", "new": 1}
    request = read_request(ANTHROPIC, json.dumps(body).encode(), untranslatable="drop")
    for family in ("openai", "anthropic", "gemini"):
        made = dialect_for(family, "count").build(request)
        assert made.dropped == ("new",)


CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}


def test_a_request_of_gemini_is_read_bare_or_wrapped() -> None:
    bare = read_request(GEMINI, json.dumps(CONTENTS).encode(), model="m")
    wrapped = {"generateContentRequest": {"model": "models/x", **CONTENTS}}
    inner = read_request(GEMINI, json.dumps(wrapped).encode(), model="m")
    assert [one.content for one in inner.messages] == [one.content for one in bare.messages]
    strange = {"generateContentRequest": {**CONTENTS, "new": 1}}
    with pytest.raises(Untranslatable) as caught:
        read_request(GEMINI, json.dumps(strange).encode(), model="m")
    assert caught.value.field == "generateContentRequest.new"


def test_the_targets_model_is_written_into_the_request_inside() -> None:
    address = DIALECTS[GEMINI].address
    assert address is not None
    bare = {name: msgspec.Raw(json.dumps(value).encode()) for name, value in CONTENTS.items()}
    assert address({**bare, "model": msgspec.Raw(b'"x"')}, "m") == bare
    nothing = {**bare, "generateContentRequest": msgspec.Raw(b"null")}
    assert address(nothing, "m") == nothing
    inner = msgspec.Raw(b'{"model": "models/other", "contents": []}')
    said = address({"generateContentRequest": inner}, "m")["generateContentRequest"]
    assert json.loads(bytes(said)) == {"model": "models/m", "contents": []}
    with pytest.raises(BadField) as caught:
        address({"generateContentRequest": msgspec.Raw(b"[3]")}, "m")
    assert caught.value.field == "generateContentRequest"


def told(source: str, target: str, answer: Any) -> Any:
    telling = translator(source, target, model="m", id="1", created=2)
    return json.loads(telling.whole(json.dumps(answer).encode()))


SAID = {
    OPENAI: {"object": "response.input_tokens", "input_tokens": 7},
    ANTHROPIC: {"input_tokens": 7},
    GEMINI: {"totalTokens": 7, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 7}]},
}


@pytest.mark.parametrize("source", SAID)
@pytest.mark.parametrize("target", SAID)
def test_a_count_is_said_in_every_dialect(source: str, target: str) -> None:
    assert told(source, target, SAID[source]) == SAID[target]


@pytest.mark.parametrize("count", [None, -1, True, 1.5, "7"])
def test_what_is_no_count_is_no_answer(count: Any) -> None:
    for source, field in ((OPENAI, "input_tokens"), (GEMINI, "totalTokens")):
        with pytest.raises(Malformed):
            told(source, ANTHROPIC, {field: count})
        scanner = DIALECTS[source].scanner()
        scanner.whole(json.dumps({field: count}).encode())
        assert scanner.error is not None
        assert scanner.error.code == "malformed"
    assert told(OPENAI, ANTHROPIC, {"input_tokens": 0}) == {"input_tokens": 0}
    with pytest.raises(Malformed):
        translator(OPENAI, GEMINI, model="m", id="1", created=2).whole(b"nonsense")


@pytest.mark.parametrize("dialect", SAID)
def test_the_clock_hears_errors(dialect: str) -> None:
    scanner = DIALECTS[dialect].scanner()
    scanner.whole(json.dumps(SAID[dialect]).encode())
    assert scanner.error is None
    scanner = DIALECTS[dialect].scanner()
    scanner.whole(b'{"input_tokens": 7, "error": {"message": "No.", "code": 400}}')
    assert scanner.error is not None
    assert scanner.error.message == "No."
    scanner = DIALECTS[dialect].scanner()
    scanner.whole(b"nonsense")
    assert scanner.error is not None


def test_a_count_costs_nothing_and_has_no_tokens() -> None:
    found = [one for one in DIALECTS.values() if one.kind == "count"]
    assert {one.name for one in found} == set(SAID)
    assert all(one.free and not one.tokens for one in found)
    assert [one.name for one in found if one.camel] == [GEMINI]
    assert {one.name: one.path or one.verb for one in found} == {
        OPENAI: "/responses/input_tokens",
        ANTHROPIC: "/messages/count_tokens",
        GEMINI: "countTokens",
    }
