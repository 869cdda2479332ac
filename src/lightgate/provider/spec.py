"""What a provider is: one row of data."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from lightgate.dialect.quirks import Quirks

Family = Literal["openai", "anthropic", "gemini"]
Auth = Literal["bearer", "x-api-key", "api-key", "x-goog-api-key", "none"]
Kind = Literal["chat", "completion", "responses", "embedding"]

_VARIABLE = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")


class AbortPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether closing a stream stops the bill; None where nobody has said or measured it."""

    stops_billing: bool | None = None
    source: str = ""
    as_of: str = ""


class Variable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a base URL that only the user knows; `also` are other environment names for it."""

    name: str
    means: str
    also: tuple[str, ...] = ()


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A service that answers requests; `price_provider` is its id in genai-prices.

    `as_of` is the day on which the row was last held against public documentation or code.
    """

    name: str
    title: str
    base_url: str
    dialect: Family = "openai"
    auth: Auth = "bearer"
    key_env: tuple[str, ...] = ()
    abort: AbortPolicy = AbortPolicy()
    quirks: Quirks = Quirks()
    headers: tuple[tuple[str, str], ...] = ()
    variables: tuple[Variable, ...] = ()
    price_provider: str | None = None
    local: bool = False
    kinds: tuple[Kind, ...] = ("chat",)
    notes: str = ""
    docs: str = ""
    as_of: str = ""


def placeholders(base_url: str) -> tuple[str, ...]:
    """Names of the variables in a templated base URL, in order, each once."""
    return tuple(dict.fromkeys(_VARIABLE.findall(base_url)))


def fill(base_url: str, values: dict[str, str]) -> str:
    """Put the variables' values into a templated base URL."""
    return _VARIABLE.sub(lambda match: values[match[1]], base_url)
