"""Reads a client's JSON objects field by field, so that nothing in them is overlooked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lightgate.dialect.errors import BadField, Untranslatable
from lightgate.dialect.neutral.build import TOOL_WORDS
from lightgate.dialect.neutral.omit import Omissions
from lightgate.dialect.request import File, Image, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.dialect.request import Hosted, Part, Tool

_MEDIA: Final = re.compile(r"[\w.+-]+/[\w.+-]+")
_ADDRESS: Final = re.compile(r"https?://|data:image/[\w.+-]+[;,]", re.IGNORECASE)
_ANYWHERE: Final = re.compile(r"https?://|data:[\w.+-]+/[\w.+-]+[;,]", re.IGNORECASE)
_DATA_TYPE: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)[;,]", re.IGNORECASE)
_NOTHING: Final[tuple[object, ...]] = (None, [], {}, "")
_SNAKE: Final = re.compile(r"(?<=[a-z0-9])_([a-z0-9])")


class Sheet:
    """Facts of a request found so far, and the place in the body of each of them.

    `lost` are the names of tools that no other dialect has: a choice of one of them is none.
    """

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.places: dict[str, str] = {}
        self.lost: set[str] = set()

    def host(self, tool: Hosted, place: str) -> None:
        """Note a tool that the provider itself carries out."""
        if tool not in self.facts.get("hosted", ()):
            self.facts["hosted"] = (*self.facts.get("hosted", ()), tool)
            self.places[f"hosted.{tool}"] = place

    def put(self, fact: str, value: Any, place: str) -> None:
        """Note a fact, unless there is none."""
        if value is not None and value != ():
            self.facts[fact] = value
            self.places[fact] = place


class Fields:
    """Fields of one JSON object; each is taken once, null is none, `done` drops what is left.

    With `camel`, names in snake_case are read as camelCase, as Google's servers do. What is left
    out is noted in `out`; without it, nothing may be.
    """

    __slots__ = ("_camel", "_left", "out", "place")

    def __init__(
        self, value: Any, place: str, *, camel: bool = False, out: Omissions | None = None
    ) -> None:
        if not isinstance(value, dict):
            raise BadField(place, "must be an object")
        self.place = place
        self.out = Omissions(refuses=True) if out is None else out
        self._camel = camel
        self._left: dict[str, Any] = dict(value)
        if camel:
            self._left = {_SNAKE.sub(lambda m: m[1].upper(), k): v for k, v in value.items()}
            if len(self._left) != len(value):
                raise BadField(place, "has a field twice, in snake_case and in camelCase")

    def at(self, name: str) -> str:
        """Return the path of one of the fields."""
        return f"{self.place}.{name}" if self.place else name

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that have not been taken yet."""
        return tuple(self._left)

    def take(self, name: str) -> Any:
        """Take a field as it is; None if it is absent."""
        return self._left.pop(name, None)

    def peek(self, name: str) -> Any:
        """Look at a field without taking it."""
        return self._left.get(name)

    def text(self, name: str) -> str | None:
        """Take a string."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise BadField(self.at(name), "must be a string")
        return value

    def need_text(self, name: str) -> str:
        """Take a string that must be there."""
        value = self.text(name)
        if value is None:
            raise BadField(self.at(name), "is needed")
        return value

    def flag(self, name: str) -> bool | None:
        """Take true or false."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise BadField(self.at(name), "must be true or false")
        return value

    def number(self, name: str) -> float | None:
        """Take a number."""
        value = self.take(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise BadField(self.at(name), "must be a number")
        return value

    def whole(self, name: str) -> int | None:
        """Take a whole number; 64.0 is one."""
        value = self.number(name)
        if value is None:
            return None
        whole = int(value)
        if whole != value:
            raise BadField(self.at(name), "must be a whole number")
        return whole

    def json(self, name: str) -> dict[str, Any] | None:
        """Take an object as it is, to be handed on."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            raise BadField(self.at(name), "must be an object")
        return value

    def list(self, name: str) -> list[Any]:
        """Take a list, empty where there is none."""
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise BadField(self.at(name), "must be a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Take a list of strings."""
        found = self.list(name)
        for number, item in enumerate(found):
            if not isinstance(item, str):
                raise BadField(f"{self.at(name)}[{number}]", "must be a string")
        return tuple(found)

    def object(self, name: str) -> Fields | None:
        """Take an object to be taken apart."""
        value = self.take(name)
        if value is None:
            return None
        return Fields(value, self.at(name), camel=self._camel, out=self.out)

    def need_object(self, name: str) -> Fields:
        """Take an object that must be there."""
        value = self.object(name)
        if value is None:
            raise BadField(self.at(name), "is needed")
        return value

    def objects(self, name: str) -> Iterator[Fields]:
        """Take a list of objects to be taken apart."""
        for number, item in enumerate(self.list(name)):
            yield Fields(item, f"{self.at(name)}[{number}]", camel=self._camel, out=self.out)

    def ignore(self, *names: str) -> None:
        """Take fields that are said in another way, or that the gateway itself carries out."""
        for name in names:
            self.take(name)

    def leave(self, *names: str) -> None:
        """Leave out fields that have no effect on what the answer says; empty ones are none."""
        for name in names:
            if self.take(name) not in _NOTHING:
                self.out.leave(self.at(name))

    def hint(self, name: str, *plain: Any) -> None:
        """Take a field that says how to answer; any but the plain values is dropped."""
        value = self.take(name)
        if value is not None and not _is_one_of(value, plain):
            self.out.drop(self.at(name))

    def only(self, name: str, *plain: Any) -> None:
        """Take a field that may only have one of the plain values; anything else is refused."""
        value = self.take(name)
        if value is not None and not _is_one_of(value, plain):
            raise Untranslatable(self.at(name))

    def refuse(self, name: str, why: str = "") -> None:
        """Refuse a field without which the answer would mean something else, if it is there."""
        if self.peek(name) is not None:
            raise Untranslatable(self.at(name), why)

    def done(self) -> None:
        """Drop the fields that were not taken: no reader knows them."""
        for name, value in self._left.items():
            if value is not None:
                self.out.drop(self.at(name))


def _is_one_of(value: Any, plain: tuple[Any, ...]) -> bool:
    return any(
        value == word and isinstance(value, bool) == isinstance(word, bool) for word in plain
    )


class FileName(NamedTuple):
    """The name of a file, and where it was said."""

    text: str
    place: str


NO_NAME: Final = FileName("", "")


def named(fields: Fields, name: str) -> FileName:
    """Take the name of a file, where there is one."""
    text = fields.text(name)
    return FileName(text, fields.at(name)) if text else NO_NAME


def image_at(url: str, place: str, *, detail: str | None = None) -> Image:
    """Make an image of its address; only web and data: addresses can be read by every provider."""
    if not _ADDRESS.match(url):
        raise Untranslatable(place, "an image is named by an http, https or data: address")
    if detail in {None, "auto"}:
        return Image(url=url)
    return Image(url=url, detail=detail, place=f"{place.rpartition('.')[0]}.detail")


def media_at(url: str, media_type: str, place: str, name: FileName = NO_NAME) -> Image | File:
    """Make an image, a document or a sound of its address."""
    if media_type.startswith("image/"):
        return msgspec.structs.replace(image_at(url, place), media_type=media_type)
    if not _ANYWHERE.match(url):
        raise Untranslatable(place, "a file is named by an http, https or data: address")
    return File(url=url, media_type=media_type, name=name.text, place=name.place)


def media_of(media_type: str, data: str, place: str, name: FileName = NO_NAME) -> Image | File:
    """Make an image, a document or a sound of base64 text."""
    if not _MEDIA.fullmatch(media_type):
        raise BadField(place, "must be a media type such as 'image/png'")
    if media_type.startswith("image/"):
        return Image(url=f"data:{media_type};base64,{data}")
    url = f"data:{media_type};base64,{data}"
    return File(url=url, media_type=media_type, name=name.text, place=name.place)


def file_at(url: str, place: str, name: FileName = NO_NAME) -> Image | File:
    """Make a document of its address; a data: address says what it is, others are taken for PDF."""
    found = _DATA_TYPE.match(url)
    return media_at(url, found[1] if found else "application/pdf", place, name)


def content_of(parts: list[Part], *, joined: bool = False) -> str | tuple[Part, ...]:
    """Return content in its plainest form: one text is a string; `joined` makes one of many."""
    texts = [part.text for part in parts if isinstance(part, Text) and not part.signature]
    if len(texts) == len(parts) and (joined or len(texts) < 2):
        return "".join(texts)
    return tuple(parts)


def text_of(fields: Fields) -> Text:
    """Read a part whose text is under that name."""
    return Text(fields.need_text("text"))


def choose(sheet: Sheet, name: str, place: str, out: Omissions) -> None:
    """Note that one tool must be called; one that was dropped cannot be."""
    if name in TOOL_WORDS:
        raise Untranslatable(place, f"a tool named {name!r}")
    if name in sheet.lost:
        out.drop(place, "the tool is not known there")
    else:
        sheet.put("tool_choice", name, place)


def allow(sheet: Sheet, names: set[str], place: str) -> None:
    """Keep only the tools that may be called; no dialect but OpenAI's has a list of its own."""
    tools: tuple[Tool, ...] = sheet.facts.get("tools", ())
    known = {tool.name for tool in tools}
    if not names or names - known - sheet.lost:
        raise BadField(place, "must name tools of this request")
    kept = tuple(tool for tool in tools if tool.name in names)
    if kept:
        sheet.put("tools", kept, sheet.places["tools"])
    elif tools:
        del sheet.facts["tools"]


def closed(schema: Any, *, root: bool = True) -> bool:
    """Say whether a schema is strict by OpenAI's rules: objects closed, all properties required."""
    if isinstance(schema, list):
        return all(closed(item, root=False) for item in schema)
    if not isinstance(schema, dict):
        return True
    kind = schema.get("type")
    whole = (
        kind == "object" or "properties" in schema or (isinstance(kind, list) and "object" in kind)
    )
    if root and not whole:
        return False
    inner = schema.get("properties")
    properties = inner if isinstance(inner, dict) else {}
    if whole:
        required = schema.get("required")
        named = required if isinstance(required, list) else []
        if schema.get("additionalProperties") is not False or any(
            p not in named for p in properties
        ):
            return False
    defs = schema.get("$defs")
    below = [*properties.values(), *(defs.values() if isinstance(defs, dict) else ())]
    below += [schema.get(word) for word in ("items", "anyOf", "oneOf", "allOf")]
    return all(closed(item, root=False) for item in below)
