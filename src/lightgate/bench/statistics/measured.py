"""The numbers of a cell's attempts, each with what the bounds of its stamps leave open.

An answer that a late client read in one piece has no speed, although it was streamed: it adds no
value, but its bounds (anything) count, so that a figure never looks surer than it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.clock.bounds import (
    ONE_BURST_NS,
    Bounds,
    Gaps,
    SpeedFacts,
    of_duration,
    of_gaps,
    of_rate,
    of_speed,
)
from lightgate.clock.quantile import quantiles
from lightgate.clock.timing import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.recording import Recording

_ANY: Final = Bounds(0.0, math.inf)


class Sampled(NamedTuple):
    """The samples of one metric over a cell: as measured, and at both ends of their bounds.

    `low` and `high` are None where no bounds are known: another tool's file, or an older one.
    `requests` counts the attempts behind them: an attempt has one sample of most metrics, and many
    gaps.
    """

    values: list[float]
    low: list[float] | None
    high: list[float] | None
    requests: int

    def failing(self, failures: int) -> Sampled:
        """The same samples and infinity for every failure."""
        more = [math.inf] * failures
        return Sampled(
            self.values + more,
            None if self.low is None else self.low + more,
            None if self.high is None else self.high + more,
            self.requests + failures,
        )


def sampled(
    name: str, attempts: Iterable[AttemptRecord], recordings: Mapping[str, Recording]
) -> Sampled:
    """Collect one metric of attempts that count; its name is one of `timing.SHOWN`."""
    values: list[float] = []
    low: list[float] = []
    high: list[float] = []
    requests = watched = 0
    bounds_of = _BOUNDS.get(name)
    for attempt in attempts:
        recording = recordings.get(attempt.id)
        known = attempt.first_bound_ms is not None or attempt.last_bound_ms is not None
        watched += known
        if name == "gap_ms":
            gaps = _gaps(attempt, recording)
            if gaps is not None:
                requests += bool(gaps.seen)
                values += gaps.seen
                low += gaps.low if known else gaps.seen
                high += gaps.high if known else gaps.seen
            continue
        value = number(name, attempt)
        if value is not None:
            requests += 1
            values.append(value)
            ends = bounds_of(attempt, recording, value) if known and bounds_of else None
            ends = ends or Bounds(value, value)
        elif known and name == "speed_tps" and _hidden(attempt, recording):
            ends = _ANY
        else:
            continue
        low.append(ends.low)
        high.append(ends.high)
    if not watched:
        return Sampled(values, None, None, requests)
    return Sampled(values, low, high, requests)


def number(name: str, attempt: AttemptRecord) -> float | None:
    """Return one number of an attempt; the record has no `e2e_plan_ms`."""
    if name == "e2e_plan_ms":
        if attempt.e2e_ms is None or attempt.t_plan_ns is None or attempt.t_last_ns is None:
            return None
        return (attempt.t_last_ns - attempt.t_plan_ns) / NS_PER_MS
    value: float | None = getattr(attempt, name)
    return value


def stamp_bounds(attempts: Iterable[AttemptRecord]) -> tuple[float | None, float | None]:
    """How much earlier than its stamp a first or last token may have come, in ms: p50 and p99."""
    worst = [
        max(attempt.first_bound_ms, attempt.last_bound_ms or 0.0)
        for attempt in attempts
        if attempt.first_bound_ms is not None
    ]
    middle, tail = quantiles(worst, (0.5, 0.99))
    return middle, tail


def _first(attempt: AttemptRecord, recording: Recording | None, value: float) -> Bounds:
    del recording
    return of_duration(value, attempt.first_bound_ms)


def _last(attempt: AttemptRecord, recording: Recording | None, value: float) -> Bounds:
    del recording
    return of_duration(value, attempt.last_bound_ms)


def _first_plan(attempt: AttemptRecord, recording: Recording | None, value: float) -> Bounds:
    return of_duration(value, (attempt.first_bound_ms or 0.0) + _lag_ms(recording))


def _last_plan(attempt: AttemptRecord, recording: Recording | None, value: float) -> Bounds:
    return of_duration(value, (attempt.last_bound_ms or 0.0) + _lag_ms(recording))


def _answer(attempt: AttemptRecord, recording: Recording | None, value: float) -> Bounds:
    """Bounds of the time to the answer: those of the burst that it began in."""
    if attempt.t_answer_ns == attempt.t_first_ns:
        return of_duration(value, attempt.first_bound_ms)
    if recording is None or attempt.t_answer_ns is None or attempt.t_send_ns is None:
        return Bounds(value, value)
    at = attempt.t_answer_ns - attempt.t_send_ns
    place = recording.at_ns.index(at) if at in recording.at_ns else None
    early = at if place is None else recording.since_ns[place]
    return of_duration(value, (at - early) / NS_PER_MS)


def _headers(attempt: AttemptRecord, recording: Recording | None, value: float) -> Bounds:
    del attempt
    early = None if recording is None else recording.headers_bound_ns
    return of_duration(value, None if early is None else early / NS_PER_MS)


def _stall(attempt: AttemptRecord, recording: Recording | None, value: float) -> Bounds | None:
    del value
    gaps = _gaps(attempt, recording)
    return None if gaps is None else gaps.stall


def _speed(attempt: AttemptRecord, recording: Recording | None, value: float) -> Bounds | None:
    first, last = attempt.t_first_ns, attempt.t_last_ns
    if first is None or last is None:
        return None
    return of_speed(
        SpeedFacts(
            rest=value * (last - first) / NS_PER_S,
            streamed=attempt.tokens_streamed or 0,
            pieces=recording.pieces[0] if recording is not None and recording.pieces else 1,
            first=first,
            last=last,
            first_ns=(attempt.first_bound_ms or 0.0) * NS_PER_MS,
            last_ns=(attempt.last_bound_ms or 0.0) * NS_PER_MS,
        )
    )


def _speed_total(attempt: AttemptRecord, recording: Recording | None, value: float) -> Bounds:
    del recording
    taken = (attempt.tokens_out or 0) / value * NS_PER_S
    last_ns = (attempt.last_bound_ms or 0.0) * NS_PER_MS
    tokens = float(attempt.tokens_out or 0)
    return of_rate(Bounds(tokens, tokens), taken - last_ns, taken)


def _hidden(attempt: AttemptRecord, recording: Recording | None) -> bool:
    """Whether all of a streamed answer came in one read that may have hidden its time."""
    if recording is None or attempt.bursts != 1 or not recording.pieces:
        return False
    return recording.pieces[0] > 1 and (attempt.first_bound_ms or 0.0) * NS_PER_MS > ONE_BURST_NS


def _gaps(attempt: AttemptRecord, recording: Recording | None) -> Gaps | None:
    if recording is None or len(recording.at_ns) < 2:
        return None
    at, kernel = recording.at_ns, attempt.stamp_source == "kernel"
    return of_gaps(at, recording.since_ns or at, recording.pieces or (1,) * len(at), kernel=kernel)


def _lag_ms(recording: Recording | None) -> float:
    return 0.0 if recording is None else recording.lag_ns / NS_PER_MS


_BOUNDS: Final[dict[str, Callable[[AttemptRecord, Recording | None, float], Bounds | None]]] = {
    "ttft_ms": _first,
    "ttft_plan_ms": _first_plan,
    "ttfa_ms": _answer,
    "tth_ms": _headers,
    "e2e_ms": _last,
    "e2e_plan_ms": _last_plan,
    "stall_ms": _stall,
    "speed_tps": _speed,
    "speed_total_tps": _speed_total,
}
