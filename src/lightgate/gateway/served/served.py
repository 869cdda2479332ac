"""Make a snapshot ready to serve: model names, targets and keys."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from lightgate.errors import ConfigError, UsageError
from lightgate.gateway.served.keys import Keyring
from lightgate.gateway.served.price import TokenPrices
from lightgate.gateway.served.target import ServedTarget
from lightgate.gateway.served.tiers import tiers_of
from lightgate.provider.secret import key_from_env
from lightgate.provider.target import Target
from lightgate.route.form.prior import DEFAULT
from lightgate.route.plan.alias import Alias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.gateway.served.snapshot import Reach, Snapshot
    from lightgate.route.form.prior import Prior
    from lightgate.route.plan.hedge import TargetPrice

_MOST_LOOSE: Final = 1000  # targets under their own name, which clients may ask for at will


class ModelUnknown(UsageError):  # noqa: N818 - names the event
    """The client asked for a model that is not served here."""

    status = 404
    label = "model_not_found"


class Served:
    """What a worker serves under one snapshot."""

    def __init__(self, snapshot: Snapshot, env: Mapping[str, str]) -> None:
        self.snapshot = snapshot
        self.terms = snapshot.terms
        self.keyring = Keyring(snapshot.keys)
        self.instance = snapshot.instance
        self._env = env
        self.aliases: dict[str, Alias] = {alias.name: alias for alias in snapshot.aliases}
        self.targets: dict[str, ServedTarget] = {}
        self._loose: dict[str, Alias] = {}
        self._prices: dict[str, dict[str, TargetPrice]] = {}
        self.tiers = tiers_of(snapshot.aliases)
        for alias in snapshot.aliases:
            for target in alias.targets:
                self.targets.setdefault(target, self._make(target))

    def alias(self, model: str) -> Alias:
        """The alias of a client's model name; a target under its own name is an alias of one."""
        found = self.aliases.get(model) or self._loose.get(model)
        if found is not None:
            return found
        provider, slash, rest = model.partition("/")
        if not slash or not rest or provider not in self.snapshot.providers:
            raise self._unknown(model)
        if any(c.isspace() or not c.isprintable() for c in rest):
            raise self._unknown(model)
        if len(self._loose) >= _MOST_LOOSE:
            self._forget()
        self.targets.setdefault(model, self._make(model))
        loose = self._loose[model] = Alias(name=model, targets=(model,))
        return loose

    @property
    def priors(self) -> dict[str, Prior]:
        """The prior of every target that a model names."""
        given = self.snapshot.priors
        return {
            target: given.get(target, DEFAULT)
            for alias in self.aliases.values()
            for target in alias.targets
        }

    def prices(self, alias: Alias) -> dict[str, TargetPrice]:
        """The prices of an alias' targets, as far as they are known."""
        known = self._prices.get(alias.name)
        if known is None:
            found = {target: self.targets[target].price for target in alias.targets}
            known = {target: price for target, price in found.items() if price is not None}
            self._prices[alias.name] = known
        return known

    def models(self) -> tuple[str, ...]:
        """Every name that clients may ask for: aliases first, then the targets behind them."""
        targets = [target for alias in self.aliases.values() for target in alias.targets]
        return tuple(dict.fromkeys((*self.aliases, *targets)))

    def _make(self, name: str) -> ServedTarget:
        provider, _, model = name.partition("/")
        reach = self.snapshot.providers.get(provider)
        if reach is None:
            raise ConfigError(f"The snapshot does not know the provider of {name}.")
        return ServedTarget(
            self._target(name, model, reach),
            TokenPrices(reach.prices.get(model), hourly=reach.hourly_cost is not None),
            abort_stops_billing=bool(reach.provider.abort.stops_billing),
            instance=self.instance,
        )

    def _target(self, name: str, model: str, reach: Reach) -> Target:
        key = None if reach.key_env is None else key_from_env(reach.key_env, self._env)
        return Target(
            name=name,
            provider=reach.provider,
            model=model,
            base_url=reach.base_url,
            api_key=key,
            hourly_cost=reach.hourly_cost,
        )

    def _unknown(self, model: str) -> ModelUnknown:
        near = difflib.get_close_matches(model, self.models(), n=1)
        shown = model[:80]
        hint = f"Did you mean {near[0]!r}?" if near else "GET /v1/models lists what there is."
        return ModelUnknown(f"The model {shown!r} is not served here.", hint=hint)

    def _forget(self) -> None:
        """Drop the older half of targets under their own name; running requests keep theirs."""
        kept = {target for alias in self.aliases.values() for target in alias.targets}
        for name in list(self._loose)[: _MOST_LOOSE // 2]:
            del self._loose[name]
            if name not in kept:
                self.targets.pop(name, None)
