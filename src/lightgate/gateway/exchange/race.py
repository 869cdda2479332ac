"""Several attempts at once: racers and hedges by the clock, fallbacks after failures."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.route.plan.course import Course

if TYPE_CHECKING:
    from lightgate.gateway.exchange.attempt import Leg
    from lightgate.gateway.exchange.exchange import Flight
    from lightgate.gateway.process.state import State
    from lightgate.provider.call import Called
    from lightgate.route.plan.plan import Step

NS: Final = 1_000_000_000
_LAST_WORDS_S: Final = 0.5

Running = dict["asyncio.Task[Called]", "Leg"]


class Race:
    """Follows a plan whose steps overlap; the flight says who wins."""

    __slots__ = ("_course", "_due_ns", "_flight", "_key", "_running", "_state")

    def __init__(self, flight: Flight, state: State, due_ns: int) -> None:
        self._flight = flight
        self._state = state
        self._due_ns = due_ns
        self._course = Course(flight.plan, time.monotonic_ns(), due_ns)
        self._key = "" if flight.entry.key is None else flight.entry.key.id
        self._running: Running = {}

    async def run(self) -> None:
        """Until one has answered, or nobody is left."""
        flight, running = self._flight, self._running
        try:
            while True:
                self._start()
                if not running:
                    if not await flight.ask_whole():
                        flight.give_up()
                    return
                done, _ = await asyncio.wait(
                    running, timeout=self._patience_s(), return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    if self._ended(running.pop(task), task.result()):
                        return
        finally:
            for leg in running.values():
                leg.call.cancel()
            if running:  # their sockets are closed already; they only say so
                await asyncio.wait(running, timeout=_LAST_WORDS_S)

    def _ended(self, leg: Leg, called: Called) -> bool:
        """One is over; whether the flight is."""
        flight = self._flight
        if called.error is None and flight.winner is None:
            leg.release()
        won = leg is flight.winner
        if won and called.error is not None and flight.takes_back():
            self._begin_again()
        elif won or (called.error is None and flight.winner is None):
            flight.end(leg, called)
            return True
        elif flight.winner is not None or leg.lost:  # it says its last words
            return False
        now = time.monotonic_ns()
        step = self._course.failed(leg.step, leg.failure, now, self._state.retries)
        if step is not None:
            self._launch(step)
        for other in self._running.values():
            if other.held_ns and flight.winner is None:  # for one who will not come, perhaps
                other.release()
        return False

    def _begin_again(self) -> None:
        """The winner of a whole answer broke off, and nobody has heard of it.

        Those that have not failed are asked one after the other, also those that were closed.
        """
        flight = self._flight
        failed = {leg.step.target for leg in flight.legs if not leg.lost}
        left = {step.target: step for step in flight.plan.steps if step.target not in failed}
        steps = [
            msgspec.structs.replace(step, start_ns=None, role="fallback") for step in left.values()
        ]
        plan = msgspec.structs.replace(flight.plan, steps=tuple(steps))
        self._course = Course(plan, time.monotonic_ns(), self._due_ns)
        self._course.running = 1  # the one that failed

    def _start(self) -> None:
        """Everything whose time has come."""
        course, flight = self._course, self._flight
        if flight.winner is not None:
            return
        while True:
            now = time.monotonic_ns()
            beside = course.due_by_clock(now)
            if beside is not None:
                if not self._state.observer.may_start(self._key, beside, flight.plan):
                    course.postpone()
                    continue
                flight.beside.append(beside.role)
            step = course.due(now)
            if step is None:
                return
            self._launch(step)

    def _launch(self, step: Step) -> None:
        flight = self._flight
        leg = flight.make_leg(step)
        if leg is None:  # it cannot be told this request: as if it were not in the plan
            self._course.running -= 1
            return
        limit = self._course.ttft_ns(step, time.monotonic_ns())
        task = self._state.loop.create_task(flight.attempt(leg, limit))
        self._running[task] = leg

    def _patience_s(self) -> float | None:
        at_ns = self._course.next_ns
        if at_ns is None or self._flight.winner is not None:
            return None
        return max(0, at_ns - time.monotonic_ns()) / NS
