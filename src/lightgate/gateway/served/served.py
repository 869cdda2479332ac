"""Make a snapshot ready to serve: model names, targets and keys."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from lightgate.errors import ConfigError
from lightgate.gateway.served.asked import AskedNames
from lightgate.gateway.served.keys import Keyring
from lightgate.gateway.served.price import TokenPrices
from lightgate.gateway.served.target import ServedTarget
from lightgate.gateway.served.tiers import tiers_of
from lightgate.provider.catalogue import LIVE
from lightgate.provider.cloud.access import signer_of
from lightgate.provider.cloud.tokens import TokenKeepers
from lightgate.provider.engine_follower import EnginePage
from lightgate.provider.secret import key_from_env
from lightgate.provider.target import Target, let_in
from lightgate.route.form.prior import DEFAULT
from lightgate.route.plan.alias import Alias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.gateway.served.snapshot import Reach, Snapshot
    from lightgate.provider.cloud.signer import Signer
    from lightgate.route.form.prior import Prior
    from lightgate.route.plan.hedge import TargetPrice

_MOST_LOOSE: Final = 1000  # targets under their own name, which clients may ask for at will


class Served:
    """What a worker serves under one snapshot."""

    def __init__(
        self, snapshot: Snapshot, env: Mapping[str, str], keepers: TokenKeepers | None = None
    ) -> None:
        self.snapshot = snapshot
        self.terms = snapshot.terms
        self.keyring = Keyring(snapshot.keys)
        # Of web pages that may use the gateway, as browsers name them.
        self.origins = frozenset([origin.encode() for origin in snapshot.terms.cors])
        self.instance = snapshot.instance
        self._env = env
        self._keepers = TokenKeepers() if keepers is None else keepers
        self.signers: dict[str, Signer | None] = {}
        self.aliases: dict[str, Alias] = {alias.name: alias for alias in snapshot.aliases}
        self.targets: dict[str, ServedTarget] = {}
        self.loose: dict[str, Alias] = {}
        self.names = AskedNames(snapshot)
        self._prices: dict[str, dict[str, TargetPrice]] = {}
        self.tiers = tiers_of(snapshot.aliases)
        for alias in snapshot.aliases:
            for target in alias.targets:
                self.targets.setdefault(target, self._make(target))
        for reach in snapshot.providers.values():
            if reach.key_env is None and reach.provider.auth in LIVE:
                signer = self._signer(reach)
                if signer is not None:
                    signer.start()

    def alias(self, model: str) -> Alias:
        """The alias of a client's model name; a bare name or a target's own makes one.

        ModelUnknown says why there is none, and what to ask for instead.
        """
        found = self.aliases.get(model) or self.loose.get(model)
        if found is not None:
            return found
        targets = self.names.targets(model)
        if len(self.loose) >= _MOST_LOOSE:
            self._forget()
        for target in targets:
            if target not in self.targets:
                self.targets[target] = self._make(target)
        bare = targets != (model,)
        loose = self.loose[model] = Alias(
            name=model,
            targets=targets,
            policy="chat" if len(targets) > 1 else "ordered",
            hedge="auto" if self.snapshot.auto and bare else "off",
            self_hedge=True if self.snapshot.auto and bare else None,
        )
        return loose

    def asked_for(self) -> list[Alias]:
        """The aliases of the configuration, and those that clients' other names have made."""
        return [*self.aliases.values(), *self.loose.values()]

    @property
    def priors(self) -> dict[str, Prior]:
        """The prior of every target that a model names."""
        given = self.snapshot.priors
        return {
            target: given.get(target, DEFAULT)
            for alias in self.aliases.values()
            for target in alias.targets
        }

    @cached_property
    def key_names(self) -> dict[str, str]:
        """The variables that hold the providers' keys, by provider."""
        reaches = self.snapshot.providers.items()
        return {name: reach.key_env for name, reach in reaches if reach.key_env is not None}

    def prices(self, alias: Alias) -> dict[str, TargetPrice]:
        """The prices of an alias' targets, as far as they are known."""
        known = self._prices.get(alias.name)
        if known is None:
            found = {target: self.targets[target].price for target in alias.targets}
            known = {target: price for target, price in found.items() if price is not None}
            self._prices[alias.name] = known
        return known

    def engine_pages(self) -> list[EnginePage]:
        """The pages on which the engines of providers tell their load, with their targets."""
        pages = []
        for name, reach in self.snapshot.providers.items():
            if reach.engine_metrics:
                own = [target for target in self.targets if target.startswith(f"{name}/")]
                pages.append(EnginePage(reach.engine_metrics, tuple(sorted(own))))
        return pages

    def _make(self, name: str) -> ServedTarget:
        provider, _, model = name.partition("/")
        reach = self.snapshot.providers.get(provider)
        if reach is None:
            raise ConfigError(f"The snapshot does not know the provider of {name}.")
        facts = reach.models.get(model)
        return ServedTarget(
            self._target(name, model, reach),
            TokenPrices(reach.prices.get(model), hourly=reach.hourly_cost is not None),
            abort_stops_billing=bool(reach.provider.abort.stops_billing),
            instance=self.instance,
            context_window=None if facts is None else facts.context_window,
        )

    def _target(self, name: str, model: str, reach: Reach) -> Target:
        key = None if reach.key_env is None else key_from_env(reach.key_env, self._env)
        target = Target(
            name=name,
            provider=reach.provider,
            model=model,
            base_url=reach.base_url,
            api_key=key,
            hourly_cost=reach.hourly_cost,
        )
        return let_in(target, self._env, self._signer(reach) if key is None else None)

    def _signer(self, reach: Reach) -> Signer | None:
        """The signer of a provider, made once for all of its targets."""
        name = reach.provider.name
        if name not in self.signers:
            self.signers[name] = signer_of(
                reach.provider, reach.base_url, reach.settings, self._env, self._keepers
            )
        return self.signers[name]

    def _forget(self) -> None:
        """Drop the older half of names that are no alias; running requests keep their targets."""
        for name in list(self.loose)[: _MOST_LOOSE // 2]:
            del self.loose[name]
            self._prices.pop(name, None)
        kept = {target for alias in self.asked_for() for target in alias.targets}
        for target in [target for target in self.targets if target not in kept]:
            del self.targets[target]
