"""The numbers of a cell's attempts, each with what the bounds of its stamps leave open.

An answer that a late client read in one piece has no speed, although it was streamed: it adds no
value, but its bounds (anything) count, so that a figure never looks surer than it is.
"""

from __future__ import annotations

import math
from array import array
from operator import attrgetter, sub
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.clock.bounds import (
    ONE_BURST_NS,
    Gaps,
    SpeedFacts,
    of_gaps,
    of_speed,
)
from lightgate.clock.quantile import quantiles
from lightgate.clock.timing import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.recording import Recording

    _Bursts = Sequence[Recording | None]

# Ends of bounds are kept in seven digits where there are many, and rounded outwards.
_DOWN: Final = (1.0 - 2.0**-23).__mul__
_UP: Final = (1.0 + 2.0**-23).__mul__


class Sampled(NamedTuple):
    """The samples of one metric over a cell: as measured, and at both ends of their bounds.

    `low` and `high` are None where no bounds are known: another tool's file, or an older one.
    `requests` counts the attempts behind them: an attempt has one sample of most metrics, and many
    gaps.
    """

    values: MutableSequence[float]
    low: MutableSequence[float] | None
    high: MutableSequence[float] | None
    requests: int

    def failing(self, failures: int) -> Sampled:
        """The same samples and infinity for every failure."""
        more = [math.inf] * failures
        return Sampled(
            [*self.values, *more],
            None if self.low is None else [*self.low, *more],
            None if self.high is None else [*self.high, *more],
            self.requests + failures,
        )


def sampled(
    name: str, attempts: Sequence[AttemptRecord], recordings: Mapping[str, Recording]
) -> Sampled:
    """Collect one metric of attempts that count; its name is one of `timing.SHOWN`."""
    bursts = [recordings.get(attempt.id) for attempt in attempts]
    if name == "gap_ms":
        found = _gaps(attempts, bursts)
    elif name in _SPANS:
        found = _SPANS[name](attempts, bursts)
    else:
        found = _times(name, attempts, bursts)
    watched = any(
        attempt.first_bound_ms is not None or attempt.last_bound_ms is not None
        for attempt in attempts
    )
    return found if watched else found._replace(low=None, high=None)


def numbers(name: str, attempts: Sequence[AttemptRecord]) -> list[float | None]:
    """Return one number of each attempt; the record has no `e2e_plan_ms`."""
    if name != "e2e_plan_ms":
        return list(map(attrgetter(name), attempts))
    return [
        None
        if attempt.e2e_ms is None or attempt.t_plan_ns is None or attempt.t_last_ns is None
        else (attempt.t_last_ns - attempt.t_plan_ns) / NS_PER_MS
        for attempt in attempts
    ]


def stamp_bounds(attempts: Iterable[AttemptRecord]) -> tuple[float | None, float | None]:
    """How much earlier than its stamp a first or last token may have come, in ms: p50 and p99."""
    worst = [
        max(attempt.first_bound_ms, attempt.last_bound_ms or 0.0)
        for attempt in attempts
        if attempt.first_bound_ms is not None
    ]
    middle, tail = quantiles(worst, (0.5, 0.99))
    return middle, tail


def _times(name: str, attempts: Sequence[AttemptRecord], bursts: _Bursts) -> Sampled:
    """Collect a time that ends at a stamp: it may have been shorter by the bound of that stamp."""
    ends = zip(numbers(name, attempts), _EARLIER[name](attempts, bursts), strict=True)
    known = [(value, earlier or 0.0) for value, earlier in ends if value is not None]
    high = [value for value, _ in known]
    low = [value - earlier if value > earlier else 0.0 for value, earlier in known]
    return Sampled(high, low, list(high), len(high))


def _first(attempts: Sequence[AttemptRecord], bursts: _Bursts) -> list[float | None]:
    del bursts
    return [attempt.first_bound_ms for attempt in attempts]


def _last(attempts: Sequence[AttemptRecord], bursts: _Bursts) -> list[float | None]:
    del bursts
    return [attempt.last_bound_ms for attempt in attempts]


def _from_plan(bounds: list[float | None], bursts: _Bursts) -> list[float | None]:
    """Widen bounds by how late after its planned instant our own loop let a request go."""
    return [
        (bound or 0.0) + (0.0 if one is None else one.lag_ns / NS_PER_MS)
        for bound, one in zip(bounds, bursts, strict=True)
    ]


def _headers(attempts: Sequence[AttemptRecord], bursts: _Bursts) -> list[float | None]:
    del attempts
    return [
        None if one is None or one.headers_bound_ns is None else one.headers_bound_ns / NS_PER_MS
        for one in bursts
    ]


def _answers(attempts: Sequence[AttemptRecord], bursts: _Bursts) -> list[float | None]:
    """Bounds of the burst that an answer began in: mostly the first one."""
    return [
        attempt.first_bound_ms
        if attempt.t_answer_ns == attempt.t_first_ns
        else _answer(attempt, one)
        for attempt, one in zip(attempts, bursts, strict=True)
    ]


def _answer(attempt: AttemptRecord, recording: Recording | None) -> float | None:
    if recording is None or attempt.t_answer_ns is None or attempt.t_send_ns is None:
        return None
    at = attempt.t_answer_ns - attempt.t_send_ns
    if at not in recording.at_ns or not recording.since_ns:
        return None
    since_ns: int = recording.since_ns[recording.at_ns.index(at)]
    return (at - since_ns) / NS_PER_MS


def _gaps(attempts: Sequence[AttemptRecord], bursts: _Bursts) -> Sampled:
    """Pool the gaps of all attempts; those of one attempt are not independent of each other.

    There are nearly as many as tokens, so they are kept packed.
    """
    values = low = high = array("d")  # one and the same, as long as all stamps are exact
    requests = 0
    for attempt, one in zip(attempts, bursts, strict=True):
        if one is None or len(one.at_ns) < 2:
            continue
        requests += 1
        if not one.since_ns or one.since_ns == one.at_ns:
            exact = list(map(NS_PER_MS.__rtruediv__, map(sub, one.at_ns[1:], one.at_ns)))
            values.extend(exact)
            if low is not values:
                low.extend(map(_DOWN, exact))
                high.extend(map(_UP, exact))
            continue
        if low is values:
            low, high = array("f", map(_DOWN, values)), array("f", map(_UP, values))
        gaps = _gaps_of(attempt, one)
        values.extend(gaps.seen)
        low.extend(map(_DOWN, gaps.low))
        high.extend(map(_UP, gaps.high))
    return Sampled(values, low, high, requests)


def _stalls(attempts: Sequence[AttemptRecord], bursts: _Bursts) -> Sampled:
    values: list[float] = []
    low: list[float] = []
    high: list[float] = []
    for attempt, one in zip(attempts, bursts, strict=True):
        value = attempt.stall_ms
        if value is None:
            continue
        values.append(value)
        stall = None
        if one is not None and len(one.at_ns) > 1 and one.since_ns:
            exact = one.since_ns == one.at_ns
            stall = None if exact else _gaps_of(attempt, one).stall
        low.append(value if stall is None else stall.low)
        high.append(value if stall is None else stall.high)
    return Sampled(values, low, high, len(values))


def _gaps_of(attempt: AttemptRecord, one: Recording) -> Gaps:
    at, kernel = one.at_ns, attempt.stamp_source == "kernel"
    return of_gaps(at, one.since_ns or at, one.pieces or (1,) * len(at), kernel=kernel)


def _speeds(attempts: Sequence[AttemptRecord], bursts: _Bursts) -> Sampled:
    """Collect decode speeds; an answer that a late client read in one piece has bounds alone."""
    values: list[float] = []
    low: list[float] = []
    high: list[float] = []
    for attempt, one in zip(attempts, bursts, strict=True):
        value, first, last = attempt.speed_tps, attempt.t_first_ns, attempt.t_last_ns
        first_ns = (attempt.first_bound_ms or 0.0) * NS_PER_MS
        pieces = one.pieces[0] if one is not None and one.pieces else 1
        if value is None or first is None or last is None:
            if attempt.bursts == 1 and pieces > 1 and first_ns > ONE_BURST_NS:
                low.append(0.0)
                high.append(math.inf)
            continue
        values.append(value)
        last_ns = (attempt.last_bound_ms or 0.0) * NS_PER_MS
        rest, streamed = value * (last - first) / NS_PER_S, attempt.tokens_streamed or 0
        ends = None
        if first_ns or last_ns:
            ends = of_speed(SpeedFacts(rest, streamed, pieces, first, last, first_ns, last_ns))
        low.append(value if ends is None else ends.low)
        high.append(value if ends is None else ends.high)
    return Sampled(values, low, high, len(values))


def _total_speeds(attempts: Sequence[AttemptRecord], bursts: _Bursts) -> Sampled:
    del bursts
    values: list[float] = []
    high: list[float] = []
    for attempt in attempts:
        value, last_ns = attempt.speed_total_tps, (attempt.last_bound_ms or 0.0) * NS_PER_MS
        if value is None:
            continue
        values.append(value)
        if last_ns:  # the shortest time that the stamps allow; one of nothing has no upper end
            tokens = float(attempt.tokens_out or 0)
            shortest = tokens / value * NS_PER_S - last_ns
            value = tokens * NS_PER_S / shortest if shortest > 0 else math.inf
        high.append(value)
    return Sampled(values, list(values), high, len(values))


_EARLIER: Final[dict[str, Callable[[Sequence[AttemptRecord], _Bursts], list[float | None]]]] = {
    "ttft_ms": _first,
    "ttft_plan_ms": lambda attempts, bursts: _from_plan(_first(attempts, bursts), bursts),
    "ttfa_ms": _answers,
    "tth_ms": _headers,
    "e2e_ms": _last,
    "e2e_plan_ms": lambda attempts, bursts: _from_plan(_last(attempts, bursts), bursts),
}
_SPANS: Final[dict[str, Callable[[Sequence[AttemptRecord], _Bursts], Sampled]]] = {
    "stall_ms": _stalls,
    "speed_tps": _speeds,
    "speed_total_tps": _total_speeds,
}
