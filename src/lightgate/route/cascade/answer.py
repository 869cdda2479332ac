"""What an answer says, in no dialect: text, refusal, calls, how it ended, how sure it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lightgate.dialect.kinds import REFUSAL, TEXT, TOOL
from lightgate.dialect.retell.finish import Reason
from lightgate.dialect.retell.from_chat import ChatReader
from lightgate.dialect.retell.from_gemini import GeminiReader
from lightgate.dialect.retell.from_messages import MessagesReader
from lightgate.dialect.retell.from_responses import ResponsesReader
from lightgate.dialect.retell.gathering import Gathering
from lightgate.dialect.retell.telling import Telling
from lightgate.errors import TooLarge
from lightgate.wire.sse import SseSplitter

if TYPE_CHECKING:
    from collections.abc import Callable


class Called(msgspec.Struct, frozen=True):
    """One call of a tool; `arguments` is the JSON text that the model wrote."""

    name: str
    arguments: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer; `logprob` is the mean of its tokens' log probabilities, where told."""

    text: str = ""
    refusal: str = ""
    calls: tuple[Called, ...] = ()
    finish: Reason = "stop"
    logprob: float | None = None


class _Reader(Protocol):
    def event(self, name: bytes, data: bytes) -> None: ...

    def whole(self, body: bytes) -> None: ...


_READERS: Final[dict[str, Callable[[Telling], _Reader]]] = {
    "openai-chat": ChatReader,
    "openai-responses": ResponsesReader,
    "anthropic-messages": MessagesReader,
    "gemini": GeminiReader,
}


class AnswerReader:
    """Listens to one answer; use `event` for each event of a stream, or `whole`, then `answer`."""

    __slots__ = ("_gathering", "_reader", "_telling")

    def __init__(self, dialect: str) -> None:
        self._gathering = Gathering("call")
        self._telling = Telling(dialect, self._gathering, "0", keeps=True)
        self._reader = _READERS[dialect](self._telling)

    def event(self, name: bytes, data: bytes) -> None:
        """Take one event of the provider's stream."""
        if not self._telling.closed:
            self._reader.event(name, data)

    def whole(self, body: bytes) -> None:
        """Take an answer that was not streamed."""
        self._reader.whole(body)

    def answer(self) -> Answer | None:
        """Say what was heard once all of it has come; None: it was an error, or no answer."""
        telling = self._telling
        telling.end()
        if telling.failed is not None:
            return None
        items = self._gathering.items
        sure = [one.logprob for item in items if item.kind == TEXT for one in item.logprobs]
        return Answer(
            text="".join([item.text for item in items if item.kind == TEXT]),
            refusal="".join([item.text for item in items if item.kind == REFUSAL]),
            calls=tuple([Called(item.name, item.text) for item in items if item.kind == TOOL]),
            finish=telling.ending().reason,
            logprob=sum(sure) / len(sure) if sure else None,
        )


def reads(dialect: str) -> bool:
    """Whether answers of this dialect can be read here."""
    return dialect in _READERS


def read_answer(dialect: str, body: bytes, *, streamed: bool) -> Answer | None:
    """Read a complete answer; None where it is none, or in a dialect that has no reader."""
    if dialect not in _READERS:
        return None
    reader = AnswerReader(dialect)
    if not streamed:
        reader.whole(body)
        return reader.answer()
    splitter = SseSplitter()
    try:
        for name, data in (*splitter.feed(body), *splitter.finish()):
            reader.event(name, data)
    except TooLarge:
        return None
    return reader.answer()
