"""From a request's facts, the breakers' state and the targets' form to a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.route.form.size import bucket
from lightgate.route.plan.alias import Layout, fixed_hedge_ns, lay_out
from lightgate.route.plan.plan import Plan
from lightgate.route.plan.policy import POLICIES
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
    return rank(ask, bucket(ask.tokens_in), breakers, now_ns, draw, forms).plan(
        draw, ask.key, budgets
    )


def rank(
    ask: PlanAsk, size: int, breakers: Breakers, now_ns: int, draw: float, forms: Forms
) -> Ranking:
    """Rank the targets of a request by its policy; `draw` is used by `weighted` alone."""
    alias = ask.alias
    name = ask.policy or alias.policy
    policy = POLICIES.get(name)
    ranking = Ranking(ask, size, forms, now_ns)
    order = list(alias.targets)
    if policy is not None:
        ranking.name, ranking.reason = name, "by form"
    elif name == "weighted":
        ranking.name, ranking.reason = name, "drawn by weight"
        order = _drawn(alias, draw)
    else:
        ranking.name, ranking.reason = "ordered", "configured order"
    well = len(order)
    if not breakers.all_quiet(order):
        order, well = _well_first(order, breakers, now_ns)
    room = well
    if forms.crowded and well > 1:
        order, room = _room_first(order, well, forms.crowded)
        ranking.full = well - room if room else 0
    ranking.together = room
    ranking.line_up(order, room or well, policy)
    return ranking


def _unlearned(ask: PlanAsk, breakers: Breakers, now_ns: int, draw: float) -> Plan:
    """Make a plan by configuration and weights alone."""
    alias = ask.alias
    weighted = (ask.policy or alias.policy) == "weighted"
    shape = alias.shape
    if ask.race is not None or ask.hedge is not None or ask.ttft_timeout_ns is not None:
        shape = _asked(ask, shape)
    if breakers.all_quiet(alias.targets):
        if not weighted:
            if shape is alias.shape:
                return alias.in_order
            steps = lay_out(alias.targets, len(alias.targets), shape)
            return Plan(steps, "ordered", "configured order")
        order = _drawn(alias, draw)
        return Plan(lay_out(order, len(order), shape), "weighted", "drawn by weight")
    order, well = _well_first(_drawn(alias, draw) if weighted else alias.targets, breakers, now_ns)
    held = len(order) - well
    reason = "drawn by weight" if weighted else "configured order"
    if held:
        reason += f", {held} held" if well else ", all held: soonest first"
    return Plan(lay_out(order, well, shape), "weighted" if weighted else "ordered", reason)


def _asked(ask: PlanAsk, shape: Layout) -> Layout:
    return Layout(
        shape.retries,
        shape.ttft_ns if ask.ttft_timeout_ns is None else ask.ttft_timeout_ns,
        shape.race if ask.race is None else ask.race,
        shape.hedge_ns if ask.hedge is None else fixed_hedge_ns(ask.hedge),
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


def _room_first(order: list[str], well: int, crowded: AbstractSet[str]) -> tuple[list[str], int]:
    """Put those with as many in flight as they may behind those with room; the number of these.

    Where nobody has room the order stays: a limit of ours refuses nobody.
    """
    room = [target for target in order[:well] if target not in crowded]
    if not room:
        return order, 0
    full = [target for target in order[:well] if target in crowded]
    return room + full + order[well:], len(room)


def _well_first(order: Sequence[str], breakers: Breakers, now_ns: int) -> tuple[list[str], int]:
    """Put those that are not allowed last, soonest first; and the number of those that are."""
    troubled, allows = breakers.troubled, breakers.allows
    well: list[str] = []
    held: list[str] = []
    for target in order:
        fine = target not in troubled or allows(target, now_ns)
        (well if fine else held).append(target)
    held.sort(key=breakers.opens_again_ns)
    return well + held, len(well)
