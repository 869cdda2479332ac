"""One policy over one seed's traffic, event by event, in virtual time.

The same happens as in the gateway: a plan for every request, attempts along its course, first-token
deadlines, failover until the first useful token, one winner, the losers closed at once and billed.
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.bench.rehearse.chooser import Try, Wanted
from lightgate.bench.rehearse.scene import CANCEL_LAG_S, TIMEOUT_NS
from lightgate.bench.rehearse.tally import Tally, price
from lightgate.clock.outcome import Outcome
from lightgate.errors import DeadlineMissed
from lightgate.route.health.failure import what
from lightgate.route.plan.course import Course, RetryBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightgate.bench.rehearse.chooser import Chooser
    from lightgate.bench.rehearse.ground import Fate, Ground
    from lightgate.bench.rehearse.scene import Offer
    from lightgate.route.health.failure import Failure
    from lightgate.route.plan.plan import Plan, Role, Step

NS: Final = 1_000_000_000
PROBE_IN: Final = 16  # tokens
PROBE_OUT: Final = 1
PROBE_SHARE: Final = 0.01  # of what is spent
PROBE_LOOK_NS: Final = NS  # how often it is asked who wants one
PROBE_TTFT_NS: Final = 10 * NS
_LATE: Final = what(Outcome.TIMEOUT, None, DeadlineMissed("", phase="first_byte"))
_LONG: Final = what(Outcome.TIMEOUT, 200, DeadlineMissed("", phase="total"))


class Cast(NamedTuple):
    """What a play is about: the targets, the requests, and the truth."""

    offers: Sequence[Offer]
    arrivals_ns: Sequence[int]
    tokens_in: Sequence[int]
    tokens_out: Sequence[int]
    draws: Sequence[float]
    ground: Ground


class _Leg:
    __slots__ = ("fate", "flight", "over", "place", "spoke", "step", "tried")

    def __init__(self, flight: _Flight, step: Step, tried: Try, fate: Fate) -> None:
        self.flight = flight
        self.step = step
        self.tried = tried
        self.place = tried.place
        self.fate = fate
        self.spoke = False
        self.over = False


class _Flight:
    __slots__ = (
        "beside",
        "course",
        "due_ns",
        "legs",
        "lost_usd",
        "number",
        "origin_ns",
        "plan",
        "wanted",
        "winner",
    )

    def __init__(self, wanted: Wanted, plan: Plan, origin_ns: int) -> None:
        self.number = wanted.number
        self.wanted = wanted
        self.plan = plan
        self.course = Course(plan, origin_ns, origin_ns + TIMEOUT_NS)
        self.beside: list[Role] = []
        self.lost_usd = 0.0
        self.origin_ns = origin_ns
        self.due_ns = origin_ns + TIMEOUT_NS
        self.legs: list[_Leg] = []
        self.winner: _Leg | None = None


class Play:
    """The stage: a clock that jumps from event to event."""

    def __init__(self, cast: Cast, chooser: Chooser) -> None:
        self._cast = cast
        self._chooser = chooser
        self._ground = cast.ground
        self._places = {offer.target: place for place, offer in enumerate(cast.offers)}
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._order = 0
        self._retries = RetryBudget()
        self._probing: set[int] = set()
        self._last_ns = cast.arrivals_ns[-1] if cast.arrivals_ns else 0
        self.tally = Tally(len(cast.arrivals_ns), len(cast.offers))

    def run(self) -> Tally:
        """Play to the end."""
        events = self._events
        for number, at_ns in enumerate(self._cast.arrivals_ns):
            events.append((at_ns, number, partial(self._arrive, number)))
        self._order = len(events)
        heapify(events)
        if self._chooser.probes and events:
            self._at(events[0][0], self._look)
        while events:
            now_ns, _, act = heappop(events)
            act(now_ns)
        return self.tally

    def _at(self, at_ns: int, act: Callable[[int], None]) -> None:
        self._order += 1
        heappush(self._events, (at_ns, self._order, act))

    # A request

    def _arrive(self, number: int, now_ns: int) -> None:
        cast = self._cast
        self._retries.deposit(now_ns)
        wanted = Wanted(number, cast.tokens_in[number], cast.tokens_out[number], cast.draws[number])
        plan = self._chooser.plan(wanted, now_ns)
        self._go_on(_Flight(wanted, plan, now_ns), now_ns)

    def _go_on(self, flight: _Flight, now_ns: int) -> None:
        """Start what is due, and come back for what will be."""
        if flight.winner is not None:
            return
        course = flight.course
        while True:
            beside = course.due_by_clock(now_ns)
            if beside is not None:
                if self._chooser.may_start(beside, flight.plan):
                    flight.beside.append(beside.role)
                else:
                    course.postpone()
            step = course.due(now_ns)
            if step is None:
                break
            self._launch(now_ns, flight, step)
        again_ns = course.next_ns
        if again_ns is not None and again_ns > now_ns:
            self._at(again_ns, partial(self._go_on, flight))

    def _launch(self, now_ns: int, flight: _Flight, step: Step) -> None:
        place, number = self._places[step.target], flight.number
        beside = flight.course.running > 1
        ttft_ns = flight.course.ttft_ns(step, now_ns)
        fate = self._ground.fate(number, place, now_ns, self._cast.tokens_out[number])
        leg = _Leg(flight, step, Try(place, flight.wanted, now_ns), fate)
        flight.legs.append(leg)
        tally = self.tally
        tally.attempts += 1
        tally.duplicates += beside
        if tally.first_target[number] < 0:
            tally.first_target[number] = place
        self._chooser.began(leg.tried)
        if fate.first_ns > ttft_ns:
            self._at(now_ns + ttft_ns, partial(self._late, leg))
        elif fate.failure is not None:
            self._at(now_ns + fate.first_ns, partial(self._refused, leg))
        else:
            self._at(now_ns + fate.first_ns, partial(self._speak, leg))

    # An attempt

    def _speak(self, leg: _Leg, now_ns: int) -> None:
        """The first useful token: it wins, or waits for a rival that will finish sooner."""
        flight = leg.flight
        if leg.over:
            return
        leg.spoke = True
        self._chooser.first(leg.tried, now_ns)
        if any(other.spoke for other in flight.legs if other is not leg):
            self._commit(leg, now_ns)
        else:
            self._hold(leg, now_ns)

    def _hold(self, leg: _Leg, now_ns: int) -> None:
        """Hold back who spoke, as long as another is worth it."""
        flight = leg.flight
        if flight.winner is not None or leg.over:
            return
        rivals = [
            rival.tried
            for rival in flight.legs
            if rival is not leg and not rival.over and not rival.spoke
        ]
        until_ns = None
        if rivals:
            first_ns = leg.tried.began_ns + leg.fate.first_ns
            until_ns = self._chooser.waits_ns(flight.plan, leg.tried, first_ns, rivals, now_ns)
        if until_ns is None:
            self._commit(leg, now_ns)
        else:
            self._at(max(until_ns, now_ns), partial(self._hold, leg))

    def _commit(self, leg: _Leg, now_ns: int) -> None:
        """This attempt has the client; all others are closed in the same moment."""
        flight = leg.flight
        if flight.winner is not None or leg.over:
            return
        flight.winner = leg
        flight.course.decided()
        self.tally.ttft_s[flight.number] = (now_ns - flight.origin_ns) / NS
        self.tally.winner[flight.number] = leg.place
        self.tally.wins[leg.place] += 1
        for other in flight.legs:
            if other is not leg and not other.over:
                self._close(now_ns, other, lost=True)
                self._chooser.lost(other.tried, now_ns, spoke=other.spoke)
        end_ns = leg.tried.began_ns + leg.fate.first_ns + leg.fate.decode_ns
        if end_ns > flight.due_ns:
            self._at(flight.due_ns, partial(self._cut, leg))
        else:
            self._at(max(end_ns, now_ns), partial(self._done, leg))

    def _done(self, leg: _Leg, now_ns: int) -> None:
        """The whole answer is there."""
        fate = leg.fate
        leg.over = True
        self._ground.over(leg.place, fate, now_ns, gone=False)
        self._chooser.done(leg.tried, now_ns, fate.tokens, fate.decode_ns)
        whole = price(self._cast.offers[leg.place], self._tokens_in(leg), fate.tokens)
        self.tally.bills.attempt(whole, whole, extra=False)
        self.tally.done_s[leg.flight.number] = (now_ns - leg.flight.origin_ns) / NS
        first_ns = round(self.tally.ttft_s[leg.flight.number] * NS)
        self._chooser.answered(first_ns, fate.tokens, fate.decode_ns)
        self._end(leg.flight, whole)

    def _cut(self, leg: _Leg, now_ns: int) -> None:
        """The request's time was over while it was answering."""
        self._close(now_ns, leg)
        self._chooser.failed(leg.tried, now_ns, _LONG, None)
        self.tally.failures += 1
        self._chooser.unanswered()
        self._end(leg.flight, 0.0)

    def _refused(self, leg: _Leg, now_ns: int) -> None:
        """The provider failed; nothing is billed."""
        if leg.over or leg.fate.failure is None:
            return
        leg.over = True
        self._ground.over(leg.place, leg.fate, now_ns, gone=False)
        self._fail(now_ns, leg, leg.fate.failure, leg.fate.wait_s)

    def _late(self, leg: _Leg, now_ns: int) -> None:
        """No first token in time: closed by us."""
        if not leg.over:
            self._close(now_ns, leg)
            self._fail(now_ns, leg, _LATE, None)

    def _fail(self, now_ns: int, leg: _Leg, failure: Failure, wait_s: float | None) -> None:
        flight = leg.flight
        self._chooser.failed(leg.tried, now_ns, failure, wait_s)
        following = flight.course.failed(leg.step, failure, now_ns, self._retries)
        if following is not None:
            self._launch(now_ns, flight, following)
        self._go_on(flight, now_ns)
        spoken = [one for one in flight.legs if one.spoke and not one.over]
        if spoken and flight.course.running == len(spoken):
            self._commit(spoken[0], now_ns)  # nobody is left to wait for
        elif flight.course.over:
            self.tally.failures += 1
            self._chooser.unanswered()
            self._end(flight, 0.0)

    def _end(self, flight: _Flight, winner_usd: float) -> None:
        self.tally.ends[flight.number] += 1
        self._chooser.settled(flight.plan, flight.beside, winner_usd, flight.lost_usd)

    # Money

    def _tokens_in(self, leg: _Leg) -> int:
        return self._cast.tokens_in[leg.flight.number]

    def _close(self, now_ns: int, leg: _Leg, *, lost: bool = False) -> None:
        """We close it: the prompt is billed, and what came until the provider noticed; or all."""
        leg.over = True
        fate = leg.fate
        self._ground.over(leg.place, fate, now_ns, gone=True)
        offer, tokens_in = self._cast.offers[leg.place], self._tokens_in(leg)
        heard_s = (now_ns - leg.tried.began_ns - fate.first_ns) / NS + CANCEL_LAG_S
        made = min(max(heard_s, 0.0) * fate.tps, fate.tokens)
        honoured = price(offer, tokens_in, made)
        whole = price(offer, tokens_in, fate.tokens)
        mixed = whole if offer.bills_aborts else honoured
        self.tally.bills.attempt(honoured, mixed, extra=lost)
        if lost:
            leg.flight.lost_usd += mixed

    # Probes

    def _look(self, now_ns: int) -> None:
        """Probe who wants it while probes cost less than their share."""
        bills, cast = self.tally.bills, self._cast
        for place in self._chooser.stale(now_ns):
            if place in self._probing:
                continue
            dollars = price(cast.offers[place], PROBE_IN, PROBE_OUT)
            if bills.probes + dollars > PROBE_SHARE * bills.mixed:
                break
            self._probe(now_ns, place)
        if now_ns < self._last_ns:
            self._at(now_ns + PROBE_LOOK_NS, self._look)

    def _probe(self, now_ns: int, place: int) -> None:
        tally, offer = self.tally, self._cast.offers[place]
        tally.probes += 1
        tally.bills.probe(offer, PROBE_IN, PROBE_OUT)
        number = (tally.probes * 7919 + place) % tally.requests
        tried = Try(place, Wanted(number, PROBE_IN, PROBE_OUT, 0.0), now_ns)
        fate = self._ground.probed(number, place, now_ns)
        self._probing.add(place)
        self._chooser.began(tried)
        due_ns = min(fate.first_ns, PROBE_TTFT_NS)
        self._at(now_ns + due_ns, partial(self._probe_over, tried, fate))

    def _probe_over(self, tried: Try, fate: Fate, now_ns: int) -> None:
        late = fate.first_ns > PROBE_TTFT_NS
        self._probing.discard(tried.place)
        self._ground.over(tried.place, fate, now_ns, gone=late)
        if late or fate.failure is not None:
            failure = _LATE if fate.failure is None else fate.failure
            self._chooser.failed(tried, now_ns, failure, fate.wait_s)
        else:
            self._chooser.first(tried, now_ns)
            self._chooser.done(tried, now_ns, PROBE_OUT, 0)
