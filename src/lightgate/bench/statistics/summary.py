"""From the attempts of one target under one load to the numbers of its cell.

Only requests that were sent inside the steady window are counted; those before it are warm-up. A
quantile without an interval has no value. In the "with failures" quantiles a failure is infinite,
which JSON cannot write: there a value of None is `infinite`, and an interval of None beside a value
has a failure as its upper end. Every quantile is worked out at both ends of the bounds of its
stamps as well, and so is its interval: it holds the true one whatever the client's lateness hid.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from operator import attrgetter
from statistics import stdev
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from lightgate.bench.statistics import steady
from lightgate.bench.statistics.cost import Billed, cell_cost
from lightgate.bench.statistics.dependence import effective_n, moods_of
from lightgate.bench.statistics.measured import Sampled, numbers, sampled
from lightgate.bench.statistics.slope import prompt_slope
from lightgate.bench.statistics.steady import AttemptSpan
from lightgate.clock import load
from lightgate.clock.bounds import Bounds, doubtful
from lightgate.clock.load import Slo, Stream
from lightgate.clock.outcome import FAILURES, Outcome
from lightgate.clock.quantile import Interval, rank, ranks
from lightgate.clock.timing import SHOWN, words
from lightgate.clock.tokens import per_burst
from lightgate.ledger.runs.run import CellSummary, CostFacts, Estimate, Metric, TargetFacts
from lightgate.ledger.runs.samples import inside

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.recording import Recording

    Number = Callable[[AttemptRecord], float | None]

DURATION_QS: Final = (0.5, 0.9, 0.95, 0.99)
RATE_QS: Final = (0.5, 0.05)  # of a rate the low end is the bad one: "slow 5 %"
OFFERED_LIMIT: Final = 0.98  # below this share of the asked load, say so
RAMP_SHARE: Final = 0.5  # a ramp that is more than this of its block cannot be cut off


class CellFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The setting of a cell; `dropped` are planned requests that were never sent."""

    target: TargetFacts
    load: str
    concurrency: int | None = None  # of a closed loop
    rate: float | None = None  # of an open one, requests per second
    dropped: int = 0
    slo: Slo | None = None
    client_cpu: float | None = None  # share of its core that the client took
    machine_cpu: float | None = None  # share of all cores of its machine that anybody took
    counted: frozenset[str] | None = None  # of a part of a cell: the whole cell says which count


class _SortedCell(NamedTuple):
    """The attempts of a cell, sorted out."""

    facts: CellFacts
    everything: list[AttemptRecord]
    counted: list[AttemptRecord]
    recordings: Mapping[str, Recording]
    steady: steady.Steady
    ramp_kept: bool
    windows_ns: tuple[tuple[int, int], ...]  # of those that count; empty: all
    good: list[AttemptRecord]  # of those that count, the ones that enter speed statistics

    @property
    def failures(self) -> int:
        return sum(attempt.outcome in FAILURES for attempt in self.counted)


def summarise(
    attempts: Sequence[AttemptRecord], recordings: Mapping[str, Recording], facts: CellFacts
) -> CellSummary:
    """Put the numbers of one cell together; `recordings` are by the id of the attempt."""
    cell = _sort_out(attempts, recordings, facts)
    found, counted = cell.steady, cell.counted
    worth = _Worth(cell)
    metrics = tuple(_metrics(cell, worth))
    speed_p50 = metrics[-2].quantiles[0].value
    throughput, spread = _throughput(cell)
    ended = _ended(cell)
    served = load.counting(ended)
    return CellSummary(
        target=facts.target.name,
        load=facts.load,
        concurrency=facts.concurrency,
        rate=facts.rate,
        requests=len(counted),
        warmup=len(attempts) - len(counted),
        outcomes=dict(Counter(str(attempt.outcome) for attempt in counted)),
        metrics=metrics,
        window_s=found.seconds or None,
        steady=found.steady,
        steady_note=_note(cell),
        throughput_tps=throughput,
        inflight=found.inflight,
        little=found.little,
        offered_share=_offered(cell),
        goodput=_goodput(cell),
        words_per_s=None if speed_p50 is None else words(speed_p50),
        tokens_in_p50=_p50(cell.good, attrgetter("tokens_in")),
        tokens_out_p50=_p50(cell.good, attrgetter("tokens_out")),
        tokens_source=dict(Counter(a.tokens_source for a in cell.good if a.tokens_source)),
        cold_ttft_p50_ms=_p50(
            [a for a in cell.good if a.tokens_cached == 0], attrgetter("ttft_ms")
        ),
        cached_ttft_p50_ms=_p50([a for a in cell.good if a.tokens_cached], attrgetter("ttft_ms")),
        cost=_cost(cell, ended, throughput, speed_p50),
        windows_ns=cell.windows_ns,
        waves=worth.waves,
        slope=prompt_slope(cell.good),
        throughput_interval=spread,
        client_cpu=facts.client_cpu,
        machine_cpu=facts.machine_cpu,
        requests_per_s=load.requests_per_s(len(served), found.seconds),
        tokens_in_per_s=load.tokens_in_per_s(served, found.seconds),
    )


def glance(
    attempts: Sequence[AttemptRecord], recordings: Mapping[str, Recording], facts: CellFacts
) -> CellSummary:
    """Sum a cell up the moment it ends: n and three medians, of the requests that count."""
    cell = _sort_out(attempts, recordings, facts)
    worth = _Worth(cell)
    return CellSummary(
        target=facts.target.name,
        load=facts.load,
        concurrency=facts.concurrency,
        requests=len(cell.counted),
        warmup=len(attempts) - len(cell.counted),
        metrics=tuple(
            Metric(
                name=name,
                quantiles=estimates(
                    sampled(name, cell.good, cell.recordings), (0.5,), n_eff=worth.of(name, (0.5,))
                ),
            )
            for name in ("ttft_ms", "speed_tps", "e2e_ms")
        ),
        windows_ns=cell.windows_ns,
    )


def relate(cells: Iterable[CellSummary]) -> tuple[CellSummary, ...]:
    """Fill in what needs the cell of one at a time: `batch_eff`, `retain`, `parallel_gain`."""
    cells = tuple(cells)
    alone = {cell.target: cell for cell in cells if cell.concurrency == 1}
    return tuple(_related(cell, alone.get(cell.target)) for cell in cells)


def estimates(
    samples: Sampled | Iterable[float],
    qs: Sequence[float],
    *,
    rate: bool = False,
    n_eff: Sequence[int] | None = None,
) -> tuple[Estimate, ...]:
    """Quantiles with their intervals; None where `n` is too small, or else the value `infinite`.

    `n_eff` says for each quantile how many of the requests are independent of each other, where
    that is known: the width of the interval goes by it, and so does "n too small".
    """
    if not isinstance(samples, Sampled):
        given = list(samples)
        samples = Sampled(given, None, None, len(given))
    values, low, high = _ordered(samples.values), samples.low, samples.high
    ends = None if low is None or high is None else (_ordered(low), _ordered(high))
    facts = _Figure(values, ends, samples.requests, rate)
    return tuple(
        _estimate(facts, q, None if n_eff is None else n_eff[at]) for at, q in enumerate(qs)
    )


def _ordered(values: Sequence[float]) -> Sequence[float]:
    """Sort samples; those that are packed are many, and are sorted where they are."""
    if not isinstance(values, array):
        return sorted(values)
    if values:
        np.frombuffer(values, dtype=values.typecode).sort()
    return values


def error_rate(cell: CellSummary) -> float | None:
    """Share of the judged requests that failed; what we cut or cancelled was not judged."""
    failed = sum(n for name, n in cell.outcomes.items() if Outcome(name).is_failure)
    judged = failed + cell.outcomes.get(Outcome.OK, 0)
    return failed / judged if judged else None


def lightest_first(cells: Iterable[CellSummary]) -> list[CellSummary]:
    """Cells of one kind of load, closed or open, by how hard it is: the kind with more cells."""
    cells = tuple(cells)
    closed = [cell for cell in cells if cell.concurrency is not None]
    paced = [cell for cell in cells if cell.concurrency is None and cell.rate is not None]
    if len(paced) > len(closed):
        return sorted(paced, key=lambda cell: cell.rate or 0.0)
    return sorted(closed, key=lambda cell: cell.concurrency or 0)


def spans(
    attempts: Sequence[AttemptRecord], extra: Container[str] = frozenset()
) -> list[AttemptSpan]:
    """Take the spans of the attempts that were sent; `extra` are ids of those that do not count."""
    counted = {attempt.id for attempt in load.counting(attempts)}
    found = []
    for attempt in attempts:
        send, end = attempt.t_send_ns, attempt.t_end_ns or attempt.t_last_ns
        if send is None or end is None:
            continue
        done = attempt.t_last_ns if attempt.outcome is Outcome.OK else None
        found.append(
            AttemptSpan(
                plan_ns=send if attempt.t_plan_ns is None else attempt.t_plan_ns,
                send_ns=send,
                last_ns=end if done is None else done,
                free_ns=max(send, end),
                ttft_ms=attempt.ttft_ms if attempt.id in counted else None,
                counted=attempt.id not in extra,
            )
        )
    return found


def stream(attempt: AttemptRecord, recording: Recording | None) -> Stream | None:
    """The bursts of one attempt with the tokens of each; None where nothing is known of them.

    An answer that was not streamed came in one piece, when it came.
    """
    if not attempt.streamed:
        if attempt.t_last_ns is None or attempt.tokens_out is None:
            return None
        return Stream((attempt.t_last_ns,), (float(attempt.tokens_out),))
    if recording is None or attempt.t_send_ns is None:
        return None
    columns = (recording.pieces, recording.weight, recording.tokens)
    shares = per_burst(attempt.tokens_streamed, *columns)
    return Stream(list(map(attempt.t_send_ns.__add__, recording.at_ns)), shares) if shares else None


def _sort_out(
    attempts: Sequence[AttemptRecord], recordings: Mapping[str, Recording], facts: CellFacts
) -> _SortedCell:
    kept = []
    extra: set[str] = set()  # the ramp and the fillers: part of the load, in no other number
    turns: dict[int | None, list[AttemptRecord]] = {}  # stretches of unbroken load
    for attempt in attempts:
        recording, turn = recordings.get(attempt.id), None
        if recording is not None:
            if recording.warmup and not recording.part:
                continue
            turn = recording.block if recording.turn is None else recording.turn
            if recording.warmup:
                extra.add(attempt.id)
        if attempt.id not in extra:
            kept.append(attempt)
        turns.setdefault(turn, []).append(attempt)
    found = steady.find([spans(turn, extra) for turn in turns.values()], facts.concurrency)
    windows = tuple((w.start_ns, w.stop_ns) for w in found.windows) if found.found else ()
    steadily = inside(kept, windows, planned=facts.concurrency is None) if windows else kept
    ramp_kept = not extra and len(steadily) < RAMP_SHARE * len(kept)
    counted = kept if ramp_kept else steadily
    if facts.counted is not None:
        counted = [attempt for attempt in kept if attempt.id in facts.counted]
    return _SortedCell(
        facts=facts,
        everything=list(attempts),
        counted=counted,
        recordings=recordings,
        steady=found,
        ramp_kept=ramp_kept,
        windows_ns=() if ramp_kept else windows,
        good=load.counting(counted),
    )


def _metrics(cell: _SortedCell, worth: _Worth) -> Iterable[Metric]:
    for name in SHOWN:
        samples = sampled(name, cell.good, cell.recordings)
        if name.endswith("_tps"):
            n_eff = worth.of(name, RATE_QS)
            yield Metric(name=name, quantiles=estimates(samples, RATE_QS, rate=True, n_eff=n_eff))
            continue
        failing: tuple[Estimate, ...] = ()
        if name != "gap_ms":  # a failure has no gaps
            with_failures = samples.failing(cell.failures)
            n_eff = worth.of(name, DURATION_QS, failing=True)
            failing = estimates(with_failures, DURATION_QS, n_eff=n_eff)
        n_eff = worth.of(name, DURATION_QS)
        yield Metric(
            name=name,
            quantiles=estimates(samples, DURATION_QS, n_eff=n_eff),
            with_failures=failing,
        )


class _Worth:
    """How many independent samples the requests of a cell are worth, metric by metric."""

    def __init__(self, cell: _SortedCell) -> None:
        self._counted = cell.counted
        good = {attempt.id for attempt in cell.good}
        self._is_good = [attempt.id in good for attempt in cell.counted]
        self._failed = [
            math.inf if attempt.outcome in FAILURES else None for attempt in cell.counted
        ]
        self._moods = moods_of(cell.counted)
        self.waves = self._moods.waves

    def of(self, name: str, qs: Sequence[float], *, failing: bool = False) -> list[int]:
        """Count for each quantile; the gaps of a request are as alike as their mean."""
        source = "speed_tps" if name == "gap_ms" else name
        rest = self._failed if failing else [None] * len(self._counted)
        values = [
            value if good else other
            for value, good, other in zip(
                numbers(source, self._counted), self._is_good, rest, strict=True
            )
        ]
        hang = self._moods.of([value is not None for value in values])
        known = [value for value in values if value is not None]
        return [effective_n(known, q, hang) for q in qs]


class _Figure(NamedTuple):
    """The samples of one metric, in order: measured, and at both ends of their bounds."""

    values: Sequence[float]
    ends: tuple[Sequence[float], Sequence[float]] | None
    n: int
    rate: bool


def _estimate(figure: _Figure, q: float, n_eff: int | None) -> Estimate:
    values, n = figure.values, figure.n
    count = n if n_eff is None else min(n, n_eff)
    pair = ranks(count, q) if count else None
    if pair is None:
        return Estimate(q=q, n=n, n_eff=n_eff)
    value = values[rank(len(values), q) - 1]
    if not math.isfinite(value):
        return Estimate(q=q, n=n, infinite=True, n_eff=n_eff)
    early, late = figure.ends or (values, values)
    bounds = Bounds(
        min(value, early[rank(len(early), q) - 1]), max(value, late[rank(len(late), q) - 1])
    )
    low = early[max(0, math.floor((pair[0] - 1) * len(early) / count))]
    high = late[min(len(late), math.ceil(pair[1] * len(late) / count)) - 1]
    return Estimate(
        q=q,
        n=n,
        value=value,
        interval=Interval(low, high) if math.isfinite(high) else None,
        low=None if figure.ends is None else bounds.low,
        high=None if figure.ends is None or math.isinf(bounds.high) else bounds.high,
        doubtful=doubtful(value, bounds, rate=figure.rate),
        n_eff=n_eff,
    )


def _p50(attempts: Sequence[AttemptRecord], number: Number) -> float | None:
    values = [value for attempt in attempts if (value := number(attempt)) is not None]
    return estimates(values, (0.5,))[0].value


def _throughput(cell: _SortedCell) -> tuple[float | None, Interval | None]:
    """Throughput of all that was under way in the windows, failures and cut requests included.

    Its interval is that of the means of parts of about one request time or more, which share few
    requests; None where there are fewer than six of them.
    """
    seconds = cell.steady.seconds
    if seconds <= 0:
        return None, None
    # One at a time: the bursts of all requests at once would take more memory than all the rest.
    streams = (s for a in cell.everything if (s := stream(a, cell.recordings.get(a.id))))
    rounds = len(cell.counted) // max(1, round(cell.steady.inflight or 1))
    count = max(1, min(steady.PARTS, rounds))
    parts = sorted(steady.in_parts(cell.steady.windows, count), key=lambda window: window.start_ns)
    edges = sorted({edge for part in parts for edge in (part.start_ns, part.stop_ns)})
    tokens = dict(zip(edges, steady.tokens_between(streams, edges), strict=False))
    rates = [tokens[part.start_ns] / part.seconds for part in parts]
    value = math.fsum(tokens[part.start_ns] for part in parts) / seconds
    if not value:
        return None, None
    if len(rates) < steady.FEWEST_PARTS:
        return value, None
    reach = steady.student(len(rates) - 1, 0.95) * stdev(rates) / math.sqrt(len(rates))
    return value, Interval(max(0.0, value - reach), value + reach)


def _offered(cell: _SortedCell) -> float | None:
    """Share of the asked load that was there."""
    if cell.facts.concurrency is not None:
        busy = cell.steady.busy
        return None if busy is None else min(1.0, busy / cell.facts.concurrency)
    planned = len(cell.counted) + cell.facts.dropped
    sent = sum(attempt.t_send_ns is not None for attempt in cell.counted)
    return sent / planned if planned else None


def _goodput(cell: _SortedCell) -> float | None:
    if cell.facts.slo is None:
        return None
    return load.goodput(cell.counted, cell.facts.slo, dropped=cell.facts.dropped)


def _note(cell: _SortedCell) -> str:
    notes = [cell.steady.note]
    if cell.ramp_kept:
        notes.append("the ramp is most of each block and was not cut off")
    offered = _offered(cell)
    if offered is not None and offered < OFFERED_LIMIT:
        notes.append(f"only {offered:.0%} of the asked load was offered")
    return "; ".join(note for note in notes if note)


def _ended(cell: _SortedCell) -> list[AttemptRecord]:
    """Collect what ended inside the windows, whether it counts or not."""
    return [
        attempt
        for window in cell.steady.windows
        for attempt in cell.everything
        if (end := attempt.t_end_ns) and window.start_ns < end <= window.stop_ns
    ]


def _cost(
    cell: _SortedCell,
    ended: Sequence[AttemptRecord],
    throughput: float | None,
    speed: float | None,
) -> CostFacts:
    found = cell.steady
    return cell_cost(
        Billed(
            target=cell.facts.target,
            everything=cell.everything,
            counted=cell.counted,
            slo=cell.facts.slo,
            ended=ended,
            seconds=found.seconds,
            throughput_tps=throughput,
            inflight=found.inflight,
            speed_tps=speed,
        )
    )


def _related(cell: CellSummary, alone: CellSummary | None) -> CellSummary:
    if alone is None or cell.concurrency is None:
        return cell
    gain = _ratio(cell.throughput_tps, alone.throughput_tps)
    kept = _ratio(cell.value("speed_tps", 0.5), alone.value("speed_tps", 0.5))
    return msgspec.structs.replace(
        cell,
        batch_eff=None if gain is None else load.batch_eff(gain, cell.concurrency, 1.0),
        parallel_gain=gain,
        retain=None if kept is None else load.retain(kept, 1.0),
    )


def _ratio(here: float | None, alone: float | None) -> float | None:
    return here / alone if here is not None and alone else None
