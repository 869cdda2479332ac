"""The splitter of server-sent events: bytes in as they come, whole events out.

It takes all line ends (LF, CRLF, CR), a leading byte order mark, comments, multi-line data, and
splits at any byte. Nothing is decoded: a UTF-8 character that is split over two reads stays whole.
"""

from __future__ import annotations

from typing import Final

from lightgate.errors import TooLarge

EVENT_LIMIT: Final = 4 * 1024 * 1024
LINE_LIMIT: Final = 50_000  # data lines of one event; to join so many takes some 10 ms
_BOM: Final = b"\xef\xbb\xbf"
# Bytes as numbers: to look for a number in bytes costs a twentieth of looking for bytes in bytes,
# which Python tries as a number first, with an exception that is thrown away.
_CR: Final = 0x0D
_LF: Final = 0x0A

Event = tuple[bytes, bytes]  # name (empty where none was given), data


class SseSplitter:
    """Turns reads into events; keeps what is not yet a whole line."""

    __slots__ = (
        "_after_cr",
        "_data",
        "_limit",
        "_name",
        "_parts",
        "_size",
        "_started",
        "at_rest",
        "comments",
    )

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []  # the unfinished line
        self._data: list[bytes] = []  # the data lines of the unfinished event
        self._name = b""
        self._size = 0  # bytes held for the unfinished event
        self._started = False
        self._after_cr = False
        self.at_rest = False  # nothing of an event is held: the next byte begins a line
        self.comments = 0  # a sign of life, never an event

    @property
    def pending(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._parts or self._data)

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        events = self._split(data)
        self.at_rest = self._started and not self._size and not self._name and not self._after_cr
        return events

    def finish(self) -> list[Event]:
        """The last event, where the stream ended without the blank line after it."""
        return self._split(b"\n\n") if self.pending else []

    def _split(self, data: bytes) -> list[Event]:
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        if _CR in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if _LF not in data and self._started:
            self._hold(data)
            return []
        if self._parts:
            data = b"".join((*self._parts, data))
            self._size -= sum(map(len, self._parts))
            self._parts.clear()
        if not self._started:
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._hold(data)
                return []
            self._started = True
            data = data.removeprefix(_BOM)
        lines = data.split(b"\n")
        rest = lines.pop()
        events = self._events(lines)
        self._hold(rest)
        return events

    def _events(self, lines: list[bytes]) -> list[Event]:
        """Take whole lines in; the two usual kinds of line without a call for each."""
        events: list[Event] = []
        held = self._data
        for line in lines:
            if not line:
                if held:
                    events.append((self._name, held[0] if len(held) == 1 else b"\n".join(held)))
                    held.clear()
                self._name = b""
                self._size = 0
            elif line.startswith(b"data: ") and self._size + len(line) < self._limit:
                held.append(line[6:])
                self._size += len(line) - 5
            else:
                self._line(line)
        if len(held) > LINE_LIMIT:
            raise TooLarge(f"One event of the stream has more than {LINE_LIMIT} lines.")
        return events

    def _hold(self, rest: bytes) -> None:
        if rest:
            self._parts.append(rest)
            self._grow(len(rest))

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise TooLarge(f"One event of the stream is larger than {self._limit} bytes.")

    def _line(self, line: bytes) -> None:
        field, colon, value = line.partition(b":")
        if not field and colon:
            self.comments += 1
            return
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._grow(len(value) + 1)
        elif field == b"event":
            self._name = value
