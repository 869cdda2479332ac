"""Climbing a cascade: from what happened to what is to be done, without doing it.

The caller starts, cancels and delivers; here is only who is where. Every call returns the `Move`
that follows from it, and after the one that is `over` nothing more happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.route.cascade.tiers import TierTurn
    from lightgate.route.cascade.verify import State


class Move(msgspec.Struct, frozen=True):
    """What is to be done now, by places of rungs.

    start    begin these
    cancel   close these in the same turn
    release  this one has the client from now on: pass on what it said so far, and what it says
    deliver  this one's whole answer is the answer
    verified whether what is delivered has passed its checks; None: not, or only in part checked
    over     nothing follows; without `deliver` or a released rung that went well, all have failed
    """

    start: tuple[int, ...] = ()
    cancel: tuple[int, ...] = ()
    release: int | None = None
    deliver: int | None = None
    verified: bool | None = None
    over: bool = False


NOTHING = Move()


class CascadeCourse:
    """One request on its way up."""

    __slots__ = ("_kept", "_released", "_rungs", "_running", "_waiting", "over")

    def __init__(self, rungs: Sequence[TierTurn]) -> None:
        self._rungs = tuple(rungs)
        self._waiting = list(range(len(self._rungs)))
        self._running: list[int] = []
        self._kept: int | None = None  # the best answer that has failed its checks
        self._released: int | None = None
        self.over = False

    @property
    def at(self) -> int:
        """The place of the rung whose turn it is; there is one until the climb is over."""
        return self._running[0]

    def begin(self) -> Move:
        """The first rung."""
        return self._next()

    def due_ns(self) -> int | None:
        """When the next one begins ahead of time, from the start; None: never by the clock."""
        if self.over or not self._waiting or self._released is not None:
            return None
        rung = self._rungs[self._waiting[0]]
        return rung.start_ns if rung.role == "ahead" else None

    def tick(self, elapsed_ns: int) -> Move:
        """Time has passed: begin the one that is due ahead."""
        due = self.due_ns()
        if due is None or elapsed_ns < due:
            return NOTHING
        place = self._waiting.pop(0)
        self._running.append(place)
        return Move(start=(place,))

    def answered(self, place: int, state: State | None = None) -> Move:
        """A rung's answer is whole; `state` is the verdict on it, None if nobody checked."""
        if self.over or place not in self._running:
            return NOTHING
        self._running.remove(place)
        checked = self._rungs[place].checked
        if not checked or state != "failed":
            return self._end(place, True if checked and state == "passed" else None)
        if self._kept is None or self._rungs[place].tier > self._rungs[self._kept].tier:
            self._kept = place
        return self._next()

    def failed(self, place: int, *, committed: bool = False) -> Move:
        """A rung could not answer; `committed`: the client has the beginning of what it said."""
        if self.over or place not in self._running:
            return NOTHING
        self._running.remove(place)
        if place == self._released:
            if committed:  # nobody can go on with another's words
                return self._end(None, None)
            self._released = None
        return self._next()

    def _next(self) -> Move:
        """Nobody has the client: whoever runs gets it, or the next one begins."""
        if self._running:
            return self._release(self._running[0], ())
        while self._waiting:
            place = self._waiting.pop(0)
            if self._rungs[place].role == "below" and self._kept is not None:
                continue
            self._running.append(place)
            return self._release(place, (place,))
        return self._end(self._kept, None if self._kept is None else False)

    def _release(self, place: int, start: tuple[int, ...]) -> Move:
        if self._rungs[place].checked or self._released == place:
            return Move(start=start)
        self._released = place
        return Move(start=start, release=place)

    def _end(self, place: int | None, verified: bool | None) -> Move:
        self.over = True
        cancel, self._running = tuple(self._running), []
        return Move(cancel=cancel, deliver=place, verified=verified, over=True)
