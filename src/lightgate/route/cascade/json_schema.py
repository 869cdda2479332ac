"""Checks a value against a JSON schema: a small part of the standard, with a bound on the work.

| checked | said to be unchecked |
|---|---|
| type, enum, const | pattern, format: matching an expression of a client may take for ever |
| properties, required, additionalProperties | patternProperties, propertyNames, dependent... |
| items, minItems, maxItems | prefixItems, contains, uniqueItems, lists in items |
| minimum, maximum, their exclusive forms | multipleOf |
| minLength, maxLength, minProperties, maxProperties | |
| anyOf, oneOf, allOf, $ref inside the document | not, if, other $refs, and every unknown word |

What is unchecked is named: a value without errors has passed only if nothing was left unchecked.
docs/decisions/0009 has the reasons for not using a library.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

DEEPEST: Final = 64
MOST_STEPS: Final = 20_000  # schemas applied to values, over all branches

_IGNORED: Final = frozenset(  # words that forbid nothing
    (
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("propertyOrdering", "definitions", "$schema", "$id", "$comment", "$defs", "$anchor"),
    )
)
_KINDS: Final = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}
_MOST_ERRORS: Final = 8


class Checked(msgspec.Struct, frozen=True):
    """Findings with their places; a value passes with no errors and nothing unchecked."""

    errors: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def check(schema: Any, value: Any) -> Checked:
    """Check a decoded JSON value; never raises, whatever the schema is."""
    work = _Work(schema)
    try:
        work.apply(schema, value, "$", 0)
    except RecursionError:
        work.leave("$", "nested too deeply")
    return Checked(tuple(work.errors[:_MOST_ERRORS]), tuple(dict.fromkeys(work.unchecked)))


class _Work:
    """One check, with its findings so far."""

    __slots__ = ("errors", "root", "steps", "unchecked")

    def __init__(self, root: Any, steps: int = 0) -> None:
        self.root = root
        self.steps = steps
        self.errors: list[str] = []
        self.unchecked: list[str] = []

    def fail(self, place: str, why: str) -> None:
        self.errors.append(f"{place} {why}")

    def leave(self, place: str, word: str) -> None:
        self.unchecked.append(f"{word} at {place}")

    def apply(self, schema: Any, value: Any, place: str, depth: int) -> None:
        """Apply a schema to a value."""
        self.steps += 1
        if schema is False:
            self.fail(place, "may not be there")
        elif depth > DEEPEST or self.steps > MOST_STEPS:
            self.leave(place, "too deep or too large")
        elif isinstance(schema, dict):
            for word, said in schema.items():
                if isinstance(said, list):  # a long list is work, too
                    self.steps += len(said)
                if self.steps > MOST_STEPS:
                    self.leave(place, "too deep or too large")
                    break
                if word not in _IGNORED:
                    self._word(word, said, schema, (value, place, depth))
        elif schema is not True:
            self.leave(place, "a schema that is none")

    def _word(self, word: str, said: Any, schema: dict[str, Any], at: _At) -> None:
        value, place, _ = at
        listed = isinstance(said, list)
        if word == "type":
            self._type(said, value, place)
        elif word == "const" or (word == "enum" and listed):
            if not any(same(one, value) for one in (said if word == "enum" else [said])):
                self.fail(place, f"is not what {word} allows")
        elif word in _BOUNDS:
            self._bound(word, said, value, place)
        elif word in _BRANCHING and listed:
            self._branches(word, said, at)
        elif word == "$ref":
            self._ref(said, at)
        elif word in _OF_OBJECTS:
            self._object(word, said, schema, at)
        elif word == "items" and isinstance(said, dict | bool) and "prefixItems" not in schema:
            self._items(said, at)
        else:
            self.leave(place, word)

    def _type(self, said: Any, value: Any, place: str) -> None:
        kinds = said if isinstance(said, list) else [said]
        known = [kind for kind in kinds if isinstance(kind, str)]
        if len(known) != len(kinds) or not all(
            kind in _KINDS or kind in _NUMBERS for kind in known
        ):
            self.leave(place, "type")
        elif not any(_is(kind, value) for kind in known):
            self.fail(place, f"is not of type {' or '.join(known)}")

    def _bound(self, word: str, said: Any, value: Any, place: str) -> None:
        if isinstance(said, bool) or not isinstance(said, int | float):
            self.leave(place, word)
            return
        kind, below = _BOUNDS[word]
        measured = _measure(kind, value)
        if measured is None:
            return  # the word is about another kind of value
        strict = word.startswith("exclusive")
        wrong = measured > said if below else measured < said
        if wrong or (strict and measured == said):
            self.fail(place, f"breaks {word} {said:g}")

    def _object(self, word: str, said: Any, schema: dict[str, Any], at: _At) -> None:
        value, place, depth = at
        if not isinstance(value, dict):
            return
        if word == "properties" and isinstance(said, dict):
            for name in said.keys() & value.keys():
                self.apply(said[name], value[name], f"{place}.{name[:40]}", depth + 1)
        elif word == "required" and isinstance(said, list):
            for name in said:
                if isinstance(name, str) and name not in value:
                    self.fail(place, f"lacks {name[:40]!r}")
        elif word == "additionalProperties" and "patternProperties" not in schema:
            named = schema.get("properties")
            known = named.keys() if isinstance(named, dict) else frozenset[str]()
            for name in value.keys() - known:
                self.apply(said, value[name], f"{place}.{name[:40]}", depth + 1)
        else:
            self.leave(place, word)

    def _items(self, said: Any, at: _At) -> None:
        value, place, depth = at
        if isinstance(value, list):
            for index, item in enumerate(value):
                self.apply(said, item, f"{place}[{index}]", depth + 1)
                if len(self.errors) > _MOST_ERRORS or self.steps > MOST_STEPS:
                    break

    def _branches(self, word: str, said: list[Any], at: _At) -> None:
        value, place, depth = at
        if word == "allOf":
            for branch in said:
                self.apply(branch, value, place, depth + 1)
            return
        fitting: list[_Work] = []
        for branch in said:
            work = _Work(self.root, self.steps)
            work.apply(branch, value, place, depth + 1)
            self.steps = work.steps
            if not work.errors:
                fitting.append(work)
        sure = [work for work in fitting if not work.unchecked]
        if not fitting:
            self.fail(place, f"fits no branch of {word}")
        elif word == "oneOf" and len(sure) > 1:
            self.fail(place, "fits more than one branch of oneOf")
        elif not sure or (word == "oneOf" and len(fitting) > 1):
            self.unchecked += fitting[0].unchecked or [f"{word} at {place}"]

    def _ref(self, said: Any, at: _At) -> None:
        value, place, depth = at
        found: Any = self.root
        if not isinstance(said, str) or len(said) > 512 or said[:2] not in {"#", "#/"}:
            self.leave(place, "$ref")
            return
        for part in said.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        if found is None:
            self.leave(place, "$ref")
        else:
            self.apply(found, value, place, depth + 1)


_At = tuple[Any, str, int]  # a value, its place, the depth
_BRANCHING: Final = frozenset(("anyOf", "oneOf", "allOf"))
_OF_OBJECTS: Final = frozenset(("properties", "required", "additionalProperties"))
_NUMBERS: Final = frozenset(("number", "integer"))
_BOUNDS: Final = {  # what is measured, and whether the bound is from above
    "minimum": ("number", False),
    "exclusiveMinimum": ("number", False),
    "maximum": ("number", True),
    "exclusiveMaximum": ("number", True),
    "minLength": ("string", False),
    "maxLength": ("string", True),
    "minItems": ("array", False),
    "maxItems": ("array", True),
    "minProperties": ("object", False),
    "maxProperties": ("object", True),
}

_CHECKED: Final = frozenset(
    ("type", "enum", "const", "items", "$ref", *_BRANCHING, *_OF_OBJECTS, *_BOUNDS)
)


def unchecked_words(schema: Any) -> list[str]:
    """List the words of a schema that `check` would leave unchecked, wherever they stand in it."""
    found: list[str] = []
    left = [schema]
    while left and len(found) < MOST_STEPS:
        one = left.pop()
        if not isinstance(one, dict):
            continue
        found += [word for word in one if word not in _IGNORED and word not in _CHECKED]
        if isinstance(one.get("items"), list):
            found.append("items")
        for word in ("properties", "$defs", "definitions"):
            if isinstance(one.get(word), dict):
                left += one[word].values()
        for word in _BRANCHING:
            if isinstance(one.get(word), list):
                left += one[word]
        left += [one[word] for word in ("items", "additionalProperties") if word in one]
    return list(dict.fromkeys(found))


def same(one: Any, other: Any) -> bool:
    """Say whether two JSON values are equal: 1 is 1.0, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _is(kind: str, value: Any) -> bool:
    if kind in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return kind == "number" or isinstance(value, int) or value.is_integer()
    return isinstance(value, _KINDS[kind])


def _measure(kind: str, value: Any) -> int | float | None:
    if not _is(kind, value):
        return None
    return value if kind == "number" else len(value)
