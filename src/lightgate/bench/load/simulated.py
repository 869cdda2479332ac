"""Targets that point at a running simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.dialect.quirks import Quirks
from lightgate.price.rates import Rates
from lightgate.provider.catalogue import Provider
from lightgate.provider.target import Target

if TYPE_CHECKING:
    from lightgate.sim.server.serve import SimFacts
    from lightgate.sim.world import World, WorldPrice


def target(facts: SimFacts, world: World, provider: str, model: str) -> Target:
    """One model of one simulated provider; no key is needed."""
    maker = world.providers[provider]
    # The simulator writes as many tokens as it is asked for.
    quirks = Quirks(ignore_eos=True) if maker.dialect == "openai" else Quirks()
    row = Provider(
        name=provider,
        title=maker.title or provider,
        base_url=facts.providers[provider],
        dialect=maker.dialect,
        auth="none",
        local=True,
        quirks=quirks,
    )
    return Target(
        name=f"{provider}/{model}",
        provider=row,
        model=model,
        base_url=row.base_url,
        hourly_cost=maker.hourly_cost,
        rates=_rates(maker.models[model].price),
    )


def targets(facts: SimFacts, world: World) -> list[Target]:
    """Every model of every provider of a world."""
    return [
        target(facts, world, provider, model)
        for provider, maker in world.providers.items()
        for model in maker.models
    ]


def _rates(price: WorldPrice | None) -> Rates | None:
    return (
        None if price is None else Rates(input=price.input, output=price.output, source="override")
    )
