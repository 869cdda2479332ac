"""Gathers the events of a provider's stream into the body that it would have answered whole.

"Stream inside, answer whole outside": an attempt that runs beside another one is always a stream,
so that its first token can win and closing it stops its bill. One gatherer for each dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from lightgate.dialect.gather.anthropic_messages import MessagesGatherer
from lightgate.dialect.gather.gemini import GeminiGatherer
from lightgate.dialect.gather.openai_chat import ChatGatherer
from lightgate.dialect.gather.openai_completions import CompletionsGatherer
from lightgate.dialect.gather.openai_responses import ResponsesGatherer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["DIALECTS", "Gatherer", "can_gather", "gatherer"]


class Gatherer(Protocol):
    """One answer in the making. `size` is how many bytes it has, nearly."""

    size: int

    def event(self, name: bytes, data: bytes) -> None:
        """Take one event; what is no part of an answer is passed over."""

    def whole(self) -> bytes:
        """The answer as one body; Malformed where the events make none."""
        ...


_GATHERERS: Final[dict[str, Callable[[], Gatherer]]] = {
    "openai-chat": ChatGatherer,
    "openai-completions": CompletionsGatherer,
    "openai-responses": ResponsesGatherer,
    "anthropic-messages": MessagesGatherer,
    "gemini": GeminiGatherer,
}
DIALECTS: Final = tuple(_GATHERERS)
# What an endpoint does not stream, or answers in another way when it is asked to stream.
_WHOLE_ONLY: Final = {
    "openai-chat": ("audio",),
    "openai-completions": ("best_of",),
    "openai-responses": ("background",),
}
_OFF: Final = (b"null", b"false", b"1")


def can_gather(dialect: str, fields: Mapping[str, bytes]) -> bool:
    """Whether a request for a whole answer may be asked for as a stream; `fields` are its own."""
    if dialect not in _GATHERERS:
        return False
    return all(
        bytes(fields[name]) in _OFF for name in _WHOLE_ONLY.get(dialect, ()) if name in fields
    )


def gatherer(dialect: str) -> Gatherer:
    """Make the gatherer of one answer in the provider's dialect."""
    return _GATHERERS[dialect]()
