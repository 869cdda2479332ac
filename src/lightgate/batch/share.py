"""Sharing the lines of a job among targets: by finish time, or by dollars with a deadline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from lightgate.ledger.journal.notes import AttemptNote
from lightgate.route.admission.admission import NEVER_NS, Admission, AnswerFacts, End
from lightgate.route.admission.headers import RateFact

if TYPE_CHECKING:
    from lightgate.batch.lines import BatchLine
    from lightgate.route.admission.admission import Pass

NS: Final = 1_000_000_000
ALPHA: Final = 0.1  # weight of the newest answer in what is usual at a target
PATIENCE: Final = 5  # failures in a row, after which a target is held for a while
LONGEST_HOLD_S: Final = 60.0
NO_WAY: Final = 5  # same, without a connection, of a target that has never answered: it is given up
USELESS: Final = 3  # refusals in a row that no wait will change, of a target that has answered
SPARE: Final = 0.85  # of the time to a deadline in which the work should be done
TRIAL_SHARE: Final = 0.1  # of that time, for which a cheap target may show what it can do
TRIAL_S: Final = 120.0  # and at most
USUAL_OUT: Final = 256.0  # tokens of an answer, before one has come
By = Literal["time", "cost"]


class LineAnswer(msgspec.Struct, kw_only=True, gc=False):
    """What a sender brings back for a line.

    `body` is a JSON document in the line's dialect, also that of an error. `again`: another attempt
    may help; `useless`: nothing that is sent to this target will do, whatever the line; `free`:
    nothing was sent. `kind` is a word for the failure and `message` a sentence.
    """

    end: End
    status: int = 0
    body: bytes = b"null"
    kind: str = ""
    message: str = ""
    again: bool = False
    useless: bool = False
    free: bool = False
    wait_s: float | None = None
    rates: Sequence[RateFact] = ()
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_nano: int | None = None
    request_id: str = ""
    note: AttemptNote | None = None


class Sender(Protocol):
    """Sends one line to one target; every failure is an answer, not an exception."""

    async def __call__(self, line: BatchLine, exchange_id: str, seq: int) -> LineAnswer:
        """Send attempt `seq` of an exchange."""
        ...


Price = Callable[[float, float], int | None]  # nano-dollars of tokens in and tokens out


class BatchLane:
    """One target of a job: its sender, its gates, and what has become of its requests."""

    def __init__(self, name: str, send: Sender, price: Price, gates: Admission) -> None:
        self.name = name
        self.send = send
        self.gates = gates
        self.dead = ""  # why nothing more is sent
        self.dead_kind = ""
        self.answered = self.refused = self.failed = 0
        self.tokens_in = self.tokens_out = self.cost_nano = 0
        self.most_in_flight = 0
        self.service_s = 0.0  # of an answer, of late
        self.began_ns: int | None = None
        self._price = price
        self._streak = self._useless = 0
        self._in = self._out = 0.0

    def cost_of(self, tokens_in: float, tokens_out: float) -> int | None:
        """Return nano-dollars; None where no price is known."""
        return self._price(tokens_in, tokens_out)

    @property
    def usual_cost(self) -> float:
        """Nano-dollars of a line of the usual size; a target without a price costs nothing."""
        return float(self._price(self._in or USUAL_OUT, self._out or USUAL_OUT) or 0)

    @property
    def capacity(self) -> float:
        """Lines a second, by what is in flight and how long that takes."""
        return self.gates.in_flight / self.service_s if self.service_s else 0.0

    def sent(self, size: int, cap: int | None, now_ns: int) -> Pass:
        """Count a line that goes now."""
        if self.began_ns is None:
            self.began_ns = now_ns
        let = self.gates.sent(size, cap, now_ns)
        self.most_in_flight = max(self.most_in_flight, self.gates.in_flight)
        return let

    def ended(self, let: Pass, answer: LineAnswer, now_ns: int, *, first: bool = True) -> None:
        """Take in what came back; a line that has failed before says little about the target."""
        facts = AnswerFacts(
            end=answer.end,
            tokens_in=answer.tokens_in,
            tokens_out=answer.tokens_out,
            wait_s=answer.wait_s,
            rates=answer.rates,
        )
        self.gates.ended(let, facts, now_ns)
        self.cost_nano += answer.cost_nano or 0
        if answer.end == "ok":
            self._answered(answer, (now_ns - let.sent_ns) / NS)
        elif answer.end == "refused":
            self.refused += 1
        else:
            self.failed += 1
        if answer.useless:
            self._useless += 1
            if self._useless >= USELESS or not self.answered:
                self.dead, self.dead_kind = answer.message, answer.kind
        elif answer.end == "failed" and (first or answer.free):
            self._streak += 1
            if self._streak >= PATIENCE:
                hold_s = min(LONGEST_HOLD_S, 2.0 ** (self._streak - PATIENCE))
                self.gates.held_ns = max(self.gates.held_ns, now_ns + round(hold_s * NS))
            if answer.free and self._streak >= NO_WAY and not self.answered:
                self.dead, self.dead_kind = answer.message, "unreachable"

    def _answered(self, answer: LineAnswer, seconds: float) -> None:
        self.answered += 1
        self._streak = self._useless = 0
        self.tokens_in += answer.tokens_in or 0
        self.tokens_out += answer.tokens_out or 0
        self.service_s += (ALPHA if self.service_s else 1.0) * (seconds - self.service_s)
        for name, tokens in (("_in", answer.tokens_in), ("_out", answer.tokens_out)):
            before = getattr(self, name)
            if tokens is not None:
                setattr(self, name, before + (ALPHA if before else 1.0) * (tokens - before))


class QuietHours(msgspec.Struct, frozen=True):
    """The hours of the day in which a job may send, by the clock on the wall."""

    begin: time
    end: time

    @classmethod
    def parse(cls, text: str) -> QuietHours:
        """Read `22:00-06:00`; ValueError for anything else."""
        begin, dash, end = text.partition("-")
        if not dash:
            raise ValueError("it has no two times")
        try:
            found = cls(time.fromisoformat(begin.strip()), time.fromisoformat(end.strip()))
        except ValueError:
            raise ValueError("each is a time from 00:00 to 23:59") from None
        if found.begin == found.end:
            raise ValueError("it begins when it ends")
        return found

    def wait_s(self, now: datetime) -> float:
        """Return the seconds until the next begin; 0 inside the hours."""
        at = now.time()
        inside = self.begin <= at or at < self.end
        if self.begin < self.end:
            inside = self.begin <= at < self.end
        if inside:
            return 0.0
        begin = now.replace(
            hour=self.begin.hour, minute=self.begin.minute, second=self.begin.second, microsecond=0
        )
        if begin <= now:
            begin += timedelta(days=1)
        return (begin - now).total_seconds()


class Sharing:
    """Chooses the target of the next line.

    By time, every target that has room takes lines; towards the end only those that will be done
    before the others could. By cost, the cheapest takes all of them; with a deadline as many of the
    cheapest as are needed to make it.
    """

    def __init__(self, lanes: Sequence[BatchLane], by: By, deadline_ns: int | None = None) -> None:
        self.lanes = lanes
        self._by = by
        self._deadline_ns = deadline_ns

    @property
    def alive(self) -> list[BatchLane]:
        """The targets that are still of use."""
        return [lane for lane in self.lanes if not lane.dead]

    def choose(
        self, size: int, cap: int | None, left: int, now_ns: int, avoid: str = ""
    ) -> BatchLane | int:
        """Return the target for a line, or how long to wait for one.

        `left` are the lines that have not been sent; `avoid` is where this one has just failed.
        """
        open_lanes = self._open(left, now_ns)
        others = [lane for lane in open_lanes if lane.name != avoid] or [
            lane for lane in self.alive if lane.name != avoid
        ]
        soonest, best = NEVER_NS, None
        for lane in others or open_lanes:
            wait_ns = lane.gates.wait_ns(size, cap, now_ns)
            if wait_ns:
                soonest = min(soonest, wait_ns)
            elif best is None or self._rank(lane) < self._rank(best):
                best = lane
        return soonest if best is None else best

    def _rank(self, lane: BatchLane) -> float:
        return lane.usual_cost if self._by == "cost" else lane.service_s

    def _open(self, left: int, now_ns: int) -> list[BatchLane]:
        alive = self.alive
        if len(alive) < 2:
            return alive
        if self._by == "cost":
            return self._cheapest(alive, left, now_ns)
        return self._soonest(alive, left)

    def _soonest(self, alive: list[BatchLane], left: int) -> list[BatchLane]:
        """Leave out targets that would take longer than the others need for all that is left."""
        capacity = sum(lane.capacity for lane in alive)
        if not capacity:
            return alive
        quickest = min((lane.service_s for lane in alive if lane.service_s), default=0.0)
        within_s = left / capacity + quickest
        return [lane for lane in alive if lane.service_s <= within_s] or alive

    def _cheapest(self, alive: list[BatchLane], left: int, now_ns: int) -> list[BatchLane]:
        """Take targets from the cheapest on, until they can do what is left in time."""
        ordered = sorted(alive, key=lambda lane: lane.usual_cost)
        least = ordered[0].usual_cost
        taken = [lane for lane in ordered if lane.usual_cost <= least]
        if self._deadline_ns is None:
            return taken
        left_s = SPARE * (self._deadline_ns - now_ns) / NS
        if left_s <= 0:
            return ordered
        trial_s = min(TRIAL_S, TRIAL_SHARE * left_s)
        capacity = 0.0
        taken = []
        for lane in ordered:
            taken.append(lane)
            began_ns = lane.began_ns
            if began_ns is None or now_ns - began_ns < trial_s * NS:
                return taken  # it may still show that it can do all
            capacity += lane.capacity
            if capacity * left_s >= left:
                return taken
        return taken
