"""The course of a plan: which step starts when, how long it has, and what a failure leads to.

A pure state machine, to which the time is passed, so that the gateway and the rehearsal follow a
plan in the same way. Steps with an offset start by the clock; the others after a failure. Second
tries after a failure are a share of the traffic, so that no outage is amplified (`RetryBudget`).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.route.health.window import CountWindow

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.route.health.failure import Failure
    from lightgate.route.plan.plan import Plan, StandInHedge, Step

AUTO_TTFT_NS: Final = 20_000_000_000  # of a candidate that is not the last, if nothing is set
SHARE_PERCENT: Final = 20  # of the requests of the last LIFE_S; Envoy's and Finagle's default
FLOOR_PER_S: Final = 3  # granted without any traffic: Envoy's smallest budget, per second
LIFE_S: Final = 10  # a deposit's life, as Finagle's
BUCKET_NS: Final = 1_000_000_000
CHANCES: Final = 4  # that a hedge has to start: after its delay, and 2, 4 and 8 times as late


class Course:
    """Where one request is on its plan; instants in nanoseconds of one clock."""

    __slots__ = (
        "_again",
        "_delay_ns",
        "_due_ns",
        "_failed_last",
        "_itself",
        "_origin_ns",
        "_refused",
        "_together",
        "_waiting",
        "running",
    )

    def __init__(self, plan: Plan, origin_ns: int, due_ns: int) -> None:
        self._waiting: deque[Step] = deque(plan.steps)
        self._origin_ns = origin_ns
        self._due_ns = due_ns
        self._failed_last: tuple[str, bool] | None = None  # the target, and whether again helps
        steps = plan.steps
        self._together = len(steps) > 1 and steps[1].start_ns is not None
        # A hedge at the same target is no retry: it does not follow a failure.
        self._itself = self._together and steps[1].target == steps[0].target
        self._again = plan.again  # until a step has started beside another
        self._delay_ns = (steps[1].start_ns or 0) if self._together else 0  # of the next hedge
        self._refused = 0  # times that it was refused
        self.running = 0

    @property
    def over(self) -> bool:
        """Whether no step runs and none will."""
        return not self.running and not self._waiting

    @property
    def next_ns(self) -> int | None:
        """The instant at which the next step starts by the clock; None: it does not."""
        if not self._waiting:
            return None
        offset = self._waiting[0].start_ns
        return None if offset is None else self._origin_ns + offset

    def due_by_clock(self, now_ns: int) -> Step | None:
        """Return the step that is about to start beside a running one, by the clock."""
        at_ns = self.next_ns
        if not self.running or at_ns is None or at_ns > now_ns:
            return None
        return self._waiting[0]

    def due(self, now_ns: int) -> Step | None:
        """Start the next step if it is due: by the clock, or because no other step runs."""
        while self._waiting:
            step = self._waiting[0]
            early = step.start_ns is None or self._origin_ns + step.start_ns > now_ns
            if self.running and early:
                return None
            self._waiting.popleft()
            if not self._pointless(step):
                if self.running:
                    self._again = None
                self.running += 1
                return step
        return None

    def ttft_ns(self, step: Step, now_ns: int) -> int:
        """Return how long a step that starts now has for its first useful token.

        A step that starts after a failure shares what is left of the time with those behind it.
        """
        remaining = self._due_ns - now_ns
        by_clock = self._together and step.start_ns is not None
        left = 1 if by_clock else len(self._waiting) + 1
        limit = step.ttft_ns
        if left > 1:
            limit = min(limit or AUTO_TTFT_NS, remaining // left)
        return remaining if limit is None else min(limit, remaining)

    def failed(self, step: Step, failure: Failure, now_ns: int, budget: RetryBudget) -> Step | None:
        """Take in the failure of a running step; return the step that replaces it, if one may."""
        self.running -= 1
        self._failed_last = (step.target, failure.again)
        if not failure.fails_over:
            self._waiting.clear()
        while self._waiting and (self._pointless(self._waiting[0]) or self._by_clock_alone()):
            self._waiting.popleft()
        if not self._waiting:
            return None
        if now_ns < self._due_ns and (failure.free or budget.may(now_ns)):
            self.running += 1
            following = _after(self._waiting.popleft())
            if self._again is not None and self.running == 1:
                self._hedge_again(self._again(), following, now_ns)
            return following
        if not self.running:
            self._waiting.clear()
        return None

    def decided(self) -> None:
        """Take in that a running step answers the client: no other starts."""
        self._waiting.clear()

    def postpone(self) -> None:
        """Put the next step off: its budget does not let it start by the clock now.

        A hedge is asked for again when twice as much time has passed, a few times; then it stays a
        fallback. A racer is a fallback at once.
        """
        if not self._waiting:
            return
        step = self._waiting.popleft()
        self._refused += 1
        if step.role == "hedge" and step.start_ns is not None and self._refused < CHANCES:
            later_ns = step.start_ns + self._delay_ns
            self._delay_ns *= 2
            self._waiting.appendleft(msgspec.structs.replace(step, start_ns=later_ns))
        elif not self._itself:
            self._waiting.appendleft(_after(step))

    def _hedge_again(self, hedge: StandInHedge | None, stand_in: Step, now_ns: int) -> None:
        """Let the step behind a fallback start beside it, if that one is slow as well."""
        self._again = None
        if hedge is None or not self._waiting:
            return
        step = self._waiting[0]
        if step.start_ns is None and step.target != stand_in.target:
            self._together, self._refused, self._delay_ns = True, 0, hedge.delay_ns
            at_ns = now_ns - self._origin_ns + hedge.delay_ns
            self._waiting[0] = msgspec.structs.replace(
                step, start_ns=at_ns, role="hedge", stands_by=hedge
            )

    def _by_clock_alone(self) -> bool:
        """Return whether the next step is a hedge at the target that it would stand in for."""
        return self._itself and self._waiting[0].start_ns is not None

    def _pointless(self, step: Step) -> bool:
        """Return whether this target has just failed in a way that a second try does not change."""
        last = self._failed_last
        return last is not None and last[0] == step.target and not last[1]


def _after(step: Step) -> Step:
    """Make a step one that follows a failure: it starts beside no other now."""
    if step.start_ns is None:
        return step
    return msgspec.structs.replace(step, start_ns=None, role="fallback", stands_by=None)


class RetryBudget:
    """How many second tries there may be, by the requests and second tries of the last 10 s.

    The floor may be used at once: a plan with four fallbacks must work as the first request of a
    quiet night. A try after a failure that is `free` takes nothing from the budget.
    """

    __slots__ = ("_window", "deposit")

    def __init__(self) -> None:
        self._window = CountWindow(LIFE_S, BUCKET_NS)  # requests, withdrawals
        # Takes the instant of a request that came in; its attempts are not counted.
        self.deposit: Callable[[int], None] = partial(self._window.add, first=1, second=0)

    def may(self, now_ns: int) -> bool:
        """Take one second try out of the budget; return False if there is none."""
        if self.left(now_ns) < 1.0:
            return False
        self._window.add(now_ns, 0, 1)
        return True

    def left(self, now_ns: int) -> float:
        """Return the second tries that are left at this instant."""
        window = self._window
        window.turn(now_ns)
        granted = FLOOR_PER_S * LIFE_S + window.first * SHARE_PERCENT / 100
        return granted - window.second
