"""The cascade of an exchange: an answer that fails its checks is asked for one tier up.

What a checked tier says is held back until it is whole; then it is delivered at once, or kept while
the next tier is asked. The kept one is the answer after all where no tier above gives another.

The next tier may be started ahead of its turn, by the clock, while the first one answers and is
checked. It has the client from the moment on at which the one before it fails, with all that it
said until then; it is closed in the turn of the loop in which that one passes; and it is the answer
where it is whole first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.gateway.exchange.large import when_written
from lightgate.gateway.exchange.race import follow
from lightgate.gateway.request.weight import is_heavy
from lightgate.provider.answer import AnswerReader, read_answer, reads
from lightgate.route.cascade.course import CascadeCourse
from lightgate.route.cascade.features import Wants, wants_of
from lightgate.route.cascade.tiers import tier_turns
from lightgate.route.cascade.verify import verify
from lightgate.route.plan.hedge import sick
from lightgate.route.plan.plan import Step

if TYPE_CHECKING:
    import asyncio

    from lightgate.gateway.exchange.attempt import Attempt
    from lightgate.gateway.exchange.exchange import Exchange
    from lightgate.gateway.served.tiers import Tiers
    from lightgate.provider.answer import Answer
    from lightgate.route.cascade.course import Move
    from lightgate.route.cascade.verify import CheckVerdict
    from lightgate.route.plan.plan import Plan

NS: Final = 1_000_000_000
# Fields of a request that hold schemas, by which an answer is checked.
_BINDING: Final = ("tools", "response_format", "text", "output_config", "generationConfig")
HELD_BYTES: Final = 8 * 1024 * 1024  # of a stream; one that is longer goes out unchecked


def escalation_for(exchange: Exchange) -> Escalation | None:
    """The cascade of an exchange whose first tier's answer is to be checked, else None."""
    if not reads(exchange.request.endpoint.dialect):
        return None
    tiers = exchange.state.served.tiers.get(exchange.alias.name)
    if tiers is None or exchange.plan.steps[0].tier >= len(tiers.cascade.tiers) - 1:
        return None
    return Escalation(exchange, tiers)


def begin(exchange: Exchange) -> None:
    """Follow the plan of an admitted exchange; whatever happens, the settlement is written."""
    exchange.open()
    steps = exchange.plan.steps
    if exchange.request.found is not None:
        when_written(exchange, lambda: _follow(exchange))
    elif (len(steps) == 1 or steps[1].start_ns is None) and not exchange.alias.verify:
        exchange.go_on()  # one step after the other, from the first one
    else:
        _follow(exchange)


def _follow(exchange: Exchange) -> None:
    if exchange.alias.verify:
        escalation = escalation_for(exchange)
        if escalation is not None:
            exchange.cascade = escalation
            escalation.follow()
            return
    follow(exchange)


class Hold:
    """What an attempt has said and the client has not been told yet; it is read as it comes."""

    __slots__ = ("_dialect", "_pieces", "_reader", "size")

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._pieces: list[bytes] = []
        self._reader = AnswerReader(dialect)
        self.size = 0  # bytes

    def add(self, data: bytes) -> None:
        """Keep this behind the rest."""
        self._pieces.append(data)
        self._reader.feed(data)
        self.size += len(data)

    def take(self) -> tuple[bytes, Answer | None]:
        """All of it, and the answer that it makes; nothing is left."""
        data, answer = b"".join(self._pieces), self._reader.answer()
        self._pieces.clear()
        self._reader = AnswerReader(self._dialect)
        self.size = 0
        return data, answer


class Ahead:
    """The first step of the next tier, from the wait for its time to its turn.

    Its turn comes once the tier before it has failed. Until then it may be started by the clock;
    what it says then goes into `hold`.
    """

    __slots__ = ("attempt", "hold", "place", "step", "timer", "turned")

    def __init__(self, place: int, step: Step, dialect: str) -> None:
        self.place = place  # in the plan
        self.step = step
        self.attempt: Attempt | None = None  # once it was started by the clock
        self.hold = Hold(dialect)
        self.turned = False  # its turn has come, or never will
        self.timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        """Whether it was started by the clock, goes on, and still waits for its turn."""
        return self.attempt is not None and not self.turned and self.attempt.called is None

    def waits(self, attempt: Attempt) -> bool:
        """Whether this attempt is the one that was started ahead, and its turn has not come."""
        return attempt is self.attempt and not self.turned

    def disarm(self) -> None:
        """Do not start it by the clock any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def close(self) -> None:
        """Close its socket in this turn of the loop, if it still waits for its turn."""
        self.disarm()
        waiting, self.turned = not self.turned, True
        if self.attempt is not None and waiting:
            self.attempt.lose()


class Escalation:
    """Decides about the attempts of an exchange whose winner may be sent back.

    It stands in the exchange's place as its `cascade`: attempts commit and deliver here, and it
    decides what comes after an attempt.
    """

    __slots__ = (
        "_ahead",
        "_checks",
        "_course",
        "_hold",
        "_kept",
        "_let_out",
        "_top",
        "_turns",
        "doubtful",
        "exchange",
    )

    def __init__(self, exchange: Exchange, tiers: Tiers) -> None:
        self.exchange = exchange
        plan = exchange.plan
        self._checks = tiers.checks
        self._turns = tier_turns(tiers.cascade, plan.steps[0].tier)
        self._top = len(tiers.cascade.tiers) - 1  # whose answers are not checked
        self._course = CascadeCourse(self._turns)
        self._course.begin()
        dialect = exchange.request.endpoint.dialect
        self._hold = Hold(dialect)
        self._let_out: Attempt | None = None  # too long to be held
        self._kept: tuple[Attempt, bytes] | None = None  # the best answer that failed its checks
        self.doubtful = False  # the client got an answer that failed its checks
        place = _ahead_of(plan)
        self._ahead = None if place is None else Ahead(place, plan.steps[place], dialect)

    def follow(self) -> None:
        """Try the plan as it is; from tier to tier as long as answers fail."""
        exchange, ahead = self.exchange, self._ahead
        if ahead is None:
            follow(exchange)
            return
        state = exchange.state
        waited_ns = state.now_ns() - exchange.inbound.received_ns
        wait_s = max(0, (ahead.step.start_ns or 0) - waited_ns) / NS
        ahead.timer = state.loop.call_later(wait_s, self.start_ahead)
        exchange.serial(0, len(exchange.plan.steps))

    def close(self) -> None:
        """Let go of the attempts: the exchange is over."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead.attempt = None
        self._kept = self._let_out = None

    def header(self, attempt: Attempt | None) -> bytes:
        """What became of the tier that was started ahead, as a header line."""
        ahead = self._ahead
        if ahead is None or ahead.attempt is None:
            return b""
        if attempt is ahead.attempt:
            word = b"used"
        elif ahead.attempt.called is not None and not ahead.attempt.lost:
            word = b"failed"
        else:
            word = b"running" if attempt is None else b"closed"
        return b"x-lightgate-ahead: %b\r\n" % word

    # Ahead of its turn

    def start_ahead(self) -> None:
        """Ask the next tier too, if the first takes its time and the key's budget has room."""
        exchange, ahead = self.exchange, self._ahead
        state = exchange.state
        if ahead is None or ahead.turned or exchange.reply.finished:
            return
        if self._course.due_ns() is None:
            return
        step, now, forms = ahead.step, state.now_ns(), state.learned.forms
        resting = not state.learned.breakers.allows(step.target, now)
        if resting or sick(forms.form(step.target), now) or forms.incident(now):
            return
        key = exchange.caller.key
        if not state.learned.observer.may_start("" if key is None else key.id, step, exchange.plan):
            self._tell(f"no budget to start {step.target} ahead")
            return
        exchange.beside.append(step)
        attempt = exchange.make_attempt(step)
        if attempt is None:
            return
        self._course.tick(step.start_ns or 0)
        self._tell(f"{step.target} started ahead")
        ahead.attempt = attempt
        attempt.driver = self
        limit_ns = exchange.limit_ns(step, len(exchange.plan.steps) - ahead.place)
        exchange.carry_out(attempt, limit_ns)

    def over(self, attempt: Attempt) -> None:
        """Check the answer of the tier that was started ahead, if it is whole before its turn."""
        ahead, exchange = self._ahead, self.exchange
        if ahead is None or attempt.lost or exchange.closed_ns is not None:
            return
        if not ahead.waits(attempt):  # its turn has come
            exchange.over(attempt)
        elif attempt.ok and not exchange.reply.finished:
            place = next(n for n, turn in enumerate(self._turns) if turn.role == "ahead")
            if self._passed(attempt, place, ahead.hold) is not None:
                exchange.close()

    # In turn

    def pointless(self, step: Step) -> bool:
        """Whether a second try of a target is of no use; what was started ahead goes on."""
        ahead = self._ahead
        if ahead is not None and ahead.attempt is not None and step is ahead.step:
            return False
        return self.exchange.pointless(step)

    def make_attempt(self, step: Step) -> Attempt | None:
        """Make the attempt of a step, but never a second one for what was started ahead.

        While that runs, no other target of the tier before it is asked; nor another one of its own
        tier once its answer has failed its checks.
        """
        ahead, exchange = self._ahead, self.exchange
        if ahead is None or ahead.turned:
            return exchange.make_attempt(step)
        early = ahead.attempt
        if early is not None and early.rejected and step.tier == ahead.step.tier:
            return None
        if step is not ahead.step:
            return None if ahead.running else exchange.make_attempt(step)
        ahead.disarm()
        if early is None:
            ahead.turned = True
            late = Step(step.target, None, step.ttft_ns, "fallback", step.tier)
            return exchange.make_attempt(late)
        return early

    def may_go_on(self, attempt: Attempt) -> bool:
        """Whether another attempt is allowed; what was started ahead goes on already."""
        ahead = self._ahead
        return (ahead is not None and ahead.waits(attempt)) or self.exchange.may_go_on(attempt)

    def carry_out(self, attempt: Attempt, limit_ns: int | None) -> None:
        """Start one attempt, or go on with the one that was started ahead."""
        ahead, exchange = self._ahead, self.exchange
        if ahead is None or not ahead.waits(attempt):
            exchange.carry_out(attempt, limit_ns)
            return
        ahead.turned = True
        if attempt.called is not None:
            exchange.over(attempt)
        elif attempt.heard:  # it has the client, with all that it said until now
            exchange.winner = attempt
            # Until now the tier before had the client.
            exchange.first_in_ns = exchange.state.now_ns()
            attempt.resume()
            self.deliver(attempt, ahead.hold.take()[0], ended=attempt.complete)

    # From the attempts

    def commit(self, attempt: Attempt) -> bool:
        """Choose the winner; the checked one and the one that was started ahead are both held."""
        ahead, exchange = self._ahead, self.exchange
        if ahead is None or ahead.turned:
            return exchange.commit(attempt)
        if not attempt.heard:
            attempt.heard = True
            state = exchange.state
            if attempt.marks.first is not None:
                state.learned.observer.spoke(
                    attempt.step.target, exchange.size, state.now_ns(), attempt.began_ns
                )
        if not ahead.waits(attempt):
            exchange.winner = attempt
            exchange.first_in_ns = attempt.marks.first
        return True

    def deliver(self, attempt: Attempt, data: bytes, *, ended: bool) -> None:
        """Hold back a checked answer, and what is said before its turn; all others pass."""
        ahead, exchange = self._ahead, self.exchange
        if ahead is not None and ahead.waits(attempt):
            ahead.hold.add(data)
            if ahead.hold.size > HELD_BYTES:
                attempt.pause()  # until its turn
            return
        if not self._holds(attempt):
            exchange.deliver(attempt, data, ended=ended)
            return
        self._hold.add(data)
        if self._hold.size > HELD_BYTES:
            self._let_out = attempt
            exchange.deliver(attempt, self._hold.take()[0], ended=ended)
            if ahead is not None:
                ahead.close()

    def interrupt(self) -> None:
        """End the exchange because the worker stops: a kept answer is better than none."""
        exchange = self.exchange
        if exchange.winner is not None and self._holds(exchange.winner):
            exchange.winner = None  # nothing of it has reached the client
        if self._kept is not None and exchange.winner is None:
            self._deliver_kept(self._kept)
        exchange.interrupt()

    # The end of a tier

    def ended(self, attempt: Attempt) -> None:
        """Deliver what a tier has answered, or go on after one that failed."""
        exchange = self.exchange
        if exchange.winner is not attempt and exchange.reply.finished:
            return  # interrupted, or another was whole
        if not self._holds(attempt):
            exchange.ended(attempt)
        elif not attempt.ok:
            self._hold.take()
            exchange.winner = None
            if attempt.failure.fails_over:
                self._go_on(self._behind())
            else:
                self.give_up()
        else:
            self._judge(attempt)

    def give_up(self) -> None:
        """Answer with what was kept, or with what still runs; else say that no tier answered."""
        ahead, exchange = self._ahead, self.exchange
        if ahead is not None and ahead.running and not exchange.reply.finished:
            exchange.serial(ahead.place, ahead.place + 1)
            return
        if not exchange.reply.finished:
            while not self._course.over:
                self._course.failed(self._course.at)
            if self._kept is not None:
                self._deliver_kept(self._kept)
        exchange.give_up()

    def _judge(self, attempt: Attempt) -> None:
        """Give the client an answer that is whole, or ask the next tier."""
        course, exchange = self._course, self.exchange
        while self._turns[course.at].tier != attempt.step.tier:  # those before it had no answer
            course.failed(course.at)
        if self._passed(attempt, course.at, self._hold) is None:
            steps = exchange.plan.steps
            # A tier has no step where no target of it has a price, and the key has a budget.
            tiers = [turn.tier for turn in self._turns[course.at :]]
            later = (place for place, step in enumerate(steps) if step.tier in tiers)
            self._go_on(next(later, len(steps)))
        else:
            exchange.close()

    def _passed(self, attempt: Attempt, place: int, hold: Hold) -> Move | None:
        """Check the whole answer of a tier, and hand it over; None: it failed, and is kept."""
        exchange = self.exchange
        if exchange.request.streamed:
            hold.add(attempt.closing())
        data, answer = hold.take()
        verdict = self._verdict(attempt, answer) if self._turns[place].checked else None
        if verdict is not None and exchange.alias.learned_bounds:
            self._learn(attempt, verdict)
        move = self._course.answered(place, None if verdict is None else verdict.state)
        if verdict is None or verdict.state != "failed":
            self._hand_over(attempt, data, attempt.marks.last)
            return move
        attempt.rejected = True
        if exchange.winner is attempt:
            exchange.winner = None
            exchange.first_in_ns = None
        if self._kept is None or self._kept[0].step.tier < attempt.step.tier:
            self._kept = (attempt, data)
        failed = [found.check for found in verdict.findings if found.state == "failed"]
        self._tell(f"{attempt.step.target} failed {' and '.join(failed)}")
        return None

    def _learn(self, attempt: Attempt, verdict: CheckVerdict) -> None:
        """Move the bound of the first tier by the check of its answer; unchecked says nothing."""
        exchange, tier = self.exchange, attempt.step.tier
        if tier == self._turns[0].tier and verdict.state in {"passed", "failed"}:
            bounds = exchange.state.learned.bounds_of(exchange.alias)
            bounds.answered(tier, exchange.plan.points, failed=verdict.state == "failed")

    def _tell(self, said: str) -> None:
        """Add to what the records say of the plan."""
        plan = self.exchange.plan
        self.exchange.plan = msgspec.structs.replace(plan, reason=f"{plan.reason}; {said}")

    def _verdict(self, attempt: Attempt, answer: Answer | None) -> CheckVerdict:
        """Check an answer; one that is too much for one turn of the loop is not."""
        request = self.exchange.request
        dialect, fields = request.endpoint.dialect, request.fields
        said = b"" if answer is None else answer.text.encode("utf-8", "surrogatepass")
        if not request.streamed:  # else it was read as the client would have got it
            said = attempt.answer_body
        if is_heavy(said) or any(is_heavy(bytes(fields.get(name, b""))) for name in _BINDING):
            return verify(None, Wants(), self._checks)
        if not request.streamed:
            answer = read_answer(attempt.prepared.dialect.name, said, streamed=False)
        return verify(answer, wants_of(dialect, fields, request.max_tokens), self._checks)

    def _deliver_kept(self, kept: tuple[Attempt, bytes]) -> None:
        attempt, data = kept
        self.exchange.refusal = None
        self.doubtful = True
        # Until now the targets had the client.
        self._hand_over(attempt, data, self.exchange.state.now_ns())

    def _hand_over(self, attempt: Attempt, data: bytes, came_ns: int | None) -> None:
        """Give the client an answer that is whole, and close all other attempts in this turn."""
        exchange, ahead = self.exchange, self._ahead
        if not exchange.reply.finished:
            if exchange.request.streamed:
                exchange.winner = attempt
                exchange.first_in_ns = came_ns
                exchange.deliver(attempt, data, ended=True)
            else:
                exchange.reply.whole(200, *exchange.answer(attempt, came_ns))
        if ahead is not None:
            for other in exchange.attempts:
                if other is not attempt:
                    other.lose()

    # Where it stands

    def _holds(self, attempt: Attempt) -> bool:
        """Whether this attempt's answer is to be checked; those below the first tier are not."""
        tier = attempt.step.tier
        return attempt is not self._let_out and self._turns[0].tier <= tier < self._top

    def _behind(self) -> int:
        """The first step behind all that were asked in their turn."""
        ahead, exchange = self._ahead, self.exchange
        asked = {
            (attempt.step.target, attempt.step.tier)
            for attempt in exchange.attempts
            if ahead is None or not ahead.waits(attempt)
        }
        steps = enumerate(exchange.plan.steps, 1)
        return max(after for after, step in steps if (step.target, step.tier) in asked)

    def _go_on(self, first: int) -> None:
        """Go on from this step; with an answer in hand no tier below the first is asked."""
        steps, start = self.exchange.plan.steps, self._turns[0].tier
        past = len(steps)
        if self._kept is not None:
            past = sum(1 for step in steps if step.tier >= start)
        if first < past:
            self.exchange.serial(first, past)
        else:
            self.give_up()


def _ahead_of(plan: Plan) -> int | None:
    """The place of the step that a plan starts ahead; None where nothing is to be."""
    first = plan.steps[0].tier
    for place, step in enumerate(plan.steps):
        if step.start_ns is not None and step.tier > first:
            return place
    return None
