"""The clothes of an event stream: line ends, comments, byte order mark, the optional space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightgate.sim.answer.plan import AnswerPlan

_LINE_ENDS: Final = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}
_COMMENT: Final = b": sim keep-alive\n\n"
_BOM: Final = b"\xef\xbb\xbf"


class EventFraming:
    """Changes how events are written, never what they say; JSON has no raw line ends to spoil."""

    __slots__ = ("_before", "_comment", "_end", "_space", "plain")

    def __init__(self, draft: AnswerPlan, *, events: bool) -> None:
        self._end = _LINE_ENDS[draft.shape.line_end]
        self._comment = draft.shape.comments and events
        self._space = not draft.no_space
        self._before = (_BOM if draft.bom and events else b"") + b"\n" * draft.blank_lines
        self.plain = not (self._before or self._comment or draft.no_space or self._end != b"\n")

    def put_on(self, data: bytes) -> bytes:
        """One beat of a stream."""
        if self.plain or not data:
            return data
        if self._comment:
            data = _COMMENT + data
        if not self._space:
            data = data.replace(b"data: ", b"data:").replace(b"event: ", b"event:")
        if self._before:
            data, self._before = self._before + data, b""
        return data.replace(b"\n", self._end) if self._end != b"\n" else data


def split_point(data: bytes) -> int:
    """Inside the first character of several bytes, or in the middle if there is none."""
    for index, byte in enumerate(data):
        if byte >= 0xC0:
            return index + 1
    return len(data) // 2
