"""From a request's facts, the breakers' state and the targets' form to a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from lightgate.route.form.slo import ServiceLevels
from lightgate.route.plan.alias import Alias, Layout, fixed_hedge_ns, lay_out
from lightgate.route.plan.hedge import TargetPrice
from lightgate.route.plan.plan import Plan
from lightgate.route.plan.policy import POLICIES
from lightgate.route.plan.ranking import Ranking

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from lightgate.route.form.forms import Forms
    from lightgate.route.health.breaker import Breakers
    from lightgate.route.plan.hedge import HedgeBudgets


class PlanAsk(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a request before it is sent; None: as the alias says, or unknown.

    `expected_tokens` are those of the answer, by the key's history. `prices` are of all targets;
    one that is missing is taken for the dearest. `key` is whose hedges are counted; `session` is
    the conversation, whose prompt a provider may have in its cache.
    """

    alias: Alias
    tokens_in: int = 0
    max_tokens: int | None = None
    streamed: bool = False
    policy: str | None = None
    race: int | None = None
    hedge: str | None = None
    ttft_timeout_ns: int | None = None
    expected_tokens: int | None = None
    session: str | None = None
    slo: ServiceLevels | None = None
    prices: Mapping[str, TargetPrice] | None = None
    may_race: bool = True
    max_fanout: int = 8
    key: str = ""


def decide(
    ask: PlanAsk,
    breakers: Breakers,
    now_ns: int,
    draw: float,
    forms: Forms | None = None,
    budgets: HedgeBudgets | None = None,
) -> Plan:
    """Say what to try, and in which order; `draw` is in [0, 1).

    Targets that the breakers do not allow come last, those first that may be asked soonest; if
    that is all of them, the plan still holds them all, and `breakers.soonest_ns` says when. With
    `forms` the order is the policy's, those with room first, and hedges and deadlines are learned;
    what a decision leaves behind is who was first, in `forms.incumbents`.
    """
    alias = ask.alias
    troubled = breakers.troubled
    all_well = not troubled or troubled.isdisjoint(alias.targets)
    if forms is None:
        return _unlearned(ask, all_well, breakers, now_ns, draw)
    name = ask.policy or alias.policy
    policy = POLICIES.get(name)
    reason = "by form"
    order = list(alias.targets)
    if policy is None:
        weighted = name == "weighted"
        name = "weighted" if weighted else "ordered"
        reason = "drawn by weight" if weighted else "configured order"
        order = _drawn(alias, draw) if weighted else order
    well = len(order)
    if not all_well:
        order, well = _well_first(order, breakers, now_ns)
    draft = Ranking(ask, forms, now_ns, draw)
    room = well
    if forms.crowded and well > 1:
        order, room = _room_first(order, well, forms.crowded)
        draft.full = well - room if room else 0
    draft.line_up(order, room or well, policy)
    if room > 1:
        draft.second(budgets)
    return draft.plan(name, reason)


def _unlearned(ask: PlanAsk, all_well: bool, breakers: Breakers, now_ns: int, draw: float) -> Plan:
    """The plan of a gateway that knows nothing: by configuration and weights."""
    alias = ask.alias
    weighted = (ask.policy or alias.policy) == "weighted"
    shape = alias.shape
    if ask.race is not None or ask.hedge is not None or ask.ttft_timeout_ns is not None:
        shape = _asked(ask, shape)
    if all_well:
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
