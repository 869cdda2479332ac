"""Checks of a JSON schema at their limits: depth, work, the number of errors, words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lightgate.route.cascade.json_schema import (
    DEEPEST,
    MOST_STEPS,
    Checked,
    check,
    same,
    unchecked_words,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NEST: dict[str, Callable[[Any], Any]] = {
    "properties": lambda inner: {"properties": {"a": inner}},
    "additionalProperties": lambda inner: {"additionalProperties": inner},
    "items": lambda inner: {"items": inner},
    "allOf": lambda inner: {"allOf": [inner]},
    "anyOf": lambda inner: {"anyOf": [inner]},
    "oneOf": lambda inner: {"oneOf": [inner]},
}


def nested(word: str, depth: int) -> Checked:
    """Check a number against "string" so many words deep."""
    schema: Any = {"type": "string"}
    value: Any = 1
    for _ in range(depth):
        schema = NEST[word](schema)
        if word in {"properties", "additionalProperties"}:
            value = {"a": value}
        elif word == "items":
            value = [value]
    return check(schema, value)


@pytest.mark.parametrize("word", NEST)
def test_a_schema_is_followed_to_its_deepest_level_and_no_further(word: str) -> None:
    assert nested(word, DEEPEST).errors
    beyond = nested(word, DEEPEST + 1)
    assert not beyond.errors
    assert [text.partition(" at ")[0] for text in beyond.unchecked] == ["too deep or too large"]


def test_references_count_as_levels() -> None:
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1, DEEPEST + 1)}
    last = {f"d{DEEPEST + 1}": {"type": "string"}}
    assert not check({"$ref": "#/$defs/d1", "$defs": chain | last}, 1).errors
    assert check({"$ref": "#/$defs/d2", "$defs": chain | last}, 1).errors


def test_each_schema_is_a_step_and_so_is_each_value_of_a_list() -> None:
    """One step for the schema, one for each value that it lists."""
    assert check({"enum": [1] * (MOST_STEPS - 1)}, 2).errors == ("$ is not what enum allows",)
    over = check({"enum": [1] * MOST_STEPS}, 2)
    assert (over.errors, over.unchecked) == ((), ("too deep or too large at $",))
    # And one for each item of the answer.
    assert check({"items": True}, [1] * (MOST_STEPS - 1)) == Checked()
    assert check({"items": True}, [1] * MOST_STEPS).unchecked == (
        f"too deep or too large at $[{MOST_STEPS - 1}]",
    )
    # What the branches have taken is counted too.
    half = {"enum": [1] * (MOST_STEPS // 2 - 4)}
    assert check({"anyOf": [half, {"enum": [2]}]}, 2) == Checked()
    assert check({"anyOf": [half, half, half, {"enum": [2]}]}, 2).unchecked


def test_eight_errors_are_told() -> None:
    found = check({"items": {"type": "string"}}, list(range(20)))
    assert found.errors == tuple(f"$[{n}] is not of type string" for n in range(8))
    assert len(check({"items": {"type": "string"}}, list(range(8))).errors) == 8


@pytest.mark.parametrize(
    ("schema", "value", "errors"),
    [
        ({"minimum": 3}, 2, "$ breaks minimum 3"),
        ({"maximum": 3.5}, 4, "$ breaks maximum 3.5"),
        ({"exclusiveMaximum": 3}, 3, "$ breaks exclusiveMaximum 3"),
        ({"maxLength": 1}, "ab", "$ breaks maxLength 1"),
        ({"type": ["string", "null"]}, 1, "$ is not of type string or null"),
        ({"const": 1}, 2, "$ is not what const allows"),
        ({"properties": {"a": {"required": ["b"]}}}, {"a": {}}, "$.a lacks 'b'"),
        ({"additionalProperties": False}, {"x" * 50: 1}, f"$.{'x' * 40} may not be there"),
        ({"required": ["y" * 50]}, {}, f"$ lacks {'y' * 40!r}"),
        ({"properties": {"y" * 50: False}}, {"y" * 50: 1}, f"$.{'y' * 40} may not be there"),
        ({"anyOf": [False]}, 1, "$ fits no branch of anyOf"),
        ({"oneOf": [True, True]}, 1, "$ fits more than one branch of oneOf"),
    ],
)
def test_an_error_says_where_and_what(schema: Any, value: Any, errors: str) -> None:
    assert check(schema, value).errors == (errors,)


UNSURE = {"format": "email"}


@pytest.mark.parametrize(
    ("schema", "unchecked"),
    [
        ({"anyOf": [UNSURE, True]}, ()),  # one that surely fits is enough
        ({"anyOf": [UNSURE, False]}, ("format at $",)),
        ({"oneOf": [UNSURE, False]}, ("format at $",)),
        ({"oneOf": [True, UNSURE]}, ("oneOf at $",)),  # both may fit
        ({"oneOf": [UNSURE, True]}, ("format at $",)),
        ({"oneOf": [True, False]}, ()),
        ({"allOf": [UNSURE, UNSURE]}, ("format at $",)),  # each is told once
        ({"$ref": "#/" + "a" * 510, "a" * 510: False}, None),
        ({"$ref": "#/" + "a" * 511, "a" * 511: True}, ("$ref at $", f"{'a' * 511} at $")),
        ({"$ref": 3}, ("$ref at $",)),
        ({"minimum": True}, ("minimum at $",)),
        ({"title": 1, "$comment": 2, "default": 3}, ()),
    ],
)
def test_what_remains_unchecked(schema: Any, unchecked: tuple[str, ...] | None) -> None:
    found = check(schema, 1)
    if unchecked is None:
        assert found.errors == ("$ may not be there",)
    else:
        assert found == Checked((), unchecked)


def test_words_that_would_stay_unchecked_are_found_wherever_they_stand() -> None:
    schema = {
        "title": "t",
        "type": "object",
        "properties": {"a": {"pattern": "x"}, "b": {"items": [{"not": {}}]}},
        "$defs": {"c": {"format": "email"}},
        "definitions": {"d": {"if": {}}},
        "anyOf": [{"oneOf": [{"allOf": [{"contains": {}}]}]}],
        "items": {"uniqueItems": True},
        "additionalProperties": {"multipleOf": 2, "pattern": "y"},
    }
    assert sorted(unchecked_words(schema)) == [
        *("contains", "format", "if", "items", "multipleOf", "pattern", "uniqueItems")
    ]
    assert unchecked_words(True) == []
    assert unchecked_words({"properties": 3, "anyOf": 4, "$defs": []}) == []


def test_a_schema_with_very_many_unchecked_words_is_not_looked_through() -> None:
    inner = {"items": {"pattern": "x"}}
    many = {f"w{n}": 1 for n in range(MOST_STEPS)}
    assert unchecked_words(many | inner) == list(many)
    many.pop("w0")
    assert unchecked_words(many | inner) == [*many, "pattern"]


def test_equality_of_json_values() -> None:
    assert same(1, 1.0)
    assert not same(1, True)
    assert not same(0, False)
    assert same({"a": [1, {"b": None}]}, {"a": [1.0, {"b": None}]})
    assert not same({"a": 1}, {"a": 1, "b": 2})
    assert not same({"a": 1}, {"b": 1})
    assert not same([1, 2], [1])
    assert not same([1, 2], [2, 1])
    assert not same([], {})


def test_values_that_are_nested_too_deeply_to_compare_are_not_checked() -> None:
    deep: Any = 1
    other: Any = 1
    for _ in range(20_000):
        deep, other = [deep], [other]
    assert check({"const": deep}, other) == Checked((), ("nested too deeply at $",))
