"""Numbers over many attempts: what a system gives under load, not what one request saw.

Windows and spans are in nanoseconds of the monotonic clock, rates in tokens per second. None where
a number is undefined.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.clock.outcome import FAILURES, Outcome
from lightgate.clock.timing import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lightgate.clock.attempt import AttemptRecord


_TOKENS_PRICED: Final = 1_000_000


class Window(msgspec.Struct, frozen=True):
    """A stretch of time; its start belongs to it, its stop does not."""

    start_ns: int
    stop_ns: int

    @property
    def seconds(self) -> float:
        """Length of the window in seconds."""
        return (self.stop_ns - self.start_ns) / NS_PER_S


class Stream(msgspec.Struct, frozen=True):
    """The bursts of one attempt, in time order, and the tokens of each (see `tokens.per_burst`)."""

    burst_ns: Sequence[int]
    burst_tokens: Sequence[float]


class Span(msgspec.Struct, frozen=True):
    """The time of one attempt in flight: from t_send to t_last, or to its end where it failed."""

    start_ns: int
    stop_ns: int


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """The demands on a good request; None is no demand."""

    ttft_ms: float | None = None
    ttft_plan_ms: float | None = None
    ttfa_ms: float | None = None
    e2e_ms: float | None = None
    stall_ms: float | None = None
    speed_tps: float | None = None
    speed_total_tps: float | None = None


def throughput(streams: Iterable[Stream], window: Window) -> float | None:
    """System throughput: tokens whose burst falls in the window / window."""
    if window.seconds <= 0:
        return None
    total = 0.0
    for stream in streams:
        first = bisect_left(stream.burst_ns, window.start_ns)
        after = bisect_left(stream.burst_ns, window.stop_ns)
        total += math.fsum(stream.burst_tokens[first:after])
    return total / window.seconds


def requests_per_s(answers: int, seconds: float) -> float | None:
    """Requests served: good answers that ended in the window / window."""
    return answers / seconds if answers and seconds > 0 else None


def tokens_in_per_s(attempts: Sequence[AttemptRecord], seconds: float) -> float | None:
    """Prompts read: prompt tokens of those answers / window; None unless all are counted."""
    tokens = [attempt.tokens_in for attempt in attempts if attempt.tokens_in is not None]
    if not tokens or len(tokens) < len(attempts) or seconds <= 0:
        return None
    return sum(tokens) / seconds


def inflight(spans: Iterable[Span], window: Window) -> float | None:
    """Requests in flight: the time-weighted mean in the window."""
    if window.stop_ns <= window.start_ns:
        return None
    busy = sum(
        max(0, min(span.stop_ns, window.stop_ns) - max(span.start_ns, window.start_ns))
        for span in spans
    )
    return busy / (window.stop_ns - window.start_ns)


def little(spans: Iterable[Span], window: Window) -> float | None:
    """What `inflight` should be by Little's law: arrivals per second x mean time in flight.

    Over the requests that were sent in the window. Far from `inflight` means that the window was
    not steady, or that requests were counted that were never there.
    """
    if window.seconds <= 0:
        return None
    times = [
        span.stop_ns - span.start_ns
        for span in spans
        if window.start_ns <= span.start_ns < window.stop_ns
    ]
    return sum(times) / (window.stop_ns - window.start_ns) if times else None


def batch_eff(throughput_c: float, concurrency: int, throughput_1: float) -> float | None:
    """Batching efficiency at concurrency c: X(c) / (c X(1)); 1 is perfect scaling."""
    if concurrency < 1 or throughput_1 <= 0:
        return None
    return throughput_c / (concurrency * throughput_1)


def retain(speed_c: float, speed_1: float) -> float | None:
    """Share of its speed that one request keeps at concurrency c: speed p50(c) / speed p50(1)."""
    return speed_c / speed_1 if speed_1 > 0 else None


def goodput(attempts: Iterable[AttemptRecord], slo: Slo, *, dropped: int = 0) -> float | None:
    """Share of the offered requests that meet every SLO.

    Failures count as offered and bad, and so do the `dropped`, which were never sent. What we cut
    or cancelled ourselves is neither.
    """
    judged = [
        meets(attempt, slo)
        for attempt in attempts
        if attempt.outcome not in {Outcome.CUT, Outcome.CANCELLED}
    ]
    offered = len(judged) + dropped
    return sum(judged) / offered if offered else None


def meets(attempt: AttemptRecord, slo: Slo) -> bool:
    """Whether an attempt succeeded and keeps every demand; an undefined number keeps none."""
    if attempt.outcome is not Outcome.OK:
        return False
    for name in slo.__struct_fields__:
        demand, seen = getattr(slo, name), getattr(attempt, name)
        if demand is None:
            continue
        if seen is None or (seen < demand if name.endswith("_tps") else seen > demand):
            return False
    return True


def cost_1k(dollars: Decimal, requests: int) -> Decimal | None:
    """Dollars / requests x 1000: what 1,000 requests of the measured workload cost.

    Prompts, cached prompts, answers and reasoning are in it. A machine that is paid by the hour is
    its window's share of the hour, divided by what it served in it: this holds at that load only.
    """
    return dollars * 1000 / requests if requests else None


def cost_out(dollars: Decimal, tokens_out: float) -> Decimal | None:
    """Dollars / output tokens x 10^6: `cost_1k` per million output tokens, prompts included."""
    return dollars * _TOKENS_PRICED / Decimal(str(tokens_out)) if tokens_out > 0 else None


def speed_per_dollar(speed_tps: float, dollars_per_hour: Decimal) -> float | None:
    """Output tokens per second / (dollars per hour of that stream)."""
    return speed_tps / float(dollars_per_hour) if dollars_per_hour > 0 else None


def counting(attempts: Iterable[AttemptRecord]) -> list[AttemptRecord]:
    """Keep the attempts that may enter a provider's speed statistics.

    Only complete answers that we waited for: no losers, none across a clock step.
    """
    return [
        attempt
        for attempt in attempts
        if attempt.outcome is Outcome.OK and attempt.won is not False and not attempt.void
    ]


def in_statistics(attempt: AttemptRecord) -> bool:
    """Tell whether one attempt counts: only complete answers that we waited for do."""
    return attempt.outcome is Outcome.OK and attempt.won is not False and not attempt.void


def successes(
    attempts: Iterable[AttemptRecord], metric: Callable[[AttemptRecord], float | None]
) -> list[float]:
    """Collect one metric of the attempts that count, where it is defined."""
    return [value for value in map(metric, counting(attempts)) if value is not None]


def with_failures(
    attempts: Sequence[AttemptRecord], metric: Callable[[AttemptRecord], float | None]
) -> list[float]:
    """Collect one duration of the attempts that count, and +inf for every failure."""
    failures = sum(attempt.outcome in FAILURES for attempt in attempts)
    return successes(attempts, metric) + [math.inf] * failures


BANDS: Final = ((1, 100.0), (2, 70.0), (3, 50.0), (4, 30.0), (5, 0.0))  # grade, tok/s at least


class Grade(msgspec.Struct, frozen=True):
    """The best and the worst grade that the interval of the median allows; usually the same."""

    best: int
    worst: int

    def __str__(self) -> str:
        if self.best == self.worst:
            return str(self.best)
        return f"{self.best}\N{EN DASH}{self.worst}"


def band(tokens_per_second: float) -> int:
    """Grade of one speed, from 1 (fastest) to 5."""
    if not tokens_per_second >= 0.0:
        raise ValueError(f"a speed is not negative: {tokens_per_second}")
    return next(grade for grade, floor in BANDS if tokens_per_second >= floor)


def grade(low: float, high: float) -> Grade:
    """Grade of a median that lies between `low` and `high` tok/s: "1-2" when they straddle."""
    if low > high:
        raise ValueError(f"an interval has its ends in order, not {low} above {high}")
    return Grade(best=band(high), worst=band(low))
