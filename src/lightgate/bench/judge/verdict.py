"""Why a target behaves as it does under load, told from its lightest cell and its heaviest.

Every rule is a ratio or a share, so the verdict does not depend on the unit of time. A growth only
counts where the intervals of the two cells do not overlap. The limits are in `LIMITS`, each with
its reason; the rules are asked in the order of `diagnose`, and the first that holds names it. Where
the samples are too few to see a tail, nothing is called healthy.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from statistics import fmean, median
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.bench.judge.ends import at_ends, has_ends
from lightgate.bench.statistics.summary import (
    OFFERED_LIMIT,
    error_rate,
    lightest_first,
)
from lightgate.clock.load import counting
from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import smallest_n
from lightgate.ledger.runs.doubt import doubt
from lightgate.ledger.runs.run import CellVerdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.run import CellSummary, Estimate, VerdictName


class VerdictLimits(NamedTuple):
    """Limits from which a difference has a name; each is a ratio or a share."""

    queue_growth: float = 2.0  # TTFT p50: below twice, batching alone can explain it
    speed_kept: float = 0.75  # speed p50: batching engines keep more than this until they are full
    tail_growth: float = 2.5  # p95/p50 of TTFT against itself: 002's worst "explodes" by 3.1
    tail_growth_calm: float = 1.7  # the same where p50 stays low: 002's first sign is 2.2
    calm_p50: float = 1.5  # growth of TTFT p50 that counts as staying low
    tail_power_p90: float = 0.78  # p90 in place of p95: a lognormal tail grows by this power there
    tail_itself: float = 2.5  # ... and p95 grows by at least this: 002's first sign is 2.8
    overload_growth: float = 1.5  # TTFT of the last third of a schedule over that of the first
    overload_sure: float = 0.8  # chance that a request of the last third waits longer
    refused: float = 0.01  # 429 or load-dependent refusals: one in a hundred is no accident
    timed_out: float = 0.05  # requests that waited longer than the deadline
    step: float = 3.0  # between the two modes of TTFT
    step_share: float = 0.10  # of the requests in the rarer mode
    step_explained: float = 0.90  # variance that two modes explain; one normal mode gives 0.64
    step_width: float = 2.0  # p90/p10 within the slow mode: a limiter's penalty is a fixed time
    cached_gap: float = 2.0  # cold/cached TTFT that explains two modes without a limiter
    network_share: float = 0.5  # of TTFT that is one round trip
    network_growth: float = 1.25  # of TTFT over all loads: a line does not know the load
    busy_cpu: float = 0.9  # of the client, as evidence beside others


LIMITS: Final = VerdictLimits()
LEAST_THIRD: Final = 20  # waits in a third of a load


class WaitTrend(msgspec.Struct, frozen=True):
    """TTFT from the planned instants in the first and the last third of a load, medians in ms.

    `sure` is the chance that a request of the last third waits longer than one of the first.
    """

    first: float
    last: float
    sure: float


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence beside the cells of one target: single TTFTs by load, round trip, client CPU."""

    ttft_ms: dict[str, tuple[float, ...]] = {}
    trends: dict[str, WaitTrend] = {}
    round_trip_ms: float | None = None
    cpu_share: float | None = None

    @classmethod
    def of(
        cls,
        attempts: Mapping[str, Sequence[AttemptRecord]],
        *,
        warmup: Iterable[AttemptRecord] = (),
        cpu_share: float | None = None,
    ) -> Signs:
        """Collect them from the attempts of one target: those that its cells count, by load.

        The TCP handshake is one round trip, and nothing of the server's work is in it; connections
        are made in the warm-up most of all.
        """
        everything = [*warmup, *(attempt for each in attempts.values() for attempt in each)]
        trips = [a.tcp_ms for a in everything if a.tcp_ms is not None]
        return cls(
            ttft_ms={load: tuple(_ttfts(each)) for load, each in attempts.items()},
            trends={load: found for load, each in attempts.items() if (found := trend(each))},
            round_trip_ms=median(trips) if trips else None,
            cpu_share=cpu_share,
        )


NO_SIGNS: Final = Signs()


def diagnose(cells: Iterable[CellSummary], signs: Signs = NO_SIGNS) -> CellVerdict | None:
    """Name what happens to one target under load, with evidence.

    None where no name is earned: nothing to compare with, or failures that fit no name.
    """
    ordered = lightest_first(cells)
    if not ordered:
        return None
    view = _View(ordered[0], ordered[-1], tuple(ordered), signs)
    late = tuple(_late_client(view))
    found = _judged(view) if not late else _judged_late(view) or ("client-bound", late)
    if found is None:
        return None
    name, evidence = found
    return CellVerdict(
        target=view.light.target, name=name, evidence=evidence, sentence=degrades(ordered)
    )


def _judged(view: _View) -> tuple[VerdictName, tuple[str, ...]] | None:
    """The first rule that holds, by its name, with the evidence."""
    for name, rule in _RULES:
        if evidence := tuple(rule(view)):
            return name, evidence
    return None


def _judged_late(view: _View) -> tuple[VerdictName, tuple[str, ...]] | None:
    """The verdict of a late client, where it is the same whatever the lateness leaves open.

    Single times and trends are left aside: a client that stops for a moment makes modes of its own.
    """
    if not has_ends(view.cells):
        return None
    signs = msgspec.structs.replace(view.signs, ttft_ms={}, trends={})
    found = _judged(view._replace(signs=signs))
    if found is None or found[0] in _NO_NAME:
        return None
    for cells in at_ends(view.cells):
        other = _judged(_View(cells[0], cells[-1], cells, signs))
        if other is None or other[0] != found[0]:
            return None
    return found[0], (*found[1], _SAME_AT_ENDS)


def degrades(cells: Iterable[CellSummary]) -> str:
    """Say in one sentence how a target degrades from its lightest load to its heaviest."""
    ordered = lightest_first(cells)
    if not ordered:
        return ""
    light, heavy = ordered[0], ordered[-1]
    if light is heavy:
        return f"{light.target} was measured at {light.load} only."
    parts = [part for part in _changes(light, heavy) if part]
    if not parts:
        return f"{light.target} has too few samples to say how it degrades."
    return f"{light.target} from {light.load} to {heavy.load}: {'; '.join(parts)}."


class Modes(NamedTuple):
    """Two groups of values: their medians, the share of the slow one, its p90/p10."""

    fast: float
    slow: float
    slow_share: float
    slow_width: float
    explained: float  # share of the variance of the logarithms


def modes(values: Sequence[float]) -> Modes | None:
    """Split values into a fast and a slow group where that explains most; None below 20 values."""
    if len(values) < 20 or min(values) <= 0.0:
        return None
    ordered = sorted(values)
    logs = [math.log(value) for value in ordered]
    mean = fmean(logs)
    total = math.fsum((x - mean) ** 2 for x in logs)
    if total <= 0.0:
        return None
    cut, between, running = 0, -1.0, 0.0
    for at in range(1, len(logs)):
        running += logs[at - 1] - mean
        gain = running**2 * len(logs) / (at * (len(logs) - at))
        if gain > between:
            cut, between = at, gain
    slow = ordered[cut:]
    return Modes(
        fast=median(ordered[:cut]),
        slow=median(slow),
        slow_share=len(slow) / len(ordered),
        slow_width=slow[int(0.9 * (len(slow) - 1))] / slow[int(0.1 * (len(slow) - 1))],
        explained=between / total,
    )


class _View(NamedTuple):
    light: CellSummary
    heavy: CellSummary
    cells: tuple[CellSummary, ...]
    signs: Signs

    @property
    def alone(self) -> bool:
        return self.light is self.heavy


def _late_client(view: _View) -> Iterator[str]:
    """The client was too late to know the figures that the other rules judge by."""
    late = [
        f"{cell.load}: {doubt(metric, found)}"
        for cell in view.cells
        for metric, found in cell.doubts()
        if (metric, found.q) in _JUDGED_BY
    ]
    yield from late
    if late:
        yield from _busy(view)


def _limiter(view: _View) -> Iterator[str]:
    """The provider refuses requests above a rate, or makes them wait a fixed time."""
    before = _share(view.light, Outcome.HTTP_ERROR)
    for cell in view.cells:
        limited = _share(cell, Outcome.RATE_LIMITED)
        if limited >= LIMITS.refused:
            yield f"{cell.load}: {limited:.1%} of the requests were answered 429"
        refused = _share(cell, Outcome.HTTP_ERROR)
        if refused >= LIMITS.timed_out and before < LIMITS.refused:
            yield f"{cell.load}: {refused:.1%} were refused, {before:.1%} at {view.light.load}"
        yield from _stepped(cell, view.signs.ttft_ms.get(cell.load, ()))


def _overloaded(view: _View) -> Iterator[str]:
    """A schedule asks for more than the provider serves: the wait grows as long as it lasts."""
    for cell in view.cells:
        if cell.concurrency is not None:
            continue
        if cell.offered_share is not None and cell.offered_share < OFFERED_LIMIT:
            unsent = 1.0 - cell.offered_share
            yield f"{cell.load}: {unsent:.0%} were never sent, since too many were in flight"
        seen = view.signs.trends.get(cell.load)
        if seen is None or seen.sure < LIMITS.overload_sure:
            continue
        if seen.last / seen.first >= LIMITS.overload_growth:
            yield (
                f"{cell.load}: the wait for the first token goes from {_ms(seen.first)} in the "
                f"first third to {_ms(seen.last)} in the last, and did not level out"
            )


def _idle_client(view: _View) -> Iterator[str]:
    """The client had no processor left to offer the load that was asked for."""
    busy = tuple(_busy(view))
    if not busy:
        return
    short = [
        f"{cell.load}: only {cell.offered_share:.0%} of the asked load was in flight"
        for cell in view.cells
        if cell.concurrency is not None
        and cell.offered_share is not None
        and cell.offered_share < OFFERED_LIMIT
    ]
    if short:
        yield from (*short, *busy)


def _intermittent(view: _View) -> Iterator[str]:
    """Most requests are served at once, some wait: p95 explodes while p50 stays low."""
    p50, tail, name = _growth(view, "ttft_ms", 0.5), _growth(view, "ttft_ms", 0.95), "p95"
    power = 1.0
    if tail is None:  # fewer than 72 samples in one of the cells
        tail, name, power = _growth(view, "ttft_ms", 0.9), "p90", LIMITS.tail_power_p90
    if p50 is None or tail is None or not tail.real:
        return
    calm = p50.times <= LIMITS.calm_p50
    limit = LIMITS.tail_growth_calm if calm else LIMITS.tail_growth
    itself = LIMITS.tail_itself**power
    if tail.times >= itself and tail.times / p50.times >= limit**power:
        yield f"TTFT {name} {tail} while p50 {p50}"
        yield (
            f"{name} is {tail.heavy / p50.heavy:.1f} times p50 at {view.heavy.load}, "
            f"{tail.light / p50.light:.1f} times at {view.light.load}"
        )


def _admission(view: _View) -> Iterator[str]:
    """Requests wait before they start: the first token comes late, then the speed is as before."""
    late = _share(view.heavy, Outcome.TIMEOUT)
    if late >= LIMITS.timed_out and _share(view.light, Outcome.TIMEOUT) < LIMITS.refused:
        yield f"{late:.0%} of the requests timed out at {view.heavy.load}"
    ttft, speed = _growth(view, "ttft_ms", 0.5), _growth(view, "speed_tps", 0.5)
    if ttft is None or not ttft.real or ttft.times < LIMITS.queue_growth:
        return
    waiting = _waiting_share(view.heavy, ttft, speed)
    if speed is None or speed.times >= LIMITS.speed_kept:
        yield f"TTFT p50 {ttft}"
        if speed is not None:
            yield f"speed p50 {speed}"
    elif waiting is not None and waiting >= 0.5:
        yield f"TTFT p50 {ttft}: {waiting:.0%} of the time that was added"
        yield f"speed p50 {speed}"


def _contention(view: _View) -> Iterator[str]:
    """Requests run side by side and share the machine: every one is slower."""
    speed, ttft = _growth(view, "speed_tps", 0.5), _growth(view, "ttft_ms", 0.5)
    if speed is None or not speed.real or speed.times >= LIMITS.speed_kept:
        return
    yield f"speed p50 {speed}"
    if ttft is not None:
        yield f"TTFT p50 {ttft}"
    if view.heavy.batch_eff is not None:
        yield f"throughput is {view.heavy.batch_eff:.0%} of perfect scaling at {view.heavy.load}"


def _network(view: _View) -> Iterator[str]:
    """The way there and back is most of the wait, whatever the load."""
    trip, base = view.signs.round_trip_ms, view.light.value("ttft_ms", 0.5)
    if trip is None or not base or trip / base < LIMITS.network_share:
        return
    ttft = _growth(view, "ttft_ms", 0.5)
    if not view.alone and (ttft is None or ttft.times > LIMITS.network_growth):
        return
    yield f"one round trip takes {_ms(trip)}, {trip / base:.0%} of the TTFT p50 of {_ms(base)}"
    if ttft is not None and not view.alone:
        yield f"TTFT p50 {ttft}: the same at every load"


def _healthy(view: _View) -> Iterator[str]:
    """Nothing of the above, and enough samples at two loads to have seen it."""
    errors = error_rate(view.heavy)
    if view.alone or (errors is not None and errors >= LIMITS.timed_out):
        return
    ttft, speed = _growth(view, "ttft_ms", 0.5), _growth(view, "speed_tps", 0.5)
    tail = _growth(view, "ttft_ms", 0.95) or _growth(view, "ttft_ms", 0.9)
    if ttft is not None and tail is not None:
        yield f"TTFT p50 {ttft}"
        if speed is not None:
            yield f"speed p50 {speed}"


def _too_few(view: _View) -> Iterator[str]:
    """Nothing was seen, and the samples are too few to have seen a tail that waits."""
    errors = error_rate(view.heavy)
    if view.alone or (errors is not None and errors >= LIMITS.timed_out):
        return
    for cell in (view.light, view.heavy):
        tail = cell.estimate("ttft_ms", 0.9)
        if tail is None or tail.value is None:
            counted, worth = (0, 0) if tail is None else (tail.n, tail.worth)
            alike = "" if worth == counted else f", worth {worth:,} independent ones"
            needs = f"the tail needs {smallest_n(0.9)} to be seen"
            yield f"{cell.load}: {counted:,} requests{alike}; {needs}"


_RULES: Final[tuple[tuple[VerdictName, Callable[[_View], Iterator[str]]], ...]] = (
    ("rate limiter", _limiter),
    ("client-bound", _idle_client),
    ("overloaded", _overloaded),
    ("intermittent queue", _intermittent),
    ("admission queue", _admission),
    ("batch contention", _contention),
    ("network", _network),
    ("healthy", _healthy),
    ("not judged", _too_few),
)


class _Growth(NamedTuple):
    """One quantile at two loads; `real` where their intervals do not overlap."""

    light: float
    heavy: float
    real: bool
    unit: str

    @property
    def times(self) -> float:
        return self.heavy / self.light

    def __str__(self) -> str:
        ends = f"from {_figure(self.light)} to {_figure(self.heavy)} {self.unit}"
        open_still = "" if self.real else ", which may be chance: their intervals overlap"
        return f"goes {ends} ({_times(self.times)}){open_still}"


def _growth(view: _View, metric: str, q: float) -> _Growth | None:
    light, heavy = view.light.estimate(metric, q), view.heavy.estimate(metric, q)
    if light is None or heavy is None or not light.value or heavy.value is None:
        return None
    unit = "tok/s" if metric.endswith("_tps") else "ms"
    return _Growth(light.value, heavy.value, _apart(light, heavy), unit)


def _apart(one: Estimate, other: Estimate) -> bool:
    if one.interval is None or other.interval is None:
        return False
    return one.interval.high < other.interval.low or other.interval.high < one.interval.low


def _waiting_share(heavy: CellSummary, ttft: _Growth, speed: _Growth | None) -> float | None:
    """Share of the time that load added to a median request which lies before its first token."""
    tokens = heavy.tokens_out_p50
    if speed is None or tokens is None or speed.heavy <= 0:
        return None
    waiting = ttft.heavy - ttft.light
    running = tokens * 1000.0 * (1.0 / speed.heavy - 1.0 / speed.light)
    return waiting / (waiting + running) if waiting > 0 and running > 0 else None


def _stepped(cell: CellSummary, ttfts: Sequence[float]) -> Iterator[str]:
    """Two modes of TTFT with a fixed step between them, which no prompt cache explains."""
    cold, cached = cell.cold_ttft_p50_ms, cell.cached_ttft_p50_ms
    if cold is not None and cached and cold / cached >= LIMITS.cached_gap:
        return
    seen = modes(ttfts)
    if (
        seen is not None
        and seen.explained >= LIMITS.step_explained
        and seen.slow / seen.fast >= LIMITS.step
        and LIMITS.step_share <= seen.slow_share <= 1.0 - LIMITS.step_share
        and seen.slow_width <= LIMITS.step_width
    ):
        yield (
            f"{cell.load}: TTFT has two modes, {_ms(seen.fast)} and {_ms(seen.slow)} "
            f"({seen.slow_share:.0%} of the requests), and little between them"
        )


def _changes(light: CellSummary, heavy: CellSummary) -> Iterator[str]:
    view = _View(light, heavy, (light, heavy), NO_SIGNS)
    p50, p95 = _growth(view, "ttft_ms", 0.5), _growth(view, "ttft_ms", 0.95)
    speed = _growth(view, "speed_tps", 0.5)
    if p50 is not None:
        yield f"first token at p50 {_from_to(p50)}"
    if p95 is not None:
        yield f"at p95 {_from_to(p95)}"
    if speed is not None:
        yield f"speed {_from_to(speed)}"
    if light.throughput_tps is not None and heavy.throughput_tps is not None:
        ends = f"{_figure(light.throughput_tps)} to {_figure(heavy.throughput_tps)} tok/s"
        scaling = "" if heavy.batch_eff is None else f", {heavy.batch_eff:.0%} of perfect scaling"
        yield f"throughput {ends}{scaling}"
    before, after = error_rate(light), error_rate(heavy)
    if before is not None and after is not None and (before or after):
        yield f"failures {before:.1%} to {after:.1%}"


def _from_to(growth: _Growth) -> str:
    ends = f"{_figure(growth.light)} to {_figure(growth.heavy)} {growth.unit}"
    return f"{ends} ({_times(growth.times)})"


def _busy(view: _View) -> Iterator[str]:
    cpu = view.signs.cpu_share
    if cpu is not None and cpu >= LIMITS.busy_cpu:
        yield f"the client used {cpu:.0%} of its processor"


def _share(cell: CellSummary, outcome: Outcome) -> float:
    judged = sum(n for name, n in cell.outcomes.items() if Outcome(name) not in _UNJUDGED)
    return cell.outcomes.get(outcome, 0) / judged if judged else 0.0


def trend(attempts: Iterable[AttemptRecord]) -> WaitTrend | None:
    """Compare the waits at the end of a load with those at its beginning; None below 60 waits."""
    counted = sorted(
        (attempt.t_plan_ns or 0, attempt.seq, wait)
        for attempt in counting(attempts)
        if (wait := attempt.ttft_plan_ms) is not None and wait > 0
    )
    waits = [wait for _, _, wait in counted]
    third = len(waits) // 3
    if third < LEAST_THIRD:
        return None
    first, last = sorted(waits[:third]), waits[-third:]
    longer = sum(bisect_left(first, wait) for wait in last)
    return WaitTrend(median(first), median(last), longer / third**2)


def _ttfts(attempts: Iterable[AttemptRecord]) -> Iterator[float]:
    for attempt in counting(attempts):
        if attempt.ttft_ms is not None and attempt.ttft_ms > 0:
            yield attempt.ttft_ms


def _ms(value: float) -> str:
    return f"{_figure(value)} ms"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times(ratio: float) -> str:
    return f"{ratio:.0%}" if ratio < 1.0 else f"{ratio:.2g} times"


# The figures that the rules go by: where one of them is doubtful, so is the verdict.
_NO_NAME: Final = frozenset({"client-bound", "not judged"})
_SAME_AT_ENDS: Final = "the client read late, but by too little to change the verdict"
_JUDGED_BY: Final = frozenset({("ttft_ms", 0.5), ("ttft_ms", 0.95), ("speed_tps", 0.5)})
_UNJUDGED: Final = frozenset({Outcome.CUT, Outcome.CANCELLED})
