"""Make a snapshot of a configuration: providers that can be called, their prices, the models."""

from __future__ import annotations

import secrets
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lightgate.clock.source import SYSTEM
from lightgate.errors import ConfigError, CredentialsError
from lightgate.gateway.served.names import bare_names, maker_rows, offers_of
from lightgate.gateway.served.own_address import check_not_own
from lightgate.gateway.served.priors import gather_priors, priors_of
from lightgate.gateway.served.snapshot import (
    BatchTerms,
    KeptTerms,
    LoadTerms,
    ProbeTerms,
    Reach,
    Snapshot,
    WorkerTerms,
)
from lightgate.gateway.served.tiers import tiers_of
from lightgate.price.rates import with_calls
from lightgate.provider.catalogue import catalogue
from lightgate.provider.engine import engine_page_of
from lightgate.provider.target import base_url_of, key_variable, own_rates, resolve
from lightgate.route.form.slo import ServiceLevels
from lightgate.route.health.breaker import Rules
from lightgate.route.plan.alias import Alias
from lightgate.route.prompt.cache_key import CacheRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lightgate.config.model import BatchesTable, Config, ModelTable, ProbesTable
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.provider.model_list import ModelList
    from lightgate.provider.target import Target
    from lightgate.route.form.prior import Prior


def make_snapshot(
    config: Config,
    keys: Iterable[KeyRecord],
    env: Mapping[str, str],
    *,
    priors: Mapping[str, Prior] | None = None,
    lists: Mapping[str, ModelList] | None = None,
) -> Snapshot:
    """Resolve a configuration; ConfigError and CredentialsError say what is missing.

    `priors` are by default those of the configuration alone. `lists` are what providers said of
    their models.
    """
    breaker = config.gateway.breaker
    aliases = tuple(_alias(name, table) for name, table in config.models.items())
    tiers_of(aliases)  # a check that cannot be loaded stops the start here, not in every worker
    providers = _reachable(config, env, lists or {})
    return Snapshot(
        made_ns=SYSTEM.wall_ns(),
        instance=secrets.token_hex(8),
        providers=providers,
        aliases=aliases,
        keys=tuple(keys),
        terms=WorkerTerms(
            keep_alive_ns=config.gateway.keep_alive,
            max_body_bytes=config.gateway.max_body_bytes,
            cors=config.gateway.cors,
            responses=KeptTerms(
                keep=config.gateway.responses.keep,
                ttl_ns=config.gateway.responses.ttl,
                max_bytes=config.gateway.responses.max_bytes,
            ),
            batches=_batch_terms(config.gateway.batches),
            probes=_probe_terms(config.gateway.probes),
            limits=LoadTerms(**config.gateway.limits.model_dump()),
            breaker=Rules(
                streak=breaker.streak, open_ns=breaker.open, max_open_ns=breaker.max_open
            ),
        ),
        priors=dict(priors_of(gather_priors(config)) if priors is None else priors),
        names=bare_names(providers, auto=config.gateway.auto),
        auto=config.gateway.auto,
        makers=maker_rows(),
    )


def _batch_terms(table: BatchesTable) -> BatchTerms:
    given = table.model_dump()
    return BatchTerms(keep_ns=given.pop("keep"), **given)


def _probe_terms(table: ProbesTable) -> ProbeTerms:
    return ProbeTerms(
        on=table.on,
        every_ns=table.every,
        share=table.share,
        day_nano=round(table.max_usd_per_day * 1e9),
    )


def targets_of(config: Config, env: Mapping[str, str]) -> dict[str, Target]:
    """A target at every provider that can be called, by the provider's name.

    A provider of a model's target must be complete; the others of the catalogue are added where the
    environment has their key.
    """
    wanted = {target.partition("/")[0]: target for target in _targets(config)}
    for name in config.providers:
        wanted.setdefault(name, f"{name}/any")
    found = {name: _ready(target, config, env) for name, target in wanted.items()}
    for name, provider in catalogue().items():
        variable, ready = key_variable(provider, config, env)
        if name not in found and ready and variable is not None:
            try:
                found[name] = _ready(f"{name}/any", config, env)
            except ConfigError:  # no address, or the gateway's own: the file does not ask for it
                continue
    return found


def _reachable(
    config: Config, env: Mapping[str, str], lists: Mapping[str, ModelList]
) -> dict[str, Reach]:
    """Every provider that can be called, by name, with the models that it has."""
    at = datetime.now(UTC)
    named: dict[str, list[str]] = defaultdict(list)
    for spec in (*_targets(config), *config.prices, *config.priors):
        provider, _, model = spec.partition("/")
        if model:
            named[provider].append(model)
    return {
        name: _reach(target, config, env, (lists.get(name), named[name], at))
        for name, target in targets_of(config, env).items()
    }


def _targets(config: Config) -> list[str]:
    named = [target for model in config.models.values() for target in model.targets]
    for model in config.models.values():
        named.extend(target for tier in model.tiers for target in tier.targets)
    return named


def _ready(spec: str, config: Config, env: Mapping[str, str]) -> Target:
    target = resolve(spec, env=env, config=config)
    variable, ready = key_variable(target.provider, config, env)
    if not ready:
        raise CredentialsError(f"The environment variable {variable} is not set.")
    check_not_own(config, target.provider.name, target.base_url)
    return target


def _reach(
    target: Target,
    config: Config,
    env: Mapping[str, str],
    known: tuple[ModelList | None, list[str], datetime],
) -> Reach:
    own, named, at = known
    if own is not None and own.base_url != target.base_url:
        own = None  # of another address
    offers = offers_of(target.provider, own, named, at)
    name = target.provider.name
    for spec, prices in config.prices.items():
        provider, _, model = spec.partition("/")
        if provider == name:
            offers.prices[model] = own_rates(prices)
    calls = target.provider.calls
    for model, rates in offers.prices.items() if calls else ():
        offers.prices[model] = with_calls(rates, calls)
    variable, _ = key_variable(target.provider, config, env)
    table = config.providers.get(name)
    base_url = base_url_of(target.provider, table, env)
    return Reach(
        provider=target.provider,
        base_url=base_url,
        key_env=variable if target.api_key is not None else None,
        hourly_cost=target.hourly_cost,
        prices=offers.prices,
        models=offers.models,
        listed=own is not None and own.fetched_ns is not None,
        list_problem="" if own is None else own.problem,
        settings=dict(table.variables) if table is not None else {},
        engine_metrics="" if table is None else _engine_page(table.engine_metrics, base_url),
    )


def _engine_page(wanted: bool | str, base_url: str) -> str:
    """The address of the page on which an engine tells its load; empty where none is read."""
    if isinstance(wanted, str):
        return wanted
    return engine_page_of(base_url) if wanted else ""


def _alias(name: str, table: ModelTable) -> Alias:
    targets = table.targets
    if table.policy == "cascade":
        targets = tuple(dict.fromkeys(t for tier in table.tiers for t in tier.targets))
    return Alias(
        name=name,
        targets=targets,
        weights=tuple(getattr(table, "weights", ()) or ()),
        policy=table.policy,
        ttft_timeout_ns=table.ttft_timeout,
        timeout_ns=table.timeout,
        idle_timeout_ns=table.idle_timeout,
        retries=table.retries,
        max_tokens=table.max_tokens,
        hedge=table.hedge,
        # Of one target only where the file says so: a second attempt there costs money, and helps
        # less than one at another provider.
        self_hedge=True if "hedge" in table.model_fields_set else None,
        race=table.race,
        trim=table.trim,
        concise=table.concise,
        untranslatable=table.untranslatable,
        slo=None if table.slo is None else ServiceLevels(**table.slo.model_dump()),
        cache=_cache(table),
        tiers=tuple((tier.upto, tier.targets) for tier in table.tiers),
        verify=table.verify,
        ahead_ns=table.ahead,
        learned_bounds=table.learned_bounds,
    )


def _cache(table: ModelTable) -> CacheRule:
    found = table.cache
    if found is None:
        return CacheRule()
    return CacheRule(mode=found.mode, ttl_ns=found.ttl, pace=found.pace, store=found.store)
