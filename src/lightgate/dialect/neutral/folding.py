"""Folds the pieces of a stream together: texts are joined, lists go on, facts are kept.

Whole objects are folded, not typed events: an assembled answer keeps the fields that are read
nowhere else, as the provider sent them.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from lightgate.dialect.neutral.json_text import Object, as_json, decoded, dumped, marks_of
from lightgate.dialect.neutral.numbers import number
from lightgate.errors import Malformed

# Facts about a piece, not text: the first word stays when later pieces repeat it.
ONCE: Final = frozenset({"id", "type", "role", "name", "object", "format", "call_id", "index"})
_DEPTH: Final = 4  # of the objects in which pieces are joined; what is deeper is taken as it comes
PIECE: Final = 32  # bytes that a piece, a field or an object counts for beside its text
VALUE: Final = 16  # likewise a value that is handed on as it came, as log probabilities are
ITEM: Final = 2048  # likewise a choice, a call, a part or a block, which takes some 10 us to tell
_objects: Final = msgspec.json.Decoder(Object, float_hook=number)
_encode: Final = msgspec.json.Encoder().encode


class Assembler(Protocol):
    """Assembles one answer from its events; `size` is how many bytes it has, nearly."""

    size: int

    def event(self, name: bytes, data: bytes) -> None:
        """Take one event; what is no part of an answer is passed over."""

    def whole(self) -> bytes:
        """Return the answer as one body; Malformed where the events make none."""
        ...


class Said(list[str]):
    """A text in pieces; joined once, at the end."""


class Grown(list[Object]):
    """A list of objects with texts in pieces; other lists are taken as they come."""


def object_of(data: bytes) -> Object | None:
    """Decode the object of one event; None for a marker and for what is no object."""
    return decoded(_objects, data)


def placed(known: dict[int, Object], piece: Object) -> tuple[Object, int]:
    """Find what a piece goes on with, by its index, and the bytes that it takes to begin it."""
    index = piece.get("index")
    place = index if isinstance(index, int) else 0
    if place in known:
        return known[place], 0
    known[place] = {}
    return known[place], ITEM


def say(into: Object, name: str, text: str) -> int:
    """Go on with a text; return the bytes that it takes, nearly."""
    said = into.get(name)
    if isinstance(said, Said):
        said.append(text)
    else:
        into[name] = Said((text,))
    return PIECE + _bytes(text)


def keep(into: Object, fields: Object, depth: int = _DEPTH) -> int:
    """Take facts that the last event knows best; nothing replaces something, not so the reverse."""
    size = 0
    for name, value in fields.items():
        known = into.get(name)
        if isinstance(known, dict) and isinstance(value, dict) and depth:
            size += keep(known, value, depth - 1)
        elif name not in into or (value is not None and value != ""):
            size += _field(into, name) + weight(value) - weight(known)
            into[name] = value
    return size


def fold(into: Object, delta: Object, depth: int = _DEPTH) -> int:
    """Take a delta: texts and lists go on, objects are folded, all else is replaced.

    Returns how many bytes the whole has grown by, nearly.
    """
    size = 0
    for name, value in delta.items():
        known = into.get(name)
        size += _field(into, name)
        if value is None:
            into.setdefault(name, None)
        elif isinstance(value, str):
            if name not in ONCE:
                size += say(into, name, value)
            elif not known:
                into[name] = value
                size += _bytes(value)
        elif isinstance(value, list) and type(known) is list:
            known.extend(value)
            size += weight(value)
        elif isinstance(value, dict) and depth:
            if not isinstance(known, dict):
                known = into[name] = {}
            size += fold(known, value, depth - 1)
        else:
            into[name] = value
            size += weight(value)
    return size


def joined(value: Any, depth: int = 2 * _DEPTH) -> Any:
    """Return the value with its texts joined."""
    if isinstance(value, Said):
        return "".join(value)
    if not depth:
        return value
    if isinstance(value, dict):
        return {name: joined(one, depth - 1) for name, one in value.items()}
    if isinstance(value, Grown):
        return [joined(one, depth - 1) for one in value]
    return value


def encoded(whole: Object) -> bytes:
    """Encode a whole answer; the halves of an emoji from two pieces are one again."""
    try:
        return dumped(whole)
    except RecursionError:
        raise Malformed("The answer is nested too deeply.") from None


def weight(value: Any) -> int:
    """Return the bytes that a value counts for."""
    if isinstance(value, str):
        return _bytes(value)
    if not isinstance(value, (list, dict)):
        return 0
    try:
        return raw_weight(_encode(value), VALUE)
    except UnicodeEncodeError:  # half of an emoji
        return raw_weight(as_json(value).encode("utf-8", "surrogatepass"), VALUE)
    except RecursionError:
        return len(repr(value))


def raw_weight(data: bytes, each: int = PIECE) -> int:
    """Return the bytes that JSON counts for: a small value takes more time than its bytes say."""
    return len(data) + each * (len(marks_of(data)) // 2)


def values_weight(piece: str) -> int:
    """Return the bytes that values count for in a piece of JSON that is read when it is whole.

    What is a text in it is not known yet: the marks in texts count, too.
    """
    return PIECE * (sum([piece.count(mark) for mark in "{}[],:"]) // 2)


def _field(into: Object, name: str) -> int:
    """Return the bytes that a field counts for where it is new."""
    return 0 if name in into else PIECE + len(name)


def _bytes(text: str) -> int:
    """Return the bytes of a text in JSON, where a new line has two and a control character six."""
    return len(dumped(text)) - 2
