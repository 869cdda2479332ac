"""Carries the answer of one attempt to the client: held until it is useful, then at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lightgate.errors import TooLarge

if TYPE_CHECKING:
    from lightgate.dialect.translate import Translator
    from lightgate.wire.client.roundtrip import Headers
    from lightgate.wire.sse import Event

HELD_LIMIT: Final = 1024 * 1024  # bytes before the first useful token; more is no answer
_NO_CHOICES: Final = re.compile(rb'"choices"\s*:\s*\[\s*\]')


class _UsageChunk(msgspec.Struct):
    choices: list[msgspec.Raw]
    usage: msgspec.Raw = msgspec.Raw(b"null")


_usage_chunk: Final = msgspec.json.Decoder(_UsageChunk)


class Voyage(Protocol):
    """Where a courier delivers; says who may."""

    def commit(self) -> bool:
        """Take the client for this attempt; False when another one has it."""
        ...

    def deliver(self, data: bytes) -> None:
        """Bytes for the client, whole events."""

    @property
    def ended(self) -> bool:
        """Whether the provider's terminal marker has come."""
        ...


class Courier:
    """The sink of one streamed attempt.

    Until the first useful token everything is held, so that another attempt may answer instead.
    Events go out in one form: LF line ends, no comments, nothing that the client did not ask for.
    """

    __slots__ = (
        "_held",
        "_hides_usage",
        "_plain",
        "_size",
        "_translator",
        "_useful",
        "_voyage",
        "committed",
    )

    def __init__(self, voyage: Voyage, translator: Translator | None, *, hides_usage: bool) -> None:
        self._voyage = voyage
        self._translator = translator
        self._hides_usage = hides_usage
        self._plain = translator is None
        self._held: list[bytes] = []
        self._size = 0
        self._useful = False  # something of the answer is among what is held
        self.committed = False

    def on_head(self, status: int, headers: Headers) -> None:
        """Nothing of a provider's head reaches the client."""

    def on_data(self, data: bytes, events: list[Event], kinds: int) -> None:
        """One read: pass it on, or hold it until it is useful."""
        if not events:
            return
        if self._plain and kinds and self.committed and len(events) == 1:
            name, event = events[0]
            if not name and len(data) == len(event) + 8 and data[:6] == b"data: ":
                self._voyage.deliver(data)  # one token in one read: what nearly every read is
                return
        out = (
            self._told(events) if self._translator is not None else self._same(data, events, kinds)
        )
        if self.committed:
            self._voyage.deliver(out)
            return
        self._held.append(out)
        self._size += len(out)
        self._useful = self._useful or kinds != 0
        if kinds and self.release():
            return
        if self._size > HELD_LIMIT:
            raise TooLarge(f"More than {HELD_LIMIT} bytes came before the first token.")

    def release(self) -> bool:
        """Hand over what was held, if the client is ours to have; whether it is."""
        if self.committed or not self._useful or not self._voyage.commit():
            return self.committed
        self.committed = True
        out = b"".join(self._held)
        self._held.clear()
        self._voyage.deliver(out)
        return True

    def _told(self, events: list[Event]) -> bytes:
        translator = self._translator
        if translator is None:
            return b""
        out = b"".join([translator.event(name, data) for name, data in events])
        return out + translator.finish() if self._voyage.ended else out

    def _same(self, data: bytes, events: list[Event], kinds: int) -> bytes:
        if len(events) == 1:
            name, event = events[0]
            if (
                not name
                and len(data) == len(event) + 8
                and data[:6] == b"data: "
                and data[-1] == 10
            ):
                return b"" if not kinds and self._hides(event) else data
        out = []
        for name, event in events:
            if self._hides(event):
                continue
            if name:
                out.append(b"event: %b\n" % name)
            # A value with line ends in it came as several data lines, and goes out so.
            out.append(b"data: %b\n\n" % event.replace(b"\n", b"\ndata: "))
        return b"".join(out)

    def _hides(self, event: bytes) -> bool:
        """Whether this is the extra chunk with usage that only we asked for."""
        if not self._hides_usage or b'"usage"' not in event or not _NO_CHOICES.search(event):
            return False
        try:
            chunk = _usage_chunk.decode(event)
        except msgspec.DecodeError:
            return False
        return not chunk.choices and bytes(chunk.usage) != b"null"
