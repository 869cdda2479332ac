"""Finds a dialect: by a provider's family and the kind of a request, or by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.dialect import anthropic, gemini, openai_chat, openai_responses
from lightgate.dialect.endpoints import (
    gemini_embeddings,
    openai_audio,
    openai_completions,
    openai_embeddings,
    token_counts,
)
from lightgate.dialect.neutral.dialect import Dialect, Family
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from lightgate.dialect.request import Kind

__all__ = ["DIALECTS", "TRANSLATED", "Dialect", "Family", "counterpart", "dialect_for"]

# By name; those that answers are translated from and to come first, in the order of the docs.
DIALECTS: Final[dict[str, Dialect]] = {
    one.name: one
    for one in (
        openai_chat.DIALECT,
        openai_responses.DIALECT,
        anthropic.DIALECT,
        gemini.DIALECT,
        openai_completions.DIALECT,
        openai_embeddings.DIALECT,
        *token_counts.DIALECTS,
        *gemini_embeddings.DIALECTS,
        *openai_audio.DIALECTS,
    )
}
TRANSLATED: Final = tuple([name for name, one in DIALECTS.items() if one.writer is not None])
_BY_KIND: Final = {(one.family, one.kind): one for one in DIALECTS.values()}


def counterpart(family: Family, kind: Kind) -> Dialect | None:
    """Find a family's endpoint of a kind, whose answers are translated by their facts."""
    found = _BY_KIND.get((family, kind))
    return found if found is not None and found.facts is not None else None


def dialect_for(family: Family, kind: Kind) -> Dialect:
    """Find the dialect of a family's endpoint."""
    found = _BY_KIND.get((family, kind))
    if found is None:
        raise UsageError(f"The {family} family has no endpoint of the kind {kind!r}.")
    return found
