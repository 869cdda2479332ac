"""The observer of requests and attempts: tells breakers, form and hedge budgets what happened.

The gateway and the rehearsal both report here, so that a rehearsed policy learns what it would
learn in production. Instants and durations in nanoseconds; `size` is that of `form.size.size_of`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from lightgate.route.health.failure import CANCELLED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.route.admission.headers import RateFact
    from lightgate.route.form.forms import Forms
    from lightgate.route.health.breaker import Breakers
    from lightgate.route.health.failure import Failure
    from lightgate.route.plan.hedge import Duplicate, HedgeBudgets
    from lightgate.route.plan.plan import Plan, Step

# The roles of attempts that start beside another one, and have a budget.
_COUNTED: Final[Mapping[str, Duplicate]] = MappingProxyType({"hedge": "hedge", "racer": "racer"})


class Observer:
    """Receives the events of every request and every attempt; keeps no state itself."""

    __slots__ = ("breakers", "budgets", "forms")

    def __init__(self, breakers: Breakers, forms: Forms, budgets: HedgeBudgets) -> None:
        self.breakers = breakers
        self.forms = forms
        self.budgets = budgets

    # Requests

    def arrived(self, key: str) -> None:
        """Count a request that came in; `key` is whose hedge budget it adds to."""
        self.budgets.deposit(key)

    def may_start(self, key: str, step: Step, plan: Plan) -> bool:
        """Say whether a step may start beside a running one; its price is set aside then."""
        kind = _COUNTED.get(step.role)
        if kind is None:
            return True
        part = _part(plan, kind)
        return self.budgets.take(key, kind, _reserve(plan, step) * part, plan.own_nano * part)

    def settled(
        self,
        key: str,
        plan: Plan,
        beside: Sequence[Step],
        winner_nano: float,
        lost_nano: float,
        premium_nano: float = 0.0,
    ) -> None:
        """Settle a request that is over; `beside` are the steps that `may_start` let start.

        `lost_nano` is the price of all attempts that did not win, in whatever role;
        `premium_nano` is the part of the winner's that the first target would not have cost.
        """
        lost_nano += premium_nano
        for step in beside:
            kind = _COUNTED.get(step.role)
            if kind is not None:
                part = _part(plan, kind)
                reserve, own = _reserve(plan, step) * part, plan.own_nano * part
                self.budgets.settle(key, kind, reserve, lost_nano * part, own)
                lost_nano = 0.0
        self.budgets.paid(key, winner_nano - premium_nano)

    def answered(self, model: str, ttft_ns: int, decoded: tuple[int, int]) -> None:
        """Take in an answered request: its time to first token, then tokens and nanoseconds."""
        self.forms.answered(model, ttft_ns, *decoded)

    def unanswered(self, model: str) -> None:
        """Take in a request that no target answered, where that was not the client's fault."""
        self.forms.unanswered(model)

    # Attempts

    def began(self, target: str, now_ns: int) -> None:
        """Take in an attempt that starts."""
        if target in self.breakers.troubled:
            self.breakers.started(target, now_ns)
        self.forms.started(target, now_ns)

    def spoke(self, target: str, size: int, now_ns: int, began_ns: int) -> None:
        """Take in the first useful token of an attempt."""
        if target in self.breakers.troubled:
            self.breakers.spoke(target, now_ns, began_ns)
        self.forms.first(target, size, now_ns, now_ns - began_ns)

    def stated(
        self,
        target: str,
        now_ns: int,
        began_ns: int,
        facts: Sequence[RateFact],
        *,
        tokens: int,
        refused: bool,
    ) -> None:
        """Take in the limits that the head of an answer states (`admission.stated`)."""
        self.forms.stated(target, now_ns, began_ns, facts, tokens=tokens, refused=refused)

    def succeeded(
        self,
        target: str,
        now_ns: int,
        began_ns: int,
        decoded: tuple[int, int],
    ) -> None:
        """Take in the good end of an attempt: tokens, and nanoseconds since the first of them."""
        tokens, decode_ns = decoded
        self.breakers.succeeded(target, now_ns, began_ns)
        self.forms.finished(target, now_ns, tokens, decode_ns, now_ns - began_ns)
        self.forms.ended(target, began_ns, now_ns)

    def failed(
        self, target: str, size: int, now_ns: int, began_ns: int, end: tuple[Failure, float | None]
    ) -> None:
        """Take in the failure of an attempt, with the wait in seconds that the provider asked."""
        failure, wait_s = end
        self.breakers.failed(target, now_ns, failure, wait_s, began_ns)
        self.forms.failed(target, size, now_ns, failure, wait_s, began_ns)
        self.forms.ended(target, began_ns, now_ns)

    def lost(self, target: str, size: int, now_ns: int, began_ns: int, *, spoke: bool) -> None:
        """Take in an attempt that the gateway closed: another one won, or the client left."""
        self.breakers.failed(target, now_ns, CANCELLED, None, began_ns)
        if not spoke:
            self.forms.waited(target, size, now_ns, now_ns - began_ns)
        self.forms.ended(target, began_ns, now_ns)


def _reserve(plan: Plan, step: Step) -> float:
    """Return what is set aside for a step that starts beside another."""
    return plan.reserve_nano if step.stands_by is None else step.stands_by.reserve_nano


def _part(plan: Plan, kind: Duplicate) -> float:
    """Return what one second attempt counts for: of several racers beside the first, its part."""
    if kind == "hedge":
        return 1.0
    return 1.0 / max(1, sum([step.role == "racer" for step in plan.steps]) - 1)
