"""Targets that point at a running simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.provider.spec import Provider
from lightgate.provider.target import Target

if TYPE_CHECKING:
    from lightgate.sim.serve import Facts
    from lightgate.sim.world import World


def target(facts: Facts, world: World, provider: str, model: str) -> Target:
    """One model of one simulated provider; the default quirks fit, no key is needed."""
    maker = world.providers[provider]
    row = Provider(
        name=provider,
        title=maker.title or provider,
        base_url=facts.providers[provider],
        dialect=maker.dialect,
        auth="none",
        local=True,
    )
    return Target(
        name=f"{provider}/{model}",
        provider=row,
        model=model,
        base_url=row.base_url,
        hourly_cost=maker.hourly_cost,
    )


def targets(facts: Facts, world: World) -> list[Target]:
    """Every model of every provider of a world."""
    return [
        target(facts, world, provider, model)
        for provider, maker in world.providers.items()
        for model in maker.models
    ]
