"""The providers that Lightgate knows: rows of `catalogue.toml`, read on first use."""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.dialect.quirks import Quirks
from lightgate.dialect.request import Kind
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lightgate.config.model import Config, ProviderTable

Family = Literal["openai", "anthropic", "gemini"]
Auth = Literal["bearer", "x-api-key", "api-key", "x-goog-api-key", "none"]

_OWN_KINDS: Final[tuple[Kind, ...]] = ("chat", "completion", "embedding")
# What a server of the user's own is told of a client's header fields, beside its dialect's.
_OWN_PASSES: Final = ("idempotency-key", "traceparent", "tracestate")
_BETA: Final = {"openai": ("openai-beta",), "anthropic": ("anthropic-beta",), "gemini": ()}
_VARIABLE: Final = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")


class AbortPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether closing a stream stops the bill; None where no source says so."""

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

    `makes` is a pattern of the names of the models that the provider made itself; a bare name that
    it matches belongs to this provider first. `has` is a pattern of those models of the price list
    that can be called here, where that is not all of them. `model_prefix` stands before the names
    of the price list in requests, and `example` is a model for a first try. `base_url_env` is the
    variable from which the provider's official SDK reads its base URL; `base_url_path` is what
    that SDK adds.
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
    passes: tuple[str, ...] = ()  # header fields of clients that it is told
    variables: tuple[Variable, ...] = ()
    price_provider: str | None = None
    makes: str = ""
    has: str = ""
    model_prefix: str = ""
    example: str = ""
    base_url_env: str = ""
    base_url_path: str = ""
    local: bool = False
    kinds: tuple[Kind, ...] = ("chat",)
    notes: str = ""
    docs: str = ""
    as_of: str = ""


@functools.cache
def catalogue() -> Mapping[str, Provider]:
    """Every known provider by name, in the order of the file."""
    text = resources.files("lightgate.provider").joinpath("catalogue.toml").read_text("utf-8")
    return MappingProxyType(read_catalogue(text))


def read_catalogue(text: str) -> dict[str, Provider]:
    """Rows of a catalogue file; an unknown key, field or variable is a ValueError."""
    rows: dict[str, Provider] = {}
    for name, table in tomllib.loads(text).items():
        strange = set(table.get("quirks", {})) - set(Quirks.__struct_fields__)
        if strange:
            raise ValueError(f"[{name}.quirks] has unknown keys: {', '.join(sorted(strange))}")
        try:
            row = msgspec.convert({"name": name, **table}, Provider)
        except msgspec.ValidationError as reason:
            raise ValueError(f"[{name}] {reason}") from None
        named = {variable.name for variable in row.variables}
        if named != set(placeholders(row.base_url)):
            raise ValueError(f"[{name}] its variables are not those of its base_url")
        rows[name] = row
    return rows


def provider_named(name: str, config: Config | None = None) -> Provider:
    """A provider of the catalogue or of the configuration, what the latter says laid over it."""
    row = catalogue().get(name)
    table = config.providers.get(name) if config is not None else None
    if row is None and table is None:
        known = {*catalogue(), *(config.providers if config is not None else ())}
        raise UsageError(
            f"{name!r} is not a known provider.",
            hint=did_you_mean(name, known) or "`lightgate models` lists the known ones.",
        )
    if row is None:
        row = own_provider(name, "")
    return row if table is None else _laid_over(row, table)


def own_provider(name: str, base_url: str) -> Provider:
    """A provider outside the catalogue: plain OpenAI-compatible."""
    return Provider(
        name=name,
        title=name,
        base_url=base_url,
        kinds=_OWN_KINDS,
        passes=(*_BETA["openai"], *_OWN_PASSES),
    )


def known_providers(config: Config | None = None) -> dict[str, Provider]:
    """The catalogue and the configuration's own providers, by name."""
    own = config.providers if config is not None else ()
    return {name: provider_named(name, config) for name in (*catalogue(), *own)}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence with the nearest known names, or nothing."""
    near = difflib.get_close_matches(word.lower(), list(known), n=2, cutoff=0.6)
    return f"Did you mean {' or '.join(near)}?" if near else ""


def _laid_over(row: Provider, table: ProviderTable) -> Provider:
    changes: dict[str, object] = {}
    if table.base_url is not None:
        changes["base_url"] = table.base_url
    if table.dialect is not None and table.dialect != row.dialect:
        # Another dialect takes the key as that dialect's own provider does.
        home = catalogue()[table.dialect]
        changes |= {"dialect": home.dialect, "auth": home.auth, "headers": home.headers}
        changes["passes"] = (*_BETA[table.dialect], *_OWN_PASSES)
    if table.abort_stops_billing is not None:
        changes["abort"] = AbortPolicy(
            stops_billing=table.abort_stops_billing, source="lightgate.toml"
        )
    return msgspec.structs.replace(row, **changes)


def placeholders(base_url: str) -> tuple[str, ...]:
    """Names of the variables in a templated base URL, in order, each once."""
    return tuple(dict.fromkeys(_VARIABLE.findall(base_url)))


def fill(base_url: str, values: dict[str, str]) -> str:
    """Put the variables' values into a templated base URL."""
    return _VARIABLE.sub(lambda match: values[match[1]], base_url)
