"""JSON schemas as Anthropic takes them, and Gemini's own kind of schema; word by word."""

from __future__ import annotations

from typing import Any

import pytest

from lightgate.dialect.anthropic.schema import native_schema
from lightgate.dialect.errors import BadField, Untranslatable
from lightgate.dialect.gemini.schema import json_schema
from lightgate.dialect.neutral.omit import Omissions

CLOSED = {"additionalProperties": False}


def of(**words: Any) -> dict[str, Any]:
    """An object with one property that has these words."""
    return {"type": "object", "properties": {"p": words}}


def inner(**words: Any) -> Any:
    """What becomes of one property."""
    found = native_schema(of(**words))
    assert found is not None
    assert {name: value for name, value in found.items() if name != "properties"} == {
        "type": "object",
        **CLOSED,
    }
    return found["properties"]["p"]


@pytest.mark.parametrize(
    "words",
    [
        {"type": "string", "title": "T", "description": "D", "pattern": "^a$", "default": "a"},
        {"enum": ["a", 1, None]},
        {"const": 3},
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {}, "minItems": 0},
        {"type": "array", "items": {}, "minItems": 1},
        {"type": "array", "items": True},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"allOf": [{"type": "string"}]},
        {"$ref": "#/$defs/x"},
        *[
            {"type": "string", "format": form}
            for form in (
                *("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4"),
                *("ipv6", "uuid"),
            )
        ],
    ],
)
def test_words_that_anthropic_takes_stay(words: dict[str, Any]) -> None:
    assert inner(**words) == words


@pytest.mark.parametrize(
    ("words", "described"),
    [
        ({"type": "integer", "minimum": 1}, "(minimum: 1)"),
        ({"type": "integer", "minimum": 1, "maximum": 9}, "(minimum: 1, maximum: 9)"),
        ({"type": "string", "maxLength": 5, "description": "D"}, "D (maxLength: 5)"),
        ({"type": "string", "format": "color"}, "(format: color)"),
        ({"type": "string", "format": 3}, "(format: 3)"),
        ({"type": "array", "minItems": 2}, "(minItems: 2)"),
        ({"type": "string", "description": 3, "x": 1}, "(x: 1)"),
    ],
)
def test_limits_become_words_of_the_description(words: dict[str, Any], described: str) -> None:
    kept = {name: words[name] for name in ("type",)}
    assert inner(**words) == {**kept, "description": described}


@pytest.mark.parametrize(
    "word",
    ["not", "if", "then", "else", "patternProperties", "prefixItems", "dependentSchemas"],
)
def test_rules_that_cannot_be_said(word: str) -> None:
    assert native_schema(of(**{word: {}})) is None
    assert native_schema({**of(), word: {}}) is None
    assert native_schema({**of(), "items": {word: {}}}) is None


def test_words_that_say_nothing_are_left_out() -> None:
    assert inner(**{"type": "string", "$schema": "s", "$id": "i"}) == {"type": "string"}
    assert inner(type="string", additionalProperties=True) == {"type": "string"}


def test_one_of_becomes_any_of_and_what_is_nested_is_put_too() -> None:
    assert inner(oneOf=[{"type": "integer", "minimum": 1}]) == {
        "anyOf": [{"type": "integer", "description": "(minimum: 1)"}]
    }
    for word in ("anyOf", "allOf"):
        assert inner(**{word: [{"type": "string", "x": 1}]}) == {
            word: [{"type": "string", "description": "(x: 1)"}]
        }
        assert inner(**{word: 3}) == {word: []}
    assert inner(type="array", items={"x": 1}) == {
        "type": "array",
        "items": {"description": "(x: 1)"},
    }
    for word in ("$defs", "definitions"):
        found = native_schema({**of(), word: {"d": {"x": 1}}})
        assert found is not None
        assert found[word] == {"d": {"description": "(x: 1)"}}
        assert (native_schema({**of(), word: 3}) or {})[word] == {}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": ["string", "null"]},
        {},
        {"type": "object"},  # any field may come
        {"type": "object", "properties": {}},
        {**of(), "additionalProperties": True},
        {**of(), "additionalProperties": {}},
        of(type="object"),
        of(type=["object", "null"]),
        {**of(), "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {**of(), "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}},
        {**of(), "definitions": {"a": {"anyOf": [{"$ref": "#/definitions/a"}]}}},
        of(**{"$ref": "#"}),
    ],
)
def test_schemas_that_can_only_be_asked_for_in_words(schema: dict[str, Any]) -> None:
    assert native_schema(schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        {**of(), "additionalProperties": False},
        {"properties": {"p": {}}},
        {"type": ["object", "null"], "properties": {"p": {}}},
        {**of(), "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {}}},
        {
            **of(),
            "$defs": {"a": {"$ref": "#/$defs/c"}, "b": {"$ref": "#/$defs/c"}, "c": {"$ref": "x"}},
        },
        {**of(), "$ref": 3},
    ],
)
def test_schemas_that_can_be_bound(schema: dict[str, Any]) -> None:
    found = native_schema(schema)
    assert found == {**schema, **CLOSED}


@pytest.mark.parametrize(
    "word", ["title", "description", "pattern", "default", "minimum", "maximum", "required"]
)
def test_words_of_gemini_that_are_the_same(word: str) -> None:
    assert json_schema({word: "v"}, "at") == {word: "v"}
    assert json_schema({word: None}, "at") == {}


@pytest.mark.parametrize(
    "word",
    ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"],
)
def test_counts_of_gemini(word: str) -> None:
    assert json_schema({word: "12"}, "at") == json_schema({word: 12}, "at") == {word: 12}
    assert json_schema({word: 0}, "at") == {word: 0}
    assert json_schema({word: "1" * 19}, "at") == {word: int("1" * 19)}
    for wrong in (
        "1" * 20,
        "-1",
        "x",
        "\N{SUPERSCRIPT TWO}",
        "\N{ARABIC-INDIC DIGIT ONE}",
        True,
        1.0,
        [1],
    ):
        with pytest.raises(BadField, match=rf"'at.{word}' must be a whole number"):
            json_schema({word: wrong}, "at")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {}),
        ({"type": "TYPE_UNSPECIFIED"}, {}),
        ({"type": "STRING"}, {"type": "string"}),
        ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "STRING", "nullable": False}, {"type": "string"}),
        ({"nullable": True}, {}),
        (
            {"anyOf": [{"type": "STRING"}], "nullable": True},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        (
            {"type": "STRING", "anyOf": [{}], "nullable": True},
            {"type": ["string", "null"], "anyOf": [{}]},
        ),
        (
            {"type": "STRING", "enum": ["a"], "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        ({"enum": ["a", "b"], "format": "enum"}, {"enum": ["a", "b"]}),
        ({"format": "enum"}, {"format": "enum"}),
        ({"enum": ["a"], "format": "date"}, {"enum": ["a"], "format": "date"}),
        ({"enum": []}, {}),
        ({"example": 0}, {"examples": [0]}),
        ({"items": {"type": "STRING"}}, {"items": {"type": "string"}}),
        ({"additionalProperties": False}, {"additionalProperties": False}),
        (
            {"additional_properties": {"type": "STRING"}},
            {"additionalProperties": {"type": "string"}},
        ),
        ({"any_of": []}, {}),
        ({"properties": {}}, {"properties": {}}),
    ],
)
def test_geminis_schemas(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert json_schema(schema, "at") == expected


def test_the_order_of_properties_is_that_of_their_ordering() -> None:
    made = json_schema(
        {
            "properties": {"a": {}, "b": {"type": "STRING"}, "c": {}},
            "propertyOrdering": ["c", "x", "b"],
        },
        "at",
    )
    assert list(made["properties"]) == ["c", "b", "a"]
    assert made["properties"]["b"] == {"type": "string"}
    assert list(made) == ["properties"]


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"x": 1}, "at.x"),
        ({"properties": {"p": {"x": 1}}}, "at.properties.p.x"),
        ({"items": {"x": 1}}, "at.items.x"),
        ({"additionalProperties": {"x": 1}}, "at.additionalProperties.x"),
        ({"anyOf": [{}, {"x": 1}]}, "at.anyOf[1].x"),
    ],
)
def test_unknown_words_are_refused_or_dropped(schema: dict[str, Any], place: str) -> None:
    with pytest.raises(Untranslatable) as caught:
        json_schema(schema, "at")
    assert caught.value.field == place
    lost = Omissions(refuses=False)
    json_schema(schema, "at", lost)
    assert lost.paths == (place,)
