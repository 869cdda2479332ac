"""Room for a line of a batch: only what requests of clients leave free.

A line that finds no room is refused at once. It costs nothing then, and comes again later; the
process that sends lines sends fewer of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.gateway.request.refusal import Refusal, Refusing
from lightgate.route.admission.peaks import ClientPeaks

if TYPE_CHECKING:
    from lightgate.gateway.exchange.exchange import Exchange
    from lightgate.gateway.exchange.state import State
    from lightgate.route.form.target import Form
    from lightgate.route.plan.plan import Plan

LAG_NS: Final = 10_000_000  # of the loop, with which a worker has no time for batches
FREE_SHARE: Final = 0.25  # of what a target or a worker takes, left for clients
BEYOND: Final = 1.25  # times a room: what is served beyond it without a wait shows it was none
HALF: Final = 0.5  # of what clients may come with beyond what they have now
LATELY_NS: Final = 60_000_000_000  # after a client's request, another one is expected
WAIT_S: Final = 1.0

NO_ROOM: Final = Refusal(
    status=429,
    message="There is no room for batches beside the requests of clients at the moment.",
    code="no_spare_room",
    retry_after_s=WAIT_S,
)


def check_spare(state: State, plan: Plan, now_ns: int) -> None:
    """Let a line of a batch in; Refusing where it could make a client wait."""
    if state.peaks is None:
        state.peaks = ClientPeaks()  # from now on clients are counted
    load, most = state.load, state.load.requests
    full = most > 0 and len(state.exchanges) >= (1.0 - FREE_SHARE) * most
    target = plan.steps[0].target
    form = state.learned.forms.by_target.get(target)
    if full or load.lag_ns > LAG_NS or (form and not _spare(state.peaks, target, form, now_ns)):
        raise Refusing(NO_ROOM)


def _spare(peaks: ClientPeaks, target: str, form: Form, now_ns: int) -> bool:
    """Whether a target has room for one more line.

    A limit that the target has shown is used up to three quarters. Where clients have asked lately,
    a queue that was seen leaves what is beyond their peak, and without one the target may have one
    request more than it was seen to serve without a wait, half of a burst of clients included.
    """
    flying, limit, curve = form.flying(now_ns) + 1.0, form.limit, form.curve
    if limit.firm and flying > max(1.0, (1.0 - FREE_SHARE) * limit.most):
        return False
    if peaks.client_ns is None or now_ns - peaks.client_ns > LATELY_NS:
        return True
    if curve.slope * curve.room >= curve.alone_s > 0.0:
        peaks.saw_queue(target, curve.room, now_ns)
    room = peaks.room(target, now_ns)
    if room is not None and curve.easy <= BEYOND * room + 1.0:
        return peaks.lines(target) + 1 + peaks.peak(target) < room
    # Without a queue more is tried, but less boldly where clients come in bursts.
    burst = max(0.0, peaks.peak(target) - (flying - 1.0 - peaks.lines(target)))
    return flying + HALF * burst <= curve.easy + 1.0


def note_client(peaks: ClientPeaks, state: State, plan: Plan, now_ns: int) -> None:
    """Count a client's request for the peak at its target."""
    target = plan.steps[0].target
    form = state.learned.forms.by_target.get(target)
    peaks.came(target, 0 if form is None else form.in_flight, now_ns)


def count_line(state: State, exchange: Exchange) -> None:
    """Count a line that was let in, until it is settled."""
    if state.peaks is not None:
        state.peaks.began(exchange.id, exchange.plan.steps[0].target)
