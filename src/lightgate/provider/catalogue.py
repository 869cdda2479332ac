"""The providers that Lightgate knows: rows of `catalogue.toml`, read on first use."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, cast, get_args, get_type_hints

import msgspec

from lightgate.dialect.quirks import Quirks
from lightgate.dialect.request import RARE, Kind
from lightgate.errors import ConfigError, UsageError
from lightgate.price.rates import BatchDiscount
from lightgate.provider.table_text import table_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lightgate.config.model import Config, ProviderTable

Family = Literal["openai", "anthropic", "gemini"]
Pairs = tuple[tuple[str, str], ...]

LIVE: Final = frozenset(("sigv4", "google", "azure"))  # ways in that a key may stand in for
# Variables of a table that say how its requests are let in.
_SETTINGS: Final = {
    "sigv4": ("AWS_REGION", "AWS_PROFILE", "AWS_SERVICE"),
    "google": ("GOOGLE_APPLICATION_CREDENTIALS",),
    "azure": ("AZURE_CLIENT_ID", "AZURE_TOKEN_SCOPE"),
}
ENV: Final = "env:"  # before the name of the variable that holds a value
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


class PartTokens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most tokens that a provider bills for one part of a request that is no text.

    The defaults hold for the dearest that is known: a picture is 2,833 tokens and 5,667 for each of
    up to eight tiles at OpenAI's gpt-4o-mini, a file fills a context window of a million, and an
    hour of sound is 115,200 tokens at Google's 32 a second. `call` is for the result of one call of
    a tool that the provider carries out itself, and `reasoning` for what it bills beside the limit
    on an answer.
    """

    image: int = 48_169
    file: int = 1_000_000
    sound: int = 115_200
    call: int = 16_000
    reasoning: int = 0


class BatchOffer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider's batch API: the form of its requests, its limits and its terms.

    `lines` and `bytes` are the most that one job may have, `window_h` the hours after which it
    expires, `keep_h` how many hours its results are kept; None where no source says so. `discount`
    is for models whose batch price the price list does not have; without it their price is unknown.
    `endpoints` are those that lines may ask, by their kind.
    """

    form: Literal["openai", "groq", "together", "mistral", "anthropic", "gemini"]
    lines: int
    bytes: int | None = None
    window_h: int = 24
    keep_h: int | None = None
    discount: BatchDiscount | None = None
    endpoints: tuple[Kind, ...] = ("chat",)
    source: str = ""
    as_of: str = ""


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A service that answers requests; `price_provider` is its id in genai-prices.

    `makes` is a pattern of the names of the models that the provider made itself; a bare name that
    it matches belongs to this provider first. `has` is a pattern of those models of the price list
    that can be called here, where that is not all of them. `model_prefix` stands before the names
    of the price list in requests, and `example` is a model for a first try. `base_url_env` is the
    variable from which the provider's official SDK reads its base URL; `base_url_path` is what
    that SDK adds.
    `auth` is how the key travels: bearer, the name of a header, query:NAME, none; or sigv4,
    google or azure, which need no key and take one as a bearer's where there is one. A value of
    `headers` and `query` is a text, or "env:NAME". `as_of` is the day on which the row was last
    held against public documentation or code. `calls` are dollars for a thousand calls of tools
    that the provider carries out itself, by kind, where the price list has none.
    """

    name: str
    title: str
    base_url: str
    dialect: Family = "openai"
    auth: str = "bearer"
    key_env: tuple[str, ...] = ()
    abort: AbortPolicy = AbortPolicy()
    quirks: Quirks = Quirks()
    headers: Pairs = ()
    query: Pairs = ()
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
    kinds_known: bool = False  # there are no others
    part_tokens: PartTokens = PartTokens()
    batch: BatchOffer | None = None  # None: it has no batch API, or none that is known
    calls: dict[str, Decimal] = {}
    hardware: str = ""  # that it says its models run on, where it is not GPUs of all kinds
    notes: str = ""
    docs: str = ""
    as_of: str = ""

    def has_endpoint(self, kind: Kind) -> bool:
        """Whether requests of a kind are sent here.

        What is not rare is tried at every provider, unless the kinds of a table say that there are
        no others, or the provider has responses in the place of chat.
        """
        if kind in self.kinds:
            return True
        return kind not in RARE and not self.kinds_known and self.answers_at(kind) == kind

    def answers_at(self, kind: Kind) -> Kind:
        """The kind of endpoint for a request: responses where the provider has no chat."""
        lacks = kind == "chat" and "chat" not in self.kinds and "responses" in self.kinds
        return "responses" if lacks else kind


@functools.cache
def catalogue() -> Mapping[str, Provider]:
    """Every known provider by name, in the order of the file."""
    text = table_text("catalogue.toml")
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
    table = config.providers.get(name) if config is not None else None
    row = catalogue().get(name)
    if row is None and table is not None and table.like is not None:
        row = _named_anew(name, table)
    if row is None and table is None:
        known = {*catalogue(), *(config.providers if config is not None else ())}
        raise UsageError(
            f"{name!r} is not a known provider.",
            hint=did_you_mean(name, known) or "`lightgate models` lists the known ones.",
        )
    if row is None:
        row = own_provider(name, "")
    if table is None:
        return row
    found = table_problems(name, table)
    if found:
        place, sentence = found[0]
        raise ConfigError(f"[providers.{name}] {'.'.join(place)}: {sentence}.")
    return _laid_over(row, table)


def table_problems(name: str, table: ProviderTable) -> list[tuple[tuple[str, ...], str]]:
    """What is wrong with a provider's table beside the catalogue: each key with its sentence."""
    found: list[tuple[tuple[str, ...], str]] = []
    if table.like is not None and name in catalogue():
        found.append((("like",), f"{name!r} is in the catalogue itself; take another name for it"))
    elif table.like is not None and table.like not in catalogue():
        near = did_you_mean(table.like, catalogue())
        said = f"{table.like!r} is not a provider of the catalogue. {near}".strip().rstrip("?.")
        found.append((("like",), f"{said}?" if near else said))
    kinds = get_args(Kind)
    strange = [kind for kind in table.kinds if kind not in kinds]
    found += [(("kinds",), f"{kind!r} is none of {', '.join(kinds)}") for kind in strange]
    for quirk, value in table.quirks.items():
        said = _quirk_problem(quirk, value)
        if said:
            found.append((("quirks", quirk), said))
    known = _variables(name, table)
    for variable in table.variables:
        if variable not in known:
            said = f"nothing is read from it. {_near(variable, known)}"
            found.append((("variables", variable), said.strip().rstrip(".")))
    carrier = _carrier(name, table)
    if table.api_key != "none" and carrier in {header.lower() for header in table.headers}:
        said = f'the key travels in {carrier}; auth = "none" leaves that header to you'
        found.append((("headers",), said))
    return found


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
    import difflib  # for wrong names alone

    near = difflib.get_close_matches(word.lower(), list(known), n=2, cutoff=0.6)
    return f"Did you mean {' or '.join(near)}?" if near else ""


def references(provider: Provider) -> tuple[str, ...]:
    """The environment variables that the values of a provider's headers and query stand in."""
    values = [value for _, value in (*provider.headers, *provider.query)]
    return tuple(
        dict.fromkeys(value.removeprefix(ENV) for value in values if value.startswith(ENV))
    )


def _named_anew(name: str, table: ProviderTable) -> Provider | None:
    row = catalogue().get(table.like or "")
    if row is None:
        return None
    # Bare names and the SDK's variables stay with the provider of the catalogue's own name.
    return msgspec.structs.replace(
        row, name=name, title=f"{row.title} ({name})", makes="", base_url_env=""
    )


def _near(word: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word.upper(), list(known), n=1)
    return f"Did you mean {near[0]}?" if near else ""


def _variables(name: str, table: ProviderTable) -> tuple[str, ...]:
    """The variables that a table may give: those of its row's base URL, and of its way in."""
    row = catalogue().get(table.like or name)
    auth = table.auth or (row.auth if row is not None else "")
    named = [variable.name for variable in row.variables] if row is not None else []
    return tuple(dict.fromkeys((*named, *_SETTINGS.get(auth, ()))))


def _carrier(name: str, table: ProviderTable) -> str:
    """The header that carries the key, or what else `auth` says."""
    row = catalogue().get(table.like or name)
    if table.dialect is not None and (row is None or table.dialect != row.dialect):
        row = catalogue()[table.dialect]
    auth = table.auth or (row.auth if row is not None else "bearer")
    return "authorization" if auth == "bearer" or auth in LIVE else auth


def _quirk_problem(name: str, value: object) -> str:
    if name not in Quirks.__struct_fields__:
        return f"there is no such quirk. {did_you_mean(name, Quirks.__struct_fields__)}".strip(" .")
    try:
        _quirks(Quirks(), {name: value})
    except msgspec.ValidationError as reason:
        wanted = str(reason).partition(" - at ")[0]
        return wanted[:1].lower() + wanted[1:].replace("`", "")
    return ""


def _quirks(row: Quirks, changes: Mapping[str, object]) -> Quirks:
    """A row's quirks with those of a table over them; "none" is the word for None."""
    hints = get_type_hints(Quirks)
    said = {
        name: None if value == "none" and type(None) in get_args(hints[name]) else value
        for name, value in changes.items()
    }
    return msgspec.convert({**msgspec.structs.asdict(row), **said}, Quirks)


def _over(row: Pairs, given: Mapping[str, str]) -> Pairs:
    """Pairs of a row with those of a table over them; names differ by more than their case."""
    said = {name.lower() for name in given}
    return (*(pair for pair in row if pair[0].lower() not in said), *given.items())


def _laid_over(row: Provider, table: ProviderTable) -> Provider:
    changes: dict[str, object] = {}
    if table.base_url is not None:
        changes["base_url"] = table.base_url
    if table.dialect is not None and table.dialect != row.dialect:
        # Another dialect takes the key as that dialect's own provider does.
        home = catalogue()[table.dialect]
        changes |= {"dialect": home.dialect, "auth": home.auth, "headers": home.headers}
        changes["passes"] = (*_BETA[table.dialect], *_OWN_PASSES)
    if table.auth is not None:
        changes["auth"] = table.auth
        if table.auth in LIVE:
            changes["key_env"] = ()  # only a key that the table names stands in for it
    if table.headers:
        headers = changes.get("headers", row.headers)
        changes["headers"] = _over(cast("Pairs", headers), table.headers)
    if table.query:
        changes["query"] = _over(row.query, table.query)
    if table.kinds:
        changes |= {"kinds": table.kinds, "kinds_known": True}
    if table.quirks:
        changes["quirks"] = _quirks(row.quirks, table.quirks)
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
