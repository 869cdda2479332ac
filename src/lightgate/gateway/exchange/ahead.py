"""A tier that is asked before its turn: started by the clock, held back, then used or closed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lightgate.gateway.exchange.cascade import Hold

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lightgate.gateway.exchange.attempt import Leg
    from lightgate.provider.call import Called
    from lightgate.route.plan.plan import Plan, Step

NS: Final = 1_000_000_000
_LAST_WORDS_S: Final = 0.5


class Ahead:
    """The first step of the next tier, from the wait for its time to its turn.

    Its turn comes once the tier before it has failed. Until then it may be started by the clock;
    what it says then goes into `hold`.
    """

    __slots__ = ("_task", "_timer", "hold", "leg", "place", "step", "turned")

    def __init__(self, place: int, step: Step) -> None:
        self.place = place  # in the plan
        self.step = step
        self.leg: Leg | None = None  # once it was started by the clock
        self.hold = Hold()
        self.turned = False  # its turn has come, or never will
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Called] | None = None

    @property
    def running(self) -> bool:
        """Whether it was started by the clock, goes on, and still waits for its turn."""
        return self.leg is not None and not self.turned and self.leg.called is None

    def waits(self, leg: Leg) -> bool:
        """Whether this attempt is the one that was started ahead, and its turn has not come."""
        return leg is self.leg and not self.turned

    def arm(self, loop: asyncio.AbstractEventLoop, wait_ns: int, act: Callable[[], None]) -> None:
        """Act once its time has come."""
        self._timer = loop.call_later(max(0, wait_ns) / NS, act)

    def disarm(self) -> None:
        """It is not started by the clock any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def start(
        self, loop: asyncio.AbstractEventLoop, leg: Leg, run: Coroutine[None, None, Called]
    ) -> None:
        """Let it run beside the others."""
        self.leg = leg
        self._task = loop.create_task(run)

    async def called(self) -> Called:
        """How the attempt ended."""
        if self._task is None:
            raise RuntimeError("An attempt that was not started has no end.")
        return await self._task

    def close(self) -> None:
        """Nobody needs it: its socket is closed in this turn of the loop."""
        self.disarm()
        if self.leg is not None and not self.turned:
            self.leg.lose()
        self.turned = True

    async def last_words(self) -> None:
        """Let an attempt that was closed say so."""
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=_LAST_WORDS_S)

    def forget(self) -> None:
        """It is over: the leg holds the flight, which holds this."""
        self.leg = None


def ahead_of(plan: Plan) -> int | None:
    """The place of the step that a plan starts ahead; None where nothing is to be."""
    first = plan.steps[0].tier
    for place, step in enumerate(plan.steps):
        if step.start_ns is not None and step.tier > first:
            return place
    return None
