"""Decisions: from a request's facts, the state of breakers and the form of targets to a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.route.form.size import size_of
from lightgate.route.plan.alias import Layout, fixed_hedge_ns, lay_out
from lightgate.route.plan.plan import Plan
from lightgate.route.plan.policy import ORDERED, policy_of
from lightgate.route.plan.ranking import Ranking

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from lightgate.route.form.forms import Forms
    from lightgate.route.health.breaker import Breakers
    from lightgate.route.plan.alias import Alias, PlanAsk
    from lightgate.route.plan.hedge import HedgeBudgets


def decide(
    ask: PlanAsk,
    breakers: Breakers,
    now_ns: int,
    draw: float,
    forms: Forms | None = None,
    budgets: HedgeBudgets | None = None,
) -> Plan:
    """Make the plan of a request: what to try, and in which order; `draw` is in [0, 1).

    Targets that the breakers do not allow come last, those first that may be asked soonest; if
    that is all of them, the plan still holds them all, and `breakers.soonest_ns` says when. With
    `forms` the order is the policy's, targets below their limit first, and hedges and deadlines are
    learned. A decision leaves behind only the first target, in `forms.incumbents`.
    """
    if forms is None:
        return _unlearned(ask, breakers, now_ns, draw)
    return rank(ask, size_of(ask.tokens_in), breakers, now_ns, draw, forms).plan(
        draw, ask.key, budgets
    )


def rank(
    ask: PlanAsk, size: int, breakers: Breakers, now_ns: int, draw: float, forms: Forms
) -> Ranking:
    """Rank the targets of a request by its policy; `draw` is for an order that is drawn."""
    alias = ask.alias
    policy = policy_of(ask.policy or alias.policy)
    ranking = Ranking(ask, size, policy, forms, now_ns)
    order: Sequence[str] = _drawn(alias, draw) if policy.order == "drawn" else alias.targets
    well = len(order)
    if not breakers.all_quiet(order):
        order, well = _well_first(order, breakers, now_ns)
    room = well
    closed = forms.closed(now_ns)
    if closed and well > 1:
        order, room = _room_first(order, well, closed)
        ranking.full = well - room if room else 0
    ranking.together = room
    ranking.line_up(order, room or well)
    return ranking


def _unlearned(ask: PlanAsk, breakers: Breakers, now_ns: int, draw: float) -> Plan:
    """Make a plan by configuration and weights alone."""
    alias = ask.alias
    policy = policy_of(ask.policy or alias.policy)
    drawn = policy.order == "drawn"
    if not drawn:
        policy = ORDERED  # nothing is known by which another one could rank
    layout = alias.layout
    if ask.race is not None or ask.hedge is not None or ask.ttft_timeout_ns is not None:
        layout = _asked(ask, layout)
    quiet = breakers.all_quiet(alias.targets)
    if quiet and not drawn and layout is alias.layout:
        return alias.in_order
    order: Sequence[str] = _drawn(alias, draw) if drawn else alias.targets
    well, reason = len(order), policy.reason
    if not quiet:
        order, well = _well_first(order, breakers, now_ns)
        held = len(order) - well
        if held:
            reason += f", {held} held" if well else ", all held: soonest first"
    return Plan(lay_out(order, well, layout), policy.name, reason)


def _asked(ask: PlanAsk, layout: Layout) -> Layout:
    return Layout(
        layout.retries,
        layout.ttft_ns if ask.ttft_timeout_ns is None else ask.ttft_timeout_ns,
        layout.race if ask.race is None else ask.race,
        layout.hedge_ns if ask.hedge is None else fixed_hedge_ns(ask.hedge),
    )


def _drawn(alias: Alias, draw: float) -> list[str]:
    """Draw without replacement, by weight, from one uniform number.

    Inside the slice that it fell into, the number is uniform again: scaled up, it is the next draw.
    Its 53 bits are enough for 17 equal targets; behind those the order hardly matters.
    """
    shares = list(alias.shares)
    targets = alias.targets
    order = []
    while len(shares) > 1:
        rest = draw * sum([weight for _, weight in shares])
        place = 0
        for place, (_, weight) in enumerate(shares):  # noqa: B007 - the place where it stopped
            if rest < weight:
                break
            rest -= weight
        index, weight = shares.pop(place)
        draw = min(rest / weight, 1.0)
        order.append(targets[index])
    order.extend([targets[index] for index, _ in shares])
    order.extend([targets[index] for index in alias.undrawn])
    return order


def _room_first(
    order: Sequence[str], well: int, closed: AbstractSet[str]
) -> tuple[Sequence[str], int]:
    """Put targets at their limit behind those below it; return the number of those below it.

    Where every target is at its limit the order stays: a limit refuses no request.
    """
    room = [target for target in order[:well] if target not in closed]
    if not room:
        return order, 0
    full = [target for target in order[:well] if target in closed]
    return [*room, *full, *order[well:]], len(room)


def _well_first(order: Sequence[str], breakers: Breakers, now_ns: int) -> tuple[list[str], int]:
    """Put targets that are not allowed last, soonest first; return the number of the allowed."""
    troubled, allows = breakers.troubled, breakers.allows
    well: list[str] = []
    held: list[str] = []
    for target in order:
        fine = target not in troubled or allows(target, now_ns)
        (well if fine else held).append(target)
    held.sort(key=breakers.opens_again_ns)
    return well + held, len(well)
