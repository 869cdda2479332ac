"""An attempt whose answer is streamed to the client: held until it is useful, then at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from lightgate.errors import AttemptError, Malformed, TooLarge
from lightgate.gateway.exchange.attempt import SSE, Attempt
from lightgate.wire.sse import EVENT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.clock.marks import Marks
    from lightgate.gateway.exchange.attempt import ExchangeFacts
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.provider.call import Called
    from lightgate.provider.prepare import Prepared
    from lightgate.route.plan.plan import Step
    from lightgate.wire.sse import Event

# Bytes before the first useful token: one event of any size, and as much beside it as is sensible;
# more is no answer.
HELD_LIMIT: Final = EVENT_LIMIT + 1024 * 1024
_NO_CHOICES: Final = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_COUNTING: Final = frozenset(("openai-chat", "openai-completions"))


class _UsageChunk(msgspec.Struct):
    choices: list[msgspec.Raw]
    usage: msgspec.Raw = msgspec.Raw(b"null")


_usage_chunk: Final = msgspec.json.Decoder(_UsageChunk)


class StreamAttempt(Attempt):
    """An attempt that streams, for a client that wants a stream.

    Until the first useful token everything is held, so that another attempt may answer instead.
    Events go out in one form: LF line ends, no comments, nothing that the client did not ask for.
    """

    __slots__ = ("_held", "_held_size", "_hides_usage", "_useful", "committed")
    media: ClassVar[bytes] = SSE

    def __init__(
        self,
        exchange: ExchangeFacts,
        step: Step,
        target: ServedTarget,
        prepared: Prepared,
        marks: Marks,
    ) -> None:
        Attempt.__init__(self, exchange, step, target, prepared, marks)
        request = exchange.request
        self._hides_usage = request.endpoint.dialect in _COUNTING and not request.include_usage
        self._held: list[bytes] = []
        self._held_size = 0
        self._useful = False  # something of the answer is among what is held
        self.committed = False
        self.sink = self.took

    def took(self, data: bytes, events: list[Event], kinds: int) -> None:
        """Pass the events of one read on, or hold them until they are useful."""
        if not events:
            return
        out = (
            self._told(events) if self._translator is not None else self._same(data, events, kinds)
        )
        if self.committed:
            owner = self.exchange.cascade or self.exchange
            owner.deliver(self, out, ended=self.complete)
            return
        if self._translator is not None and self._translator.failed is not None:
            raise self.misread(self._translator.failed)  # the client has nothing of it yet
        self._held.append(out)
        self._held_size += len(out)
        if kinds or (self.complete and self._answers()):
            self._useful = True
            if self._released():
                return
        if self._held_size > HELD_LIMIT:
            raise TooLarge(f"More than {HELD_LIMIT} bytes came before the first token.")

    def release(self) -> None:
        """Hand over what was held back: no better attempt came."""
        self.held_ns = 0
        self._useful = self._useful or self.called is not None  # it ended well, without a token
        self._released()

    def conveys(self, send: Callable[[bytes], bool]) -> Callable[[bytes], bool] | None:
        """Plain token events need no look of ours where the dialects are the same."""
        return send if self._translator is None and self.sink is not None else None

    def _released(self) -> bool:
        """Hand over what was held, if the client becomes this attempt's; whether it does."""
        owner = self.exchange.cascade or self.exchange
        if self.committed or not self._useful or not owner.commit(self):
            return False
        self.committed = True
        if self.called is not None:
            self._held.append(self.closing())
        out = b"".join(self._held)
        self._held.clear()
        owner.deliver(self, out, ended=self.complete)
        return True

    def _told(self, events: list[Event]) -> bytes:
        translator = self._translator
        if translator is None:
            return b""
        out = b"".join([translator.event(name, data) for name, data in events])
        return out + translator.finish() if self.complete else out

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
        if not self._hides_usage or event.find(b'"usage"') < 0 or not _NO_CHOICES.search(event):
            return False
        try:
            chunk = _usage_chunk.decode(event)
        except ValueError:
            return False
        return not chunk.choices and bytes(chunk.usage) != b"null"

    def _misshapen(self, called: Called) -> AttemptError | None:
        if not called.streamed:
            where = self.prepared.origin.authority
            return Malformed(f"{where} did not stream although it was asked to.")
        if self._translator is not None and self._translator.failed is not None:
            return self.misread(self._translator.failed)
        return None
