"""Finds a dialect: by a provider's family and the kind of a request, or by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.dialect import (
    anthropic,
    gemini,
    openai_chat,
    openai_completions,
    openai_embeddings,
    openai_responses,
)
from lightgate.dialect.neutral.dialect import Dialect, Family
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from lightgate.dialect.request import Kind

__all__ = ["DIALECTS", "TRANSLATED", "Dialect", "Family", "dialect_for"]

# By name; those that answers are translated from and to come first, in the order of the docs.
DIALECTS: Final[dict[str, Dialect]] = {
    room.DIALECT.name: room.DIALECT
    for room in (
        openai_chat,
        openai_responses,
        anthropic,
        gemini,
        openai_completions,
        openai_embeddings,
    )
}
TRANSLATED: Final = tuple([name for name, one in DIALECTS.items() if one.writer is not None])
_BY_KIND: Final = {(one.family, one.kind): one for one in DIALECTS.values()}


def dialect_for(family: Family, kind: Kind) -> Dialect:
    """Find the dialect of a family's endpoint."""
    found = _BY_KIND.get((family, kind))
    if found is None:
        raise UsageError(f"The {family} family has no endpoint of the kind {kind!r}.")
    return found
