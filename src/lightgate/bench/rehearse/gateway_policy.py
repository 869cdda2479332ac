"""The gateway's policies under rehearsal: `route.decide` with its breakers, form and budgets."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.bench.rehearse.baselines import RehearsedPolicy
from lightgate.bench.rehearse.rehearse import NamedPolicy
from lightgate.route.form.forms import Forms, bucket, size_of
from lightgate.route.form.lengths import AnswerLengths
from lightgate.route.form.prior import Prior
from lightgate.route.form.slo import ServiceLevels
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.observe import Observer
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide
from lightgate.route.plan.finish import ExpectedAnswer, Rival, waits_ns
from lightgate.route.plan.hedge import HedgeBudgets, TargetPrice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.bench.rehearse.baselines import (
        RehearsedAttempt,
        RehearsedRequest,
        RequestPrice,
    )
    from lightgate.bench.rehearse.rehearse import RehearsalSource
    from lightgate.bench.rehearse.scene import Offer
    from lightgate.bench.rehearse.truth import Truth
    from lightgate.route.form.forms import FormState
    from lightgate.route.health.failure import Failure
    from lightgate.route.plan.plan import Plan, Step

ALIAS: Final = "rehearsed"
STALE_NS: Final = 10_000_000_000  # without a sample for so long, a target is probed
WORKERS_BEAT_NS: Final = 20_000_000  # between two tellings of workers of one machine
MACHINES_BEAT_NS: Final = 100_000_000  # and of machines
NANO: Final = 1e9
_SPREAD: Final = 2_654_435_761  # an odd number far from round: neighbours meet other workers
_PER_TOKEN: Final = 1e3  # a dollar per million tokens is a thousand nano-dollars each


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """A policy and what is set beside it, as in `[models.NAME]`; `workers` share its requests.

    `machines` do too.
    """

    policy: str
    hedge: str = "auto"
    race: int = 1
    slo: ServiceLevels | None = None
    workers: int = 1
    machines: int = 1  # with one worker each, which tell each other more often

    @property
    def name(self) -> str:
        """The name in the table."""
        words = [self.policy]
        if self.race > 1:
            words.append(f"race {self.race}")
        elif self.hedge != "off":
            words.append(f"hedge {self.hedge}")
        if self.workers > 1:
            words.append(f"{self.workers} workers")
        if self.machines > 1:
            words.append(f"{self.machines} machines")
        return ", ".join(words)


class GatewayPolicy(RehearsedPolicy):
    """A policy of the gateway, by the calls that the gateway makes."""

    probes = True

    def __init__(
        self, offers: Sequence[Offer], settings: PolicySettings, tokens: int, seed: int
    ) -> None:
        self._names = [offer.target for offer in offers]
        self._places = {name: place for place, name in enumerate(self._names)}
        self._tokens = tokens  # expected before the first answers
        self._lengths = AnswerLengths()
        self._alias = Alias(
            name=ALIAS,
            targets=tuple(self._names),
            policy=settings.policy,
            hedge=settings.hedge,
            race=settings.race,
            slo=settings.slo,
        )
        self._prices = {offer.target: _price(offer) for offer in offers}
        jitter = random.Random(seed).random  # noqa: S311 - the same jitter for the same seed
        self.forms = Forms({offer.target: _prior(offer) for offer in offers})
        self._observer = Observer(Breakers(Rules(), jitter), self.forms, HedgeBudgets())

    @property
    def budgets(self) -> HedgeBudgets:
        """Budgets that were set aside and spent on second attempts."""
        return self._observer.budgets

    def plan(self, wanted: RehearsedRequest, now_ns: int) -> Plan:
        """Decide by the code of the gateway."""
        self._observer.arrived(wanted.key)
        ask = PlanAsk(
            alias=self._alias,
            tokens_in=wanted.tokens_in,
            expected_tokens=self._expected(wanted),
            prices=self._prices,
            max_tokens=wanted.max_tokens,
            key=wanted.key,
        )
        observer = self._observer
        return decide(ask, observer.breakers, now_ns, wanted.draw, observer.forms, observer.budgets)

    def _expected(self, wanted: RehearsedRequest) -> int:
        found = self._lengths.expected(ALIAS, wanted.key, bucket(wanted.tokens_in)) or self._tokens
        return min(found, wanted.max_tokens or found)

    def may_start(self, step: Step, plan: Plan, wanted: RehearsedRequest, now_ns: int) -> bool:
        """Whether the budget has room for the step."""
        del now_ns
        return self._observer.may_start(wanted.key, step, plan)

    def waits_ns(
        self,
        plan: Plan,
        spoke: RehearsedAttempt,
        first_ns: int,
        rivals: Sequence[RehearsedAttempt],
        now_ns: int,
    ) -> int | None:
        """Wait as `route.finish` says, where the plan wants whole answers."""
        if plan.finish == "first":
            return None
        names, size = self._names, size_of(spoke.wanted.tokens_in)
        silent = [Rival(names[rival.place], rival.began_ns) for rival in rivals]
        speaker = Rival(names[spoke.place], first_ns)
        answer = ExpectedAnswer(size, self._expected(spoke.wanted), plan.silence)
        return waits_ns(speaker, silent, self.forms, answer, now_ns)

    def began(self, tried: RehearsedAttempt) -> None:
        """Take in that an attempt starts."""
        self._observer.began(self._names[tried.place], tried.began_ns)

    def first(self, tried: RehearsedAttempt, now_ns: int) -> None:
        """Take in the first useful token of an attempt."""
        self._observer.spoke(self._names[tried.place], _size(tried), now_ns, tried.began_ns)

    def done(self, tried: RehearsedAttempt, now_ns: int, tokens: int, decode_ns: int) -> None:
        """Take in a whole answer."""
        target, decoded = self._names[tried.place], (tokens, decode_ns)
        if tokens > 1:  # more than a probe asks for
            size = bucket(tried.wanted.tokens_in)
            self._lengths.saw(ALIAS, tried.wanted.key, size, tokens)
        self._observer.succeeded(target, now_ns, tried.began_ns, decoded)

    def failed(
        self, tried: RehearsedAttempt, now_ns: int, failure: Failure, wait_s: float | None
    ) -> None:
        """Take in a failure."""
        target, end = self._names[tried.place], (failure, wait_s)
        self._observer.failed(target, _size(tried), now_ns, tried.began_ns, end)

    def lost(self, tried: RehearsedAttempt, now_ns: int, *, spoke: bool) -> None:
        """Take in that an attempt was cancelled because another one has the client."""
        target = self._names[tried.place]
        self._observer.lost(target, _size(tried), now_ns, tried.began_ns, spoke=spoke)

    def answered(self, ttft_ns: int, tokens: int, decode_ns: int) -> None:
        """Take in that a client has its answer."""
        self._observer.answered(self._alias.name, ttft_ns, (tokens, decode_ns))

    def unanswered(self) -> None:
        """Take in that a client got no answer."""
        self._observer.unanswered(self._alias.name)

    def settled(
        self, plan: Plan, wanted: RehearsedRequest, beside: Sequence[Step], price: RequestPrice
    ) -> None:
        """Take in the price of a request that is over."""
        nano = (price.winner_usd * NANO, price.lost_usd * NANO, price.premium_usd * NANO)
        self._observer.settled(wanted.key, plan, beside, *nano)

    def engine(self, place: int, busy: int, now_ns: int) -> None:
        """Take in what an engine counts itself, where the form can use it."""
        self.forms.engine(self._names[place], busy, now_ns)

    def stale(self, now_ns: int) -> list[int]:
        """The targets that want a probe and may be asked."""
        allows = self._observer.breakers.allows
        closed = self.forms.closed(now_ns)
        names = [name for name in self.forms.stale(now_ns, STALE_NS) if name not in closed]
        return [self._places[name] for name in names if allows(name, now_ns)]


class SharedWorkers(RehearsedPolicy):
    """Several workers, of one machine or of several; a request is one worker's to its price.

    As in the gateway, they tell what they have in flight once in a beat, and hear it of the others
    half a beat later on average. Form is told once a second, and known one to two seconds later.
    """

    probes = True

    def __init__(self, workers: Sequence[GatewayPolicy], beat_ns: int) -> None:
        self._workers = list(workers)
        self._beat_ns = beat_ns
        self._next_ns = 0  # when they tell next
        self._told: list[tuple[int, dict[str, tuple[int, dict[str, int]]]]] = []
        self._written: list[FormState] = []  # a second ago
        self._last = self._workers[0]  # who was told of an attempt last

    def plan(self, wanted: RehearsedRequest, now_ns: int) -> Plan:
        """Plan a request by the worker that got it."""
        self._tell(now_ns)
        return self._of(wanted).plan(wanted, now_ns)

    def may_start(self, step: Step, plan: Plan, wanted: RehearsedRequest, now_ns: int) -> bool:
        """Whether the budget of its worker has room for a step."""
        return self._of(wanted).may_start(step, plan, wanted, now_ns)

    def waits_ns(
        self,
        plan: Plan,
        spoke: RehearsedAttempt,
        first_ns: int,
        rivals: Sequence[RehearsedAttempt],
        now_ns: int,
    ) -> int | None:
        """Until when a first token waits, as its worker says."""
        return self._of(spoke.wanted).waits_ns(plan, spoke, first_ns, rivals, now_ns)

    def began(self, tried: RehearsedAttempt) -> None:
        """Tell its worker that an attempt starts."""
        self._tell(tried.began_ns)
        self._of(tried.wanted).began(tried)

    def first(self, tried: RehearsedAttempt, now_ns: int) -> None:
        """Tell its worker of a first token."""
        self._of(tried.wanted).first(tried, now_ns)

    def done(self, tried: RehearsedAttempt, now_ns: int, tokens: int, decode_ns: int) -> None:
        """Tell its worker of a whole answer."""
        self._tell(now_ns)
        self._of(tried.wanted).done(tried, now_ns, tokens, decode_ns)

    def failed(
        self, tried: RehearsedAttempt, now_ns: int, failure: Failure, wait_s: float | None
    ) -> None:
        """Tell its worker of a failure."""
        self._of(tried.wanted).failed(tried, now_ns, failure, wait_s)

    def lost(self, tried: RehearsedAttempt, now_ns: int, *, spoke: bool) -> None:
        """Tell its worker of an attempt that lost."""
        self._of(tried.wanted).lost(tried, now_ns, spoke=spoke)

    def answered(self, ttft_ns: int, tokens: int, decode_ns: int) -> None:
        """Tell the worker of the attempt that has just ended."""
        self._last.answered(ttft_ns, tokens, decode_ns)

    def unanswered(self) -> None:
        """Tell the worker of the attempt that has just failed."""
        self._last.unanswered()

    def settled(
        self, plan: Plan, wanted: RehearsedRequest, beside: Sequence[Step], price: RequestPrice
    ) -> None:
        """Tell its worker the price of a request."""
        self._of(wanted).settled(plan, wanted, beside, price)

    def engine(self, place: int, busy: int, now_ns: int) -> None:
        """Tell every worker what an engine counts."""
        for worker in self._workers:
            worker.engine(place, busy, now_ns)

    def stale(self, now_ns: int) -> list[int]:
        """Share form between the workers, once a second; the first says what wants a probe."""
        self._tell(now_ns)
        told = [one.forms.export() for one in self._workers]
        read, self._written = self._written, told
        for number, worker in enumerate(self._workers):
            for other, state in enumerate(read):
                if other != number:
                    worker.forms.adopt(state, now_ns)
        return self._workers[0].stale(now_ns)

    def _of(self, wanted: RehearsedRequest) -> GatewayPolicy:
        place = (wanted.number * _SPREAD >> 12) % len(self._workers)
        self._last = self._workers[place]
        return self._last

    def _tell(self, now_ns: int) -> None:
        """Do what was due before this instant; nothing has changed since the last event."""
        while self._told and self._told[0][0] <= now_ns:
            heard_ns, counts = self._told.pop(0)
            for number, worker in enumerate(self._workers):
                others = {name: told for name, told in counts.items() if name != str(number)}
                worker.forms.beside(others, heard_ns)
        if now_ns < self._next_ns:
            return
        at_ns = max(self._next_ns, now_ns - self._beat_ns)
        self._next_ns = at_ns + self._beat_ns
        counts = {}
        for number, worker in enumerate(self._workers):
            forms = worker.forms.by_target.items()
            counts[str(number)] = at_ns, {n: form.in_flight for n, form in forms if form.in_flight}
        self._told.append((at_ns + self._beat_ns // 2, counts))


def gateway_policy(settings: PolicySettings) -> NamedPolicy:
    """Name a policy of the gateway."""

    def make(truth: Truth, seed: int, source: RehearsalSource) -> RehearsedPolicy:
        del truth
        offers, tokens = source.offers, source.usual_tokens
        if settings.machines > 1:
            own_seeds = range(seed, seed + settings.machines)
            machines = [GatewayPolicy(offers, settings, tokens, own) for own in own_seeds]
            return SharedWorkers(machines, MACHINES_BEAT_NS)
        if settings.workers == 1:
            return GatewayPolicy(offers, settings, tokens, seed)
        seeds = range(seed, seed + settings.workers)
        workers = [GatewayPolicy(offers, settings, tokens, own) for own in seeds]
        return SharedWorkers(workers, WORKERS_BEAT_NS)

    return NamedPolicy(settings.name, make)


def _size(tried: RehearsedAttempt) -> int:
    return size_of(tried.wanted.tokens_in)


def _prior(offer: Offer) -> Prior:
    return Prior(offer.ttft_ms, offer.ttft_p95_ms, offer.speed_tps, offer.speed_slow_tps)


def _price(offer: Offer) -> TargetPrice:
    return TargetPrice(
        offer.price_in * _PER_TOKEN,
        offer.price_out * _PER_TOKEN,
        abort_stops=not offer.bills_aborts,
    )
