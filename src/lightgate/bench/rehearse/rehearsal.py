"""One policy over one seed's traffic, event by event, in virtual time.

The same happens as in the gateway: a plan for every request, attempts along its course, first-token
deadlines, failover until the first useful token, one winner, the losers closed at once and billed.
"""

from __future__ import annotations

from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.bench.rehearse.baselines import RehearsedAttempt, RehearsedRequest, RequestPrice
from lightgate.bench.rehearse.scene import CANCEL_LAG_S, TIMEOUT_NS
from lightgate.bench.rehearse.tally import Tally, price
from lightgate.bench.rehearse.truth import NEVER_NS, PROBE
from lightgate.clock.outcome import Outcome
from lightgate.errors import DeadlineMissed
from lightgate.route.health.failure import RATE_LIMITED, what
from lightgate.route.plan.course import Course, RetryBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightgate.bench.rehearse.baselines import RehearsedPolicy
    from lightgate.bench.rehearse.scene import Offer
    from lightgate.bench.rehearse.truth import Fate, Truth
    from lightgate.route.health.failure import Failure
    from lightgate.route.plan.plan import Plan, Step

NS: Final = 1_000_000_000
PROBE_IN, PROBE_OUT = PROBE
PROBE_SHARE: Final = 0.01  # of what is spent
PROBE_LOOK_NS: Final = NS  # how often it is asked who wants one
PROBE_TTFT_NS: Final = 10 * NS
_LATE: Final = what(Outcome.TIMEOUT, None, DeadlineMissed("", phase="first_byte"))
_LONG: Final = what(Outcome.TIMEOUT, 200, DeadlineMissed("", phase="total"))


class RehearsalInput(NamedTuple):
    """The input of one rehearsal: the targets, the requests, and the truth.

    `asked` is what each request says of itself, its key and the tokens it allows; empty: nothing.
    Every `told_ns` the policy hears what the targets count themselves; None: never.
    """

    offers: Sequence[Offer]
    arrivals_ns: Sequence[int]
    tokens_in: Sequence[int]
    tokens_out: Sequence[int]
    draws: Sequence[float]
    truth: Truth
    asked: Sequence[tuple[str, int | None]] = ()
    told_ns: int | None = None


class _RunningProbe:
    """A probe under way; `fate` changes while it waits in a queue, and `version` with it."""

    __slots__ = ("fate", "tried", "version")

    def __init__(self, tried: RehearsedAttempt, fate: Fate) -> None:
        self.tried = tried
        self.fate = fate
        self.version = 0


class _RunningAttempt:
    __slots__ = (
        "due_ns",
        "exchange",
        "fate",
        "over",
        "place",
        "spoke",
        "step",
        "tried",
        "version",
    )

    def __init__(
        self, exchange: _RunningExchange, step: Step, tried: RehearsedAttempt, fate: Fate
    ) -> None:
        self.exchange = exchange
        self.step = step
        self.tried = tried
        self.place = tried.place
        self.fate = fate
        self.due_ns = 0  # without a first token by then it is closed
        self.version = 0  # of its fate: what was planned by an older one is void
        self.spoke = False
        self.over = False


class _RunningExchange:
    __slots__ = (
        "attempts",
        "beside",
        "course",
        "due_ns",
        "lost_usd",
        "number",
        "origin_ns",
        "plan",
        "wanted",
        "winner",
    )

    def __init__(self, wanted: RehearsedRequest, plan: Plan, origin_ns: int) -> None:
        self.number = wanted.number
        self.wanted = wanted
        self.plan = plan
        self.course = Course(plan, origin_ns, origin_ns + TIMEOUT_NS)
        self.beside: list[Step] = []
        self.lost_usd = 0.0
        self.origin_ns = origin_ns
        self.due_ns = origin_ns + TIMEOUT_NS
        self.attempts: list[_RunningAttempt] = []
        self.winner: _RunningAttempt | None = None


class Rehearsal:
    """One policy on one seed's traffic: a clock that jumps from event to event."""

    def __init__(self, given: RehearsalInput, policy: RehearsedPolicy) -> None:
        self._given = given
        self._policy = policy
        self._truth = given.truth
        self._places = {offer.target: place for place, offer in enumerate(given.offers)}
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._order = 0
        self._retries = RetryBudget()
        self._probing: set[int] = set()
        self._tickets: dict[int, _RunningAttempt | _RunningProbe] = {}  # of those in a queue
        self._wakes: dict[int, int] = {}  # by place: when it is asked whose open end has come
        self._last_ns = given.arrivals_ns[-1] if given.arrivals_ns else 0
        self.tally = Tally(len(given.arrivals_ns), len(given.offers))

    def run(self) -> Tally:
        """Rehearse to the end."""
        events = self._events
        for number, at_ns in enumerate(self._given.arrivals_ns):
            events.append((at_ns, number, partial(self._arrive, number)))
        self._order = len(events)
        heapify(events)
        if self._policy.probes and events:
            self._at(events[0][0], self._look)
        if self._given.told_ns is not None and events:
            self._at(events[0][0], self._tell)
        while events:
            now_ns, _, act = heappop(events)
            act(now_ns)
        return self.tally

    def _at(self, at_ns: int, act: Callable[[int], None]) -> None:
        self._order += 1
        heappush(self._events, (at_ns, self._order, act))

    # A request

    def _arrive(self, number: int, now_ns: int) -> None:
        given = self._given
        self._retries.deposit(now_ns)
        key, most = given.asked[number] if given.asked else ("", None)
        tokens_in, tokens_out = given.tokens_in[number], given.tokens_out[number]
        wanted = RehearsedRequest(number, tokens_in, tokens_out, given.draws[number], key, most)
        plan = self._policy.plan(wanted, now_ns)
        self.tally.foresaw(number, plan)
        self._go_on(_RunningExchange(wanted, plan, now_ns), now_ns)

    def _go_on(self, exchange: _RunningExchange, now_ns: int) -> None:
        """Start what is due, and come back for what will be."""
        if exchange.winner is not None:
            return
        course = exchange.course
        while True:
            beside = course.due_by_clock(now_ns)
            if beside is not None:
                if self._policy.may_start(beside, exchange.plan, exchange.wanted, now_ns):
                    exchange.beside.append(beside)
                else:
                    course.postpone()
            step = course.due(now_ns)
            if step is None:
                break
            self._launch(now_ns, exchange, step)
        again_ns = course.next_ns
        if again_ns is not None and again_ns > now_ns:
            self._at(again_ns, partial(self._go_on, exchange))

    def _launch(self, now_ns: int, exchange: _RunningExchange, step: Step) -> None:
        place, number = self._places[step.target], exchange.number
        beside = exchange.course.running > 1
        ttft_ns = exchange.course.ttft_ns(step, now_ns)
        fate = self._truth.fate(number, place, now_ns, self._given.tokens_out[number])
        attempt = _RunningAttempt(
            exchange, step, RehearsedAttempt(place, exchange.wanted, now_ns), fate
        )
        attempt.due_ns = now_ns + ttft_ns
        exchange.attempts.append(attempt)
        tally = self.tally
        tally.attempts += 1
        tally.duplicates += beside
        if tally.first_target[number] < 0:
            tally.first_target[number] = place
        if fate.failure is RATE_LIMITED:
            tally.refused += 1
        tally.beyond += fate.beyond
        self._policy.began(attempt.tried)
        if fate.ticket >= 0:
            self._tickets[fate.ticket] = attempt
        self._foretell(attempt)
        self._await(attempt)
        if fate.open:
            self._wake_at(place)

    def _foretell(self, attempt: _RunningAttempt) -> None:
        """Keep when the first attempt of a request speaks, to be held against its prediction."""
        if attempt is attempt.exchange.attempts[0]:
            self.tally.came(attempt.exchange.number, attempt.fate)

    def _await(self, attempt: _RunningAttempt) -> None:
        """Come back when this attempt speaks, fails or is late, by the fate that it has now."""
        fate = attempt.fate
        first_ns = attempt.tried.began_ns + fate.first_ns
        if first_ns > attempt.due_ns:
            self._at(attempt.due_ns, partial(self._late, attempt, attempt.version))
        elif fate.failure is not None:
            self._at(first_ns, partial(self._refused, attempt))
        else:
            self._at(first_ns, partial(self._speak, attempt, attempt.version))

    def _over(self, place: int, fate: Fate, now_ns: int, *, gone: bool) -> None:
        """Tell the truth that an attempt or a probe is over, and whose turn comes sooner by it."""
        if fate.ticket >= 0:
            self._tickets.pop(fate.ticket, None)
        for ticket, sooner_ns in self._truth.over(place, fate, now_ns, gone=gone):
            waiting = self._tickets.get(ticket)
            if waiting is None:
                continue
            waiting.fate = waiting.fate._replace(first_ns=waiting.fate.first_ns - sooner_ns)
            if isinstance(waiting, _RunningProbe):
                waiting.version += 1
                self._await_probe(waiting)
                continue
            self._foretell(waiting)
            if waiting.tried.began_ns + waiting.fate.first_ns <= waiting.due_ns:
                waiting.version += 1
                self._await(waiting)
        if fate.open or place in self._wakes:
            self._wake_at(place)

    # Ends that move with a batch

    def _wake_at(self, place: int) -> None:
        """Come back when an open end may have come; an earlier look finds out the rest itself."""
        at_ns = self._truth.next_ns(place)
        if at_ns is not None and at_ns < self._wakes.get(place, NEVER_NS):
            self._wakes[place] = at_ns
            self._at(at_ns, partial(self._wake, place))

    def _wake(self, place: int, now_ns: int) -> None:
        """End the attempts whose open ends have come."""
        if self._wakes.get(place) != now_ns:
            return
        del self._wakes[place]
        for ticket in self._truth.ended(place, now_ns):
            attempt = self._tickets.pop(ticket, None)
            if not isinstance(attempt, _RunningAttempt):
                continue
            fate = attempt.fate
            decode_ns = now_ns - attempt.tried.began_ns - fate.first_ns
            attempt.fate = fate._replace(decode_ns=max(decode_ns, 1), open=False)
            if attempt.exchange.winner is attempt and not attempt.over:
                self._done(attempt, now_ns)
        self._wake_at(place)

    # An attempt

    def _speak(self, attempt: _RunningAttempt, version: int, now_ns: int) -> None:
        """Take the first useful token: its attempt wins, or waits for one that will end sooner."""
        exchange = attempt.exchange
        if attempt.over or version != attempt.version:
            return
        attempt.spoke = True
        self._policy.first(attempt.tried, now_ns)
        if any(other.spoke for other in exchange.attempts if other is not attempt):
            self._commit(attempt, now_ns)
        else:
            self._hold(attempt, now_ns)

    def _hold(self, attempt: _RunningAttempt, now_ns: int) -> None:
        """Hold a first token back, as long as another attempt is worth waiting for."""
        exchange = attempt.exchange
        if exchange.winner is not None or attempt.over:
            return
        rivals = [
            rival.tried
            for rival in exchange.attempts
            if rival is not attempt and not rival.over and not rival.spoke
        ]
        until_ns = None
        if rivals:
            first_ns = attempt.tried.began_ns + attempt.fate.first_ns
            until_ns = self._policy.waits_ns(exchange.plan, attempt.tried, first_ns, rivals, now_ns)
        if until_ns is None:
            self._commit(attempt, now_ns)
        else:
            self._at(max(until_ns, now_ns), partial(self._hold, attempt))

    def _commit(self, attempt: _RunningAttempt, now_ns: int) -> None:
        """This attempt has the client; all others are closed in the same moment."""
        exchange = attempt.exchange
        if exchange.winner is not None or attempt.over:
            return
        exchange.winner = attempt
        exchange.course.decided()
        self.tally.ttft_s[exchange.number] = (now_ns - exchange.origin_ns) / NS
        self.tally.winner[exchange.number] = attempt.place
        self.tally.wins[attempt.place] += 1
        for other in exchange.attempts:
            if other is not attempt and not other.over:
                self._close(now_ns, other, lost=True)
                self._policy.lost(other.tried, now_ns, spoke=other.spoke)
        end_ns = attempt.tried.began_ns + attempt.fate.first_ns + attempt.fate.decode_ns
        if attempt.fate.open or end_ns > exchange.due_ns:
            self._at(exchange.due_ns, partial(self._cut, attempt))
        else:
            self._at(max(end_ns, now_ns), partial(self._done, attempt))

    def _done(self, attempt: _RunningAttempt, now_ns: int) -> None:
        """The whole answer is there."""
        fate = attempt.fate
        attempt.over = True
        self._over(attempt.place, fate, now_ns, gone=False)
        self._policy.done(attempt.tried, now_ns, fate.tokens, fate.decode_ns)
        whole = price(self._given.offers[attempt.place], self._tokens_in(attempt), fate.tokens)
        self.tally.bills.attempt(whole, whole, extra=False)
        self.tally.done_s[attempt.exchange.number] = (now_ns - attempt.exchange.origin_ns) / NS
        first_ns = round(self.tally.ttft_s[attempt.exchange.number] * NS)
        self._policy.answered(first_ns, fate.tokens, fate.decode_ns)
        self._end(attempt.exchange, whole, self._premium(attempt, whole))

    def _cut(self, attempt: _RunningAttempt, now_ns: int) -> None:
        """End an attempt whose request ran out of time while it was answering."""
        if attempt.over:
            return
        self._close(now_ns, attempt)
        self._policy.failed(attempt.tried, now_ns, _LONG, None)
        self.tally.failures += 1
        self._policy.unanswered()
        self._end(attempt.exchange, 0.0)

    def _refused(self, attempt: _RunningAttempt, now_ns: int) -> None:
        """End an attempt that the provider failed; nothing is billed."""
        if attempt.over or attempt.fate.failure is None:
            return
        attempt.over = True
        self._over(attempt.place, attempt.fate, now_ns, gone=False)
        self._fail(now_ns, attempt, attempt.fate.failure, attempt.fate.wait_s)

    def _late(self, attempt: _RunningAttempt, version: int, now_ns: int) -> None:
        """Close an attempt that had no first token in time."""
        if not attempt.over and version == attempt.version:
            self._close(now_ns, attempt)
            self._fail(now_ns, attempt, _LATE, None)

    def _fail(
        self, now_ns: int, attempt: _RunningAttempt, failure: Failure, wait_s: float | None
    ) -> None:
        exchange = attempt.exchange
        self._policy.failed(attempt.tried, now_ns, failure, wait_s)
        following = exchange.course.failed(attempt.step, failure, now_ns, self._retries)
        if following is not None:
            self._launch(now_ns, exchange, following)
        self._go_on(exchange, now_ns)
        spoken = [one for one in exchange.attempts if one.spoke and not one.over]
        if spoken and exchange.course.running == len(spoken):
            self._commit(spoken[0], now_ns)  # nobody is left to wait for
        elif exchange.course.over:
            self.tally.failures += 1
            self._policy.unanswered()
            self._end(exchange, 0.0)

    def _end(self, exchange: _RunningExchange, winner_usd: float, premium: float = 0.0) -> None:
        self.tally.ends[exchange.number] += 1
        price = RequestPrice(winner_usd, exchange.lost_usd, premium)
        self._policy.settled(exchange.plan, exchange.wanted, exchange.beside, price)

    # Money

    def _tokens_in(self, attempt: _RunningAttempt) -> int:
        return self._given.tokens_in[attempt.exchange.number]

    def _premium(self, attempt: _RunningAttempt, whole: float) -> float:
        """Return what a winner cost beyond the planned target, if it was started beside that."""
        if attempt.step.role not in {"hedge", "racer"}:
            return 0.0
        planned = self._given.offers[self._places[attempt.exchange.plan.steps[0].target]]
        instead = price(planned, self._tokens_in(attempt), attempt.fate.tokens)
        more = max(whole - instead, 0.0)
        self.tally.bills.premium += more
        return more

    def _close(self, now_ns: int, attempt: _RunningAttempt, *, lost: bool = False) -> None:
        """Close an attempt: its prompt is billed, and what came until its provider noticed."""
        attempt.over = True
        fate = attempt.fate
        offer, tokens_in = self._given.offers[attempt.place], self._tokens_in(attempt)
        made = self._made(attempt, now_ns)
        self._over(attempt.place, fate, now_ns, gone=True)
        honoured = price(offer, tokens_in, made)
        whole = price(offer, tokens_in, fate.tokens)
        mixed = whole if offer.bills_aborts else honoured
        self.tally.bills.attempt(honoured, mixed, extra=lost)
        if lost:
            attempt.exchange.lost_usd += mixed

    def _made(self, attempt: _RunningAttempt, now_ns: int) -> float:
        """Return the tokens of an answer by the time at which its provider knows that it ended."""
        fate = attempt.fate
        heard_s = (now_ns - attempt.tried.began_ns - fate.first_ns) / NS
        if fate.open and heard_s > 0.0:
            done = self._truth.made(attempt.place, fate.ticket, now_ns) * fate.tokens
            return min(done * (1.0 + CANCEL_LAG_S / heard_s), fate.tokens)
        return min(max(heard_s + CANCEL_LAG_S, 0.0) * fate.tps, fate.tokens)

    # Probes

    def _look(self, now_ns: int) -> None:
        """Probe the targets that want it, while probes cost less than their share."""
        bills, given = self.tally.bills, self._given
        for place in self._policy.stale(now_ns):
            if place in self._probing:
                continue
            dollars = price(given.offers[place], PROBE_IN, PROBE_OUT)
            if bills.probes + dollars > PROBE_SHARE * bills.mixed:
                break
            self._probe(now_ns, place)
        if now_ns < self._last_ns:
            self._at(now_ns + PROBE_LOOK_NS, self._look)

    def _probe(self, now_ns: int, place: int) -> None:
        tally, offer = self.tally, self._given.offers[place]
        tally.probes += 1
        tally.bills.probe(offer, PROBE_IN, PROBE_OUT)
        number = (tally.probes * 7919 + place) % tally.requests
        tried = RehearsedAttempt(place, RehearsedRequest(number, PROBE_IN, PROBE_OUT, 0.0), now_ns)
        probe = _RunningProbe(tried, self._truth.probed(number, place, now_ns))
        self._probing.add(place)
        self._policy.began(tried)
        if probe.fate.ticket >= 0:
            self._tickets[probe.fate.ticket] = probe
        if probe.fate.open:
            self._wake_at(place)
        self._await_probe(probe)

    def _await_probe(self, probe: _RunningProbe) -> None:
        due_ns = probe.tried.began_ns + min(probe.fate.first_ns, PROBE_TTFT_NS)
        self._at(due_ns, partial(self._probe_over, probe, probe.version))

    def _probe_over(self, probe: _RunningProbe, version: int, now_ns: int) -> None:
        if version != probe.version:
            return
        tried, fate = probe.tried, probe.fate
        probe.version += 1
        late = fate.first_ns > PROBE_TTFT_NS
        self._probing.discard(tried.place)
        self._over(tried.place, fate, now_ns, gone=late)
        if late or fate.failure is not None:
            failure = _LATE if fate.failure is None else fate.failure
            self._policy.failed(tried, now_ns, failure, fate.wait_s)
        else:
            self._policy.first(tried, now_ns)
            self._policy.done(tried, now_ns, PROBE_OUT, 0)

    # The engines' own metrics

    def _tell(self, now_ns: int) -> None:
        """Tell the policy what each target counts itself."""
        for place in range(len(self._given.offers)):
            self._policy.engine(place, self._truth.busy(place, now_ns), now_ns)
        if now_ns < self._last_ns and self._given.told_ns is not None:
            self._at(now_ns + self._given.told_ns, self._tell)
