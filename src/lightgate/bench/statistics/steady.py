"""The part of a cell in which its load held, and whether the cell held still in it.

A cell is one stretch of time, or (interleaved runs) one per block; each has its own window. Within
the windows two straight lines are fitted, one to TTFT and one to the requests in flight: a cell is
steady unless one of them rises or falls by more than chance and by more than matters.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from enum import Enum
from itertools import accumulate, chain, pairwise
from statistics import NormalDist, fmean, median
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.clock.load import Span, Window, inflight, little

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lightgate.clock.load import Stream

CONFIDENCE: Final = 0.99  # of a slope: a run has many cells, and each is looked at twice
MATTERS: Final = 0.10  # drift over the whole window below this share changes no conclusion
LITTLE_LIMIT: Final = 0.05  # how far in-flight may be from arrivals x time in flight
LITTLE_SIGMAS: Final = 3.0  # of what the edges of a window may add to that by chance
PARTS: Final = 20  # points on a fitted line: enough to see a slope, few enough to be independent
FEWEST_PARTS: Final = 6
PER_PART: Final = 4  # samples behind a point
FILL_SHARE: Final = 5  # an open loop fills for one request time, at most this fraction of it


class AttemptSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt as the load saw it, in ns: in flight from `send_ns` to `last_ns`.

    It kept its worker busy until `free_ns`.
    """

    plan_ns: int
    send_ns: int
    last_ns: int  # its last token, or its end where it failed
    free_ns: int
    ttft_ms: float | None = None
    counted: bool = True  # false: a request of the ramp, or a filler


class _Edges(Enum):
    """The edges of windows, by what they may add to Little's law: a share of a time squared.

    A window that was chosen cuts as many requests at its begin as at its end, each at any of its
    instants: a twelfth. In an open loop their number is chance too: a third. A window that was
    found in a closed loop that fills and drains cuts requests at its begin alone: all that they
    are.
    """

    CHOSEN = 1 / 12
    OPEN = 1 / 3
    FOUND = 1


class Trend(msgspec.Struct, frozen=True):
    """The change from one end of the window to the other, with its interval; as shares."""

    change: float
    low: float
    high: float

    @property
    def real(self) -> bool:
        """Whether the change is more than chance and more than matters."""
        return not self.low <= 0.0 <= self.high and abs(self.change) > MATTERS


class Steady(msgspec.Struct, frozen=True, kw_only=True):
    """The windows of a cell and what was seen in them; `steady` is None where it cannot be told.

    `found` is false where in-flight never reached its target: the windows are then everything.
    """

    windows: tuple[Window, ...]
    found: bool
    steady: bool | None
    note: str = ""
    inflight: float | None = None
    little: float | None = None
    busy: float | None = None  # workers at work
    ttft: Trend | None = None
    load: Trend | None = None

    @property
    def seconds(self) -> float:
        """All windows together."""
        return math.fsum(window.seconds for window in self.windows)


def find(stretches: Sequence[Sequence[AttemptSpan]], target: int | None) -> Steady:
    """Find the windows and look at them; `target` is the concurrency of a closed loop, else None.

    A closed window is that of the requests that count, where the harness has said which do; else
    it runs from when in-flight first reaches its target to when it falls below for good. An open
    one leaves out the time to fill, and all that follows the last planned start.
    """
    stretches = [stretch for stretch in stretches if any(one.counted for one in stretch)]
    busy = [[Span(one.send_ns, one.free_ns) for one in stretch] for stretch in stretches]
    if target is None:
        sought = [open_window(stretch) for stretch in stretches]
    else:
        sought = [
            closed_window(spans, target)
            if all(one.counted for one in stretch)
            else counted_window(stretch)
            for stretch, spans in zip(stretches, busy, strict=True)
        ]
    windows = tuple(window for window in sought if window is not None)
    attempts = list(chain.from_iterable(stretches))
    edges = _Edges.CHOSEN
    if target is None:
        edges = _Edges.OPEN
    elif all(one.counted for one in attempts):
        edges = _Edges.FOUND
    found = _look(attempts, windows, edges) if windows else _never(attempts, busy, target)
    working = over(list(chain.from_iterable(busy)), found.windows, inflight)
    return msgspec.structs.replace(found, busy=working)


def closed_window(spans: Iterable[Span], target: int) -> Window | None:
    """Find the window from the first to the last instant at which in-flight is at the target."""
    level, start, stop = 0, None, None
    for at, step in _steps(spans):
        level += step
        if step > 0 and level == target and start is None:
            start = at
        elif step < 0 and level == target - 1:
            stop = at
    if start is None or stop is None or stop <= start:
        return None
    return Window(start, stop)


def counted_window(attempts: Sequence[AttemptSpan]) -> Window | None:
    """Find the window from the first counted send to when the request after the last is due.

    That is when the next worker is free. So the window holds as many sends as there are counted
    requests, and nearly as many ends, however long the last ones take.
    """
    sends = [attempt.send_ns for attempt in attempts if attempt.counted]
    last = max(sends)
    free = [attempt.free_ns for attempt in attempts if attempt.free_ns > last]
    stop = min(free, default=last + 1)
    return Window(min(sends), stop)


def open_window(attempts: Sequence[AttemptSpan]) -> Window | None:
    """Find the window from one request time after the first planned start to the last one."""
    first = min(attempt.plan_ns for attempt in attempts)
    last = max(attempt.plan_ns for attempt in attempts)
    time = median(attempt.last_ns - attempt.plan_ns for attempt in attempts)
    fill = min(round(time), (last - first) // FILL_SHARE)
    return Window(first + fill, last + 1) if last > first else None


def trend(at: Sequence[float], values: Sequence[float]) -> Trend | None:
    """Fit a line to samples in time order: its rise from the first to the last, with a t-interval.

    Samples are averaged in groups of neighbours first, because neighbours share their weather.
    """
    parts = min(PARTS, len(values) // PER_PART)
    if parts < FEWEST_PARTS:
        return None
    return _line(_averages(at, parts), _averages(values, parts))


def over(
    spans: Sequence[Span],
    windows: Iterable[Window],
    number: Callable[[Sequence[Span], Window], float | None],
) -> float | None:
    """Average a number over several windows, by time; a window without it counts as 0."""
    total = seconds = 0.0
    for window in windows:
        total += (number(spans, window) or 0.0) * window.seconds
        seconds += window.seconds
    return total / seconds if seconds > 0 else None


def _in_flight(attempts: Iterable[AttemptSpan]) -> list[Span]:
    return [Span(attempt.send_ns, attempt.last_ns) for attempt in attempts]


def _never(
    attempts: Sequence[AttemptSpan], busy: Sequence[Sequence[Span]], target: int | None
) -> Steady:
    """Take the whole stretches, because none of them has a window."""
    ends = [
        Window(min(span.start_ns for span in spans), max(span.stop_ns for span in spans))
        for spans in busy
    ]
    whole = tuple(window for window in ends if window.seconds > 0)
    note = "fewer than two planned starts: there is no window"
    if target is not None:
        most = max(
            (max(accumulate(step for _, step in _steps(spans))) for spans in busy), default=0
        )
        note = f"in flight never reached {target} (at most {most})"
    level = over(_in_flight(attempts), whole, inflight)
    return Steady(windows=whole, found=False, steady=False, note=note, inflight=level)


def _look(attempts: Sequence[AttemptSpan], windows: tuple[Window, ...], edges: _Edges) -> Steady:
    """Fit both lines inside the windows, and hold in-flight against Little's law."""
    spans = _in_flight(attempts)
    level, law = over(spans, windows, inflight), over(spans, windows, little)
    load = _load_trend(spans, windows)
    ttft = _ttft_trend(attempts, windows)
    problems = list(_problems(ttft, load, _off(spans, windows, edges)))
    known = ttft is not None and load is not None
    if not problems and not known:
        problems = ["too few requests to tell whether it was steady"]
        steady = None
    else:
        steady = not problems
    note = "; ".join(problems)
    return Steady(
        windows=windows,
        found=True,
        steady=steady,
        note=note,
        inflight=level,
        little=law,
        ttft=ttft,
        load=load,
    )


def _problems(ttft: Trend | None, load: Trend | None, off: float | None) -> Iterator[str]:
    for what, seen in (("TTFT", ttft), ("in flight", load)):
        if seen is not None and seen.real:
            yield f"{what} moved by {seen.change:+.0%} ({seen.low:+.0%} to {seen.high:+.0%})"
    if off is not None:
        yield f"in flight is {off:+.0%} from arrivals x time in flight (Little's law)"


def _off(spans: Sequence[Span], windows: Sequence[Window], edges: _Edges) -> float | None:
    """Distance of in-flight from Little's law; None where it is within the limit and chance.

    Over a finite window the two differ by the requests that straddle its edges, and by those only.
    """
    level, law = over(spans, windows, inflight), over(spans, windows, little)
    if not level or not law:
        return None
    cut = [
        (span.stop_ns - span.start_ns) / 1e9
        for window in windows
        for edge in (window.start_ns, window.stop_ns)
        for span in spans
        if span.start_ns < edge < span.stop_ns
    ]
    if edges is _Edges.FOUND:
        chance = math.fsum(cut)
    else:
        chance = LITTLE_SIGMAS * math.sqrt(edges.value * math.fsum(time * time for time in cut))
    seconds = math.fsum(window.seconds for window in windows)
    off = level / law - 1.0
    return off if abs(off) > LITTLE_LIMIT + chance / (seconds * law) else None


def _load_trend(spans: Sequence[Span], windows: Sequence[Window]) -> Trend | None:
    parts = in_parts(windows, PARTS)
    levels = [inflight(spans, part) or 0.0 for part in parts]
    mean = fmean(levels)
    if mean <= 0.0 or len(levels) < FEWEST_PARTS:
        return None
    middles = [(part.start_ns + part.stop_ns) / 2 for part in parts]
    count = min(PARTS, len(levels))
    return _line(_averages(middles, count), _averages([level / mean for level in levels], count))


def _ttft_trend(attempts: Sequence[AttemptSpan], windows: Sequence[Window]) -> Trend | None:
    """Fit the logarithms: a slow tail must not draw the line."""
    seen = sorted(
        (attempt.send_ns, math.log(attempt.ttft_ms))
        for window in windows
        for attempt in attempts
        if attempt.ttft_ms and attempt.ttft_ms > 0
        if window.start_ns <= attempt.send_ns < window.stop_ns
    )
    line = trend([at for at, _ in seen], [value for _, value in seen])
    if line is None:
        return None
    return Trend(math.expm1(line.change), math.expm1(line.low), math.expm1(line.high))


def _line(at: Sequence[float], values: Sequence[float]) -> Trend | None:
    middle, mean = fmean(at), fmean(values)
    squares = math.fsum((x - middle) ** 2 for x in at)
    if squares <= 0.0:
        return None
    slope = math.fsum((x - middle) * (y - mean) for x, y in zip(at, values, strict=True)) / squares
    rest = math.fsum(
        (y - mean - slope * (x - middle)) ** 2 for x, y in zip(at, values, strict=True)
    )
    free = len(at) - 2
    reach = student(free, CONFIDENCE) * math.sqrt(rest / free / squares)
    length = (at[-1] - at[0]) * len(at) / (len(at) - 1)  # from the middles of its ends to its ends
    return Trend(slope * length, (slope - reach) * length, (slope + reach) * length)


def student(free: int, confidence: float) -> float:
    """Two-sided quantile of Student's t from the normal one (Cornish and Fisher's series).

    Within 1.3 % for 4 degrees of freedom, the fewest that occur here, and better above.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    return (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    )


def _averages(values: Sequence[float], parts: int) -> list[float]:
    cuts = [len(values) * part // parts for part in range(parts + 1)]
    return [fmean(values[low:high]) for low, high in pairwise(cuts)]


def tokens_between(streams: Iterable[Stream], edges: Sequence[int]) -> list[float]:
    """Count the tokens whose bursts fall between each two neighbouring edges, which ascend."""
    counts = [0.0] * (len(edges) - 1)
    for stream in streams:
        at, tokens = stream.burst_ns, stream.burst_tokens
        if not at:
            continue
        part = max(0, bisect_right(edges, at[0]) - 1)
        first = bisect_left(at, edges[part])
        while part < len(counts) and first < len(at):
            after = bisect_left(at, edges[part + 1], first)
            counts[part] += math.fsum(tokens[first:after])
            part, first = part + 1, after
    return counts


def in_parts(windows: Sequence[Window], parts: int) -> list[Window]:
    """Cut the windows into so many parts, or into more where there are more windows."""
    each = math.ceil(parts / len(windows))
    return [part for window in windows for part in _cut(window, each)]


def _cut(window: Window, parts: int) -> Iterator[Window]:
    length = window.stop_ns - window.start_ns
    cuts = [window.start_ns + length * part // parts for part in range(parts + 1)]
    for start, stop in pairwise(cuts):
        if stop > start:
            yield Window(start, stop)


def _steps(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """List the instants at which a span starts (1) or stops (-1), in order.

    A stop and a start at the same instant are a refill: the stop comes first and no dip is seen.
    """
    return sorted(step for span in spans for step in ((span.start_ns, 1), (span.stop_ns, -1)))
