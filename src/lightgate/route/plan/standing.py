"""What is believed of a list of targets, as a policy reads it, kept from one decision to the next.

Between two decisions few targets have a new sample. What a plan takes from a form is therefore kept
for each list of targets, and made anew only for those whose belief was replaced since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.route.form.slo import excess
from lightgate.route.plan.plan import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.route.form.forms import Forms
    from lightgate.route.form.slo import LevelsAsked, ServiceLevels
    from lightgate.route.form.target import Belief, Form
    from lightgate.route.plan.alias import PlanAsk
    from lightgate.route.plan.hedge import TargetPrice
    from lightgate.route.plan.policy import Policy

MOST: Final = 512  # that are kept; all are forgotten then, and soon made again
GRAIN: Final = 20.0  # a wait is read in twentieths of a second: misses that it enters are kept
_NOTHING: Final[Belief] = ((), 0.0, 0.0, (), 0, 0.0)


class Standing:
    """Some targets in their order, for one policy, prompt size and deadline of first tokens.

    Of each there are its form, its belief, the step that asks it after a failure, the seconds of
    its first token as the policy counts them, its seconds per token, and what its failures cost.
    Lists that plans keep are replaced and never changed.
    """

    __slots__ = (
        "_due_ns",
        "_each",
        "_order",
        "_over",
        "_policy",
        "_prices",
        "_size",
        "beliefs",
        "failing",
        "firsts",
        "known",
        "slow",
        "steps",
    )

    def __init__(
        self,
        order: Sequence[str],
        forms: Forms,
        policy: Policy,
        size: int,
        due_ns: int | None,
    ) -> None:
        count = len(order)
        self._order, self._policy, self._size, self._due_ns = order, policy, size, due_ns
        self.known: list[Form] = [forms.form(target) for target in order]
        self.beliefs: list[Belief] = [_NOTHING] * count
        self.steps: list[Step] = [Step("", None, None, "fallback")] * count
        self._prices: Mapping[str, TargetPrice] | None = None
        self._each: list[tuple[float, float]] | None = None
        self._over: dict[int, list[float]] = {}  # misses where nobody waits; -1: not known
        self.firsts, self.slow, self.failing = [0.0] * count, [0.0] * count, [0.0] * count

    def look(self, now_ns: int) -> None:
        """Bring every target up to date."""
        stale: list[int] = []
        beliefs, place = self.beliefs, 0
        for form in self.known:
            if now_ns > form.until_ns:
                form.look(now_ns)
            if form.belief is not beliefs[place]:
                stale.append(place)
            place += 1  # noqa: SIM113 - a counter is cheaper than enumerate's tuples
        if stale:
            self._renew(stale)

    def each(self, prices: Mapping[str, TargetPrice]) -> list[tuple[float, float]] | None:
        """Return the prices of each target for a token in and out; None: not all are known."""
        if prices is not self._prices:
            known = [prices.get(target) for target in self._order]
            priced = [(one.tokens_in, one.tokens_out) for one in known if one is not None]
            self._prices, self._each = prices, priced if len(priced) == len(known) else None
        return self._each

    def misses(
        self, slo: ServiceLevels | None, well: int, waits: Mapping[int, float], asked: LevelsAsked
    ) -> list[float]:
        """Return by how much each target may miss its service levels; 0: it is good enough.

        `waits` has the places where one more request would wait, and for how long. What is found
        out is kept as long as the belief of its target.
        """
        size, tokens, _, margins = asked
        key = hash((0 if slo is None else slo.mark, size, tokens, margins))
        kept = self._over.get(key)
        if kept is None:
            if len(self._over) >= MOST:
                self._over.clear()
            kept = self._over[key] = [-1.0] * len(self.known)
        waiting = {place: int(wait_s * GRAIN) for place, wait_s in waits.items()} if waits else {}
        if -1.0 in kept:
            for place, over in enumerate(kept[:well]):
                if over < 0.0 and not waiting.get(place):
                    kept[place] = max(0.0, excess(slo, self.known[place], asked))
        found = kept[:well]
        for place, grains in waiting.items():
            if grains and place < well:
                form, longer = self.known[place], (key, grains)
                known = form.misses.get(longer)
                if known is None:
                    known = form.misses[longer] = max(0.0, excess(slo, form, asked))
                found[place] = known
        return found

    def _renew(self, stale: list[int]) -> None:
        policy, size, due_ns = self._policy, self._size, self._due_ns
        self.beliefs, self.steps = self.beliefs.copy(), self.steps.copy()
        self.firsts = self.firsts.copy()
        for kept in self._over.values():
            for place in stale:
                kept[place] = -1.0
        for place in stale:
            form = self.known[place]
            self.beliefs[place] = form.belief
            own_ns = form.due_ns(size) if due_ns is None else due_ns
            if self.steps[place].ttft_ns != own_ns or not self.steps[place].target:
                self.steps[place] = Step(self._order[place], None, own_ns, "fallback")
            self.firsts[place] = (
                policy.ttft * form.ttfts_s[size] * (form.tail if policy.tail else form.mean)
            )
            self.slow[place] = form.slowness
            self.failing[place] = policy.failure * form.p_error


def standing(
    ask: PlanAsk, order: Sequence[str], forms: Forms, policy: Policy, size: int
) -> Standing:
    """Return what is kept of an order of targets; one that is not the configured order is new."""
    alias = ask.alias
    due_ns = alias.ttft_timeout_ns if ask.ttft_timeout_ns is None else ask.ttft_timeout_ns
    if order is not alias.targets:
        return Standing(order, forms, policy, size, due_ns)
    key = (order, policy.name, size, due_ns)
    kept: Standing | None = forms.standings.get(key)
    if kept is None:
        if len(forms.standings) >= MOST:
            forms.standings.clear()
        kept = forms.standings[key] = Standing(order, forms, policy, size, due_ns)
    return kept
