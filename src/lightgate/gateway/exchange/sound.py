"""Attempts at endpoints for sound: answers are passed on as bytes, in the provider's own type.

The first byte of sound is the first token: it commits the answer, and a hedge may race for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.dialect.kinds import AUDIO
from lightgate.errors import EmptyAnswer, TooLarge
from lightgate.gateway.exchange.attempt import Attempt
from lightgate.gateway.exchange.stream import HELD_LIMIT, StreamAttempt

if TYPE_CHECKING:
    from lightgate.clock.marks import Marks
    from lightgate.errors import AttemptError
    from lightgate.gateway.exchange.attempt import ExchangeFacts
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.provider.call import Called
    from lightgate.provider.prepare import Prepared
    from lightgate.route.plan.plan import Step
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

    __slots__ = ("_raw",)

    def __init__(
        self,
        exchange: ExchangeFacts,
        step: Step,
        target: ServedTarget,
        prepared: Prepared,
        marks: Marks,
    ) -> None:
        StreamAttempt.__init__(self, exchange, step, target, prepared, marks)
        self._raw = False  # the answer is bytes, not events

    @property
    def media(self) -> bytes:  # type: ignore[override] # same
        """The header line of the answer's type."""
        return _media(self.headers)

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        """Decide from the head whether bytes or events follow."""
        StreamAttempt.on_head(self, status, headers, stamp)
        self._raw = status == 200 and self._sse is None

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        """Stamp and pass on one read."""
        if not self._raw:
            StreamAttempt.on_body(self, data, stamp, since)
            return
        marks = self.marks
        if marks.first is None:
            marks.first, marks.first_since = stamp, since
            marks.event = marks.answer = stamp
            self._scanner.kinds = self._first_kinds = AUDIO
        marks.last, marks.last_since = stamp, since
        if self.sink is None:
            return
        if self.committed:
            (self.exchange.cascade or self.exchange).deliver(self, data, ended=False)
            return
        self._held.append(data)
        self._size += len(data)
        self._useful = True
        if not self._released() and self._size > HELD_LIMIT:
            raise TooLarge(f"More than {HELD_LIMIT} bytes came before another answer was chosen.")

    def on_end(self, stamp: int) -> None:
        """The body is complete, and with it the answer."""
        if not self._raw:
            StreamAttempt.on_end(self, stamp)
            return
        self.complete = True
        self.marks.closed = self.marks.end = stamp

    def ended_as(self, error: AttemptError | None) -> Called:
        """What has come so far, as an answer that ended so."""
        called = StreamAttempt.ended_as(self, error)
        return msgspec.structs.replace(called, streamed=True) if self._raw else called

    def _verdict(self) -> AttemptError | None:
        if self._raw and self.marks.first is None:
            return EmptyAnswer(f"{self._where} answered 200 without a byte of sound.")
        return super()._verdict()
