"""Several attempts at once: racers and hedges by the clock, fallbacks after failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.route.plan.course import Course

if TYPE_CHECKING:
    import asyncio

    from lightgate.gateway.exchange.attempt import Attempt
    from lightgate.gateway.exchange.exchange import Exchange
    from lightgate.route.plan.plan import Step

NS: Final = 1_000_000_000


def follow(exchange: Exchange) -> None:
    """Try the steps of an exchange's plan, overlapping or one after the other."""
    steps = exchange.plan.steps
    overlapping = len(steps) > 1 and steps[1].start_ns is not None
    if overlapping and (exchange.request.streamed or exchange.assembles):
        Race(exchange, exchange.due_ns).start()
    else:
        exchange.serial(0, len(steps))


class Race:
    """Follows a plan whose steps overlap; the exchange says which attempt wins."""

    __slots__ = ("_course", "_due_ns", "_exchange", "_key", "_running", "_timer")

    def __init__(self, exchange: Exchange, due_ns: int) -> None:
        self._exchange = exchange
        self._due_ns = due_ns
        self._course = Course(exchange.plan, exchange.state.now_ns(), due_ns)
        key = exchange.caller.key
        self._key = "" if key is None else key.id
        self._running: set[Attempt] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start every step whose time has come, and set the timer for the next one."""
        exchange = self._exchange
        self._start_due()
        if exchange.closed_ns is not None:
            return
        if not self._running:
            self._stop_timer()
            if exchange.winner is None and not exchange.ask_whole():
                (exchange.cascade or exchange).give_up()
            return
        self._set_timer()

    def over(self, attempt: Attempt) -> None:
        """Go on after an attempt: to the end of the exchange, or to the step that replaces it."""
        self._running.discard(attempt)
        exchange = self._exchange
        if exchange.closed_ns is not None:
            self._stop_timer()
            return
        if attempt.ok and exchange.winner is None:
            attempt.release()
        won = attempt is exchange.winner
        if won and not attempt.ok and exchange.takes_back():
            self._begin_again()
        elif won or (attempt.ok and exchange.winner is None):
            self._stop_timer()
            (exchange.cascade or exchange).ended(attempt)
            return
        elif exchange.winner is not None or attempt.lost:  # closed by us
            return
        now = exchange.state.now_ns()
        step = self._course.failed(
            attempt.step, attempt.failure, now, exchange.state.learned.retries
        )
        if step is not None:
            self._launch(step)
        for other in tuple(self._running):
            if other.held_ns and exchange.winner is None:  # for one that will not come, perhaps
                other.release()
        if exchange.closed_ns is None:
            self.start()

    def _begin_again(self) -> None:
        """Ask those that have not failed one after the other, also those that were closed.

        The winner of a whole answer broke off, and the client has heard nothing of it.
        """
        exchange = self._exchange
        failed = {attempt.step.target for attempt in exchange.attempts if not attempt.lost}
        left = {step.target: step for step in exchange.plan.steps if step.target not in failed}
        steps = [
            msgspec.structs.replace(step, start_ns=None, role="fallback") for step in left.values()
        ]
        plan = msgspec.structs.replace(exchange.plan, steps=tuple(steps))
        self._course = Course(plan, exchange.state.now_ns(), self._due_ns)
        self._course.running = 1  # the one that failed

    def _start_due(self) -> None:
        course, exchange = self._course, self._exchange
        state = exchange.state
        while exchange.winner is None and exchange.closed_ns is None:
            now = state.now_ns()
            beside = course.due_by_clock(now)
            if beside is not None:
                if not state.learned.observer.may_start(self._key, beside, exchange.plan):
                    course.postpone()
                    continue
                exchange.beside.append(beside)
            step = course.due(now)
            if step is None:
                return
            self._launch(step)

    def _launch(self, step: Step) -> None:
        exchange = self._exchange
        attempt = (exchange.cascade or exchange).make_attempt(step)
        if attempt is None:  # it cannot be told this request: as if it were not in the plan
            self._course.running -= 1
            return
        attempt.driver = self
        self._running.add(attempt)
        limit = self._course.ttft_ns(step, exchange.state.now_ns())
        exchange.carry_out(attempt, limit)

    def _set_timer(self) -> None:
        at_ns, exchange = self._course.next_ns, self._exchange
        self._stop_timer()
        if at_ns is not None and exchange.winner is None:
            state = exchange.state
            wait_s = max(0, at_ns - state.now_ns()) / NS
            self._timer = state.loop.call_later(wait_s, self._tick)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()  # which also lets go of this race

    def _tick(self) -> None:
        self._timer = None
        exchange = self._exchange
        if exchange.winner is None and exchange.closed_ns is None:
            self.start()
