"""Turns Gemini's own kind of schema, a part of OpenAPI 3.0, into JSON schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.errors import BadField
from lightgate.dialect.neutral.fields import Fields

if TYPE_CHECKING:
    from lightgate.dialect.neutral.omit import Omissions

_AS_IS: Final = ("title", "description", "pattern", "default", "minimum", "maximum", "required")
_COUNTS: Final = (
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
)


def json_schema(value: Any, place: str, lost: Omissions | None = None) -> dict[str, Any]:
    """Translate a schema; an unknown word in it is dropped into `lost`, or refused without."""
    said = Fields(value, place, camel=True, out=lost)
    out: dict[str, Any] = {}
    kind = (said.text("type") or "type_unspecified").lower()
    if kind != "type_unspecified":
        out["type"] = kind
    for name in _AS_IS:
        found = said.take(name)
        out |= {name: found} if found is not None else {}
    for name in _COUNTS:
        found = said.take(name)
        out |= {name: _count(found, said.at(name))} if found is not None else {}
    _words(said, out)
    _inside(said, out)
    if said.flag("nullable"):
        _nullable(out)
    said.done()
    return out


def _words(said: Fields, out: dict[str, Any]) -> None:
    words = said.texts("enum")
    if words:
        out["enum"] = list(words)
    form = said.text("format")
    if form is not None and not (form == "enum" and words):  # Gemini's mark of an enumeration
        out["format"] = form
    example = said.take("example")
    if example is not None:
        out["examples"] = [example]


def _inside(said: Fields, out: dict[str, Any]) -> None:
    """Translate what is nested; an order of properties is said by their order."""
    properties = said.json("properties")
    order = said.texts("propertyOrdering")
    if properties is not None:
        names = [*(name for name in order if name in properties), *properties]
        place = said.at("properties")
        out["properties"] = {
            name: json_schema(properties[name], f"{place}.{name}", said.out)
            for name in dict.fromkeys(names)
        }
    extra = said.take("additionalProperties")
    if extra is not None:
        place = said.at("additionalProperties")
        out["additionalProperties"] = (
            extra if isinstance(extra, bool) else json_schema(extra, place, said.out)
        )
    items = said.take("items")
    if items is not None:
        out["items"] = json_schema(items, said.at("items"), said.out)
    choices = said.list("anyOf")
    if choices:
        place = said.at("anyOf")
        out["anyOf"] = [
            json_schema(item, f"{place}[{n}]", said.out) for n, item in enumerate(choices)
        ]


def _nullable(out: dict[str, Any]) -> None:
    if "type" in out:
        out["type"] = [out["type"], "null"]
    elif "anyOf" in out:
        out["anyOf"] = [*out["anyOf"], {"type": "null"}]
    if "enum" in out:
        out["enum"] = [*out["enum"], None]


def _count(value: Any, place: str) -> int:
    """Read a count, which Google's JSON writes as a string, being 64 bits wide."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadField(place, "must be a whole number")
    return value
