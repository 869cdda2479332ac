"""What the four readers share: images, pieces of content, tools and the choice among them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.facts import TOOL_WORDS, Untranslatable
from lightgate.dialect.read.fields import BadField
from lightgate.dialect.request import Image, Text

if TYPE_CHECKING:
    from lightgate.dialect.read.fields import Fields, Sheet
    from lightgate.dialect.request import Part, Tool

_MEDIA: Final = re.compile(r"image/[\w.+-]+")
_ADDRESS: Final = re.compile(r"https?://|data:image/[\w.+-]+[;,]", re.IGNORECASE)


def image_at(url: str, place: str, *, detail: str | None = None) -> Image:
    """Make an image of its address; only the web's and data: can be handed to anybody."""
    if not _ADDRESS.match(url):
        raise Untranslatable(place, "an image is named by an http, https or data: address")
    return Image(url=url, detail=None if detail == "auto" else detail)


def image_of(media_type: str, data: str, place: str) -> Image:
    """Make an image of base64 text."""
    if not _MEDIA.fullmatch(media_type):
        raise Untranslatable(place, "only images can be translated")
    return Image(url=f"data:{media_type};base64,{data}")


def content_of(parts: list[Part], *, joined: bool = False) -> str | tuple[Part, ...]:
    """Return content in its plainest form: one text is a string; `joined` makes one of many."""
    texts = [part.text for part in parts if isinstance(part, Text) and not part.signature]
    if len(texts) == len(parts) and (joined or len(texts) < 2):
        return "".join(texts)
    return tuple(parts)


def text_of(fields: Fields) -> Text:
    """Read a part whose text is under that name."""
    return Text(fields.need_text("text"))


def choose(sheet: Sheet, name: str, place: str) -> None:
    """Note that one tool must be called."""
    if name in TOOL_WORDS:
        raise Untranslatable(place, f"a tool named {name!r}")
    sheet.put("tool_choice", name, place)


def allow(sheet: Sheet, names: set[str], place: str) -> None:
    """Keep only the tools that may be called; no dialect but OpenAI's has a list of its own."""
    tools: tuple[Tool, ...] = sheet.facts.get("tools", ())
    unknown = names - {tool.name for tool in tools}
    if unknown or not names:
        raise BadField(place, "must name tools of this request")
    sheet.put("tools", tuple(tool for tool in tools if tool.name in names), sheet.places["tools"])


def closed(schema: Any, *, root: bool = True) -> bool:
    """Whether a schema meets OpenAI's rules for strict: objects closed, all properties required."""
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
