"""Tell whether two names at two providers mean the same model, by data alone.

Three things are done to a name: its case is dropped, so is an owner in front of it that publishes
models (`meta-llama/`, `@cf/meta/`), and a dot between digits counts as a dash
(`claude-sonnet-4.5`). Two names are the same model if they are equal then, or stand in one row of
`same_models.toml`. Nothing else is guessed: dates, sizes, quantisation and variants (`:free`,
`-fp8`) make another model, and so does an owner who is not in the list.
"""

from __future__ import annotations

import functools
import re
import tomllib
from typing import TYPE_CHECKING, Final

from lightgate.provider.table_text import table_text

if TYPE_CHECKING:
    from collections.abc import Mapping

# Publishers of models, as providers write them before the name of a model.
OWNERS: Final = frozenset(
    (
        "amazon",
        "anthropic",
        "cohere",
        "coherelabs",
        "deepseek",
        "deepseek-ai",
        "google",
        "meta",
        "meta-llama",
        "microsoft",
        "minimax",
        "minimaxai",
        "mistral",
        "mistralai",
        "moonshotai",
        "nvidia",
        "openai",
        "perplexity",
        "qwen",
        "x-ai",
        "xai",
        "z-ai",
        "zai",
        "zai-org",
    )
)
_DOT: Final = re.compile(r"(?<=[0-9])\.(?=[0-9])")


def short_name(model: str) -> str:
    """The last part of a model's path: `Llama-4` of `meta-llama/Llama-4`."""
    return model.rpartition("/")[2]


def identity(model: str, prefix: str = "") -> str:
    """The name that all spellings of a model share; `prefix` is what its provider puts before all.

    An owner that publishes no models stays in the name: `acme/llama-3.3-70b` is acme's own.
    """
    plain = plain_name(model, prefix)
    return same_models().get(plain, plain)


def plain_name(model: str, prefix: str = "") -> str:
    """A model's name without case, publisher, and dots between digits."""
    name = model.removeprefix(prefix).removeprefix("@cf/").lower()
    owner, _, last = name.rpartition("/")
    return _DOT.sub("-", last if owner in OWNERS else name)


@functools.cache
def same_models() -> Mapping[str, str]:
    """Every spelling of `same_models.toml`, plain, with the title of its row."""
    text = table_text("same_models.toml")
    return read_same_models(text)


def read_same_models(text: str) -> dict[str, str]:
    """Rows of such a file; a spelling that stands in two rows is a ValueError."""
    found: dict[str, str] = {}
    for title, row in tomllib.loads(text).items():
        for spelling in (title, *row["also"]):
            plain = plain_name(spelling)
            if found.setdefault(plain, title) != title:
                raise ValueError(f"{spelling} is in two rows: {found[plain]} and {title}")
    return found
