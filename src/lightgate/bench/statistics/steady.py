"""The part of a cell in which its load held, and whether the cell held still in it.

A cell is one stretch of time, or (interleaved runs) one per block; each has its own window. Within
the windows two straight lines are fitted, one to TTFT and one to the requests in flight: a cell is
steady unless one of them rises or falls by more than chance and by more than matters.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist, fmean, median
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.clock.load import Span, Window, inflight, little

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

CONFIDENCE: Final = 0.99  # of a slope: a run has many cells, and each is looked at twice
MATTERS: Final = 0.10  # drift over the whole window below this share changes no conclusion
LITTLE_LIMIT: Final = 0.05  # how far in-flight may be from arrivals x time in flight
LITTLE_TIMES: Final = 10  # request times that a window needs, or its edges alone exceed the limit
PARTS: Final = 20  # points on a fitted line: enough to see a slope, few enough to be independent
FEWEST_PARTS: Final = 6
PER_PART: Final = 4  # samples behind a point
FILL_SHARE: Final = 5  # an open loop fills for one request time, at most this fraction of it


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt as the load saw it, in ns; `free_ns` is when its worker could send again."""

    plan_ns: int
    send_ns: int
    last_ns: int  # its last token, or its end where it failed
    free_ns: int
    ttft_ms: float | None = None

    @property
    def span(self) -> Span:
        """When it was in flight."""
        return Span(self.send_ns, self.last_ns)

    @property
    def busy(self) -> Span:
        """When it kept its worker busy."""
        return Span(self.send_ns, self.free_ns)


class Drift(msgspec.Struct, frozen=True):
    """The change from one end of the window to the other, with its interval; as shares."""

    change: float
    low: float
    high: float

    @property
    def real(self) -> bool:
        """Whether it is more than chance and more than matters."""
        return not self.low <= 0.0 <= self.high and abs(self.change) > MATTERS


class Steady(msgspec.Struct, frozen=True, kw_only=True):
    """The windows of a cell and what was seen in them; `steady` is None where nobody can say.

    `found` is false where in-flight never reached its target: the windows are then everything.
    """

    windows: tuple[Window, ...]
    found: bool
    steady: bool | None
    note: str = ""
    inflight: float | None = None
    little: float | None = None
    busy: float | None = None  # workers at work
    ttft: Drift | None = None
    load: Drift | None = None

    @property
    def seconds(self) -> float:
        """All windows together."""
        return math.fsum(window.seconds for window in self.windows)


def find(stretches: Sequence[Sequence[Flight]], target: int | None) -> Steady:
    """Find the windows and look at them; `target` is the concurrency of a closed loop, else None.

    A closed window runs from when in-flight first reaches its target to when it falls below for
    good. An open one leaves out the time to fill, and all that follows the last planned start.
    """
    sought = [_window(flights, target) for flights in stretches if flights]
    windows = tuple(window for window in sought if window is not None)
    if not windows:
        everything = tuple(_extent(flights) for flights in stretches if flights)
        whole = tuple(window for window in everything if window.seconds > 0)
        return _never(stretches, whole, target)
    return _look(stretches, windows)


def closed_window(spans: Iterable[Span], target: int) -> Window | None:
    """From when in-flight first reaches the target to when it falls below it for good."""
    # An end and a start at the same instant are a refill: the end comes first and no dip is seen.
    events = sorted(event for span in spans for event in ((span.start_ns, 1), (span.stop_ns, -1)))
    level, start, stop = 0, None, None
    for at, step in events:
        level += step
        if step > 0 and level == target and start is None:
            start = at
        elif step < 0 and level == target - 1:
            stop = at
    if start is None or stop is None or stop <= start:
        return None
    return Window(start, stop)


def open_window(flights: Sequence[Flight]) -> Window | None:
    """From one request time after the first planned start to the last planned start."""
    first = min(flight.plan_ns for flight in flights)
    last = max(flight.plan_ns for flight in flights)
    time = median(flight.last_ns - flight.plan_ns for flight in flights)
    fill = min(round(time), (last - first) // FILL_SHARE)
    return Window(first + fill, last + 1) if last > first else None


def drift(at: Sequence[float], values: Sequence[float]) -> Drift | None:
    """Fit a line to samples in time order: its rise from the first to the last, with a t-interval.

    Samples are averaged in groups of neighbours first, because neighbours share their weather.
    """
    parts = min(PARTS, len(values) // PER_PART)
    if parts < FEWEST_PARTS:
        return None
    return _line(_averages(at, parts), _averages(values, parts))


def in_windows(at_ns: int, windows: Iterable[Window]) -> bool:
    """Whether an instant falls into one of the windows."""
    return any(window.start_ns <= at_ns < window.stop_ns for window in windows)


def over(
    spans: Sequence[Span],
    windows: Iterable[Window],
    number: Callable[[Sequence[Span], Window], float | None],
) -> float | None:
    """A number over several windows: their mean, by time; a window without it counts as none."""
    total = seconds = 0.0
    for window in windows:
        total += (number(spans, window) or 0.0) * window.seconds
        seconds += window.seconds
    return total / seconds if seconds > 0 else None


def _window(flights: Sequence[Flight], target: int | None) -> Window | None:
    if target is None:
        return open_window(flights)
    return closed_window([flight.busy for flight in flights], target)


def _extent(flights: Sequence[Flight]) -> Window:
    starts = min(flight.send_ns for flight in flights)
    return Window(starts, max(flight.free_ns for flight in flights))


def _never(
    stretches: Sequence[Sequence[Flight]], whole: tuple[Window, ...], target: int | None
) -> Steady:
    spans = [flight.span for flights in stretches for flight in flights]
    if target is None:
        note = "fewer than two planned starts: there is no window"
    else:
        most = max((_most(flights) for flights in stretches if flights), default=0)
        note = f"in flight never reached {target} (at most {most})"
    return Steady(
        windows=whole,
        found=False,
        steady=False,
        note=note,
        inflight=over(spans, whole, inflight),
        busy=_busy(stretches, whole),
    )


def _look(stretches: Sequence[Sequence[Flight]], windows: tuple[Window, ...]) -> Steady:
    flights = [flight for flights in stretches for flight in flights]
    spans = [flight.span for flight in flights]
    level, law = over(spans, windows, inflight), over(spans, windows, little)
    load = _load_drift(spans, windows)
    ttft = _ttft_drift(flights, windows)
    if ttft is None or load is None:
        steady, note = None, "too few requests to tell whether it was steady"
    else:
        problems = list(_problems(ttft, load, _off(spans, windows, level, law)))
        steady, note = not problems, "; ".join(problems)
    return Steady(
        windows=windows,
        found=True,
        steady=steady,
        note=note,
        inflight=level,
        little=law,
        busy=_busy(stretches, windows),
        ttft=ttft,
        load=load,
    )


def _problems(ttft: Drift, load: Drift, off: float | None) -> Iterator[str]:
    for what, seen in (("TTFT", ttft), ("in flight", load)):
        if seen.real:
            yield f"{what} moved by {seen.change:+.0%} ({seen.low:+.0%} to {seen.high:+.0%})"
    if off is not None and abs(off) > LITTLE_LIMIT:
        yield f"in flight is {off:+.0%} from arrivals x time in flight (Little's law)"


def _off(
    spans: Sequence[Span], windows: Sequence[Window], level: float | None, law: float | None
) -> float | None:
    """How far in-flight is from Little's law, where the windows are long enough to say.

    Over a finite window the two differ by the requests that straddle its edges, and by those only:
    in a steady cell that is about half a request time per edge.
    """
    mean_s = fmean((span.stop_ns - span.start_ns) / 1e9 for span in spans)
    shortest = min(window.seconds for window in windows)
    if not level or not law or shortest < LITTLE_TIMES * mean_s:
        return None
    return level / law - 1.0


def _load_drift(spans: Sequence[Span], windows: Sequence[Window]) -> Drift | None:
    each = math.ceil(PARTS / len(windows))
    parts = [part for window in windows for part in _cut(window, each)]
    levels = [inflight(spans, part) or 0.0 for part in parts]
    mean = fmean(levels)
    if mean <= 0.0 or len(levels) < FEWEST_PARTS:
        return None
    middles = [(part.start_ns + part.stop_ns) / 2 for part in parts]
    count = min(PARTS, len(levels))
    return _line(_averages(middles, count), _averages([level / mean for level in levels], count))


def _ttft_drift(flights: Sequence[Flight], windows: Sequence[Window]) -> Drift | None:
    """Of the logarithms: a slow tail must not draw the line."""
    seen = sorted(
        (flight.send_ns, math.log(flight.ttft_ms))
        for flight in flights
        if flight.ttft_ms and flight.ttft_ms > 0 and in_windows(flight.send_ns, windows)
    )
    line = drift([at for at, _ in seen], [value for _, value in seen])
    if line is None:
        return None
    return Drift(math.expm1(line.change), math.expm1(line.low), math.expm1(line.high))


def _line(at: Sequence[float], values: Sequence[float]) -> Drift | None:
    middle, mean = fmean(at), fmean(values)
    squares = math.fsum((x - middle) ** 2 for x in at)
    if squares <= 0.0:
        return None
    slope = math.fsum((x - middle) * (y - mean) for x, y in zip(at, values, strict=True)) / squares
    rest = math.fsum(
        (y - mean - slope * (x - middle)) ** 2 for x, y in zip(at, values, strict=True)
    )
    free = len(at) - 2
    reach = _student(free) * math.sqrt(rest / free / squares)
    length = (at[-1] - at[0]) * len(at) / (len(at) - 1)  # from the middles of its ends to its ends
    return Drift(slope * length, (slope - reach) * length, (slope + reach) * length)


def _student(free: int) -> float:
    """Two-sided quantile of Student's t from the normal one (Cornish and Fisher's series).

    Within 1.3 % for 4 degrees of freedom, the fewest that occur here, and better above.
    """
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2.0)
    return (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    )


def _averages(values: Sequence[float], parts: int) -> list[float]:
    cuts = [len(values) * part // parts for part in range(parts + 1)]
    return [fmean(values[low:high]) for low, high in pairwise(cuts)]


def _cut(window: Window, parts: int) -> Iterator[Window]:
    length = window.stop_ns - window.start_ns
    cuts = [window.start_ns + length * part // parts for part in range(parts + 1)]
    for start, stop in pairwise(cuts):
        if stop > start:
            yield Window(start, stop)


def _busy(stretches: Sequence[Sequence[Flight]], windows: Sequence[Window]) -> float | None:
    return over([one.busy for flights in stretches for one in flights], windows, inflight)


def _most(flights: Sequence[Flight]) -> int:
    events = sorted((at, step) for one in flights for at, step in _steps(one))
    level = most = 0
    for _, step in events:
        level += step
        most = max(most, level)
    return most


def _steps(flight: Flight) -> Iterator[tuple[int, int]]:
    yield flight.send_ns, 1
    yield flight.free_ns, -1
