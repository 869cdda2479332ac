"""Room for a line of a batch: only what requests of clients leave free.

A line that finds no room is refused at once. It costs nothing then, and comes again later; the
process that sends lines sends fewer of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.gateway.request.refusal import Refusal, Refusing

if TYPE_CHECKING:
    from lightgate.gateway.exchange.state import State
    from lightgate.route.plan.plan import Plan

LAG_NS: Final = 10_000_000  # of the loop, with which a worker has no time for batches
FREE_SHARE: Final = 0.25  # of what a target or a worker takes, left for clients
LATELY_NS: Final = 60_000_000_000  # after a client's request, another one is expected
WAIT_S: Final = 1.0

NO_ROOM: Final = Refusal(
    status=429,
    message="There is no room for batches beside the requests of clients at the moment.",
    code="no_spare_room",
    retry_after_s=WAIT_S,
)


def check_spare(state: State, plan: Plan, now_ns: int) -> None:
    """Let a line of a batch in; Refusing where it could make a client wait.

    That is: the loop is behind; the worker or the target has nearly as many requests as it takes;
    or, where clients have asked lately, the target would have more than a request was seen not to
    wait with, but for one that tries more, or more than leave some of its room free.
    """
    load, most = state.load, state.load.requests
    if load.lag_ns > LAG_NS or (most and len(state.exchanges) >= (1.0 - FREE_SHARE) * most):
        raise Refusing(NO_ROOM)
    form = state.learned.forms.by_target.get(plan.steps[0].target)
    if form is None:
        return
    flying, curve = form.flying(now_ns) + 1.0, form.curve
    if form.limit.firm and flying > max(1.0, (1.0 - FREE_SHARE) * form.limit.most):
        raise Refusing(NO_ROOM)
    lately = now_ns - state.client_ns < LATELY_NS
    if lately and (flying > curve.easy + 1.0 or not curve.spare(flying)):
        raise Refusing(NO_ROOM)
