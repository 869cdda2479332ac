"""A multipart form with a file in it, read as it comes: the file's bytes go on, fields are kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lightgate.errors import UsageError
from lightgate.gateway.request.form import part_name

if TYPE_CHECKING:
    from collections.abc import Callable

FILE: Final = "file"  # the name of the part whose bytes go on
MOST_FIELDS: Final = 16
MOST_HEAD: Final = 4096  # bytes of a part's header
MOST_VALUE: Final = 1024  # bytes of a field
MOST_NAME: Final = 255  # characters of a file's name
_FILENAME: Final = re.compile(rb'filename="([^"\r\n]*)"', re.IGNORECASE)
_VALUE, _AFTER, _HEAD, _END = range(4)


class FormStream:
    """Takes a form in pieces of any size; `on_file` gets the bytes of the file."""

    def __init__(self, boundary: bytes, on_file: Callable[[bytes], None]) -> None:
        self._mark = b"\r\n--" + boundary
        self._on_file = on_file
        self._buffer = b"\r\n"  # as if the first boundary ended a part
        self._state = _VALUE
        self._name = ""  # of the part that is read; empty before the first
        self._value = b""
        self.fields: dict[str, str] = {}
        self.filename: str | None = None  # once the file has begun

    @property
    def complete(self) -> bool:
        """Whether the last boundary has come."""
        return self._state == _END

    def feed(self, data: bytes) -> None:
        """Take a piece; UsageError says what is wrong with the form."""
        self._buffer += data
        while self._state != _END:
            before = self._state, len(self._buffer)
            if self._state == _VALUE:
                self._take_value()
            elif self._state == _AFTER:
                self._take_after()
            else:
                self._take_head()
            if (self._state, len(self._buffer)) == before:
                return  # more has to come
        self._buffer = b""

    def _take_value(self) -> None:
        at = self._buffer.find(self._mark)
        if at < 0:
            # The beginning of a boundary may be the end of what has come.
            sure = len(self._buffer) - len(self._mark) + 1
            if sure > 0:
                self._pass_on(self._buffer[:sure])
                self._buffer = self._buffer[sure:]
            return
        self._pass_on(self._buffer[:at])
        self._buffer = self._buffer[at + len(self._mark) :]
        self._close_part()
        self._state = _AFTER

    def _take_after(self) -> None:
        after = self._buffer[:2]
        if after == b"--":
            self._state = _END
        elif after == b"\r\n":
            self._state, self._buffer = _HEAD, self._buffer[2:]
        elif len(after) == 2:
            raise UsageError("The boundary of the form is inside one of its fields.")

    def _take_head(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MOST_HEAD:
                raise UsageError("A field of the form has a header that is too long.")
            return
        head, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
        self._name = part_name(head)
        if self._name in self.fields or (self._name == FILE and self.filename is not None):
            raise UsageError(f"The field `{self._name}` is given twice.")
        if len(self.fields) >= MOST_FIELDS:
            raise UsageError("The form has too many fields.")
        if self._name == FILE:
            named = _FILENAME.search(head)
            self.filename = _shown_name(b"" if named is None else named[1])
        self._state = _VALUE

    def _pass_on(self, piece: bytes) -> None:
        if self._name == FILE:
            self._on_file(piece)
        elif self._name:
            self._value += piece
            if len(self._value) > MOST_VALUE:
                raise UsageError(f"The field `{self._name}` is too long.")
        elif piece:
            raise UsageError("The body does not begin with its boundary.")

    def _close_part(self) -> None:
        if self._name and self._name != FILE:
            try:
                self.fields[self._name] = self._value.decode()
            except UnicodeDecodeError:
                raise UsageError(f"The field `{self._name}` is not UTF-8.") from None
        self._value = b""


def _shown_name(raw: bytes) -> str:
    """A file's name as its owner sees it; no file of this machine is ever called so."""
    name = raw.decode("utf-8", "replace").replace("\\", "/").rpartition("/")[2]
    return "".join(sign for sign in name if sign.isprintable())[:MOST_NAME] or "file.jsonl"
