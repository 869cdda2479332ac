"""From a guest's wishes to a plan: what the router is told, and what it may use."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from lightgate.dialect.assemble import can_assemble
from lightgate.gateway.admit.overrides import NO_WISHES
from lightgate.gateway.served.tiers import plan_tiers
from lightgate.route.plan.alias import PlanAsk
from lightgate.route.plan.decide import decide
from lightgate.route.plan.policy import BY_FORM

if TYPE_CHECKING:
    from lightgate.gateway.admit.admit import Guest
    from lightgate.gateway.process.state import State
    from lightgate.gateway.request.body import Wanted
    from lightgate.route.plan.alias import Alias
    from lightgate.route.plan.plan import Plan


def plan_for(state: State, guest: Guest, wanted: Wanted, race: int | None, now_ns: int) -> Plan:
    """Decide; form and prices are looked at only where the policy, a hedge or a race needs them.

    An answer that no target can stream is never asked for twice at once: it is billed in full
    wherever it is closed, and says nothing before its end.
    """
    alias, wishes, key = guest.alias, guest.wishes, guest.key
    state.asked_ns = now_ns
    if alias.is_static and wishes is NO_WISHES and race is None and not state.breakers.troubled:
        return alias.in_order  # nothing that is known could change it
    key_id = "" if key is None else key.id
    state.observer.arrived(key_id)
    hedge = wishes.hedge
    if not wanted.streamed and not _streams(state, alias, wanted):
        hedge, race = "off", 1
    adaptive = len(alias.targets) > 1 and (
        (wishes.policy or alias.policy) in BY_FORM
        or (race or alias.race) > 1
        or (hedge or alias.hedge) != "off"
    )
    ask = PlanAsk(
        alias=alias,
        tokens_in=wanted.tokens_in,
        max_tokens=guest.cap or wanted.max_tokens,
        policy=wishes.policy,
        race=race,
        hedge=hedge,
        ttft_timeout_ns=wishes.ttft_timeout_ns,
        expected_tokens=state.expected_tokens(alias.name),
        session=guest.session,
        prices=state.served.prices(alias) if adaptive else None,
        key=key_id,
    )
    if alias.tiers:
        tiers = state.served.tiers.get(alias.name)
        if tiers is not None:  # else a new snapshot has come in since it was looked up
            ask = msgspec.structs.replace(ask, prices=state.served.prices(alias))
            decide_tier = partial(_decide_tier, state, now_ns)
            return plan_tiers(tiers.cascade, ask, wanted, decide_tier, state.forms)
    forms = state.forms if adaptive else None
    return decide(ask, state.breakers, now_ns, state.draw(), forms, state.budgets)


def _decide_tier(state: State, now_ns: int, ask: PlanAsk) -> Plan:
    """Decide within one tier; a race has no hedge, so no budget of hedges."""
    race = ask.alias.race if ask.race is None else ask.race
    budgets = None if race > 1 else state.budgets
    return decide(ask, state.breakers, now_ns, state.draw(), state.forms, budgets)


def _streams(state: State, alias: Alias, wanted: Wanted) -> bool:
    """Whether the targets can be asked to stream an answer that is wanted whole."""
    shy = state.unstreamable
    return can_assemble(wanted.path.dialect, wanted.fields) and (
        not shy or shy.isdisjoint(alias.targets)
    )
