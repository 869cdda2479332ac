"""Marks: what a policy is held against, beside the baselines that a gateway could really be.

The oracles know more than any gateway can: the regime of each target, the queue with the end of
every request in it, the limits, and the length of the answer that is asked for. They do not know
the dice of a request: its own first token and speed are the usual ones of that moment. They are
greedy: each request takes the best target for itself and does not ask what those behind it pay. One
of them does ask, by counting the wait several times: what waits holds up all that come behind it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from lightgate.bench.rehearse.baselines import TargetOrder
from lightgate.route.health.breaker import Breakers, Rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.bench.rehearse.baselines import RehearsedAttempt, RehearsedRequest
    from lightgate.bench.rehearse.scene import Offer
    from lightgate.bench.rehearse.truth import Truth
    from lightgate.route.health.failure import Failure

FOLLOWERS: Final = 3.0  # times that the wait counts for an oracle that thinks of all: of 1.5, 2 and
# 3 the best for whole answers at 80 and 90 % of capacity; for first tokens they differ little
FREE_S: Final = 0.02  # a hedge of an oracle goes only to a target with less to wait for


class Oracle(TargetOrder):
    """An order by the first token, or by the end of the answer, that the truth promises.

    `waits` is how often the wait in a queue counts, and what a token takes longer in a batch; once
    is greedy.
    """

    def __init__(
        self, truth: Truth, targets: int, *, whole: bool = False, waits: float = 1.0
    ) -> None:
        super().__init__("oracle", range(targets))
        self._outlook = truth.outlook
        self._whole = whole
        self._more = waits - 1.0

    def order(self, wanted: RehearsedRequest, now_ns: int) -> Sequence[int]:
        """Order the targets by what each would do with this request now."""
        seen = [self._outlook(place, now_ns, wanted.tokens_in) for place in self._fixed]
        tokens = wanted.tokens_out if self._whole else 0
        worth = [
            one.first_s + tokens / one.tps + self._more * (one.wait_s + tokens * one.shared_s)
            for one in seen
        ]
        return sorted(self._fixed, key=worth.__getitem__)

    def takes(self, place: int, now_ns: int) -> bool:
        """Whether a hedge would find a free slot there."""
        seen = self._outlook(place, now_ns, 0)
        return seen.wait_s < FREE_S and math.isfinite(seen.first_s)


class LeastInFlight(TargetOrder):
    """An order by requests in flight times the table's time for a whole answer."""

    def __init__(self, offers: Sequence[Offer], tokens_out: float) -> None:
        super().__init__("least-in-flight", range(len(offers)))
        self._table_s = [one.ttft_ms / 1e3 + tokens_out / one.speed_tps for one in offers]
        self._flying = [0] * len(offers)

    def order(self, wanted: RehearsedRequest, now_ns: int) -> Sequence[int]:
        """Order the targets by the time that one more request means."""
        del wanted, now_ns
        flying, table_s = self._flying, self._table_s
        return sorted(self._fixed, key=lambda place: (flying[place] + 1) * table_s[place])

    def began(self, tried: RehearsedAttempt) -> None:
        """Count one more in flight."""
        self._flying[tried.place] += 1

    def ended(self, place: int) -> None:
        """Count one less in flight."""
        self._flying[place] -= 1


class FixedFirst(TargetOrder):
    """One target first, the others as the table says; targets in trouble are left alone a while.

    The cooldown is the gateway's own breaker, so that a fixed choice is no worse for being fixed
    than it has to be.
    """

    def __init__(self, offers: Sequence[Offer], tokens_out: float, first: int) -> None:
        table_s = [one.ttft_ms / 1e3 + tokens_out / one.speed_tps for one in offers]
        ranked = sorted(range(len(offers)), key=table_s.__getitem__)
        super().__init__("fixed", [first, *(place for place in ranked if place != first)])
        self._names = [offer.target for offer in offers]
        self._breakers = Breakers(Rules(), lambda: 0.5)

    def order(self, wanted: RehearsedRequest, now_ns: int) -> Sequence[int]:
        """Put the targets that are left alone last."""
        del wanted
        names, breakers = self._names, self._breakers
        if not breakers.troubled:
            return self._fixed
        held = [
            place
            for place in self._fixed
            if names[place] in breakers.troubled and not breakers.allows(names[place], now_ns)
        ]
        held.sort(key=lambda place: breakers.opens_again_ns(names[place]))
        return [place for place in self._fixed if place not in held] + held

    def began(self, tried: RehearsedAttempt) -> None:
        """Take in an attempt: a target that was left alone is tried by one at a time."""
        self._breakers.started(self._names[tried.place], tried.began_ns)

    def spoke(self, tried: RehearsedAttempt, now_ns: int) -> None:
        """Take in the first token of an attempt."""
        self._breakers.spoke(self._names[tried.place], now_ns, tried.began_ns)

    def well(self, tried: RehearsedAttempt, now_ns: int) -> None:
        """Take in the good end of an attempt."""
        self._breakers.succeeded(self._names[tried.place], now_ns, tried.began_ns)

    def ill(
        self, tried: RehearsedAttempt, now_ns: int, failure: Failure, wait_s: float | None
    ) -> None:
        """Take in the failure of an attempt."""
        self._breakers.failed(self._names[tried.place], now_ns, failure, wait_s, tried.began_ns)
