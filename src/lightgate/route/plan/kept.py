"""Plans that are kept for a few milliseconds, so that a burst of like requests decides once.

A kept ranking is at most `KEEP_NS` old. It is not used

- while a breaker of one of the alias' targets is open, half open or held: `decide` is asked then,
  so that a pause, a hold and a probe are seen at once;
- after an event that can change the ranking by itself (`Forms.version`): a failure, an attempt that
  was closed while it was silent, a detected change of first tokens or of speed, one of the first
  answers of a newcomer, a target that reaches its limit or falls below it, another margin of a
  promise, another worker's form, another snapshot.

What waits for `KEEP_NS` is one more sample of what is already believed: an ordinary first token, or
the speed of an ordinary answer. What is never kept is the part of each single request: its draw,
the load of each target, by which the first target is chosen anew, and the hedge budget of its key,
which is asked here and again when the hedge starts.

Requests share a ranking if their prompts and expected answers differ by less than a sixteenth. The
plan is made for the longest of them, so that what is set aside for a hedge is never too little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.route.form.size import size_of
from lightgate.route.plan.decide import decide, rank
from lightgate.route.plan.policy import DRAWN

if TYPE_CHECKING:
    from lightgate.route.form.forms import Forms
    from lightgate.route.health.breaker import Breakers
    from lightgate.route.plan.alias import PlanAsk
    from lightgate.route.plan.hedge import HedgeBudgets
    from lightgate.route.plan.plan import Plan
    from lightgate.route.plan.ranking import Ranking

KEEP_NS: Final = 3_000_000  # far less than a first token takes: the answers it misses are few
MOST: Final = 512  # rankings; all are forgotten then, and soon made anew


class PlanCache:
    """Rankings of the last milliseconds, by the facts of their requests."""

    __slots__ = ("_breakers", "_budgets", "_forms", "_kept", "_version")

    def __init__(self, breakers: Breakers, forms: Forms, budgets: HedgeBudgets) -> None:
        self._breakers = breakers
        self._forms = forms
        self._budgets = budgets
        self._kept: dict[tuple[object, ...], Ranking] = {}
        self._version = forms.version

    def plan(self, ask: PlanAsk, now_ns: int, draw: float) -> Plan:
        """Make the plan of a request as `decide` does, from a kept ranking where there is one."""
        alias, breakers, forms = ask.alias, self._breakers, self._forms
        # An order that is drawn is another one for each request.
        drawn = (ask.policy or alias.policy) in DRAWN
        if drawn or ask.slo is not None or not breakers.all_quiet(alias.targets):
            return decide(ask, breakers, now_ns, draw, forms, self._budgets)
        if self._version != forms.version:
            self._kept.clear()
            self._version = forms.version
        tokens_in, expected = ask.tokens_in, ask.expected_tokens
        size = size_of(tokens_in)
        tokens_in = _rounded_up(tokens_in)
        expected = None if expected is None else _rounded_up(expected)
        key = (
            alias.name,
            size,
            tokens_in,
            expected,
            ask.max_tokens,
            ask.policy,
            ask.race,
            ask.hedge,
            ask.ttft_timeout_ns,
            None if ask.session is None else forms.warm(ask.session, now_ns),
        )
        ranking = self._kept.get(key)
        if (
            ranking is None
            or not 0 <= now_ns - ranking.now_ns <= KEEP_NS
            or ranking.ask.alias is not alias
            or ranking.ask.prices is not ask.prices
        ):
            coarse = msgspec.structs.replace(ask, tokens_in=tokens_in, expected_tokens=expected)
            ranking = rank(coarse, size, breakers, now_ns, draw, forms)
            if len(self._kept) >= MOST:
                self._kept.clear()
            self._kept[key] = ranking
        return ranking.plan(draw, ask.key, self._budgets)


def _rounded_up(tokens: int) -> int:
    """Round up to five significant bits: at most a sixteenth more."""
    more = tokens.bit_length() - 5
    return tokens if more <= 0 else (tokens + (1 << more) - 1) >> more << more
