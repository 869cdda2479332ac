"""Admission to one target: a request goes when every gate lets it pass.

The knee gate says how many in flight are worth it, the window gate how many the target bears, the
rate gates how fast the stated limits let requests through. Nothing is told beforehand; all of it is
learnt from the answers. Time is passed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.route.admission.headers import RateFact
from lightgate.route.admission.in_flight import RATE_S
from lightgate.route.admission.knee import START, Knee
from lightgate.route.admission.learnt import LearntRate
from lightgate.route.admission.rate import NS, RateGate
from lightgate.route.admission.reserve import Reserve
from lightgate.route.admission.window import WindowGate

if TYPE_CHECKING:
    from lightgate.route.admission.reserve import Need

NEVER_NS: Final = 1 << 62  # until another request has ended
LONGEST_S: Final = 300.0  # that a target is held for, whatever it asks
UNKNOWN_S: Final = 1.0  # that a stated limit is held for, where the refusal names no wait
EACH_ALPHA: Final = 0.1  # weight of the newest answer in the usual time of one
SPREAD: Final = 4.0  # times as fast as requests end, on average, may others begin
AT_ONCE: Final = 4  # requests that need not wait for their turn in that
LEAST_GAP_NS: Final = 1_000_000  # a shorter one between two requests is none
End = Literal["ok", "refused", "failed", "wrong"]


class Pass(msgspec.Struct, gc=False):
    """A request that was let through: what was set aside for it, and what it met."""

    sent_ns: int
    flying: int
    epoch: int
    size: int
    need: tuple[float, float]


class AnswerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended: "refused" is a 429, "failed" the target's fault, "wrong" our own.

    `wait_s` is the wait that the target asked for, `rates` the limits that it stated.
    """

    end: End
    tokens_in: int | None = None
    tokens_out: int | None = None
    wait_s: float | None = None
    rates: Sequence[RateFact] = ()


class Admission:
    """The gates of one target; `in_flight` counts what was let through and has not ended."""

    def __init__(self, start: float = START, most: float | None = None) -> None:
        self.in_flight = 0
        self.knee = Knee(start)
        self.window = WindowGate()
        self.learnt = LearntRate()
        self.held_ns = 0  # nothing passes before this instant
        self._most = most
        self._rates: dict[tuple[str, float | None], RateGate] = {}
        self._reserve = Reserve()
        self._each_ns = 0.0  # the usual time of an answer
        self._turn_ns = 0.0  # when the next request would begin, were all spread evenly

    @property
    def most(self) -> float:
        """Requests that may be in flight, whatever the rates."""
        found = min(self.knee.most, self.window.most)
        return found if self._most is None else min(found, self._most)

    @property
    def limited(self) -> bool:
        """Whether the target has stated a limit."""
        return bool(self._rates)

    def wait_ns(self, size: int, cap: int | None, now_ns: int) -> int:
        """Return how long a request has to wait: 0 lets it pass, NEVER_NS waits for an end.

        `size` are the bytes of its body, `cap` the tokens that its answer may have at most.
        """
        if self.in_flight and self.in_flight + 1 > self.most:
            return NEVER_NS
        wait_ns = max(
            self.held_ns - now_ns, self.learnt.wait_ns(now_ns), self._turn_wait_ns(now_ns)
        )
        if self._rates:
            need = self._reserve.need(size, cap)
            for (what, _), gate in self._rates.items():
                wait_ns = max(wait_ns, gate.wait_ns(_amount(what, need), now_ns))
        return max(0, wait_ns)

    def need(self, size: int, cap: int | None) -> Need:
        """Return the tokens that a request is taken to need."""
        return self._reserve.need(size, cap)

    def sent(self, size: int, cap: int | None, now_ns: int) -> Pass:
        """Count a request that goes now."""
        self.in_flight += 1
        self.learnt.sent(now_ns)
        self._turn_ns = max(self._turn_ns, float(now_ns)) + self._gap_ns()
        need = self._reserve.need(size, cap)
        for (what, _), gate in self._rates.items():
            gate.take(_amount(what, need), now_ns)
        return Pass(now_ns, self.in_flight, self.knee.epoch, size, need)

    def ended(self, let: Pass, facts: AnswerFacts, now_ns: int) -> None:
        """Take in how a request ended."""
        in_flight, took_ns = self.in_flight, now_ns - let.sent_ns
        self.in_flight -= 1
        self._settle(let, facts)
        for fact in facts.rates:
            gate = self._rates.get((fact.what, fact.span_s))
            if gate is None:
                gate = self._rates[fact.what, fact.span_s] = RateGate()
            gate.told(fact, now_ns)
            if fact.what == "requests":
                self.knee.promised = gate.rate
        if facts.end == "ok":
            self._reserve.counted(let.size, facts.tokens_in, facts.tokens_out)
            self._each_ns += (EACH_ALPHA if self._each_ns else 1.0) * (took_ns - self._each_ns)
            self.window.answered(in_flight, took_ns, now_ns)
            self.learnt.answered(now_ns)
            work = 1.0 + (facts.tokens_out or 0)
            self.knee.ended(let.epoch, let.flying, work, took_ns / NS, now_ns)
        elif facts.end == "refused":
            self._refused(let, facts, now_ns)
        elif facts.end == "failed":
            self.window.failed(let.flying, now_ns)

    def forget(self, let: Pass) -> None:
        """Take back a request that was cut: it says nothing about the target."""
        self.in_flight -= 1
        for (what, _), gate in self._rates.items():
            gate.give_back(_amount(what, let.need))

    def _gap_ns(self) -> float:
        """Return the time between two requests, so that a higher level is not filled at once."""
        gap_ns = self._each_ns / (SPREAD * self.most)
        return gap_ns if gap_ns >= LEAST_GAP_NS else 0.0

    def _turn_wait_ns(self, now_ns: int) -> int:
        gap_ns = self._gap_ns()
        return round(self._turn_ns - AT_ONCE * gap_ns - now_ns) if gap_ns else 0

    def _settle(self, let: Pass, facts: AnswerFacts) -> None:
        """Put right what was set aside; what a refused or failed request took is not known."""
        if facts.end != "ok":
            return
        needed_in, needed_out = let.need
        used = (
            needed_in if facts.tokens_in is None else float(facts.tokens_in),
            needed_out if facts.tokens_out is None else float(facts.tokens_out),
        )
        for (what, _), gate in self._rates.items():
            if what != "requests":
                gate.give_back(_amount(what, let.need) - _amount(what, used))

    def _refused(self, let: Pass, facts: AnswerFacts, now_ns: int) -> None:
        wait_s = facts.wait_s
        if facts.rates:  # a stated limit explains it: the bucket is put right, the window stays
            spent = [fact for fact in facts.rates if fact.remaining is not None]
            least = min(spent, key=lambda fact: (fact.remaining or 0.0) / fact.limit, default=None)
            for fact in facts.rates if least is None else (least,):
                hold_s = min(LONGEST_S, UNKNOWN_S if wait_s is None else wait_s)
                self._rates[fact.what, fact.span_s].refused(hold_s, now_ns)
            return
        if wait_s is not None and wait_s > RATE_S:  # about a rate that is not stated
            self.held_ns = max(self.held_ns, now_ns + round(min(wait_s, LONGEST_S) * NS))
            return
        if wait_s:
            self.learnt.refused(let.sent_ns, now_ns)
        else:
            self.window.refused(let.flying, now_ns)


def _amount(what: str, need: Need | tuple[float, float]) -> float:
    if what == "requests":
        return 1.0
    if what == "input":
        return need[0]
    return need[1] if what == "output" else need[0] + need[1]
