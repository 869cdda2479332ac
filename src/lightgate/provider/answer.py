"""Reads a complete answer in no dialect: for the checks of a cascade and for conversations."""

from __future__ import annotations

import msgspec

from lightgate.dialect.errors import Fault
from lightgate.dialect.kinds import REFUSAL, TEXT, TOOL
from lightgate.dialect.neutral.events import Reason
from lightgate.dialect.neutral.item_stream import ItemStream
from lightgate.dialect.neutral.items import KeptItems
from lightgate.dialect.registry import DIALECTS, TRANSLATED
from lightgate.dialect.request import ToolCall
from lightgate.errors import TooLarge
from lightgate.wire.sse import Event, SseSplitter


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer; reasoning is no part of it.

    `logprob` is the mean of its tokens' log probabilities, where the provider sent them.
    """

    text: str = ""
    refusal: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: Reason = "stop"
    logprob: float | None = None


class AnswerReader:
    """Listens to one answer; use `event` or `feed` for a stream, or `whole`, then `answer`."""

    __slots__ = ("_items", "_kept", "_reader", "_splitter")

    def __init__(self, dialect: str) -> None:
        self._reader = DIALECTS[dialect].reader
        self._kept = KeptItems()
        self._items = ItemStream(self._reader.finishes, self._kept)
        self._splitter = SseSplitter()

    def feed(self, data: bytes) -> None:
        """Take a piece of the provider's stream; there is no answer if one event is too large."""
        try:
            events = self._splitter.feed(data)
        except TooLarge as error:
            self._items.fail(Fault("malformed", error.message))
            return
        for name, event in events:
            self.event(name, event)

    def event(self, name: bytes, data: bytes) -> None:
        """Take one event of the provider's stream."""
        if not self._items.closed:
            self._reader.event(self._items, name, data)

    def whole(self, body: bytes) -> None:
        """Take an answer that was not streamed."""
        self._reader.whole(self._items, body)

    def answer(self) -> Answer | None:
        """Return the answer once all of it has come; None: it was an error, or no answer."""
        if self._items.error is None:  # else the splitter may hold more than it can split
            for name, event in self._splitter.finish():
                self.event(name, event)
        self._items.end()
        if self._items.error is not None:
            return None
        items = self._kept.items
        sure = [one.logprob for item in items if item.kind == TEXT for one in item.logprobs]
        calls = [
            ToolCall(id=item.id, name=item.name, arguments=item.text)
            for item in items
            if item.kind == TOOL
        ]
        return Answer(
            text="".join([item.text for item in items if item.kind == TEXT]),
            refusal="".join([item.text for item in items if item.kind == REFUSAL]),
            calls=tuple(calls),
            finish=self._items.ending().reason,
            logprob=sum(sure) / len(sure) if sure else None,
        )


class Kept:
    """Keeps one answer while it comes, and reads it later: it is called while the clock runs.

    A read that completes no event is not handed to a sink, so of a stream the events are kept, and
    of an answer in one piece its bytes.
    """

    __slots__ = ("_events", "_parts")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._parts: list[bytes] = []

    def keep(self, data: bytes, events: list[Event], kinds: int) -> None:  # noqa: ARG002 - Sink's
        """Keep the events of one read, or its bytes where there are none."""
        if events:
            self._events += events
        else:
            self._parts.append(data)

    def answer(self, dialect: str, *, streamed: bool) -> Answer | None:
        """Read what was kept; None where it is no answer, or in a dialect not read here."""
        if dialect not in TRANSLATED:
            return None
        reader = AnswerReader(dialect)
        if streamed:
            for name, event in self._events:
                reader.event(name, event)
        else:
            reader.whole(b"".join(self._parts))
        return reader.answer()


def reads(dialect: str) -> bool:
    """Say whether answers of this dialect can be read here."""
    return dialect in TRANSLATED


def read_answer(dialect: str, body: bytes, *, streamed: bool) -> Answer | None:
    """Read a complete answer; None where it is none, or in a dialect that cannot be read here."""
    if dialect not in TRANSLATED:
        return None
    reader = AnswerReader(dialect)
    if streamed:
        reader.feed(body)
    else:
        reader.whole(body)
    return reader.answer()
