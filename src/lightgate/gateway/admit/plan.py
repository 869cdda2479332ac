"""The plan of an exchange: what the router is told, and what it may use."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from lightgate.dialect.assemble import can_assemble
from lightgate.gateway.admit.tier_plan import plan_tiers
from lightgate.gateway.exchange.caller import NO_OVERRIDES
from lightgate.route.form.size import SIZES
from lightgate.route.plan.alias import PlanAsk
from lightgate.route.plan.decide import decide
from lightgate.route.plan.policy import BY_FORM

if TYPE_CHECKING:
    from lightgate.gateway.exchange.exchange import Exchange
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.request.body import ClientRequest
    from lightgate.route.plan.alias import Alias
    from lightgate.route.plan.plan import Plan


def plan_for(state: State, exchange: Exchange, now_ns: int) -> Plan:
    """Decide; form and prices are looked at only where the policy, a hedge or a race needs them.

    An answer that no target can stream is never asked for twice at once: it is billed in full
    wherever it is closed, and says nothing before its end.
    """
    alias, caller, request = exchange.alias, exchange.caller, exchange.request
    overrides, key, learned = caller.overrides, caller.key, state.learned
    learned.asked_ns = now_ns
    if (  # what nearly every request of such a model comes to, and the cheapest way to see it
        overrides is NO_OVERRIDES
        and alias.is_static
        and alias.race == 1
        and not learned.breakers.troubled
        and not learned.forms.stated_by
    ):
        return alias.in_order
    race = overrides.race
    if race is None and key is not None and alias.race > 1:  # as far as the key may
        race = min(alias.race, key.max_fanout) if key.may_race else 1
    plain = overrides is NO_OVERRIDES and race is None
    closed = bool(state.learned.forms.stated_by) and _closed(state, alias, now_ns)
    if plain and alias.is_static and not state.learned.breakers.troubled and not closed:
        return alias.in_order  # nothing that is known could change it
    key_id = "" if key is None else key.id
    state.learned.observer.arrived(key_id)
    hedge = overrides.hedge
    if not request.streamed and not _streams(state, alias, request):
        hedge, race = "off", 1
    if len(alias.targets) > 1:
        adaptive = (
            closed
            or (overrides.policy or alias.policy) in BY_FORM
            or (race or alias.race) > 1
            or (hedge or alias.hedge) != "off"
        )
    else:
        wished = hedge is not None or alias.self_hedge
        adaptive = bool(wished) and alias.hedges_itself(hedge) and not alias.tiers
    ask = PlanAsk(
        alias=alias,
        tokens_in=request.tokens_in,
        max_tokens=exchange.cap or request.max_tokens,
        policy=overrides.policy,
        race=race,
        hedge=hedge,
        ttft_timeout_ns=overrides.ttft_timeout_ns,
        expected_tokens=state.learned.lengths.expected(alias.name, key_id, exchange.size % SIZES),
        session=caller.session,
        prices=exchange.served.prices(alias) if adaptive else None,
        key=key_id,
    )
    if alias.tiers:
        tiers = exchange.served.tiers.get(alias.name)
        if tiers is not None:
            ask = msgspec.structs.replace(ask, prices=exchange.served.prices(alias))
            decide_tier = partial(_decide_tier, state, now_ns)
            bounds = state.learned.bounds_of(alias) if alias.learned_bounds else None
            forms = state.learned.forms
            return plan_tiers(tiers.cascade, ask, request, decide_tier, forms, bounds)
    if adaptive:
        learned.asked_with(request.tokens_in)
        return learned.plans.plan(ask, now_ns, state.draw())
    return decide(ask, state.learned.breakers, now_ns, state.draw(), None, state.learned.budgets)


def _closed(state: State, alias: Alias, now_ns: int) -> bool:
    """Whether a target has nothing left of its limits, and there is another."""
    return len(alias.targets) > 1 and not state.learned.forms.closed(now_ns).isdisjoint(
        alias.targets
    )


def _decide_tier(state: State, now_ns: int, ask: PlanAsk) -> Plan:
    """Decide within one tier; a race has no hedge, so no budget of hedges."""
    race = ask.alias.race if ask.race is None else ask.race
    budgets = None if race > 1 else state.learned.budgets
    return decide(ask, state.learned.breakers, now_ns, state.draw(), state.learned.forms, budgets)


def _streams(state: State, alias: Alias, request: ClientRequest) -> bool:
    """Whether the targets can be asked to stream an answer that is wanted whole."""
    shy = state.learned.unstreamable
    return can_assemble(request.endpoint.dialect, request.fields) and (
        not shy or shy.isdisjoint(alias.targets)
    )
