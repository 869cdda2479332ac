"""The course of a cascade: from what happened to what is to be done, without doing it.

The caller starts, cancels and delivers. Every call returns the `Move` that follows from it; after
the move that is `over` nothing more happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.route.cascade.tiers import TierTurn
    from lightgate.route.cascade.verify import State


class Move(msgspec.Struct, frozen=True):
    """What is to be done now, by the places of turns.

    start    begin these turns
    cancel   close these turns at once
    release  this turn answers the client from now on: pass on what it said so far, and what comes
    deliver  the whole answer of this turn is the answer
    verified whether what is delivered has passed its checks; None: not, or only in part checked
    over     nothing follows; without `deliver` or a released turn that went well, all have failed
    """

    start: tuple[int, ...] = ()
    cancel: tuple[int, ...] = ()
    release: int | None = None
    deliver: int | None = None
    verified: bool | None = None
    over: bool = False


NOTHING = Move()


class CascadeCourse:
    """Where one request is on the turns of its cascade."""

    __slots__ = ("_kept", "_released", "_running", "_turns", "_waiting", "over")

    def __init__(self, turns: Sequence[TierTurn]) -> None:
        self._turns = tuple(turns)
        self._waiting = list(range(len(self._turns)))
        self._running: list[int] = []
        self._kept: int | None = None  # the best answer that has failed its checks
        self._released: int | None = None
        self.over = False

    @property
    def at(self) -> int:
        """The place of the turn that is running; there is one until the course is over."""
        return self._running[0]

    def begin(self) -> Move:
        """The first turn."""
        return self._next()

    def due_ns(self) -> int | None:
        """Return when the next turn begins by the clock, from the start; None: it does not."""
        if self.over or not self._waiting or self._released is not None:
            return None
        turn = self._turns[self._waiting[0]]
        return turn.start_ns if turn.role == "ahead" else None

    def tick(self, elapsed_ns: int) -> Move:
        """Begin the turn that is due ahead, if it is time."""
        due = self.due_ns()
        if due is None or elapsed_ns < due:
            return NOTHING
        place = self._waiting.pop(0)
        self._running.append(place)
        return Move(start=(place,))

    def answered(self, place: int, state: State | None = None) -> Move:
        """Take in a whole answer; `state` is the verdict on it, None if it was not checked."""
        if self.over or place not in self._running:
            return NOTHING
        self._running.remove(place)
        checked = self._turns[place].checked
        if not checked or state != "failed":
            return self._end(place, True if checked and state == "passed" else None)
        if self._kept is None or self._turns[place].tier > self._turns[self._kept].tier:
            self._kept = place
        return self._next()

    def failed(self, place: int, *, committed: bool = False) -> Move:
        """Take in a turn that could not answer; `committed`: the client has its first words."""
        if self.over or place not in self._running:
            return NOTHING
        self._running.remove(place)
        if place == self._released:
            if committed:  # no other answer can follow those words
                return self._end(None, None)
            self._released = None
        return self._next()

    def _next(self) -> Move:
        """Choose the turn that answers the client: the running one, else the next one."""
        if self._running:
            return self._release(self._running[0], ())
        while self._waiting:
            place = self._waiting.pop(0)
            if self._turns[place].role == "below" and self._kept is not None:
                continue
            self._running.append(place)
            return self._release(place, (place,))
        return self._end(self._kept, None if self._kept is None else False)

    def _release(self, place: int, start: tuple[int, ...]) -> Move:
        if self._turns[place].checked or self._released == place:
            return Move(start=start)
        self._released = place
        return Move(start=start, release=place)

    def _end(self, place: int | None, verified: bool | None) -> Move:
        self.over = True
        cancel, self._running = tuple(self._running), []
        return Move(cancel=cancel, deliver=place, verified=verified, over=True)
