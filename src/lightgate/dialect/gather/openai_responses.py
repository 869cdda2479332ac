"""Gathers a stream of OpenAI responses: its last event holds the whole."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lightgate.dialect.gather.folding import Object, encoded, read
from lightgate.errors import Malformed

_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _Event(msgspec.Struct, gc=False):
    type: Any = None
    response: msgspec.Raw = msgspec.Raw(b"")
    item: msgspec.Raw = msgspec.Raw(b"")
    output_index: Any = None


_decoder: Final = msgspec.json.Decoder(_Event)


class ResponsesGatherer:
    """The last response object, and the items that were done, should it leave them out."""

    __slots__ = ("_items", "_last", "_response", "size")

    def __init__(self) -> None:
        self._items: dict[int, bytes] = {}
        self._response = b""
        self._last = ""  # the event that ended it
        self.size = 0

    def event(self, name: bytes, data: bytes) -> None:
        """Take one event; deltas are passed over."""
        if b'"response"' not in data and b'"item"' not in data:
            return
        try:
            event = _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        kind = event.type if isinstance(event.type, str) else name.decode("latin-1")
        response, item = bytes(event.response), bytes(event.item)
        if kind in _LAST:
            self._last = kind
        if response.startswith(b"{"):
            self.size += len(response) - len(self._response)
            self._response = response
        elif kind == "response.output_item.done" and item.startswith(b"{"):
            place = event.output_index
            self._items[place if isinstance(place, int) else len(self._items)] = item
            self.size += len(item)

    def whole(self) -> bytes:
        """The response object as it came; an answer that it leaves out is not made up of deltas."""
        whole = read(self._response) if self._response else None
        if whole is not None and whole.get("output"):
            return self._response
        if whole is None or not self._items:
            raise Malformed("The stream had no response object with an output.")
        items: list[Object | None] = [read(item) for _, item in sorted(self._items.items())]
        whole["output"] = [item for item in items if item is not None]
        if self._last:
            whole["status"] = self._last.removeprefix("response.")
        return encoded(whole)
