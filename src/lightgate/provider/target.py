"""Targets: read from a flag or the configuration, with base URL, key and prices."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from lightgate.config.notation import check_base_url
from lightgate.errors import ConfigError, CredentialsError, UsageError
from lightgate.price.cost import Cost, PriceTerms, price_of
from lightgate.price.rates import Rates
from lightgate.provider.catalogue import (
    Provider,
    Variable,
    catalogue,
    did_you_mean,
    fill,
    own_provider,
    placeholders,
    provider_named,
)
from lightgate.provider.secret import Secret, first_set, key_from_env

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lightgate.clock.tokens import Usage
    from lightgate.config.model import Config, PriceTable, ProviderTable

_FORMS = "A target is provider/model, or NAME=URL#MODEL for any OpenAI-compatible base URL."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_VALUE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one provider, ready to be called.

    `hourly_cost` is in dollars, self-hosted only; `rates` are the user's own prices.
    """

    name: str
    provider: Provider
    model: str
    base_url: str
    api_key: Secret | None = None
    hourly_cost: Decimal | None = None
    rates: Rates | None = None

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The provider's fixed headers and the one that carries the key."""
        if self.api_key is None or self.provider.auth == "none":
            return self.provider.headers
        key = self.api_key.reveal()
        if self.provider.auth == "bearer":
            return (*self.provider.headers, ("authorization", f"Bearer {key}"))
        return (*self.provider.headers, (self.provider.auth, key))

    def cost(self, usage: Usage, at: datetime, *, batch: bool = False) -> Cost:
        """The cost of one request at this target; the first call reads the price list (0.5 s)."""
        terms = PriceTerms(override=self.rates, hourly_cost=self.hourly_cost, batch=batch)
        return price_of(self.provider.price_provider, self.model, usage, at, terms=terms)


def resolve(
    spec: str,
    *,
    env: Mapping[str, str],
    config: Config | None = None,
    key_env: str | None = None,
) -> Target:
    """Read `provider/model` or `NAME=URL#MODEL`; `key_env` names the variable with the key."""
    alone = url_alone(spec)
    if alone is not None:
        base_url, model = alone
        wants = "a name before it" + ("" if model else " and a model after it")
        raise UsageError(
            f"A target that is a URL needs {wants}: NAME=URL#MODEL.",
            hint=f"Write it like 'mine={base_url}#{model or 'MODEL'}'.",
        )
    head, equals, rest = spec.partition("=")
    if equals and "/" not in head:
        return _from_url(head, rest, env=env, key_env=key_env)
    name, slash, model = spec.partition("/")
    if not slash or not name or not model:
        raise UsageError(f"{spec!r} is not a target.", hint=_FORMS)
    _check_model(model)
    provider = provider_named(name, config)
    table = config.providers.get(name) if config is not None else None
    own = config.prices.get(spec) if config is not None else None
    return Target(
        name=spec,
        provider=provider,
        model=model,
        base_url=_base_url(provider, table, env),
        api_key=_key(provider, config, env, key_env),
        hourly_cost=table.hourly_cost if table is not None else None,
        rates=own_rates(own) if own is not None else None,
    )


def own_rates(table: PriceTable) -> Rates:
    """The user's own prices as rates."""
    return Rates(
        input=table.input,
        output=table.output,
        cached=table.cached,
        cache_write=table.cache_write,
        batch_input=table.batch_input,
        batch_output=table.batch_output,
        source="override",
        as_of=table.as_of.isoformat() if table.as_of is not None else None,
    )


def key_variable(
    provider: Provider, config: Config | None, env: Mapping[str, str]
) -> tuple[str | None, bool]:
    """The variable of the key, and whether a call can be made without setting anything."""
    table = config.providers.get(provider.name) if config is not None else None
    if table is not None and table.api_key is not None:
        name = table.api_key.removeprefix("env:")
        return (None, True) if name == "none" else (name, first_set((name,), env) is not None)
    found = first_set(provider.key_env, env)
    if found is not None:
        return found, True
    free = provider.local or provider.auth == "none" or not provider.key_env
    return (None, True) if free else (provider.key_env[0], False)


def url_alone(spec: str) -> tuple[str, str] | None:
    """The base URL and the model of a URL that was given where a target belongs; None if not."""
    if not spec.lower().startswith(("http://", "https://")):
        return None
    url, _, model = spec.partition("#")
    try:
        return check_base_url(url), model
    except ValueError as reason:
        raise UsageError(f"The URL of a target is wrong: {reason}.", hint=_FORMS) from None


def _from_url(name: str, rest: str, *, env: Mapping[str, str], key_env: str | None) -> Target:
    """A target outside the catalogue: an OpenAI-compatible base URL and a model."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a target; use letters, digits, '-', '_' and '.'.", hint=_FORMS
        )
    url, _, model = rest.partition("#")
    try:
        base_url = check_base_url(url)
    except ValueError as reason:
        raise UsageError(f"The URL of target {name!r} is wrong: {reason}.", hint=_FORMS) from None
    if not model:
        raise UsageError(
            f"The target {name!r} names no model.", hint=f"Write it like '{name}={base_url}#MODEL'."
        )
    _check_model(model)
    return Target(
        name=name,
        provider=own_provider(name, base_url),
        model=model,
        base_url=base_url,
        api_key=key_from_env(key_env, env) if key_env else None,
    )


def _check_model(model: str) -> None:
    if any(c.isspace() or not c.isprintable() for c in model):
        raise UsageError(f"{model!r} cannot be a model: it holds white space.", hint=_FORMS)


def sdk_base_url(provider: Provider, env: Mapping[str, str]) -> str | None:
    """The base URL that the variable of the provider's official SDK names; None: it is not set.

    Some SDKs add a path to it, such as /v1, which is added here too unless it is there already.
    """
    url = env.get(provider.base_url_env, "").strip() if provider.base_url_env else ""
    if not url:
        return None
    try:
        found = check_base_url(url).rstrip("/")
    except ValueError as reason:
        raise ConfigError(
            f"{provider.base_url_env} is no base URL: {reason}.",
            hint=f"Correct it, or unset it to call {provider.base_url}.",
        ) from None
    return found if found.endswith(provider.base_url_path) else found + provider.base_url_path


def _base_url(provider: Provider, table: ProviderTable | None, env: Mapping[str, str]) -> str:
    """The base URL with its variables filled; they cannot leave the place they stand in.

    The file's own base_url comes first, then the SDK's variable, then the catalogue's.
    """
    if (table is None or table.base_url is None) and provider.name in catalogue():
        found = sdk_base_url(provider, env)
        if found is not None:
            return found
    if not provider.base_url:
        raise ConfigError(
            f"[providers.{provider.name}] needs a base_url, because {provider.name!r} is not in"
            " the catalogue.",
            hint=did_you_mean(provider.name, catalogue())
            or f'Add base_url = "https://..." under [providers.{provider.name}].',
        )
    given = table.variables if table is not None else {}
    known = {variable.name: variable for variable in provider.variables}
    values = {
        name: _value(provider, known[name], given, env) for name in placeholders(provider.base_url)
    }
    try:
        return check_base_url(fill(provider.base_url, values))
    except ValueError as reason:
        raise ConfigError(
            f"The base URL of {provider.title} is wrong: {reason}.",
            hint=f"Check {', '.join(values)}.",
        ) from None


def _value(
    provider: Provider, variable: Variable, given: Mapping[str, str], env: Mapping[str, str]
) -> str:
    names = (variable.name, *variable.also)
    found = first_set(names, env)
    value = given.get(variable.name) or (env[found] if found is not None else "")
    if not value:
        raise ConfigError(
            f"{provider.title} needs {variable.name}: {variable.means}.",
            hint=f"Set {' or '.join(names)} in the environment, or put it under"
            f" [providers.{provider.name}.variables] in lightgate.toml.",
        )
    if not _VALUE.fullmatch(value):
        raise ConfigError(
            f"{variable.name} may hold only letters, digits, '-', '_' and '.': {value!r} does not.",
            hint=f"It is {variable.means}, without a scheme or slashes.",
        )
    return value


def _key(
    provider: Provider, config: Config | None, env: Mapping[str, str], key_env: str | None
) -> Secret | None:
    """The key of a target: from the flag, then the file, then the provider's variables."""
    name, ready = (key_env, True) if key_env else key_variable(provider, config, env)
    if name is None:
        return None
    table = config.providers.get(provider.name) if config is not None else None
    if ready or (table is not None and table.api_key is not None):
        return key_from_env(name, env)
    first, *others = provider.key_env
    also = f" (also read: {', '.join(others)})" if others else ""
    raise CredentialsError(
        f"No API key for {provider.title}: {first} is not set.", hint=f"export {first}=...{also}"
    )
