"""Count what a request gives beside text: pictures, files and sound, by address or by value.

A provider bills them by what they hold, which no number of bytes of the request tells: a picture by
address is sixty bytes and thousands of tokens. For a key with a budget the most that each can cost
is reserved.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from lightgate.dialect.neutral.json_text import name_count
from lightgate.dialect.neutral.numbers import any_json
from lightgate.gateway.request.parts import FILES, IMAGES, SOUNDS, references, unknown_parts

# A body without any of these gives nothing but text; an escape may hide one of them.
_SIGNS: Final = (b'"type"', b"image", b"file", b"audio", b"inline", b"video", b"parts",
                 b'"tools"', b'"search_parameters"', b'"plugins"')  # fmt: skip
_ESCAPE: Final = b"\\"  # one byte is found far quicker than two
_PARTS: Final = re.compile(rb'"(?:content|input|system)"\s*:\s*[\[{]')  # without a type, perhaps
_BY_VALUE: Final = frozenset(("data", "url", "image_url", "file_data", "file_url"))
_GEMINI: Final = ("inlineData", "inline_data", "fileData", "file_data")
_LONG: Final = 256  # characters of a value that is no text
# Values of clients' own tools: whatever they are named, a provider reads them as text.
_FREE: Final = frozenset(
    ("args", "response", "parameters", "input_schema", "schema", "parametersJsonSchema", "metadata")
)
_CALLS: Final = ("tool_use", "server_tool_use", "mcp_tool_use")  # whose `input` is such a value


class Given(msgspec.Struct):
    """The parts of a request that are no text; `value_bytes` are those given in the body itself."""

    images: int = 0
    files: int = 0
    sounds: int = 0
    value_bytes: int = 0
    unknown: int = 0  # parts that nobody here can bound
    doubled: bool = False  # a name stands twice in one object: readers differ in which one counts


NOTHING: Final = Given()


def given_parts(body: bytes, dialect: str) -> Given:
    """Count the parts of a body; one that cannot be read gives nothing, it is refused elsewhere."""
    for sign in _SIGNS:
        if sign in body:
            break
    else:
        if not (_ESCAPE in body and b"\\u" in body) and _PARTS.search(body) is None:
            return NOTHING
    try:
        root = any_json.decode(body)
    except (ValueError, RecursionError):
        return NOTHING
    found = Given(files=references(dialect, root), unknown=unknown_parts(dialect, root))
    left: list[tuple[Any, bool]] = [(root, False)]
    names = 0
    while left:
        value, free = left.pop()
        if isinstance(value, list):
            left += [(each, free) for each in value]
        elif isinstance(value, dict):
            names += len(value)
            if _count(found, value) and not free:
                found.value_bytes += _by_value(value)
            calls = value.get("type") in _CALLS
            left += [
                (each, free or name in _FREE or (calls and name == "input"))
                for name, each in value.items()
            ]
    found.doubled = name_count(body) > names
    return found


def _count(found: Given, part: dict[str, Any]) -> bool:
    """Count an object that is a part, and say whether it was one."""
    kind = part.get("type")
    kind = kind if kind is None or isinstance(kind, str) else ""
    if kind is None and part.get("role") == "assistant" and isinstance(part.get("audio"), dict):
        kind = "audio"  # an earlier answer, by its id
    media = ""
    for name in _GEMINI:
        held = part.get(name)
        if isinstance(held, dict):
            media = str(held.get("mimeType") or held.get("mime_type") or "file")
    if kind in IMAGES or media.startswith("image/"):
        found.images += 1
    elif kind in SOUNDS or media.startswith("audio/"):
        found.sounds += 1
    elif kind in FILES or media:
        found.files += 1
    else:
        return False
    return True


def _by_value(part: dict[str, Any]) -> int:
    """The bytes of what a part holds itself, or the object in it."""
    holders = [part, *(value for value in part.values() if isinstance(value, dict))]
    return sum(
        len(value)
        for holder in holders
        for name, value in holder.items()
        if name in _BY_VALUE and isinstance(value, str) and len(value) > _LONG
    )
