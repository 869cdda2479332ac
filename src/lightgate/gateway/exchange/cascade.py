"""A flight up the tiers of a cascade: an answer that fails its checks is asked for one tier up.

What a checked tier says is held back until it is whole; then it is delivered at once, or kept while
the next tier is asked. The kept one is the answer after all where nobody above gives another.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.gateway.exchange.exchange import Flight
from lightgate.provider.answer import read_answer
from lightgate.route.cascade.course import CascadeCourse
from lightgate.route.cascade.features import wants_of
from lightgate.route.cascade.tiers import tier_turns
from lightgate.route.cascade.verify import verify

if TYPE_CHECKING:
    from lightgate.gateway.admit.admit import Entry
    from lightgate.gateway.cache.single_flight import SharedAnswer
    from lightgate.gateway.exchange.attempt import Leg
    from lightgate.gateway.process.state import State
    from lightgate.gateway.request.body import Wanted
    from lightgate.gateway.served.tiers import Tiers
    from lightgate.provider.call import Called
    from lightgate.route.cascade.course import Move
    from lightgate.route.cascade.verify import CheckVerdict
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply

HELD_BYTES: Final = 8 * 1024 * 1024  # of a stream; one that is longer goes out unchecked


class Hold:
    """What an attempt has said and nobody has heard yet."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0  # bytes

    def add(self, data: bytes) -> None:
        """Keep this behind the rest."""
        self._pieces.append(data)
        self.size += len(data)

    def take(self) -> bytes:
        """All of it; nothing is left."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self.size = 0
        return data


class Ascent(Flight):
    """A flight whose winner may be sent back."""

    __slots__ = (
        "_checks",
        "_climb",
        "_doubtful",
        "_hold",
        "_kept",
        "_let_out",
        "_next",
        "_rungs",
        "_top",
    )

    def __init__(
        self,
        state: State,
        inbound: Inbound,
        reply: Reply | SharedAnswer,
        entry: Entry,
        wanted: Wanted,
        tiers: Tiers,
    ) -> None:
        super().__init__(state, inbound, reply, entry, wanted)
        self._checks = tiers.checks
        self._rungs = tier_turns(tiers.cascade, entry.plan.steps[0].tier)
        self._top = len(tiers.cascade.tiers) - 1  # whose answers are not checked
        self._climb = CascadeCourse(self._rungs)
        self._climb.begin()
        self._hold = Hold()
        self._let_out: Leg | None = None  # too long to be held
        self._kept: tuple[Leg, bytes] | None = None  # the best answer that has failed its checks
        self._doubtful = False  # it is what the client got
        self._next: tuple[int, int] | None = None  # the steps to go on with, first and past

    @property
    def sound(self) -> bool:
        """Whether the answer may be given to others: not if it has failed its checks."""
        return not self._doubtful

    async def follow(self) -> None:
        """The plan as it is, then from tier to tier as long as answers fail."""
        try:
            await self._begin()
            while self._next is not None:
                first, past = self._next
                self._next = None
                await self.serial(first, past)
        finally:
            self._kept = self._let_out = None  # legs hold the flight, as there

    async def _begin(self) -> None:
        await super().follow()

    # From the legs

    def deliver(self, leg: Leg, data: bytes, *, ended: bool) -> None:
        """Hold a checked answer back; all others pass."""
        if not self._holds(leg):
            super().deliver(leg, data, ended=ended)
            return
        self._hold.add(data)
        if self._hold.size > HELD_BYTES:
            self._let_out = leg
            super().deliver(leg, self._hold.take(), ended=ended)

    def interrupt(self) -> None:
        """The worker stops: an answer that was kept is better than none."""
        if self.winner is not None and self._holds(self.winner):
            self.winner = None  # nothing of it has reached the client
        if self._kept is not None and self.winner is None:
            self._deliver_kept(self._kept)
        super().interrupt()

    # The end of a rung

    def end(self, leg: Leg, called: Called) -> None:
        """A tier has answered, or broke off: deliver, or go on."""
        if self.winner is not leg and self.reply.finished:  # interrupted, or another was whole
            return
        if not self._holds(leg):
            super().end(leg, called)
        elif called.error is not None:
            self._hold.take()
            self.winner = None
            if leg.failure.fails_over:
                self._go_on(self._behind())
            else:
                self.give_up()
        else:
            self._judge(leg)

    def give_up(self) -> None:
        """Nobody else can answer: what was kept is the answer, if there is something."""
        if self.reply.finished:
            return
        while not self._climb.over:
            self._climb.failed(self._climb.at)
        if self._kept is not None:
            self._deliver_kept(self._kept)
        else:
            super().give_up()

    def _judge(self, leg: Leg) -> None:
        """An answer is whole: it is the client's, or the next tier is asked."""
        climb = self._climb
        while self._rungs[climb.at].tier != leg.step.tier:  # those before it had no answer
            climb.failed(climb.at)
        if self._passed(leg, climb.at, self._hold) is None:
            steps, tier = self.plan.steps, self._rungs[climb.at].tier
            self._go_on(next(place for place, step in enumerate(steps) if step.tier == tier))

    def _passed(self, leg: Leg, place: int, hold: Hold) -> Move | None:
        """Check the whole answer of a rung, and hand it over; None: it failed, and is kept."""
        data = hold.take()
        if self.wanted.streamed and not leg.call.ended:
            data += leg.closing()
        verdict = self._verdict(leg, data) if self._rungs[place].checked else None
        move = self._climb.answered(place, None if verdict is None else verdict.state)
        if verdict is None or verdict.state != "failed":
            self._hand_over(leg, data, leg.marks.last)
            return move
        leg.rejected = True
        if self.winner is leg:
            self.winner = None
            self.first_in_ns = None
        if self._kept is None or self._kept[0].step.tier < leg.step.tier:
            self._kept = (leg, data)
        failed = [found.check for found in verdict.findings if found.state == "failed"]
        self._tell(f"{leg.step.target} failed {' and '.join(failed)}")
        return None

    def _tell(self, said: str) -> None:
        """Add to what the records say of the plan."""
        self.plan = msgspec.structs.replace(self.plan, reason=f"{self.plan.reason}; {said}")

    def _verdict(self, leg: Leg, data: bytes) -> CheckVerdict:
        wanted = self.wanted
        dialect, streamed = wanted.path.dialect, wanted.streamed
        if streamed:  # as the client would have got it
            answer = read_answer(dialect, data, streamed=True)
        else:
            answer = read_answer(leg.prepared.dialect.name, leg.body, streamed=False)
        return verify(answer, wants_of(dialect, wanted.fields, wanted.max_tokens), self._checks)

    def _deliver_kept(self, kept: tuple[Leg, bytes]) -> None:
        leg, data = kept
        self.refusal = None
        self._doubtful = True
        self._hand_over(leg, data, time.monotonic_ns())  # until now the targets had it

    def _hand_over(self, leg: Leg, data: bytes, came_ns: int | None) -> None:
        """Give the client an answer that is whole."""
        if self.reply.finished:
            return
        if not self.wanted.streamed:
            self.answer(leg, came_ns)
            return
        self.winner = leg
        self.first_in_ns = came_ns
        super().deliver(leg, data, ended=True)

    # Where it stands

    def _holds(self, leg: Leg) -> bool:
        """Whether this attempt's answer is to be checked; those below the first tier are not."""
        tier = leg.step.tier
        return leg is not self._let_out and self._rungs[0].tier <= tier < self._top

    def _behind(self) -> int:
        """The first step behind all that were asked in their turn."""
        asked = {(leg.step.target, leg.step.tier) for leg in self._in_turn()}
        steps = enumerate(self.plan.steps, 1)
        return max(after for after, step in steps if (step.target, step.tier) in asked)

    def _in_turn(self) -> list[Leg]:
        """The attempts that were made in the order of the plan."""
        return self.legs

    def _go_on(self, first: int) -> None:
        """Go on from this step; with an answer in hand nobody below the first tier is asked."""
        steps, start = self.plan.steps, self._rungs[0].tier
        past = len(steps)
        if self._kept is not None:
            past = sum(1 for step in steps if step.tier >= start)
        if first < past:
            self._next = first, past
        else:
            self.give_up()
