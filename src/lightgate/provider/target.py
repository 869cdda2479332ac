"""From what a user typed or configured to a target that can be called."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

import msgspec

from lightgate.config.address import check_base_url
from lightgate.errors import ConfigError, CredentialsError, UsageError
from lightgate.provider.catalogue import catalogue
from lightgate.provider.secret import Secret
from lightgate.provider.spec import AbortPolicy, Provider, Variable, fill, placeholders

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from decimal import Decimal

    from lightgate.config.model import Config, ProviderTable

_FORMS = "A target is provider/model, or NAME=URL#MODEL for any OpenAI-compatible base URL."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_VALUE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one provider, ready to be called; `hourly_cost` in dollars, self-hosted only."""

    name: str
    provider: Provider
    model: str
    base_url: str
    api_key: Secret | None = None
    hourly_cost: Decimal | None = None

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The provider's fixed headers and the one that carries the key."""
        if self.api_key is None or self.provider.auth == "none":
            return self.provider.headers
        key = self.api_key.reveal()
        if self.provider.auth == "bearer":
            return (*self.provider.headers, ("authorization", f"Bearer {key}"))
        return (*self.provider.headers, (self.provider.auth, key))


def resolve(
    spec: str,
    *,
    env: Mapping[str, str],
    config: Config | None = None,
    key_env: str | None = None,
) -> Target:
    """Read `provider/model` or `NAME=URL#MODEL`; `key_env` names the variable with the key."""
    head, equals, rest = spec.partition("=")
    if equals and "/" not in head:
        return _from_url(head, rest, env=env, key_env=key_env)
    name, slash, model = spec.partition("/")
    if not slash or not name or not model.strip():
        raise UsageError(f"{spec!r} is not a target.", hint=_FORMS)
    _check_model(model)
    table = config.providers.get(name) if config is not None else None
    provider = _provider(name, table, config)
    base_url = _base_url(provider, table, env)
    return Target(
        name=spec,
        provider=provider,
        model=model,
        base_url=base_url,
        api_key=_key(provider, table, env, key_env),
        hourly_cost=table.hourly_cost if table is not None else None,
    )


def find_key(provider: Provider, env: Mapping[str, str]) -> str | None:
    """The first of the provider's usual variables that is set in the environment."""
    return next((name for name in provider.key_env if env.get(name, "").strip()), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence with the nearest known names, or nothing."""
    near = difflib.get_close_matches(word.lower(), list(known), n=2, cutoff=0.6)
    return f"Did you mean {' or '.join(near)}?" if near else ""


def _from_url(name: str, rest: str, *, env: Mapping[str, str], key_env: str | None) -> Target:
    """A target outside the catalogue: an OpenAI-compatible base URL and a model."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a target; use letters, digits, '-', '_' and '.'.", hint=_FORMS
        )
    url, hash_, model = rest.partition("#")
    if not hash_ or not model.strip():
        raise UsageError(f"The target {name!r} names no model.", hint=_FORMS)
    _check_model(model)
    try:
        base_url = check_base_url(url)
    except ValueError as reason:
        raise UsageError(f"The URL of target {name!r} is wrong: {reason}.", hint=_FORMS) from None
    provider = Provider(
        name=name, title=name, base_url=base_url, kinds=("chat", "completion", "embedding")
    )
    return Target(
        name=name,
        provider=provider,
        model=model,
        base_url=base_url,
        api_key=_from_env(key_env, env) if key_env else None,
    )


def _check_model(model: str) -> None:
    if any(c.isspace() or not c.isprintable() for c in model):
        raise UsageError(f"{model!r} cannot be a model: it holds white space.", hint=_FORMS)


def _provider(name: str, table: ProviderTable | None, config: Config | None) -> Provider:
    """The catalogue's row, with what the configuration says laid over it."""
    row = catalogue().get(name)
    if row is None and table is None:
        known = {*catalogue(), *(config.providers if config is not None else ())}
        raise UsageError(
            f"{name!r} is not a known provider.",
            hint=did_you_mean(name, known) or "`lightgate models` lists the known ones.",
        )
    if row is None:
        row = Provider(
            name=name, title=name, base_url="", kinds=("chat", "completion", "embedding")
        )
    if table is None:
        return row
    changes: dict[str, object] = {}
    if table.base_url is not None:
        changes["base_url"] = table.base_url
    if table.dialect is not None and table.dialect != row.dialect:
        changes["dialect"] = table.dialect
        changes["auth"], changes["headers"] = _usual_auth(table.dialect)
    if table.abort_stops_billing is not None:
        changes["abort"] = AbortPolicy(stops_billing=table.abort_stops_billing, source="lightgate.toml")
    return msgspec.structs.replace(row, **changes)


def _usual_auth(dialect: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """How endpoints of a dialect usually take the key: as that dialect's own provider does."""
    home = {"anthropic": "anthropic", "gemini": "gemini"}.get(dialect, "openai")
    row = catalogue()[home]
    return row.auth, row.headers


def _base_url(provider: Provider, table: ProviderTable | None, env: Mapping[str, str]) -> str:
    """The base URL with its variables filled; they cannot leave the place they stand in."""
    if not provider.base_url:
        raise ConfigError(
            f"[providers.{provider.name}] needs a base_url, because {provider.name!r} is not in the"
            " catalogue.",
            hint=did_you_mean(provider.name, catalogue())
            or f'Add base_url = "https://..." under [providers.{provider.name}].',
        )
    given = table.variables if table is not None else {}
    known = {variable.name: variable for variable in provider.variables}
    values: dict[str, str] = {}
    for name in placeholders(provider.base_url):
        variable = known.get(name) or Variable(name=name, means="a part of the base URL")
        values[name] = _value(provider, variable, given, env)
    try:
        return check_base_url(fill(provider.base_url, values))
    except ValueError as reason:
        raise ConfigError(f"The base_url of provider {provider.name!r} is wrong: {reason}.") from None


def _value(
    provider: Provider, variable: Variable, given: Mapping[str, str], env: Mapping[str, str]
) -> str:
    places = (variable.name, *variable.also)
    value = given.get(variable.name) or next((env[n] for n in places if env.get(n)), "")
    if not value:
        raise ConfigError(
            f"{provider.title} needs {variable.name}: {variable.means}.",
            hint=f"Set {' or '.join(places)} in the environment, or put it under"
            f" [providers.{provider.name}.variables] in lightgate.toml.",
        )
    if not _VALUE.fullmatch(value):
        raise ConfigError(
            f"{variable.name} may hold only letters, digits, '-', '_' and '.': {value!r} does not.",
            hint=f"It is {variable.means}, without a scheme or slashes.",
        )
    return value


def _key(
    provider: Provider, table: ProviderTable | None, env: Mapping[str, str], key_env: str | None
) -> Secret | None:
    """The key: flag, then file, then the provider's usual variables."""
    if key_env:
        return _from_env(key_env, env)
    if table is not None and table.api_key is not None:
        kind, _, name = table.api_key.partition(":")
        return _from_env(name, env) if kind == "env" else None
    if provider.auth == "none":
        return None
    found = find_key(provider, env)
    if found is not None:
        return _from_env(found, env)
    if provider.local or not provider.key_env:
        return None
    raise CredentialsError(
        f"No API key for {provider.title}: {provider.key_env[0]} is not set.",
        hint=f"export {provider.key_env[0]}=..."
        + (f" (also read: {', '.join(provider.key_env[1:])})" if provider.key_env[1:] else ""),
    )


def _from_env(name: str, env: Mapping[str, str]) -> Secret:
    if not _ENV_NAME.fullmatch(name):
        # The text is not repeated: it may be the key itself, typed in the wrong place.
        raise UsageError("--key-env takes the name of an environment variable, not the key itself.")
    if not env.get(name, "").strip():
        raise CredentialsError(
            f"The environment variable {name} is not set.", hint=f"export {name}=..."
        )
    return Secret(env[name], origin=f"The key in {name}")
