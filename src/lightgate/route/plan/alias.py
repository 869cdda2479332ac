"""Aliases: a name that clients ask for, its targets, and how an order of them becomes steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import msgspec

from lightgate.config.notation import parse_duration
from lightgate.errors import ConfigError
from lightgate.route.form.slo import ServiceLevels
from lightgate.route.plan.hedge import TargetPrice
from lightgate.route.plan.plan import Level, Plan, Step
from lightgate.route.prompt.cache_key import CacheRule


class Alias(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One model name of the configuration, or a target under its own name.

    Durations in nanoseconds; a `ttft_timeout_ns` of None is "auto". No weights: equal ones.
    `self_hedge`: with one target a hedge is a second attempt at that target, on a connection of its
    own; None: only for a request that asks for a hedge itself.
    """

    name: str
    targets: tuple[str, ...]
    weights: tuple[float, ...] = ()
    policy: str = "ordered"
    ttft_timeout_ns: int | None = None
    timeout_ns: int = 120_000_000_000
    idle_timeout_ns: int = 60_000_000_000
    retries: int = 0
    max_tokens: int | None = None
    hedge: str = "off"
    self_hedge: bool | None = None
    race: int = 1
    cache: CacheRule = CacheRule()
    slo: ServiceLevels | None = None
    tiers: tuple[tuple[Level | None, tuple[str, ...]], ...] = ()  # of a cascade, the cheapest first
    verify: tuple[str, ...] = ()  # names of the checks that a tier's answer has to pass
    ahead_ns: int | None = None  # when the next tier starts beside a checked one; None: in its turn
    learned_bounds: bool = False  # of the tiers, from what the checks say
    trim: bool = False
    concise: bool = False
    untranslatable: Literal["drop", "refuse"] = "drop"  # what a target cannot be told

    def __post_init__(self) -> None:
        where = f"The model {self.name!r}"
        if not self.targets:
            raise ConfigError(f"{where} has no targets.", hint='targets = ["provider/model"]')
        if len(set(self.targets)) != len(self.targets):
            raise ConfigError(
                f"{where} names a target twice.",
                hint='With one target, hedge = "auto" starts a second attempt at it; retries = 1'
                " asks it again.",
            )
        if self.weights and len(self.weights) != len(self.targets):
            raise ConfigError(f"{where} needs one weight for each of its targets.")
        if any(not math.isfinite(weight) or weight < 0.0 for weight in self.weights):
            raise ConfigError(f"{where} has a weight that is not a number from 0 up.")

    @cached_property
    def hedge_ns(self) -> int | None:
        """The offset of a hedge with a fixed time; None for off, auto and quantiles."""
        return fixed_hedge_ns(self.hedge)

    @cached_property
    def shares(self) -> tuple[tuple[int, float], ...]:
        """The places and weights of the targets that are drawn; without weights equal ones."""
        if not any(self.weights):
            return tuple((place, 1.0) for place in range(len(self.targets)))
        return tuple((place, weight) for place, weight in enumerate(self.weights) if weight > 0.0)

    @cached_property
    def undrawn(self) -> tuple[int, ...]:
        """The places of the targets of weight 0, which are fallbacks only."""
        drawn = {place for place, _ in self.shares}
        return tuple(place for place in range(len(self.targets)) if place not in drawn)

    @cached_property
    def is_static(self) -> bool:
        """Whether every plan is the configured order while no target is in trouble."""
        if len(self.targets) == 1:
            alone = not self.hedges_itself(None)
        else:
            alone = self.race == 1 and self.hedge == "off"
        return alone and not self.tiers and self.policy == "ordered"

    def hedges_itself(self, asked: str | None) -> bool:
        """Whether a request gets a second attempt at the one target; `asked` is its own wish."""
        if len(self.targets) > 1 or self.self_hedge is False:
            return False
        if asked is not None:
            return asked != "off"
        return bool(self.self_hedge) and self.hedge != "off"

    @cached_property
    def layout(self) -> Layout:
        """The layout of plans whose request asks for nothing else."""
        return Layout(self.retries, self.ttft_timeout_ns, self.race, self.hedge_ns)

    @cached_property
    def in_order(self) -> Plan:
        """The plan in the order of the configuration, no target being in trouble."""
        steps = lay_out(self.targets, len(self.targets), self.layout)
        return Plan(steps, "ordered", "configured order")


class PlanAsk(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one request that its plan depends on; None: as the alias says, or unknown.

    `expected_tokens` are those of the answer, by the model's last answers. `prices` are of all
    targets; a missing one is taken for the dearest. `key` is whose hedges are counted; `session` is
    the conversation, whose prompt a provider may have in its cache.
    """

    alias: Alias
    tokens_in: int = 0
    max_tokens: int | None = None
    policy: str | None = None
    race: int | None = None
    hedge: str | None = None
    ttft_timeout_ns: int | None = None
    expected_tokens: int | None = None
    session: str | None = None
    slo: ServiceLevels | None = None
    prices: Mapping[str, TargetPrice] | None = None
    key: str = ""


class Layout(msgspec.Struct, frozen=True, gc=False):
    """What turns an order of targets into steps. Durations in nanoseconds."""

    retries: int
    ttft_ns: int | None
    race: int
    hedge_ns: int | None


def fixed_hedge_ns(hedge: str) -> int | None:
    """Return the nanoseconds of a hedge such as "800ms"; None for off, auto and quantiles."""
    if hedge in {"off", "auto"} or hedge.startswith("p"):
        return None
    return parse_duration(hedge)


def lay_out(
    order: Sequence[str], well: int, layout: Layout, ready: Sequence[Step] = ()
) -> tuple[Step, ...]:
    """Turn an order of targets, the first `well` of them allowed, into steps.

    Only allowed targets race or hedge. The retries of a target come before the next target, and
    after all steps that start by the clock. `ready` has the same order as steps that only follow a
    failure, where those were made before.
    """
    racers = min(layout.race, well)
    hedges = racers <= 1 and layout.hedge_ns is not None and well > 1
    early = 2 if hedges else max(racers, 1)
    retries, count = layout.retries, len(order)
    if not ready:
        ready = [Step(target, None, layout.ttft_ns, "fallback") for target in order]
    last = count * (retries + 1) - 1
    if racers > 1:
        steps = [Step(one.target, 0, one.ttft_ns, "racer") for one in ready[:racers]]
    else:
        first = ready[0]
        steps = [Step(first.target, 0, first.ttft_ns, "primary" if last else "only")]
        if hedges:
            second = ready[1]
            steps.append(Step(second.target, layout.hedge_ns, second.ttft_ns, "hedge"))
    if retries:
        for place, step in enumerate(ready):
            steps += [step] * (retries + (place >= early))
    else:
        steps += ready[early:]
    final = steps[-1]
    if final.ttft_ns is not None:
        steps[-1] = Step(final.target, final.start_ns, None, final.role)
    return tuple(steps)


def lay_out_twice(target: str, layout: Layout) -> tuple[Step, ...]:
    """Lay a target out twice: an attempt, and a hedge of it on a connection of its own.

    Both have all the time that the request has, because the second stands in for no failure: what
    follows a failure are the retries, as without a hedge.
    """
    retries = [Step(target, None, None, "fallback")] * layout.retries
    first = Step(target, 0, None, "primary")
    return (first, Step(target, layout.hedge_ns, None, "hedge"), *retries)
