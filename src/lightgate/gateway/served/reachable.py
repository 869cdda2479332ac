"""Which providers the gateway can call: those that are configured or have a key, with prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.errors import ConfigError, CredentialsError
from lightgate.gateway.served.snapshot import Reach
from lightgate.provider.catalogue import catalogue
from lightgate.provider.target import key_variable, own_rates, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lightgate.config.model import Config
    from lightgate.price.rates import Rates


def reachable(config: Config, env: Mapping[str, str], at: datetime) -> dict[str, Reach]:
    """Every provider that may be called, by name.

    One that a model's target names must be complete; the others of the catalogue are taken in
    where the environment has their key.
    """
    wanted = {target.partition("/")[0]: target for target in _targets(config)}
    for name in config.providers:
        wanted.setdefault(name, f"{name}/any")
    found = {name: _reach(target, config, env, at) for name, target in wanted.items()}
    for name, provider in catalogue().items():
        variable, ready = key_variable(provider, config, env)
        if name not in found and ready and variable is not None:
            try:
                found[name] = _reach(f"{name}/any", config, env, at)
            except ConfigError:  # a templated address whose variables are not set: nobody's wish
                continue
    return found


def _targets(config: Config) -> list[str]:
    named = [target for model in config.models.values() for target in model.targets]
    for model in config.models.values():
        named.extend(target for tier in model.tiers for target in tier.targets)
    return named


def _reach(spec: str, config: Config, env: Mapping[str, str], at: datetime) -> Reach:
    target = resolve(spec, env=env, config=config)
    variable, ready = key_variable(target.provider, config, env)
    if not ready:
        raise CredentialsError(f"The environment variable {variable} is not set.")
    name = target.provider.name
    return Reach(
        provider=target.provider,
        base_url=target.base_url,
        key_env=variable if target.api_key is not None else None,
        hourly_cost=target.hourly_cost,
        prices=_prices(name, target.provider.price_provider, config, at),
    )


def _prices(
    name: str, price_provider: str | None, config: Config, at: datetime
) -> dict[str, Rates]:
    prices: dict[str, Rates] = {}
    if price_provider is not None:
        from lightgate.price.rates import models_of

        prices = {
            model.id: model.rates
            for model in models_of(price_provider, at)
            if model.rates.input is not None
        }
    for target, table in config.prices.items():
        provider, _, model = target.partition("/")
        if provider == name:
            prices[model] = own_rates(table)
    return prices
