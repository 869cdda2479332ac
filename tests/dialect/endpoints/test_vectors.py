"""Embeddings of both families: requests read, addressed and built, answers read and written."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import msgspec
import pytest

from lightgate.dialect.errors import BadField, Untranslatable
from lightgate.dialect.registry import DIALECTS, counterpart, dialect_for
from lightgate.dialect.request import Request
from lightgate.dialect.translate import read_request, translator
from lightgate.errors import Malformed, UsageError

OPENAI, ONE, MANY = "openai-embeddings", "gemini-embed", "gemini-embed-batch"


def read(dialect: str, body: Any, untold: Any = "refuse") -> Request:
    raw = json.dumps(body).encode()
    return read_request(dialect, raw, model="models/e m", untranslatable=untold)


def built(family: Any, request: Request) -> tuple[str, dict[str, Any]]:
    made = dialect_for(family, "embedding").build(request)
    return made.path, json.loads(made.body)


def told(source: str, target: str, answer: Any, **asked: Any) -> dict[str, Any]:
    telling = translator(source, target, model="fast", id="1", created=2)
    assert telling.closed
    assert telling.failed is None
    telling.hear({name: msgspec.Raw(json.dumps(value).encode()) for name, value in asked.items()})
    raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    found: dict[str, Any] = json.loads(telling.whole(raw))
    return found


def part(text: str, **more: Any) -> dict[str, Any]:
    return {"content": {"role": "user", "parts": [{"text": text}]}, **more}


# Requests


def test_a_list_of_texts_becomes_a_batch() -> None:
    request = read(OPENAI, {"input": ["a", "b"], "dimensions": 8, "encoding_format": "base64"})
    assert (request.inputs, request.dimensions) == (("a", "b"), 8)
    path, body = built("gemini", request)
    assert path == "/models/e%20m:batchEmbedContents"
    assert body == {
        "requests": [
            {
                "model": "models/e m",
                "content": {"parts": [{"text": text}]},
                "outputDimensionality": 8,
            }
            for text in "ab"
        ]
    }
    assert built("openai", request)[1]["encoding_format"] == "float"
    own = Request(model="m", kind="embedding", inputs=("a",))
    assert built("openai", own) == ("/embeddings", {"model": "m", "input": ["a"]})


def test_one_text_is_a_list_of_one() -> None:
    request = read(OPENAI, {"input": "a", "encoding_format": "float"})
    assert (request.inputs, request.dimensions) == (("a",), None)
    assert built("gemini", request)[1]["requests"] == [
        {"model": "models/e m", "content": {"parts": [{"text": "a"}]}}
    ]


@pytest.mark.parametrize("given", [[], 3, None, {}, ""])
def test_an_input_that_is_none_is_named(given: Any) -> None:
    if given == "":
        assert read(OPENAI, {"input": given}).inputs == ("",)
        return
    with pytest.raises(BadField) as caught:
        read(OPENAI, {"input": given})
    assert caught.value.field == "input"


def test_token_ids_are_named_by_their_place() -> None:
    for given, place in (([1, 2], "input"), (["a", [1]], "input[1]")):
        with pytest.raises(Untranslatable, match="token ids") as caught:
            read(OPENAI, {"input": given})
        assert caught.value.field == place


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(BadField) as caught:
        read(OPENAI, {"input": "a", "encoding_format": "int8"})
    assert caught.value.field == "encoding_format"


def test_geminis_bodies_are_read() -> None:
    request = read(ONE, part("a", outputDimensionality=4))
    assert (request.inputs, request.dimensions) == (("a",), 4)
    two = {"content": {"parts": [{"text": "a"}, {"text": "b"}]}, "output_dimensionality": 4}
    assert read(ONE, two).inputs == ("ab",)
    batch = {"requests": [part("a", model="models/x", outputDimensionality=4)]}
    assert (read(MANY, batch).inputs, read(MANY, batch).dimensions) == (("a",), 4)
    plain = read(MANY, {"requests": [part("a"), part("b")]})
    assert (plain.inputs, plain.dimensions) == (("a", "b"), None)
    assert built("openai", plain)[1] == {
        "model": "models/e m",
        "input": ["a", "b"],
        "encoding_format": "float",
    }


@pytest.mark.parametrize(
    ("dialect", "body", "error", "field"),
    [
        (ONE, {}, BadField, "content"),
        (ONE, {"content": {"parts": [{}]}}, BadField, "content.parts[0].text"),
        (ONE, part("a", taskType="X"), Untranslatable, "taskType"),
        (
            ONE,
            {"content": {"parts": [{"text": "a", "x": 1}]}},
            Untranslatable,
            "content.parts[0].x",
        ),
        (ONE, {"content": {"parts": [], "x": 1}}, Untranslatable, "content.x"),
        (MANY, {}, BadField, "requests"),
        (MANY, {"requests": []}, BadField, "requests"),
        (MANY, {"requests": [part("a", title="t")]}, Untranslatable, "requests[0].title"),
        (
            MANY,
            {"requests": [part("a", outputDimensionality=1), part("b")]},
            Untranslatable,
            "requests[1].outputDimensionality",
        ),
    ],
)
def test_what_cannot_be_read_is_named(dialect: str, body: Any, error: Any, field: str) -> None:
    with pytest.raises(error) as caught:
        read(dialect, body)
    assert caught.value.field == field


def test_the_targets_model_is_written_into_a_body() -> None:
    address = DIALECTS[ONE].address
    assert address is not None
    for model in ("e", "models/e"):
        fields = address({"content": msgspec.Raw(b"{}"), "model": msgspec.Raw(b'"x"')}, model)
        assert {name: bytes(raw) for name, raw in fields.items()} == {
            "content": b"{}",
            "model": b'"models/e"',
        }
    address = DIALECTS[MANY].address
    assert address is not None
    asked = msgspec.Raw(b'[{"content": 1}, {"model": "models/other"}]')
    told_fields = address({"requests": asked, "x": msgspec.Raw(b"1")}, "e")
    assert bytes(told_fields["x"]) == b"1"
    assert json.loads(bytes(told_fields["requests"])) == [
        {"content": 1, "model": "models/e"},
        {"model": "models/e"},
    ]
    for wrong in ({}, {"requests": msgspec.Raw(b"[3]")}, {"requests": msgspec.Raw(b"{}")}):
        with pytest.raises(BadField) as caught:
            address(wrong, "e")
        assert caught.value.field == "requests"


# Answers

FLOATS = [[0.5, -1.0], [0.25, 2.0]]
OPENAI_ANSWER = {
    "data": [{"embedding": vector} for vector in FLOATS],
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}
GEMINI_ANSWER = {
    "embeddings": [{"values": vector} for vector in FLOATS],
    "usageMetadata": {"promptTokenCount": 5},
}


def packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


@pytest.mark.parametrize(
    ("source", "answer"), [(OPENAI, OPENAI_ANSWER), (MANY, GEMINI_ANSWER), (ONE, GEMINI_ANSWER)]
)
def test_vectors_are_said_in_every_dialect(source: str, answer: Any) -> None:
    assert told(source, OPENAI, answer) == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": place, "embedding": vector}
            for place, vector in enumerate(FLOATS)
        ],
        "model": "fast",
        "usage": {"prompt_tokens": 5, "total_tokens": 5},
    }
    assert told(source, MANY, answer) == GEMINI_ANSWER
    assert told(source, ONE, answer) == {
        "embedding": {"values": FLOATS[0]},
        "usageMetadata": {"promptTokenCount": 5},
    }


def test_a_vector_is_packed_for_the_client_that_asked_for_it() -> None:
    said = told(MANY, OPENAI, GEMINI_ANSWER, encoding_format="base64", input=["a"])
    assert [row["embedding"] for row in said["data"]] == [packed(vector) for vector in FLOATS]
    plain = told(MANY, OPENAI, GEMINI_ANSWER, encoding_format="float")
    assert [row["embedding"] for row in plain["data"]] == FLOATS


def test_a_packed_vector_is_unpacked_for_others() -> None:
    answer = {"data": [{"embedding": packed(vector)} for vector in FLOATS]}
    assert told(OPENAI, MANY, answer) == {"embeddings": [{"values": v} for v in FLOATS]}


def test_tokens_that_nobody_counted_are_estimated_from_the_texts() -> None:
    answer = {"embedding": {"values": [1.0]}}
    usage = told(ONE, OPENAI, answer, input=["A lighthouse and two ships."])["usage"]
    assert usage["prompt_tokens"] == usage["total_tokens"]
    assert 4 <= usage["prompt_tokens"] <= 12
    assert told(ONE, OPENAI, answer)["usage"]["prompt_tokens"] <= 1


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        (OPENAI, b"nonsense"),
        (OPENAI, {}),
        (OPENAI, {"data": []}),
        (OPENAI, {"data": [{"embedding": [1.0]}, {}]}),
        (OPENAI, {"data": [{"embedding": "!!!"}]}),
        (OPENAI, {"data": [{"embedding": "AAA="}]}),
        (MANY, b"nonsense"),
        (MANY, {}),
        (MANY, {"embeddings": []}),
        (MANY, {"embeddings": [{"values": [1.0]}, {}]}),
        (ONE, {"embedding": {}}),
    ],
)
def test_an_answer_without_vectors_is_no_answer(source: str, answer: Any) -> None:
    with pytest.raises(Malformed):
        told(source, MANY if source == OPENAI else OPENAI, answer)


@pytest.mark.parametrize("values", [["a"], 3, "AAAA"])
def test_what_cannot_be_packed_is_no_vector(values: Any) -> None:
    with pytest.raises(Malformed):
        told(ONE, OPENAI, {"embedding": {"values": values}}, encoding_format="base64")


@pytest.mark.parametrize(("dialect", "answer"), [(OPENAI, OPENAI_ANSWER), (MANY, GEMINI_ANSWER)])
def test_the_clock_hears_tokens_and_errors(dialect: str, answer: Any) -> None:
    scanner = DIALECTS[dialect].scanner()
    scanner.whole(json.dumps(answer).encode())
    assert scanner.error is None
    assert scanner.usage is not None
    assert (scanner.usage.tokens_in, scanner.usage.tokens_out or 0) == (5, 0)
    scanner = DIALECTS[dialect].scanner()
    scanner.whole(b'{"error": {"message": "Too many.", "code": 429}}')
    assert scanner.error is not None
    assert (scanner.error.status, scanner.error.message) == (429, "Too many.")
    for body in (b"[]", b"{}", b'{"data": [], "embeddings": []}'):
        scanner = DIALECTS[dialect].scanner()
        scanner.whole(body)
        assert scanner.error is not None
        assert scanner.error.code == "malformed"
    scanner = DIALECTS[dialect].scanner()
    bare = {name: value for name, value in answer.items() if not name.startswith("usage")}
    scanner.whole(json.dumps(bare).encode())
    assert (scanner.error, scanner.usage) == (None, None)


# Finding an endpoint


def test_a_counterpart_has_facts_to_translate_by() -> None:
    found = counterpart("gemini", "embedding")
    assert found is not None
    assert found.name == MANY
    assert counterpart("anthropic", "embedding") is None
    assert counterpart("openai", "chat") is None
    counted = counterpart("anthropic", "count")
    assert counted is not None
    assert counted.name == "anthropic-count-tokens"


def test_pairs_without_a_translation_say_so() -> None:
    with pytest.raises(UsageError, match="from 'openai-embeddings'"):
        translator(OPENAI, "openai-chat", model="m", id="1", created=2)
    with pytest.raises(UsageError, match="to 'openai-embeddings'"):
        translator("openai-chat", OPENAI, model="m", id="1", created=2)
    with pytest.raises(UsageError, match="to 'nothing'"):
        translator("openai-chat", "nothing", model="m", id="1", created=2)
