"""Read a provider's JSON leniently; write JSON and events that no text inside them can break.

Every value is serialised as a whole: nothing that a provider said is put between bytes of ours.
"""

from __future__ import annotations

import json
import math
from itertools import accumulate
from typing import Annotated, Any, Final, TypeVar

import msgspec

from lightgate.dialect.neutral.numbers import any_json

MOST: Final = 1 << 40  # tokens; more than this is no count
DEEPEST: Final = 500  # levels of nesting; every interpreter reads so many, each has another limit
Object = dict[str, Any]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)] | None  # of tokens
T = TypeVar("T")

SHALLOW_BYTES: Final = 2 * DEEPEST  # JSON that is no longer cannot be too deep
_encode: Final = msgspec.json.Encoder().encode
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
# JSON lets these stand as they are, but line readers of some clients end a line at each of them.
_LINE_ENDS: Final = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)
_NEITHER: Final = bytes(sorted(set(range(256)) - set(b'{[]}"')))  # a bracket nor a quote
_NO_MARK: Final = bytes(sorted(set(range(256)) - set(b'{[]},:"')))
MOST_OBJECTS: Final = 5000  # objects and lists of one event of a stream
MOST_MARKS: Final = 50_000  # brackets, commas and colons of one event: 25,000 fields of an object
DEEPEST_WITHIN: Final = 256  # levels of the arguments of a call
MOST_WITHIN: Final = 100_000  # objects and lists in a text; to look at so many takes some 20 ms
_MOST_ODD: Final = 20_000  # brackets and commas of a text that is made into values, in some 20 ms
_PLAIN_LEVELS: Final = 16  # few bodies are nested deeper
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_OPENS: Final = ord("[")
_BILLS: Final = frozenset({"usage", "usageMetadata"})  # fields of token counts
_BILLED: Final = ("message", "response", "x_groq")  # objects that may hold token counts


def decoded(decoder: msgspec.json.Decoder[T], data: bytes) -> T | None:
    """Decode into the decoder's type; None for what is not JSON of that shape.

    Halves of an emoji, cut at a chunk's end as lone surrogates or broken UTF-8, are let through,
    and what stands in place of a token count is left out.
    """
    if not data or (len(data) > SHALLOW_BYTES and too_deep(data)):
        return None
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError):
        pass
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    try:
        return msgspec.convert(value, decoder.type)
    except (ValueError, RecursionError):
        pass
    try:
        return msgspec.convert(_with_counts(value), decoder.type)
    except (ValueError, RecursionError):
        return None


def _with_counts(value: Any) -> Any:
    """Leave out what is no token count: an answer is not refused for its bill."""
    for chunk in dicts_of(value if isinstance(value, list) else [value]):
        for holder in dicts_of([chunk, *(chunk.get(name) for name in _BILLED)]):
            for name in holder.keys() & _BILLS:
                bill = dict_of(holder[name])
                holder[name] = {key: _counts(key, said) for key, said in bill.items()} or None
    return value


def _counts(key: str, said: Any) -> dict[str, int | None] | int | None:
    if key.endswith("_details"):
        return {inner: _count(one) for inner, one in dict_of(said).items()}
    return _count(said)


def _count(value: Any) -> int | None:
    """Read a token count; None for what cannot be one."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if not whole or isinstance(value, bool) or not 0 <= value <= MOST:
        return None
    return int(value)


def value_of(raw: bytes | str | None) -> Any:
    """Decode any JSON; None for what is none."""
    try:
        return None if raw is None else any_json.decode(raw)
    except (ValueError, RecursionError):
        return None


def object_within(text: str, *, odd: bool = True) -> msgspec.Raw | None:
    """Return the JSON object that a text is, in one line; None for what is none, or is too much.

    Arguments of calls and results of tools are such texts. Their values are not made: thousands of
    objects would cost a hundred times the memory of the text, and hold a loop ten times as long.
    `odd`: half an emoji stays in it, and a number that is none becomes null. A client that gets an
    answer lives with that; providers refuse the one, and the other is not what the client said.
    """
    data = text.encode("utf-8", "backslashreplace")  # half of an emoji stays as its escape
    if holds_more(data, MOST_WITHIN):
        return None
    try:
        line = msgspec.json.format(data, indent=-1)
        if not odd:
            _fields.decode(line)  # refuses half an emoji, which `format` passes over
    except (ValueError, RecursionError):
        return _odd_object(data) if odd else None
    deep = len(line) > DEEPEST_WITHIN and too_deep(line, DEEPEST_WITHIN)
    return msgspec.Raw(line) if line[:1] == b"{" and not deep else None


def _odd_object(data: bytes) -> msgspec.Raw | None:
    """Read an object with an escape of half an emoji in it, or with a number that is none: null."""
    if data.count(b"{") + data.count(b"[") + data.count(b",") > _MOST_ODD:
        return None
    if too_deep(data, DEEPEST_WITHIN):
        return None
    try:
        value = odd_value(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return msgspec.Raw(as_json(value).encode("utf-8", "backslashreplace"))


def odd_value(data: bytes) -> Any:
    """Decode JSON with halves of an emoji, or with numbers that are none or too long: null."""
    return json.loads(
        data.decode(), parse_constant=_finite, parse_float=_finite, parse_int=_whole_number
    )


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _whole_number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:  # thousands of digits
        return None


def as_json(value: Any) -> str:
    """Write arguments that came as an object as the text that the model wrote."""
    try:
        return _written(value, ascii_only=False)
    except RecursionError:  # nested deeper than any argument is
        return ""


def _written(value: Any, *, ascii_only: bool) -> str:
    """Write JSON with halves of an emoji; a number that is none is null, as msgspec has it."""
    try:
        return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"), allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(value), parse_constant=_finite)
        return json.dumps(finite, ensure_ascii=ascii_only, separators=(",", ":"))


def dict_of(value: Any) -> Object:
    """Return an object, empty in place of anything else."""
    return value if isinstance(value, dict) else {}


def dicts_of(value: Any) -> list[Object]:
    """Return the objects of a list; none of anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def dumped(value: Any) -> bytes:
    """Serialise to one line of JSON; halves of an emoji survive as escapes."""
    try:
        data = _encode(value)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, enc_hook=_made)
        return _written(plain, ascii_only=True).encode("ascii")
    if not data.isascii():
        for raw, escaped in _LINE_ENDS:
            data = data.replace(raw, escaped)
    return data


def _made(raw: Any) -> Any:
    """Make values of JSON that stands among values."""
    return odd_value(bytes(raw))


def event(value: Any) -> bytes:
    """Write an event without a name."""
    return b"data: %b\n\n" % dumped(value)


def named(name: bytes, value: Any) -> bytes:
    """Write an event with a name of our own."""
    return b"event: %b\ndata: %b\n\n" % (name, dumped(value))


def holds_more(data: bytes, most: int) -> bool:
    """Say whether JSON has more than so many objects and lists; brackets in texts do not count."""
    if data.count(b"{") + data.count(b"[") <= most:
        return False
    return _brackets(data).count(b"[") > most


def too_full(data: bytes) -> bool:
    """Say whether one event of a stream holds more values than can be read in one go.

    Up to 4 us pass for each object, and 1.5 us for each field, where an event is read twice: for
    the clock, and to be translated or put together.
    """
    if len(data) <= 2 * MOST_OBJECTS:
        return False
    nests = data.count(b"{") + data.count(b"[")
    if nests <= MOST_OBJECTS and 2 * nests + data.count(b",") + data.count(b":") <= MOST_MARKS:
        return False
    marks = marks_of(data)
    return are_many(len(marks), marks.count(b"{") + marks.count(b"["))


def are_many(marks: int, objects: int) -> bool:
    """Say whether so many marks, or objects and lists, are too many for one event of a stream."""
    return marks > MOST_MARKS or objects > MOST_OBJECTS


def marks_of(data: bytes) -> bytes:
    """Return the brackets, commas and colons of JSON, without those in its texts."""
    return _outside_texts(data, None, _NO_MARK)


def name_count(data: bytes) -> int:
    """Count the names in the objects of JSON, each as often as it stands there."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(data.split(b'"')[::2]).count(b":")


def too_deep(data: bytes, most: int = DEEPEST) -> bool:
    """Say whether JSON is nested deeper than any request or answer is, or than `most` levels.

    Asked before every reading of more than `SHALLOW_BYTES`: how deep a decoder goes depends on the
    interpreter's version, and on how deep its own calls are nested at that moment.
    """
    if data.count(b"{") + data.count(b"[") <= most:
        return False
    brackets = _brackets(data)
    for _ in range(_PLAIN_LEVELS):  # the innermost level goes each time: much faster than counting
        brackets = brackets.replace(b"[]", b"")
        if len(brackets) <= most:
            return False
    steps = (1 if one == _OPENS else -1 for one in brackets)
    return max(accumulate(steps)) > most - _PLAIN_LEVELS


def _brackets(data: bytes) -> bytes:
    """Return the brackets of JSON, all of them square, without those in its texts."""
    return _outside_texts(data, _SQUARE, _NEITHER)


def _outside_texts(data: bytes, table: bytes | None, dropped: bytes) -> bytes:
    """Return what stands between the texts of JSON, translated by a table, without some bytes."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    found = data.translate(table, dropped).replace(b'""', b"")
    return b"".join(found.split(b'"')[::2]) if b'"' in found else found
