"""Puts a JSON schema into the part of JSON schema that Anthropic binds answers to.

Objects must be closed, and limits on numbers and lengths are not known: those become words of the
description, as Anthropic's own SDKs have it. What cannot be said at all is asked for in words.
"""

from __future__ import annotations

from typing import Any, Final

_KEPT: Final = frozenset(
    (
        *("type", "title", "description", "enum", "const", "default", "required", "$ref"),
        *("pattern", "properties", "items", "anyOf", "allOf", "oneOf", "$defs"),
        "definitions",
    )
)
_FORMATS: Final = frozenset(
    (
        *("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6"),
        "uuid",
    )
)
_CHOICES: Final = ("anyOf", "allOf", "oneOf")
_NAMED: Final = ("properties", "$defs", "definitions")
_SKIPPED: Final = frozenset({"additionalProperties", "$schema", "$id"})
_NEVER: Final = frozenset(
    ("not", "if", "then", "else", "patternProperties", "prefixItems", "dependentSchemas")
)


class _Unsayable(Exception):  # noqa: N818 - a way out of the recursion
    """The schema has a rule that cannot be said here."""


def native_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema as Anthropic takes it; None where it can only be asked for in words."""
    try:
        if not _is_object(schema) or _circular(schema):
            return None
        made: dict[str, Any] = _put(schema)
    except (_Unsayable, RecursionError):
        return None
    return made


def _put(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    limits: list[str] = []
    for word, value in schema.items():
        if word in _NEVER:
            raise _Unsayable
        if _is_known(word, value):
            out["anyOf" if word == "oneOf" else word] = _inside(word, value)
        elif word not in _SKIPPED:
            limits.append(f"{word}: {value}")
    if limits:
        said = [out["description"]] if isinstance(out.get("description"), str) else []
        out["description"] = " ".join([*said, f"({', '.join(limits)})"])
    if _is_object(schema):
        if not schema.get("properties") or schema.get("additionalProperties", False) is not False:
            raise _Unsayable  # any field may come: no list of them can be closed
        out["additionalProperties"] = False
    return out


def _is_known(word: str, value: Any) -> bool:
    if word == "format":
        return isinstance(value, str) and value in _FORMATS
    return word in _KEPT or (word == "minItems" and value in (0, 1))


def _inside(word: str, value: Any) -> Any:
    """Put what is nested, too."""
    if word in _CHOICES:
        return [_put(one) for one in value] if isinstance(value, list) else []
    if word in _NAMED:
        return {name: _put(one) for name, one in value.items()} if isinstance(value, dict) else {}
    return _put(value) if word == "items" else value


def _is_object(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return "object" in kinds or "properties" in schema


def _circular(schema: dict[str, Any]) -> bool:
    """Say whether a definition holds itself, which is not taken."""
    known: dict[str, Any] = {}
    for word in ("$defs", "definitions"):
        named = schema.get(word)
        known |= named if isinstance(named, dict) else {}
    uses = {name: _uses(one) for name, one in known.items()}
    for name in known:
        seen: set[str] = set()
        left = set(uses[name])
        while left:
            one = left.pop()
            if one == name:
                return True
            if one not in seen:
                seen.add(one)
                left |= uses.get(one, set())
    return "" in _uses(schema)


def _uses(value: Any) -> set[str]:
    """Return the definitions that a schema refers to; "" is the whole schema."""
    if isinstance(value, list):
        return {name for one in value for name in _uses(one)}
    if not isinstance(value, dict):
        return set()
    found = {name for one in value.values() for name in _uses(one)}
    where = value.get("$ref")
    if isinstance(where, str):
        found.add("" if where == "#" else where.rpartition("/")[2])
    return found
