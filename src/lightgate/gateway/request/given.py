"""Count what a request gives beside text: pictures, files and sound, by address or by value.

A provider bills them by what they hold, which no number of bytes of the request tells: a picture by
address is sixty bytes and thousands of tokens. For a key with a budget the most that each can cost
is reserved.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

# A body without any of these gives nothing but text; an escape may hide one of them.
_SIGNS: Final = (b"image", b"file", b"audio", b"document", b"inline", b"video", b"\\u")
_IMAGES: Final = frozenset(("image_url", "input_image", "image"))
_FILES: Final = frozenset(("file", "input_file", "document", "video", "input_video", "video_url"))
_SOUNDS: Final = frozenset(("input_audio", "audio"))
_BY_VALUE: Final = frozenset(("data", "url", "image_url", "file_data", "file_url"))
_GEMINI: Final = ("inlineData", "inline_data", "fileData", "file_data")
_LONG: Final = 256  # characters of a value that is no text


class Given(msgspec.Struct):
    """The parts of a request that are no text; `value_bytes` are those given in the body itself."""

    images: int = 0
    files: int = 0
    sounds: int = 0
    value_bytes: int = 0


NOTHING: Final = Given()


def given_parts(body: bytes) -> Given:
    """Count the parts of a body; one that cannot be read gives nothing, it is refused elsewhere."""
    if not any(sign in body for sign in _SIGNS):
        return NOTHING
    try:
        root = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return NOTHING
    found = Given()
    left: list[Any] = [root]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            _count(found, value)
            left += value.values()
    return found


def _count(found: Given, part: dict[str, Any]) -> None:
    kind = part.get("type")
    media = ""
    for name in _GEMINI:
        held = part.get(name)
        if isinstance(held, dict):
            media = str(held.get("mimeType") or held.get("mime_type") or "file")
    if kind in _IMAGES or media.startswith("image/"):
        found.images += 1
    elif kind in _SOUNDS or media.startswith("audio/"):
        found.sounds += 1
    elif kind in _FILES or media:
        found.files += 1
    for name, value in part.items():
        if name in _BY_VALUE and isinstance(value, str) and len(value) > _LONG:
            found.value_bytes += len(value)
