"""The time that a run will take, said when the first answers of its targets are there.

Until then the speed of a target is not known. The time is a lower end: answers come more slowly
under load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.clock.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lightgate.bench.run.order import Loading, RunOrder
    from lightgate.clock.attempt import AttemptRecord

LONG_S: Final = 120.0  # a shorter run needs no announcement
_AROUND: Final = 2  # answers before and after the counted ones of a load: its ramp and its fillers


class Forecast:
    """Takes the finished attempts of a run and says once how long the run will be."""

    def __init__(self, order: RunOrder, say: Callable[[str], None]) -> None:
        self._order = order
        self._say = say
        self._takes_s: dict[str, float] = {}
        self._said = False

    def take(self, attempt: AttemptRecord, names: Iterable[str]) -> None:
        """Take a finished attempt; the first good one of each of the named targets counts."""
        if self._said or attempt.outcome is not Outcome.OK or attempt.e2e_ms is None:
            return
        self._takes_s.setdefault(attempt.target, attempt.e2e_ms / 1000)
        if self._takes_s.keys() >= set(names):
            self._said = True
            if (seconds := self.seconds) >= LONG_S:
                self._say(self._sentence(seconds))

    @property
    def seconds(self) -> float:
        """Seconds of all loads that end by a number of requests, at the speed of the answers."""
        each = self._takes_s.values()
        one_round = max(each) if self._order.together else sum(each)
        return sum(_rounds(load) for load in self._order.loads) * one_round

    def _sentence(self, seconds: float) -> str:
        loads = ", ".join(
            f"{load.requests:,} requests at {load.label}"
            for load in self._order.loads
            if _rounds(load)
        )
        slowest = max(self._takes_s.values())
        return (
            f"This run will take {_rounded(seconds)} or more: for each target {loads}; an answer"
            f" takes up to {slowest:.1f} s alone. --quick gives a first look in a minute or two;"
            " Ctrl-C shows what was measured."
        )


def _rounds(load: Loading) -> float:
    """Answers that one worker waits for, one after the other; 0 where time ends the load."""
    if load.requests is None or load.pacer is not None:
        return 0
    workers = load.concurrency or 1
    return load.requests / workers + (_AROUND if workers > 1 else 0)


def _rounded(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} minutes" if minutes < 120 else f"{minutes / 60:.0f} hours"
