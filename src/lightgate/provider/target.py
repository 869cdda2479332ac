"""Targets: read from a flag or the configuration, with base URL, key and prices."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from lightgate.config.notation import MODEL_PLACE, check_base_url
from lightgate.errors import ConfigError, CredentialsError, UsageError
from lightgate.price.cost import Cost, PriceTerms, price_of
from lightgate.price.rates import Rates, TierRates, rates_of
from lightgate.provider.catalogue import (
    ENV,
    LIVE,
    Provider,
    Variable,
    catalogue,
    did_you_mean,
    fill,
    own_provider,
    placeholders,
    provider_named,
)
from lightgate.provider.cloud.access import VARIABLES, can_sign, sent_values, signer_of
from lightgate.provider.cloud.signer import Ask, Signer
from lightgate.provider.secret import Secret, first_set, key_from_env
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lightgate.clock.tokens import Usage
    from lightgate.config.model import Config, PriceTable, ProviderTable
    from lightgate.provider.cloud.tokens import TokenKeepers

_FORMS = "A target is provider/model, or NAME=URL#MODEL for any OpenAI-compatible base URL."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
READY_S: Final = 30.0  # for the first token of a cloud
_QUERY: Final = "query:"
_VALUE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one provider, ready to be called.

    `hourly_cost` is in dollars, self-hosted only; `rates` are the user's own prices. `values` are
    those of headers and query that stand in the environment, by variable; `signer` lets requests in
    where no key does.
    """

    name: str
    provider: Provider
    model: str
    base_url: str
    api_key: Secret | None = None
    hourly_cost: Decimal | None = None
    rates: Rates | None = None
    values: dict[str, Secret] = {}
    signer: Signer | None = None

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The provider's fixed headers and the one that carries the key."""
        fixed = self.provider.headers
        if self.values:
            fixed = tuple([(name, self._value(text)) for name, text in fixed])
        auth = self.provider.auth
        if self.api_key is None or auth == "none" or auth.startswith(_QUERY):
            return fixed
        key = self.api_key.reveal()
        if auth == "bearer" or auth in LIVE:
            return (*fixed, ("authorization", f"Bearer {key}"))
        return (*fixed, (auth, key))

    def path(self, path: str) -> str:
        """A path with the query that every request to this target has."""
        provider = self.provider
        with_key = self.api_key is not None and provider.auth.startswith(_QUERY)
        if not provider.query and not with_key:
            return path
        pairs = [(name, self._value(text)) for name, text in provider.query]
        if self.api_key is not None and with_key:
            pairs.append((provider.auth.removeprefix(_QUERY), self.api_key.reveal()))
        said = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
        return f"{path}{'&' if '?' in path else '?'}{said}"

    def bare(self, method: str, path: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The path and the headers of a request without a body, such as GET /models."""
        origin, root = split_url(self.base_url)
        path, headers = self.path(root.rstrip("/") + path), self.headers()
        if self.signer is not None:
            headers += self.signer.sign(Ask(method, origin.authority, path, headers, ()))
        return path, headers

    def ready(self, timeout_s: float = READY_S) -> None:
        """Wait until requests can be let in; CredentialsError says why not. It blocks."""
        if self.signer is not None:
            self.signer.ready(timeout_s)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What must not be shown: the key, the values from the environment, the signer's."""
        key = () if self.api_key is None else (self.api_key,)
        signer = () if self.signer is None else self.signer.secrets
        return (*key, *self.values.values(), *signer)

    def _value(self, text: str) -> str:
        return self.values[text.removeprefix(ENV)].reveal() if text.startswith(ENV) else text

    def cost(self, usage: Usage, at: datetime, *, batch: bool = False) -> Cost:
        """The cost of one request at this target; the first call reads the price list (0.5 s)."""
        offer = self.provider.batch
        terms = PriceTerms(
            override=self.rates,
            hourly_cost=self.hourly_cost,
            batch=batch,
            discount=offer.discount if offer is not None else None,
        )
        return price_of(self.provider.price_provider, self.model, usage, at, terms=terms)


def resolve(
    spec: str,
    *,
    env: Mapping[str, str],
    config: Config | None = None,
    key_env: str | None = None,
    keepers: TokenKeepers | None = None,
) -> Target:
    """Read `provider/model` or `NAME=URL#MODEL`; `key_env` names the variable with the key.

    `keepers` are those of the tokens that other targets of the same run use too.
    """
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
        makers = [
            row.name for row in catalogue().values() if row.makes and re.match(row.makes, spec)
        ]
        meant = f"Did you mean {makers[0]}/{spec}? " if makers else ""
        raise UsageError(f"{spec!r} is not a target.", hint=f"{meant}{_FORMS}")
    _check_model(model)
    provider = provider_named(name, config)
    table = config.providers.get(name) if config is not None else None
    own = config.prices.get(spec) if config is not None else None
    target = Target(
        name=spec,
        provider=provider,
        model=model,
        base_url=base_url_of(provider, table, env),
        api_key=_key(provider, config, env, key_env),
        hourly_cost=table.hourly_cost if table is not None else None,
        rates=own_rates(own) if own is not None else None,
    )
    settings = table.variables if table is not None else {}
    signer = None
    if target.api_key is None:
        signer = signer_of(provider, target.base_url, settings, env, keepers)
    return let_in(target, env, signer)


def let_in(target: Target, env: Mapping[str, str], signer: Signer | None) -> Target:
    """The target with its model in the base URL and with all that its requests carry."""
    base_url = target.base_url
    if MODEL_PLACE in base_url:
        if target.model in {".", ".."}:
            raise UsageError(f"{target.model!r} cannot be a model.", hint=_FORMS)
        base_url = base_url.replace(MODEL_PLACE, quote(target.model, safe=""))
    values = sent_values(target.provider, env)
    return msgspec.structs.replace(target, base_url=base_url, values=values, signer=signer)


def rates_at(target: str, config: Config | None, at: datetime) -> Rates | None:
    """The prices of a target at a moment: the configuration's own, else the list's."""
    own = None if config is None else config.prices.get(target)
    if own is not None:
        return own_rates(own)
    name, _, model = target.partition("/")
    known = name in catalogue() or (config is not None and name in config.providers)
    listed_as = provider_named(name, config).price_provider if known else None
    return None if listed_as is None else rates_of(listed_as, model, at)


def own_rates(table: PriceTable) -> Rates:
    """The user's own prices as rates."""
    return Rates(
        input=table.input,
        output=table.output,
        cached=table.cached,
        cache_write=table.cache_write,
        batch_input=table.batch_input,
        batch_output=table.batch_output,
        batch_source="override" if table.batch_input is not None else None,
        characters=table.characters,
        audio_hour=table.audio_hour,
        input_audio=table.input_audio,
        output_audio=table.output_audio,
        output_image=table.output_image,
        calls=dict(table.calls),
        tiers={
            name: TierRates(
                input=tier.input,
                output=tier.output,
                cached=tier.cached,
                cache_write=tier.cache_write,
            )
            for name, tier in table.tiers.items()
        },
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
    if provider.auth in LIVE:
        settings = table.variables if table is not None else {}
        if can_sign(provider, settings, env):
            return None, True
        return next(iter(provider.key_env), VARIABLES[provider.auth]), False
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


def base_url_of(provider: Provider, table: ProviderTable | None, env: Mapping[str, str]) -> str:
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
    if name is None or (not ready and provider.auth in LIVE):
        return None  # the signer says what it lacks
    table = config.providers.get(provider.name) if config is not None else None
    if ready or (table is not None and table.api_key is not None):
        return key_from_env(name, env)
    first, *others = provider.key_env
    also = f" (also read: {', '.join(others)})" if others else ""
    raise CredentialsError(
        f"No API key for {provider.title}: {first} is not set.", hint=f"export {first}=...{also}"
    )
