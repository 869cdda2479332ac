"""The generations of models that Lightgate knows: rows of `generations.toml`, read on first use."""

from __future__ import annotations

import functools
import tomllib
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.dialect.generation import Generation
from lightgate.provider.table_text import table_text

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN: Final = Generation()


@functools.cache
def generations() -> Mapping[str, tuple[Generation, ...]]:
    """Every known generation by the family of its dialect, in the order of the file."""
    text = table_text("generations.toml")
    return MappingProxyType(
        {
            family: msgspec.convert(rows, tuple[Generation, ...])
            for family, rows in tomllib.loads(text).items()
            if family != "as_of"
        }
    )


@functools.lru_cache(maxsize=1024)
def generation_of(family: str, model: str) -> Generation:
    """Find the generation of a model by its name; one that no row names takes what it is told."""
    name = model.lower()
    for row in generations().get(family, ()):
        if any(fnmatchcase(name, pattern) for pattern in row.match):
            return row
    return UNKNOWN
