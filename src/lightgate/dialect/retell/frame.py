"""Writes JSON documents and server-sent events that no text inside them can break out of.

Every value is serialised as a whole; nothing a provider said is ever put between bytes of ours.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder().encode
# JSON lets these stand as they are, but line readers of some clients end a line at each of them.
_LINE_ENDS: Final = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)


def dumped(value: Any) -> bytes:
    """Serialise to one line of JSON; halves of an emoji survive as escapes."""
    try:
        data = _encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode("ascii")
    if not data.isascii():
        for raw, escaped in _LINE_ENDS:
            data = data.replace(raw, escaped)
    return data


def event(value: Any) -> bytes:
    """Write an event without a name."""
    return b"data: %b\n\n" % dumped(value)


def named(name: bytes, value: Any) -> bytes:
    """Write an event with one of our own names."""
    return b"event: %b\ndata: %b\n\n" % (name, dumped(value))
