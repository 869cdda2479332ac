"""The present form of one target: how soon it speaks, how fast, how reliably.

Times to first token are kept as logarithms, in two layers. Each prompt size has a long run, which
moves slowly; the target as a whole has one deviation from it, the weather, which moves fast and is
forgotten in minutes. A probe of 16 tokens therefore also says that long prompts are slow just now.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final

from lightgate.route.window import Window

if TYPE_CHECKING:
    from lightgate.route.prior import Prior

NS: Final = 1e9
BUCKETS: Final = (1024, 8192)  # prompt tokens at which the next size begins: 0-1k, 1-8k, 8k+
OFFSETS: Final = (0.0, 0.25, 0.9)  # log of what a longer prompt usually costs, until it is known
ALPHA: Final = 0.12  # weight of a new sample in the short run
CLIP: Final = 1.0  # of a residual: one stall, however long, moves the belief by e^0.12
SPREAD_ALPHA: Final = 0.03
SPREAD_CLIP: Final = 4.0  # of a squared residual
NARROWEST: Final = 0.3  # sigma that change detection assumes at least
SLACK: Final = 0.7  # sigmas that a change must exceed to add up
ALARM: Final = 4.0  # sigmas in sum that are a change
FORGET_S: Final = 180.0  # what was seen counts e^(-age/180 s), the long run the rest
LONG_S: Final = 6 * 3600.0  # the long run's own memory
RECENT: Final = 100  # first tokens of which quantiles are taken
ENOUGH: Final = 20  # of those, below which the long run speaks for them
RERANK: Final = 5  # samples after which the quantiles are taken anew
FAILURE_S: Final = 5.0  # a failure counts as a first token that late, at least
ERRORS: Final = 0.1  # of ERROR_WEIGHT: half a percent, before anything failed
ERROR_WEIGHT: Final = 20.0
ERROR_KEEP: Final = 0.97  # of old errors and successes, at each new one
CROWD_ALPHA: Final = 0.05  # of the usual number in flight
LEAST_TOKENS: Final = 8  # an answer that says something about decode speed
RATE: Final = -1.0 / (FORGET_S * NS)
NEVER: Final = -(1 << 62)


def bucket(tokens_in: int) -> int:
    """The size of a prompt: 0, 1 or 2."""
    return 0 if tokens_in < BUCKETS[0] else 1 if tokens_in < BUCKETS[1] else 2


class Size:
    """What is known of one prompt size of a target: the long run, and the last first tokens."""

    __slots__ = ("_ranked", "_until_rank", "long", "recent", "seen", "variance")

    def __init__(self, long: float, sigma: float) -> None:
        self.long = long
        self.variance = sigma * sigma
        self.seen = 0
        self.recent: deque[float] = deque(maxlen=RECENT)
        self._ranked: list[float] = []
        self._until_rank = 0

    def add(self, ttft_s: float) -> None:
        """Keep a first token for the quantiles."""
        self.recent.append(ttft_s)
        self._until_rank -= 1

    def fill(self, ttfts_s: tuple[float, ...]) -> None:
        """Take over what somebody else kept."""
        self.recent = deque(ttfts_s, maxlen=RECENT)
        self._until_rank = 0

    def own(self, q: float) -> float | None:
        """A quantile of the last first tokens, seconds; None while they are too few."""
        if len(self.recent) < ENOUGH:
            return None
        if self._until_rank <= 0:
            self._ranked = sorted(self.recent)
            self._until_rank = RERANK
        ranked = self._ranked
        return ranked[min(len(ranked) - 1, int(q * len(ranked)))]

    def usual(self, z: float) -> float:
        """A quantile of the long run, seconds; `z` is that of the standard normal."""
        return math.exp(self.long + z * math.sqrt(self.variance))


class Form:
    """One target. All instants in nanoseconds of one monotonic clock."""

    __slots__ = (
        "_fall",
        "_rise",
        "deviation",
        "ends",
        "errors",
        "in_flight",
        "last_ns",
        "last_three",
        "prior",
        "sizes",
        "speed_deviation",
        "speed_last_ns",
        "speed_long",
        "speed_seen",
        "speed_variance",
        "trouble",
        "usual_in_flight",
        "variance",
    )

    def __init__(self, prior: Prior) -> None:
        self.prior = prior
        log, sigma = prior.ttft_log, prior.ttft_sigma
        self.sizes = tuple(Size(log + offset, sigma) for offset in OFFSETS)
        self.deviation = 0.0  # at last_ns
        self.variance = sigma * sigma
        self.last_ns = NEVER
        self.last_three: list[float] = []  # deviations from the long run
        self._rise = self._fall = 0.0
        self.speed_long = prior.speed_log
        self.speed_variance = prior.speed_sigma**2
        self.speed_deviation = 0.0
        self.speed_seen = 0
        self.speed_last_ns = NEVER
        self.errors = 0.0
        self.ends = 0.0
        self.in_flight = 0
        self.usual_in_flight = 0.0
        self.trouble = Window(10, 3_000_000_000)  # failures, ends: of the last 30 s

    # What is believed

    def fresh(self, now_ns: int) -> float:
        """How much of the belief is of today's weather: 1 just after a sample, 0 long after."""
        age = now_ns - self.last_ns
        return math.exp(age * RATE) if age > 0 else 1.0

    def log_ttft(self, size: int, now_ns: int) -> float:
        """The logarithm of the expected (median) time to first token in seconds."""
        age = now_ns - self.last_ns
        weight = math.exp(age * RATE) if age > 0 else 1.0
        return self.sizes[size].long + weight * self.deviation

    def log_speed(self, now_ns: int) -> float:
        """The logarithm of the expected speed in tokens per second."""
        age = now_ns - self.speed_last_ns
        return self.speed_long + math.exp(min(age * RATE, 0.0)) * self.speed_deviation

    def p_error(self, weight: float) -> float:
        """The chance of a failure; `weight` is `fresh`."""
        return (weight * self.errors + ERRORS) / (weight * self.ends + ERROR_WEIGHT)

    # What is seen

    def started(self) -> None:
        """An attempt begins."""
        self.in_flight += 1
        self.usual_in_flight += CROWD_ALPHA * (self.in_flight - self.usual_in_flight)

    def ended(self) -> None:
        """An attempt is over, however it went."""
        if self.in_flight:
            self.in_flight -= 1

    def first(self, size: int, now_ns: int, ttft_s: float) -> None:
        """A useful first token came."""
        self._sample(size, now_ns, math.log(max(ttft_s, 1e-4)))
        self.sizes[size].add(ttft_s)
        self.errors *= ERROR_KEEP
        self.ends = self.ends * ERROR_KEEP + 1.0
        self.trouble.add(now_ns, 0, 1)

    def waited(self, size: int, now_ns: int, at_least_s: float) -> None:
        """An attempt was given up before its first token: it would have taken longer still."""
        log = math.log(max(at_least_s, 1e-4))
        if log > self.log_ttft(size, now_ns):  # less than what is expected says nothing
            self._sample(size, now_ns, log)

    def failed(self, size: int, now_ns: int, wait_s: float) -> None:
        """An attempt failed; for the belief it was slow, whatever time it took."""
        self.errors = self.errors * ERROR_KEEP + 1.0
        self.ends = self.ends * ERROR_KEEP + 1.0
        self.trouble.add(now_ns, 1, 1)
        slow = math.log(max(FAILURE_S, wait_s))
        self._sample(size, now_ns, max(slow, self.log_ttft(size, now_ns)), lasts=False)

    def finished(self, now_ns: int, tokens: int, decode_s: float) -> None:
        """A complete answer: its speed."""
        if tokens < LEAST_TOKENS or decode_s <= 0.0:
            return
        log = math.log(tokens / decode_s)
        belief = self.log_speed(now_ns)
        off = log - belief
        clipped = max(-CLIP, min(CLIP, off))
        self.speed_variance += SPREAD_ALPHA * (min(off * off, SPREAD_CLIP) - self.speed_variance)
        step = self._long_step(self.speed_seen, now_ns, self.speed_last_ns)
        self.speed_long += step * max(-CLIP, min(CLIP, log - self.speed_long))
        self.speed_seen += 1
        alpha = max(ALPHA, 1.0 / (self.prior.weight + self.speed_seen))
        self.speed_deviation = belief + alpha * clipped - self.speed_long
        self.speed_last_ns = max(now_ns, self.speed_last_ns)

    def _sample(self, size: int, now_ns: int, log: float, *, lasts: bool = True) -> None:
        """Take a time in; one that does not last is of the weather alone."""
        at = self.sizes[size]
        belief = self.log_ttft(size, now_ns)
        off = log - belief
        clipped = max(-CLIP, min(CLIP, off))
        from_long = log - at.long
        if lasts:
            step = self._long_step(at.seen, now_ns, self.last_ns)
            at.long += step * max(-CLIP, min(CLIP, from_long))
            at.variance += min(step, SPREAD_ALPHA) * (min(from_long**2, SPREAD_CLIP) - at.variance)
            if not at.seen:
                self._spread_long(size)
            at.seen += 1
        alpha = max(ALPHA, 1.0 / (self.prior.weight + at.seen))
        self.deviation = belief + alpha * clipped - at.long
        self.variance += SPREAD_ALPHA * (min(off * off, SPREAD_CLIP) - self.variance)
        self._detect(clipped / max(math.sqrt(at.variance), NARROWEST), from_long)
        self.last_ns = max(now_ns, self.last_ns)

    def _detect(self, z: float, from_long: float) -> None:
        """CUSUM in both directions; a change is believed at once."""
        three = self.last_three
        three.append(from_long)
        if len(three) > 3:
            del three[0]
        self._rise = max(0.0, self._rise + z - SLACK)
        self._fall = max(0.0, self._fall - z - SLACK)
        if self._rise > ALARM or self._fall > ALARM:
            self.deviation = sorted(three)[len(three) // 2]
            self._rise = self._fall = 0.0

    def _spread_long(self, size: int) -> None:
        """Sizes that were never seen follow the first one that is."""
        at = self.sizes[size]
        for other, offset in zip(self.sizes, OFFSETS, strict=True):
            if other is not at and not other.seen:
                other.long = at.long + offset - OFFSETS[size]

    def _long_step(self, seen: int, now_ns: int, last_ns: int) -> float:
        """A plain mean of all samples, the prior's included; later one that forgets in hours."""
        gap_s = (now_ns - last_ns) / NS if last_ns != NEVER else 0.0
        return max(1.0 / (self.prior.weight + seen + 1), min(max(gap_s, 0.0) / LONG_S, 0.01))
