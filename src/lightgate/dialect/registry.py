"""Which dialect a provider's endpoint speaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from lightgate.dialect import (
    anthropic_messages,
    anthropic_request,
    gemini,
    gemini_request,
    openai_chat,
    openai_completions,
    openai_embeddings,
    openai_responses,
    openai_responses_request,
)
from lightgate.dialect.facts import Untranslatable
from lightgate.dialect.fault import Fault, fault
from lightgate.dialect.request import Built, Kind, Request
from lightgate.dialect.scanner import DEFAULT_QUIRKS, Grammar, Scanner
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from lightgate.dialect.quirks import Quirks

__all__ = ["Built", "Dialect", "Family", "dialect_for"]

Family = Literal["openai", "anthropic", "gemini"]


class _Build(Protocol):
    def __call__(self, request: Request, quirks: Quirks) -> Built: ...


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint's way of asking and answering."""

    name: str
    builder: _Build
    grammar: Grammar

    def build(self, request: Request, quirks: Quirks = DEFAULT_QUIRKS) -> Built:
        """Say a request in this dialect; UsageError names a field that it has no words for."""
        try:
            return self.builder(request, quirks)
        except Untranslatable as error:
            place = request.places.get(error.field)
            if place is None:
                raise
            raise error.at(place) from None  # a client knows its own words, not ours

    def scanner(self, quirks: Quirks = DEFAULT_QUIRKS) -> Scanner:
        """Make the reader of one answer."""
        return Scanner(self.grammar, quirks)

    def fault(self, status: int, body: bytes) -> Fault:
        """Read an error answer; its shape need not be this dialect's own."""
        return fault(status, body)


_DIALECTS: Final[dict[tuple[str, str], Dialect]] = {
    ("openai", "chat"): Dialect(
        name="openai-chat", builder=openai_chat.build, grammar=openai_chat.GRAMMAR
    ),
    ("openai", "completion"): Dialect(
        name="openai-completions",
        builder=openai_completions.build,
        grammar=openai_completions.GRAMMAR,
    ),
    ("openai", "responses"): Dialect(
        name="openai-responses",
        builder=openai_responses_request.build,
        grammar=openai_responses.GRAMMAR,
    ),
    ("openai", "embedding"): Dialect(
        name="openai-embeddings", builder=openai_embeddings.build, grammar=openai_embeddings.GRAMMAR
    ),
    ("anthropic", "chat"): Dialect(
        name="anthropic-messages",
        builder=anthropic_request.build,
        grammar=anthropic_messages.GRAMMAR,
    ),
    ("gemini", "chat"): Dialect(
        name="gemini", builder=gemini_request.build, grammar=gemini.GRAMMAR
    ),
}


def dialect_for(family: Family, kind: Kind) -> Dialect:
    """Find the dialect of a family's endpoint."""
    found = _DIALECTS.get((family, kind))
    if found is None:
        raise UsageError(f"The {family} family has no endpoint of the kind {kind!r}.")
    return found
