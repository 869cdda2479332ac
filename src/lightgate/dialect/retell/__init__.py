"""Retells a provider's answer in the client's dialect, event by event or whole.

A reader (`from_*`) reports what an answer says to a `Telling`, which puts it in order for a writer
(`to_*`): four of each make sixteen pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from lightgate.dialect.fault import Fault
from lightgate.dialect.retell.from_chat import ChatReader
from lightgate.dialect.retell.from_gemini import GeminiReader
from lightgate.dialect.retell.from_messages import MessagesReader
from lightgate.dialect.retell.from_responses import ResponsesReader
from lightgate.dialect.retell.gathering import Gathering
from lightgate.dialect.retell.items import Head, Writer
from lightgate.dialect.retell.refusals import error_body, error_event
from lightgate.dialect.retell.telling import Telling
from lightgate.dialect.retell.to_chat import ChatWriter
from lightgate.dialect.retell.to_gemini import GeminiWriter
from lightgate.dialect.retell.to_messages import MessagesWriter
from lightgate.dialect.retell.to_responses import ResponsesWriter
from lightgate.errors import Malformed, StreamError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DIALECTS", "Reteller", "error_body", "error_event", "reteller"]


class _Reader(Protocol):
    def event(self, name: bytes, data: bytes) -> None: ...

    def whole(self, body: bytes) -> None: ...


_READERS: Final[dict[str, Callable[[Telling], _Reader]]] = {
    "openai-chat": ChatReader,
    "openai-responses": ResponsesReader,
    "anthropic-messages": MessagesReader,
    "gemini": GeminiReader,
}
_WRITERS: Final[dict[str, Callable[[Head], Writer]]] = {
    "openai-chat": ChatWriter,
    "openai-responses": ResponsesWriter,
    "anthropic-messages": MessagesWriter,
    "gemini": GeminiWriter,
}
DIALECTS: Final = tuple(_READERS)


class Reteller:
    """One answer; use `event` and `finish`, or `whole`, not both."""

    __slots__ = ("_head", "_read", "_source", "_telling", "_writer")

    def __init__(self, source: str, target: str, head: Head) -> None:
        self._source = source
        self._head = head
        self._writer = _WRITERS[target](head)
        self._telling = Telling(source, self._writer, head.id, keeps=self._writer.keeps)
        self._read = _READERS[source](self._telling).event

    @property
    def failed(self) -> Fault | None:
        """The error that the client was told, where the answer ended in one."""
        return self._telling.failed

    @property
    def closed(self) -> bool:
        """Whether the client has all that it will get: nothing follows."""
        return self._telling.closed

    def event(self, name: bytes, data: bytes) -> bytes:
        """Take one event of the provider; return the whole events that it means to the client."""
        if self._telling.closed:
            return b""
        self._read(name, data)
        return self._taken()

    def finish(self) -> bytes:
        """Note that the stream ended well; return the closing events that are still to come."""
        self._telling.end()
        return self._taken()

    def fail(self, status: int, *, message: str, code: str) -> bytes:
        """End a begun stream with an error of our own; like `error_event`, but in sequence."""
        self._telling.fail(Fault(code, message, status))
        return self._taken()

    def whole(self, body: bytes) -> bytes:
        """Retell an answer that was not streamed; AttemptError if it is none."""
        gathering = Gathering(self._writer.call_prefix)
        telling = Telling(self._source, gathering, self._head.id, keeps=True)
        _READERS[self._source](telling).whole(body)
        fault = telling.failed
        if fault is not None:
            if fault.code == "malformed":
                raise Malformed(fault.message)
            raise StreamError(fault.message, code=fault.status)
        return self._writer.whole(gathering.items, telling.ending())

    def _taken(self) -> bytes:
        out = self._writer.out
        if not out:
            return b""
        taken = b"".join(out)
        out.clear()
        return taken


def reteller(
    source: str,
    target: str,
    *,
    model: str,
    id: str,  # noqa: A002 - the seam's name
    created: int,
    include_usage: bool = False,
) -> Reteller:
    """Make the reteller of one answer from the provider's dialect to the client's.

    `model` is what the client asked for, `created` in seconds since 1970. `include_usage`: the
    client asked for chat's usage chunk.
    """
    for name in (source, target):
        if name not in _READERS:
            raise UsageError(f"There is no translation from or to {name!r}.")
    return Reteller(source, target, Head(model, id, created, include_usage))
