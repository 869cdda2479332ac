"""Policies under rehearsal: what every policy is told, and the baselines to compare with."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.bench.rehearse.scene import TTFT_TIMEOUT_NS
from lightgate.route.plan.alias import Layout, lay_out
from lightgate.route.plan.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.bench.rehearse.scene import Offer
    from lightgate.route.health.failure import Failure
    from lightgate.route.plan.plan import Step

NS: Final = 1_000_000_000
FAILURE_S: Final = 5.0  # what a failure counts as in a mean or a peak of TTFTs
LAST: Final = 10  # samples of the mean
WINDOW: Final = 100  # samples of a learned hedge delay
ENOUGH: Final = 20  # of them before it is believed
CEILING: Final = 1.5  # times the prior's own quantile
Z90: Final = 1.2815515655446004
HEDGE_SHARE: Final = 0.15  # of requests
HEDGE_STORE: Final = 20.0  # hedges that can be saved up
DECAY_S: Final = 10.0  # of a peak, as linkerd's
UNSEEN_S: Final = 0.03  # a peak of nobody yet, as linkerd's


class RehearsedRequest(NamedTuple):
    """One request, as it comes in; `tokens_out` is the truth, which only an oracle may read."""

    number: int
    tokens_in: int
    tokens_out: int
    draw: float
    key: str = ""
    max_tokens: int | None = None


class RehearsedAttempt(NamedTuple):
    """One attempt: the place of its target, its request, and when it began."""

    place: int
    wanted: RehearsedRequest
    began_ns: int


class RequestPrice(NamedTuple):
    """What one request cost, in dollars.

    `premium_usd` is what the winner cost beyond the planned target's price for the same tokens,
    where an attempt won that was started beside it; 0 where the winner was cheaper.
    """

    winner_usd: float
    lost_usd: float
    premium_usd: float


class RehearsedPolicy:
    """A policy under rehearsal; what a policy does not care for, it leaves as it is here.

    Instants are in nanoseconds of the rehearsal's clock.
    """

    probes = False  # whether targets without fresh samples are probed for it

    def plan(self, wanted: RehearsedRequest, now_ns: int) -> Plan:
        """Choose the targets of a request."""
        raise NotImplementedError

    def may_start(self, step: Step, plan: Plan, wanted: RehearsedRequest, now_ns: int) -> bool:
        """Whether a step that is due may start beside a running one."""
        raise NotImplementedError

    def waits_ns(
        self,
        plan: Plan,  # noqa: ARG002 - for those who care
        spoke: RehearsedAttempt,  # noqa: ARG002 - the same
        first_ns: int,  # noqa: ARG002 - the same
        rivals: Sequence[RehearsedAttempt],  # noqa: ARG002 - the same
        now_ns: int,  # noqa: ARG002 - the same
    ) -> int | None:
        """Until when a first token waits for a better finisher; None: it wins at once."""
        return None

    def began(self, tried: RehearsedAttempt) -> None:
        """Take in that an attempt starts."""

    def first(self, tried: RehearsedAttempt, now_ns: int) -> None:
        """Take in the first useful token of an attempt."""

    def done(self, tried: RehearsedAttempt, now_ns: int, tokens: int, decode_ns: int) -> None:
        """Take in a whole answer, in so long after the first token."""

    def failed(
        self, tried: RehearsedAttempt, now_ns: int, failure: Failure, wait_s: float | None
    ) -> None:
        """Take in a failure; the provider may have asked for a wait."""

    def lost(self, tried: RehearsedAttempt, now_ns: int, *, spoke: bool) -> None:
        """Take in that an attempt was cancelled because another one has the client."""

    def answered(self, ttft_ns: int, tokens: int, decode_ns: int) -> None:
        """Take in that a client has its answer, its first token so long after it asked."""

    def unanswered(self) -> None:
        """Take in that a client got no answer."""

    def settled(
        self, plan: Plan, wanted: RehearsedRequest, beside: Sequence[Step], price: RequestPrice
    ) -> None:
        """Take in the price of a request; `beside` are the steps that `may_start` let start."""

    def engine(self, place: int, busy: int, now_ns: int) -> None:
        """Take in how many requests a target itself counts, those of other tenants included."""

    def stale(self, now_ns: int) -> list[int]:  # noqa: ARG002 - for those who probe
        """The places of targets that want a probe."""
        return []


class Baseline(RehearsedPolicy):
    """A policy that orders the targets and nothing else; optionally with a hedge at p90."""

    def __init__(
        self, offers: Sequence[Offer], order: TargetOrder, *, hedged: bool = False
    ) -> None:
        self._names = [offer.target for offer in offers]
        self._order = order
        self._hedged = hedged
        self._budget = 0.0
        self._recent: list[deque[float]] = [deque(maxlen=WINDOW) for _ in offers]
        self._prior_p90_s = [_p90_s(offer) for offer in offers]
        self._delay_s: list[tuple[int, float]] = [(-ENOUGH, p90) for p90 in self._prior_p90_s]
        self._seen = [0] * len(offers)

    def plan(self, wanted: RehearsedRequest, now_ns: int) -> Plan:
        """Plan the order of this moment, with a hedge where there is one."""
        order = self._order.order(wanted, now_ns)
        self._budget = min(self._budget + HEDGE_SHARE, HEDGE_STORE)
        hedge_ns = int(self._hedge_s(order[0]) * NS) if self._hedged else None
        names = [self._names[place] for place in order]
        steps = lay_out(names, len(names), Layout(0, TTFT_TIMEOUT_NS, 1, hedge_ns))
        return Plan(steps, self._order.name, self._order.name)

    def may_start(self, step: Step, plan: Plan, wanted: RehearsedRequest, now_ns: int) -> bool:
        """Whether the hedge budget has one left, and the order has nothing against it."""
        del plan, wanted
        if self._budget < 1.0 or not self._order.takes(self._names.index(step.target), now_ns):
            return False
        self._budget -= 1.0
        return True

    def began(self, tried: RehearsedAttempt) -> None:
        """Take in that an attempt starts."""
        self._order.began(tried)

    def first(self, tried: RehearsedAttempt, now_ns: int) -> None:
        """Take a TTFT in."""
        place, seconds = tried.place, (now_ns - tried.began_ns) / NS
        self._recent[place].append(seconds)
        self._seen[place] += 1
        self._order.saw(place, now_ns, seconds)
        self._order.spoke(tried, now_ns)

    def done(self, tried: RehearsedAttempt, now_ns: int, tokens: int, decode_ns: int) -> None:
        """Take in that an attempt is over."""
        del tokens, decode_ns
        self._order.ended(tried.place)
        self._order.well(tried, now_ns)

    def failed(
        self, tried: RehearsedAttempt, now_ns: int, failure: Failure, wait_s: float | None
    ) -> None:
        """A failure counts as a slow sample."""
        self._order.saw(tried.place, now_ns, FAILURE_S)
        self._order.ended(tried.place)
        self._order.ill(tried, now_ns, failure, wait_s)

    def lost(self, tried: RehearsedAttempt, now_ns: int, *, spoke: bool) -> None:
        """Take in that an attempt is over."""
        del now_ns, spoke
        self._order.ended(tried.place)

    def _hedge_s(self, place: int) -> float:
        """Take the p90 of the last samples under a ceiling, anew at every tenth sample."""
        at, delay = self._delay_s[place]
        seen, recent = self._seen[place], self._recent[place]
        if len(recent) >= ENOUGH and seen - at >= 10:
            own = sorted(recent)[int(0.9 * len(recent))]
            delay = min(own, CEILING * self._prior_p90_s[place])
            self._delay_s[place] = (seen, delay)
        return delay


def _p90_s(offer: Offer) -> float:
    sigma = max(math.log(offer.ttft_p95_ms / offer.ttft_ms) / 1.6448536, 0.2)
    return offer.ttft_ms / 1e3 * math.exp(Z90 * sigma)


class TargetOrder:
    """An order of targets that never learns: as given."""

    def __init__(self, name: str, fixed: Sequence[int]) -> None:
        self.name = name
        self._fixed = list(fixed)

    def order(self, wanted: RehearsedRequest, now_ns: int) -> Sequence[int]:
        """Order the places of the targets, best first."""
        del wanted, now_ns
        return self._fixed

    def began(self, tried: RehearsedAttempt) -> None:
        """Take in that an attempt starts."""

    def ended(self, place: int) -> None:
        """Take in that an attempt is over."""

    def saw(self, place: int, now_ns: int, seconds: float) -> None:
        """Take in a TTFT, or what a failure counts as."""

    def spoke(self, tried: RehearsedAttempt, now_ns: int) -> None:
        """Take in the first token of an attempt."""

    def well(self, tried: RehearsedAttempt, now_ns: int) -> None:
        """Take in the good end of an attempt."""

    def ill(
        self, tried: RehearsedAttempt, now_ns: int, failure: Failure, wait_s: float | None
    ) -> None:
        """Take in the failure of an attempt."""

    def takes(self, place: int, now_ns: int) -> bool:  # noqa: ARG002 - for those who care
        """Whether a hedge may go to this target now."""
        return True


def fixed_best(offers: Sequence[Offer], tokens_out: float) -> TargetOrder:
    """The target that its table says answers soonest, and the next ones behind it."""

    def expected_s(place: int) -> float:
        return offers[place].ttft_ms / 1e3 + tokens_out / offers[place].speed_tps

    return TargetOrder("fixed-best", sorted(range(len(offers)), key=expected_s))


class MeanOfLast(TargetOrder):
    """An order by the mean of the last ten TTFTs; a target without one comes first."""

    def __init__(self, targets: int) -> None:
        super().__init__("mean-of-last-10", range(targets))
        self._last: list[deque[float]] = [deque(maxlen=LAST) for _ in range(targets)]

    def order(self, wanted: RehearsedRequest, now_ns: int) -> Sequence[int]:
        """Order the targets by mean."""
        del wanted, now_ns
        means = [sum(last) / len(last) if last else 0.0 for last in self._last]
        return sorted(self._fixed, key=means.__getitem__)

    def saw(self, place: int, now_ns: int, seconds: float) -> None:
        """Keep the TTFT among the last ones."""
        del now_ns
        self._last[place].append(seconds)


class Shuffled(TargetOrder):
    """A random order for every request."""

    def __init__(self, targets: int) -> None:
        super().__init__("random", range(targets))

    def order(self, wanted: RehearsedRequest, now_ns: int) -> Sequence[int]:
        """Order the targets by one number: its digits in a falling base."""
        del now_ns
        left, draw, out = list(self._fixed), wanted.draw, []
        while left:
            at = draw * len(left)
            out.append(left.pop(int(at)))
            draw = at - int(at)
        return out


class TwoChoices(TargetOrder):
    """Peak-EWMA times in-flight, the better of two drawn targets: as meshes of equals do it."""

    def __init__(self, targets: int) -> None:
        super().__init__("p2c", range(targets))
        self._peak = [UNSEEN_S] * targets
        self._at_ns = [0] * targets
        self._flying = [0] * targets

    def order(self, wanted: RehearsedRequest, now_ns: int) -> Sequence[int]:
        """Order the better of two first, the others by cost."""
        k = len(self._fixed)
        cost = [self._faded(place, now_ns) * (self._flying[place] + 1) for place in self._fixed]
        by_cost = sorted(self._fixed, key=cost.__getitem__)
        if k < 2:
            return by_cost
        pair = int(wanted.draw * k * (k - 1))
        a, b = pair // (k - 1), pair % (k - 1)
        b += b >= a
        first = a if cost[a] <= cost[b] else b
        return [first, *(place for place in by_cost if place != first)]

    def began(self, tried: RehearsedAttempt) -> None:
        """Count one more in flight."""
        self._flying[tried.place] += 1

    def ended(self, place: int) -> None:
        """Count one less in flight."""
        self._flying[place] -= 1

    def saw(self, place: int, now_ns: int, seconds: float) -> None:
        """Take a peak in at once, the rest slowly."""
        faded = self._faded(place, now_ns)
        share = 1.0 - math.exp(-(now_ns - self._at_ns[place]) / NS / DECAY_S)
        self._peak[place] = seconds if seconds > faded else faded + share * (seconds - faded)
        self._at_ns[place] = now_ns

    def _faded(self, place: int, now_ns: int) -> float:
        return self._peak[place] * math.exp(-(now_ns - self._at_ns[place]) / NS / DECAY_S)
