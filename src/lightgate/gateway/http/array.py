"""Gemini's stream as one JSON array: streamGenerateContent without `alt=sse`.

Targets are asked for server-sent events all the same; each event's data is an element.
Google's older SDKs read one character at a time and refuse any outside the brackets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.gateway.exchange.attempt import JSON, SSE
from lightgate.gateway.request.around import ReplyAround

if TYPE_CHECKING:
    from lightgate.gateway.request.around import ClientReply

_BETWEEN: Final = b"\n,\r\n"


class ArrayReply(ReplyAround):
    """Writes the events that it gets as the elements of an array."""

    def __init__(self, reply: ClientReply) -> None:
        super().__init__(reply)
        self._opened = False  # the bracket has been written
        self._begun = False  # so has an element
        self.send = self._send_elements

    def start(
        self, status: int, headers: bytes, *, length: int | None = None, first: bytes = b""
    ) -> None:
        """Send the head; the content is JSON."""
        del length  # nobody knows it yet
        self.inner.start(status, headers.replace(SSE, JSON), first=self._elements(first))

    def finish(self, trailer: bytes = b"", *, last: bytes = b"") -> None:
        """End the array."""
        end = self._elements(last)
        self.inner.finish(trailer, last=end + (b"\n]" if self._opened else b"[]"))

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """Send one element: an error comes in an array, too, as from Google."""
        self.inner.whole(status, headers, b"[" + body + b"]")

    def _send_elements(self, data: bytes) -> bool:
        return self.inner.send(self._elements(data))

    def _elements(self, data: bytes) -> bytes:
        """The elements of whole events; white space keeps a client waiting and stays."""
        if not data:
            return data
        out = [] if self._opened else [b"["]
        self._opened = True
        if data.isspace():
            return b"".join((*out, data))
        for event in data.split(b"\n\n"):
            lines = [line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")]
            if lines:
                if self._begun:
                    out.append(_BETWEEN)
                out.append(b"\n".join(lines))
                self._begun = True
        return b"".join(out)
