"""Attempts at endpoints for sound: answers are passed on as bytes, in the provider's own type.

The first byte of sound is the first token: it commits the answer, and a hedge may race for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.errors import TooLarge
from lightgate.gateway.exchange.attempt import Attempt
from lightgate.gateway.exchange.stream import HELD_LIMIT, StreamAttempt

if TYPE_CHECKING:
    from lightgate.wire.client.response import Headers

_UNKNOWN: Final = b"application/octet-stream"


def _media(headers: Headers) -> bytes:
    """The header line of the type that the provider gave its answer."""
    found = next((value for name, value in headers if name == b"content-type"), _UNKNOWN)
    return b"content-type: %b\r\n" % found


class WholeSoundAttempt(Attempt):
    """An attempt whose answer comes in one piece: a transcript, as JSON, text or subtitles."""

    __slots__ = ()

    @property
    def media(self) -> bytes:  # type: ignore[override] # of each answer, not of its class
        """The header line of the answer's type."""
        return _media(self.headers)


class SoundAttempt(StreamAttempt):
    """An attempt whose answer is passed on while it comes: sound, or events about it."""

    __slots__ = ()

    @property
    def media(self) -> bytes:  # type: ignore[override] # same
        """The header line of the answer's type."""
        return _media(self.headers)

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        """Stamp and pass on one read."""
        StreamAttempt.on_body(self, data, stamp, since)
        if not self._raw or self.sink is None:
            return
        if self.committed:
            (self.exchange.cascade or self.exchange).deliver(self, data, ended=False)
            return
        self._held.append(data)
        self._held_size += len(data)
        self._useful = True
        if not self._released() and self._held_size > HELD_LIMIT:
            raise TooLarge(f"More than {HELD_LIMIT} bytes came before another answer was chosen.")
