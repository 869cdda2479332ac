"""A rate gate: a bucket that lets through what a provider's stated limit allows.

Providers count over a minute or a day, but many refuse a burst well before that: so the bucket
holds what the limit allows in about a second, and fills a little slower than the limit. What a
request will take is set aside when it is sent, and put right when its answer has been counted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from lightgate.route.admission.headers import SPANS

if TYPE_CHECKING:
    from lightgate.route.admission.headers import RateFact

NS: Final = 1_000_000_000
SHARE: Final = 0.95  # of the limit: the provider's count and ours never agree to the last request
HOLD_S: Final = 1.0  # of refill that the bucket holds
MINUTE_S: Final = SPANS["minute"]
SLACK: Final = 1.5  # times a span: a reset that is this much longer is of the next longer span
LEAST_USED: Final = 1e-9


class RateGate:
    """One limit of one target, in requests or tokens; `rate` is per second, infinite at first."""

    __slots__ = ("_held_ns", "_level", "_longest_s", "_seen_ns", "_span_s", "rate")

    def __init__(self) -> None:
        self.rate = math.inf
        self._level = 0.0
        self._seen_ns = 0
        self._held_ns = 0  # nothing passes before this instant
        self._longest_s = 0.0  # of all resets that were stated
        self._span_s = 0.0

    @property
    def holds(self) -> float:
        """What the full bucket holds; a larger request passes when it is full."""
        return max(1.0, self.rate * HOLD_S)

    def wait_ns(self, amount: float, now_ns: int) -> int:
        """Return how long a request of this size has to wait; 0 lets it pass."""
        if now_ns < self._held_ns:
            return self._held_ns - now_ns
        if self.rate == math.inf:
            return 0
        self._fill(now_ns)
        lacks = min(amount, self.holds) - self._level
        return 0 if lacks <= 0 else max(1, math.ceil(lacks / self.rate * NS))

    def take(self, amount: float, now_ns: int) -> None:
        """Set aside what a request is taken to need; the bucket may become overdrawn."""
        if self.rate < math.inf:
            self._fill(now_ns)
            self._level -= amount

    def give_back(self, amount: float) -> None:
        """Put right what was set aside: what was not used, or less than nothing."""
        if self.rate < math.inf:
            self._level = min(self._level + amount, self.holds)

    def told(self, fact: RateFact, now_ns: int) -> None:
        """Take in the limit as an answer states it; the level is corrected downwards alone."""
        self._span_s = self._span(fact)
        rate = SHARE * fact.limit / self._span_s
        if self.rate == math.inf:
            self.rate, self._seen_ns = rate, now_ns
            self._level = self.holds
        elif rate != self.rate:
            self._fill(now_ns)
            self.rate = rate
        if fact.remaining is not None:
            self._level = min(self._level, fact.remaining)

    def refused(self, wait_s: float, now_ns: int) -> None:
        """Take in a refusal by this limit: the bucket is empty, and stays so for a while."""
        self._fill(now_ns)
        self._level = min(self._level, 0.0)
        self._held_ns = max(self._held_ns, now_ns + round(wait_s * NS))

    def _fill(self, now_ns: int) -> None:
        if self.rate < math.inf:
            gained = max(0, now_ns - self._seen_ns) / NS * self.rate
            self._level = min(self._level + gained, self.holds)
        self._seen_ns = max(now_ns, self._seen_ns)

    def _span(self, fact: RateFact) -> float:
        """Return the seconds that a limit is counted over, where the provider does not say them.

        A provider that refills steadily states a reset in proportion to what is used: reset times
        limit by used is the span. One that counts by the clock states the rest of the span: then
        that number is too long, and the span is no shorter than any reset. A reset of up to a
        minute is taken for one of a minute: what is left of a day's limit is stated too.
        """
        if fact.span_s is not None:
            return fact.span_s
        if fact.remaining is None or fact.reset_s is None:
            return self._span_s or MINUTE_S
        self._longest_s = max(self._longest_s, fact.reset_s)
        used = fact.limit - fact.remaining
        if used < LEAST_USED or fact.reset_s <= 0.0:
            return self._span_s or MINUTE_S
        guess_s = fact.reset_s * fact.limit / used
        if self._longest_s <= MINUTE_S * SLACK:
            short = guess_s <= SLACK and self._longest_s <= SLACK
            return SPANS["second"] if short else MINUTE_S
        return min(
            (span for span in SPANS.values() if span * SLACK >= self._longest_s),
            key=lambda span: abs(math.log(span / guess_s)),
            default=SPANS["day"],
        )
