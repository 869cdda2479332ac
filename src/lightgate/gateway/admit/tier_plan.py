"""Plan a request through the tiers of a cascade, as they are served, with their checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.provider.answer import reads
from lightgate.route.cascade.complexity import score
from lightgate.route.cascade.features import features_of
from lightgate.route.cascade.tiers import Cascade, starting, tier_ask, tier_turns
from lightgate.route.form.size import size_of
from lightgate.route.plan.plan import Plan, Step
from lightgate.route.plan.policy import USUAL_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.gateway.request.body import ClientRequest
    from lightgate.route.cascade.learned import LearnedBounds
    from lightgate.route.form.forms import Forms
    from lightgate.route.plan.alias import PlanAsk

_REASONS: Final = 3  # of the level that a plan tells, the weightiest first


def plan_tiers(
    cascade: Cascade,
    ask: PlanAsk,
    request: ClientRequest,
    decide: Callable[[PlanAsk], Plan],
    forms: Forms,
    bounds: LearnedBounds | None = None,
) -> Plan:
    """Make a plan that begins in the tier for the request's level and goes on with the others.

    `decide` plans one tier. Only the first tier is hedged or raced; the steps of the others follow
    a failure, or an answer that fails a check. A tier that starts ahead takes the place of the
    first tier's hedge. With `bounds` the first tier goes by what was learned.
    """
    found = None if request.found is None else request.found.complexity
    if found is None:
        found = score(features_of(request.endpoint.dialect, request.fields))
    start = starting(cascade, found.level)
    learned = ""
    higher = 0 if bounds is None else bounds.higher(found.score)
    if bounds is not None and higher:
        start += higher
        learned = f" by {bounds.checked} checks of answers"
    ahead = _may_be_ahead(cascade, start, ask, request)
    if ahead:
        ask = msgspec.structs.replace(ask, hedge="off")
    first = decide(tier_ask(cascade, start, ask))
    steps = [Step(s.target, s.start_ns, s.ttft_ns, s.role, start) for s in first.steps]
    for rung in tier_turns(cascade, start)[1:]:
        tried = frozenset([step.target for step in steps])
        after = tier_ask(cascade, rung.tier, ask, tried)
        after = msgspec.structs.replace(after, race=1, hedge="off")
        early = len(steps) if ahead and rung.role == "ahead" else None
        steps += [
            Step(step.target, None, step.ttft_ns, "fallback", rung.tier)
            for step in decide(after).steps
        ]
        if early is not None and steps[early].target not in tried:
            step = steps[early]
            steps[early] = Step(step.target, rung.start_ns, step.ttft_ns, "hedge", rung.tier)
            reserve = _whole_nano(ask, step.target)
            first = msgspec.structs.replace(first, hedge_ns=rung.start_ns, reserve_nano=reserve)
    steps[:-1] = [_hurried(forms, ask, step) for step in steps[:-1]]
    why = ", ".join(found.reasons[:_REASONS]) or "says nothing hard"
    return msgspec.structs.replace(
        first,
        steps=tuple(steps),
        policy="cascade",
        again=None,  # what stands behind a fallback is of another tier
        reason=f"{found.level}: {why}; tier {start + 1} of {len(cascade.tiers)}{learned},"
        f" {first.reason}",
        level=found.level,
        points=found.score,
    )


def _may_be_ahead(cascade: Cascade, start: int, ask: PlanAsk, request: ClientRequest) -> bool:
    """Whether the next tier may start beside the first: not without checks, and not in a race.

    A client that asks for no hedge gets no other attempt beside the first either.
    """
    if cascade.ahead_ns is None or start >= len(cascade.tiers) - 1:
        return False
    race = ask.alias.race if ask.race is None else ask.race
    return race <= 1 and ask.hedge != "off" and reads(request.endpoint.dialect)


def _whole_nano(ask: PlanAsk, target: str) -> float:
    """Nano-dollars of a whole answer: one that waits for a check may have come to its end."""
    prices = ask.prices or {}
    tokens = ask.max_tokens or ask.expected_tokens or USUAL_TOKENS
    known = [prices[target]] if target in prices else prices.values()
    return max((price.nano(ask.tokens_in, tokens) for price in known), default=0.0)


def _hurried(forms: Forms, ask: PlanAsk, step: Step) -> Step:
    """Give a step a deadline for its first token: the last of its tier is not the last of all."""
    due_ns = step.ttft_ns or ask.ttft_timeout_ns or ask.alias.ttft_timeout_ns
    if due_ns is None:
        due_ns = forms.form(step.target).due_ns(size_of(ask.tokens_in))
    role = "primary" if step.role == "only" else step.role
    return Step(step.target, step.start_ns, due_ns, role, step.tier)
