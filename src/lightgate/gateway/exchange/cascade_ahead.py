"""Which flight a request takes, and the one that asks the next tier ahead of its turn.

The next tier is started by the clock while the first one answers and is checked. It has the client
from the moment on at which the one before it fails, with all that it said until then; it is closed
in the turn of the loop in which that one passes; and it is the answer where it is whole first.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lightgate.gateway.exchange.ahead import Ahead, ahead_of
from lightgate.gateway.exchange.cascade import HELD_BYTES, Ascent
from lightgate.gateway.exchange.exchange import Flight
from lightgate.provider.answer import reads
from lightgate.route.plan.hedge import sick
from lightgate.route.plan.plan import Step

if TYPE_CHECKING:
    from lightgate.gateway.admit.admit import Entry
    from lightgate.gateway.cache.single_flight import SharedAnswer
    from lightgate.gateway.exchange.attempt import Leg
    from lightgate.gateway.process.state import State
    from lightgate.gateway.request.body import Wanted
    from lightgate.gateway.served.tiers import Tiers
    from lightgate.provider.call import Called
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply


def new_flight(
    state: State, inbound: Inbound, reply: Reply | SharedAnswer, entry: Entry, wanted: Wanted
) -> Flight:
    """The flight of a request: up the tiers where its first tier's answer is to be checked."""
    alias = entry.alias
    if alias.verify and reads(wanted.path.dialect):
        tiers = state.served.tiers.get(alias.name)
        if tiers is not None and entry.plan.steps[0].tier < len(tiers.cascade.tiers) - 1:
            kind = Ascent if ahead_of(entry.plan) is None else Ladder
            return kind(state, inbound, reply, entry, wanted, tiers)
    return Flight(state, inbound, reply, entry, wanted)


class Ladder(Ascent):
    """An ascent with one foot on the next rung."""

    __slots__ = ("_ahead",)

    def __init__(
        self,
        state: State,
        inbound: Inbound,
        reply: Reply | SharedAnswer,
        entry: Entry,
        wanted: Wanted,
        tiers: Tiers,
    ) -> None:
        super().__init__(state, inbound, reply, entry, wanted, tiers)
        place = ahead_of(entry.plan) or 0
        self._ahead = Ahead(place, entry.plan.steps[place])

    async def follow(self) -> None:
        """As ever; whoever was started ahead is closed with the rest."""
        try:
            await super().follow()
        finally:
            self._ahead.close()
            await self._ahead.last_words()
            self._ahead.forget()

    async def _begin(self) -> None:
        ahead = self._ahead
        waited_ns = time.monotonic_ns() - self.inbound.received_ns
        ahead.arm(self._loop, (ahead.step.start_ns or 0) - waited_ns, self._start_ahead)
        await self.serial(0, len(self.plan.steps))

    # By the clock

    def _start_ahead(self) -> None:
        """The first tier takes its time: ask the next one too, if the key's budget has room."""
        ahead, state = self._ahead, self._state
        if ahead.turned or self.reply.finished or self._climb.due_ns() is None:
            return
        step, now, forms = ahead.step, state.now_ns(), state.forms
        resting = not state.breakers.allows(step.target, now)
        if resting or sick(forms.form(step.target), now) or forms.incident(now):
            return
        key = "" if self.entry.key is None else self.entry.key.id
        if not state.observer.may_start(key, step, self.plan):
            self._tell(f"no budget to start {step.target} ahead")
            return
        self.beside.append(step.role)
        leg = super().make_leg(step)
        if leg is None:
            return
        self._climb.tick(step.start_ns or 0)
        self._tell(f"{step.target} started ahead")
        limit_ns = self._limit_ns(step, len(self.plan.steps) - ahead.place)
        ahead.start(self._loop, leg, self._run_ahead(leg, limit_ns))

    async def _run_ahead(self, leg: Leg, limit_ns: int | None) -> Called:
        called = await super().attempt(leg, limit_ns)
        ahead = self._ahead
        if ahead.waits(leg) and called.error is None and not self.reply.finished:
            place = next(n for n, rung in enumerate(self._rungs) if rung.role == "ahead")
            self._passed(leg, place, ahead.hold)
        return called

    # In its turn

    def make_leg(self, step: Step) -> Leg | None:
        """As ever; but a tier that was started ahead is not started again when its turn comes.

        While it runs, nobody else of the tier before it is asked; nor anybody of its own tier once
        its answer has failed its checks.
        """
        ahead = self._ahead
        if ahead.turned:
            return super().make_leg(step)
        if ahead.leg is not None and ahead.leg.rejected and step.tier == ahead.step.tier:
            return None
        if step is not ahead.step:
            return None if ahead.running else super().make_leg(step)
        ahead.disarm()
        if ahead.leg is None:
            ahead.turned = True
            return super().make_leg(Step(step.target, None, step.ttft_ns, "fallback", step.tier))
        return ahead.leg

    async def attempt(self, leg: Leg, limit_ns: int | None) -> Called:
        """Carry one attempt out, or go on with the one that was started ahead."""
        ahead = self._ahead
        if not ahead.waits(leg):
            return await super().attempt(leg, limit_ns)
        ahead.turned = True
        if leg.heard and leg.called is None:  # it has the client, with all that it said until now
            self.winner = leg
            self.first_in_ns = time.monotonic_ns()  # until now the tier before had the client
            leg.call.resume()
            self.deliver(leg, ahead.hold.take(), ended=leg.call.ended)
        return await ahead.called()

    def _pointless(self, step: Step) -> bool:
        started = self._ahead.leg is not None and step is self._ahead.step
        return not started and super()._pointless(step)

    def _may_go_on(self, leg: Leg) -> bool:
        """Who was started ahead goes on already, and has its own deadline."""
        return self._ahead.waits(leg) or super()._may_go_on(leg)

    def give_up(self) -> None:
        """Nobody else can answer but the one that was started ahead."""
        ahead = self._ahead
        if ahead.running and not self.reply.finished:
            self._next = ahead.place, ahead.place + 1
        else:
            super().give_up()

    def _in_turn(self) -> list[Leg]:
        return [leg for leg in self.legs if not self._ahead.waits(leg)]

    # From the legs

    def commit(self, leg: Leg) -> bool:
        """The one that is checked and the one that was started ahead both speak, and are held."""
        ahead = self._ahead
        if ahead.turned:
            return super().commit(leg)
        if not leg.heard:
            leg.heard = True
            now = self._state.now_ns()
            self._state.observer.spoke(leg.step.target, self.size, now, leg.began_ns)
        if not ahead.waits(leg):
            self.winner = leg
            self.first_in_ns = leg.marks.first
        return True

    def deliver(self, leg: Leg, data: bytes, *, ended: bool) -> None:
        """Hold back also what is said before its turn."""
        ahead = self._ahead
        if not ahead.waits(leg):
            super().deliver(leg, data, ended=ended)
            if self._let_out is leg:
                ahead.close()
            return
        ahead.hold.add(data)
        if ahead.hold.size > HELD_BYTES:
            leg.call.pause()  # until its turn

    def _hand_over(self, leg: Leg, data: bytes, came_ns: int | None) -> None:
        """Give the client an answer that is whole, and close whoever else runs in the same turn."""
        super()._hand_over(leg, data, came_ns)
        self._ahead.disarm()
        for other in self.legs:
            if other is not leg:
                other.lose()

    def headers(self, leg: Leg | None) -> bytes:
        """With what became of the tier that was started ahead."""
        lines, ahead = super().headers(leg), self._ahead
        if ahead.leg is None:
            return lines
        if leg is ahead.leg:
            word = b"used"
        elif ahead.leg.called is not None:
            word = b"failed"
        else:
            word = b"running" if leg is None else b"closed"
        return b"%bx-lightgate-ahead: %b\r\n" % (lines, word)
