"""The hedge of a target that stands in for a failed first one: worked out only if that happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.route.plan.hedge import due_by_ns, fit
from lightgate.route.plan.plan import StandInHedge
from lightgate.route.plan.second_price import lost_nano, premium_nano

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.route.form.target import Form
    from lightgate.route.plan.alias import PlanAsk

    # The request, its expected tokens, its prompt size, the plan's instant; the hedge's quantile,
    # or its time where that is fixed.
    _Asked = tuple[PlanAsk, int, int, int, float | int]


class StandIn:
    """How the second target of a plan is hedged by the third.

    Of all targets there are the names and the forms, and the places of the first three.

    It holds what it needs and not the ranking, which holds the plan: so both go as soon as nobody
    uses them, without a search for cycles.
    """

    __slots__ = ("_asked", "_known", "_order", "_places")

    def __init__(
        self,
        asked: _Asked,
        order: Sequence[str],
        known: Sequence[Form],
        places: tuple[int, int, int],
    ) -> None:
        self._asked = asked
        self._order, self._known, self._places = order, known, places

    def __call__(self) -> StandInHedge | None:
        """Prepare the hedge; None: the third target may not be sent a second attempt."""
        ask, tokens, size, now_ns, due = self._asked
        names = [self._order[place] for place in self._places]
        _, stand_in, behind = [self._known[place] for place in self._places]
        if not fit(behind, now_ns):
            return None
        premium, part = premium_nano(ask, tokens, names[0], names[2])
        first, second, third = [lost_nano(ask, tokens, target) for target in names]
        lost = first + max(second + premium, third)
        delay_ns = due if isinstance(due, int) else due_by_ns(stand_in, size, due)
        return StandInHedge(delay_ns, lost, part)

    def __eq__(self, other: object) -> bool:
        """Two plans that do the same are equal, whatever they were made of."""
        return isinstance(other, StandIn)

    def __hash__(self) -> int:
        return 0
