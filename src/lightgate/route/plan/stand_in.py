"""The hedge of a target that stands in for a failed first one: worked out only if that happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.route.plan.hedge import delay_ns, fit
from lightgate.route.plan.plan import StandInHedge
from lightgate.route.plan.second_price import lost_nano, premium_nano

if TYPE_CHECKING:
    from lightgate.route.form.target import Form
    from lightgate.route.plan.alias import PlanAsk

    # The request, its expected tokens, its prompt size, the plan's instant, the hedge's quantile.
    _Asked = tuple[PlanAsk, int, int, int, float]


class StandIn:
    """How the second target of a plan is hedged by the third; of both there is the form.

    It holds what it needs and not the ranking, which holds the plan: so both go as soon as nobody
    uses them, without a search for cycles.
    """

    __slots__ = ("_asked", "_known", "_order")

    def __init__(
        self, asked: _Asked, order: tuple[str, str, str], known: tuple[Form, Form]
    ) -> None:
        self._asked = asked
        self._order, self._known = order, known

    def __call__(self) -> StandInHedge | None:
        """Prepare the hedge; None: the third target may not be sent a second attempt."""
        ask, tokens, size, now_ns, q = self._asked
        order, known = self._order, self._known
        if not fit(known[1], now_ns):
            return None
        premium, part = premium_nano(ask, tokens, order[0], order[2])
        first, second, third = [lost_nano(ask, tokens, target) for target in order]
        lost = first + max(second + premium, third)
        return StandInHedge(delay_ns(known[0].sizes[size], q), lost, part)

    def __eq__(self, other: object) -> bool:
        """Two plans that do the same are equal, whatever they were made of."""
        return isinstance(other, StandIn)

    def __hash__(self) -> int:
        return 0
