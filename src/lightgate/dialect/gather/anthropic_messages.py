"""Gathers a stream of Anthropic messages."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lightgate.dialect.gather.folding import (
    PIECE,
    Object,
    Said,
    encoded,
    fold,
    keep,
    read,
    say,
    told,
)
from lightgate.errors import Malformed

_INPUT: Final = " input"  # where a block keeps the JSON of its input: no provider's name
_CUT: Final = frozenset({"max_tokens", "model_context_window_exceeded"})


class MessagesGatherer:
    """The message as it began, its blocks by index, and what the last events added to it."""

    __slots__ = ("_blocks", "_message", "size")

    def __init__(self) -> None:
        self._message: Object = {}
        self._blocks: dict[int, Object] = {}
        self.size = 0

    def event(self, name: bytes, data: bytes) -> None:
        """Take one event."""
        event = read(data)
        if event is None:
            return
        kind = event.get("type") or name.decode("latin-1")
        index = event.get("index")
        place = index if isinstance(index, int) else 0
        delta = event.get("delta")
        if kind == "content_block_delta" and isinstance(delta, dict):
            self.size += PIECE + _grow(self._blocks.setdefault(place, {}), delta)
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            self._blocks[place] = {}
            self.size += PIECE + _open(self._blocks[place], event["content_block"])
        elif kind == "message_start" and isinstance(event.get("message"), dict):
            self.size += keep(self._message, event["message"])
        elif kind == "message_delta":
            self.size += keep(self._message, delta if isinstance(delta, dict) else {})
            rest = {n: v for n, v in event.items() if n not in {"type", "delta"}}
            self.size += keep(self._message, rest)

    def whole(self) -> bytes:
        """The message object."""
        message = self._message
        if not message:
            raise Malformed("The stream had no message.")
        cut = message.get("stop_reason") in _CUT
        blocks = [_whole(block, cut=cut) for _, block in sorted(self._blocks.items())]
        return encoded({**message, "content": blocks})


def _open(block: Object, start: Object) -> int:
    """Begin a block; its texts go on with the deltas."""
    size = 0
    for name, value in start.items():
        if name in {"text", "thinking"} and isinstance(value, str):
            size += say(block, name, value)
        else:
            size += keep(block, {name: value})
    return size


def _grow(block: Object, delta: Object) -> int:
    kind = delta.get("type")
    if kind == "input_json_delta":
        piece = delta.get("partial_json")
        return say(block, _INPUT, piece) if isinstance(piece, str) else 0
    if kind == "citations_delta":
        if not isinstance(block.get("citations"), list):
            block["citations"] = []
        return fold(block, {"citations": [delta.get("citation")]})
    if kind == "signature_delta":
        return keep(block, {"signature": delta.get("signature")})
    return fold(block, {name: value for name, value in delta.items() if name != "type"})


def _whole(block: Object, *, cut: bool) -> Object:
    whole: Object = {name: told(value) for name, value in block.items() if name != _INPUT}
    written = block.get(_INPUT)
    if isinstance(written, Said) and any(written):
        whole["input"] = _input("".join(written), cut=cut)
    return whole


def _input(text: str, *, cut: bool) -> Any:
    """The input that a model wrote in pieces; where it was cut off nobody knows it: empty."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        if cut:
            return {}
        raise Malformed("A tool's input is not JSON.") from None
