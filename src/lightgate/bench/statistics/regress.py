"""Two runs against each other: what has become worse, and how sure that is.

The runs were made at different times, so nothing is paired. A quantile lies between two order
statistics of its run (as many as its effective samples allow); how the two may lie is drawn for
both runs, and the ratios of what is drawn give the interval. It holds what varies inside the runs;
weather between two days is not in it (see `drift` for many runs). "Worse" is a ratio above 1 for
every metric: the new duration or cost over the old, the old rate over the new.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
import numpy as np

from lightgate.bench.statistics.dependence import Moods, effective_n, inflation, moods_of
from lightgate.clock.compare import ALPHA, ROUNDS, SMALLEST, holm
from lightgate.clock.load import in_statistics
from lightgate.clock.quantile import Interval, quantile, quantiles, smallest_n
from lightgate.clock.share import unpaired
from lightgate.ledger.runs.checked import paired
from lightgate.ledger.runs.doubt import doubt
from lightgate.ledger.runs.samples import UNTOLD, Samples, load_of, untold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.checked import ChecksRecord
    from lightgate.ledger.runs.recording import Recording
    from lightgate.ledger.runs.run import CellSummary, Run

HEADLINES: Final = ("ttft_ms", "speed_tps", "e2e_ms")  # closed loop
OPEN_HEADLINES: Final = ("ttft_plan_ms", "speed_tps", "e2e_ms")  # rates and traces
METRICS: Final = (
    "ttft_ms", "ttft_plan_ms", "ttfa_ms", "tte_ms", "tth_ms", "e2e_ms", "stall_ms", "speed_tps",
    "speed_total_tps",
)  # fmt: skip
FAILED: Final = "failed"  # the share of requests that failed; its change is in points, not a ratio
COST: Final = "cost_1k"  # dollars per 1,000 requests
PASSED: Final = "pass"  # the share of the user's own cases that passed; in points, too
IN_POINTS: Final = frozenset((FAILED, PASSED))
TOLERANCE: Final = 0.05
POINTS: Final = 0.01  # more failures than this share of the requests are a regression
# A tie is no answer where a change of this size could hide in it: half as slow again, or one
# request of ten.
BLIND: Final = 0.5
BLIND_POINTS: Final = 0.1
_MARGIN: Final = 1.5  # beyond the requests that would just do, where chance decides again
_Z: Final = 1.959963984540054  # of a two-sided 95 % interval

Call = Literal["regression", "worse", "same", "tie", "better", "unclear", "n too small"]
UNJUDGED: Final = frozenset({"unclear", "n too small"})


class Side(NamedTuple):
    """A run as it is compared: its record, attempts and bursts."""

    run: Run
    attempts: Sequence[AttemptRecord]
    recordings: Mapping[str, Recording]


class Limits(NamedTuple):
    """What may become worse without being a regression: a share, and of failures points."""

    share: float = TOLERANCE
    points: float = POINTS


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one cell in two runs: a quantile of a metric, the failed requests, the cost.

    `worse` is a ratio, above 1 for worse; of `failed` and `pass` it is a difference of shares,
    above 0 for worse. `n_eff` are the independent samples among the `n`. `p_value` is Holm's, for
    "no worse than the tolerance" (of failures and passed cases: "no worse than before").
    """

    target: str
    load: str
    metric: str
    q: float | None = None
    n_old: int
    n_new: int
    n_eff_old: int
    n_eff_new: int
    waves_old: int | None = None
    waves_new: int | None = None
    old: float | None = None
    new: float | None = None
    worse: float | None = None
    interval: Interval | None = None
    p_value: float | None = None
    call: Call = "n too small"


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """All changes between two runs, and what weakens the comparison."""

    old: str
    new: str
    tolerance: float
    points: float
    changes: tuple[Change, ...]
    gone: tuple[tuple[str, str], ...]  # targets and loads that only the old run has
    warnings: tuple[str, ...]

    @property
    def regressions(self) -> list[Change]:
        """The changes that are surely worse than the tolerance."""
        return [change for change in self.changes if change.call == "regression"]

    @property
    def unjudged(self) -> list[Change]:
        """The changes of which nothing can be said that would let a build pass."""
        return [change for change in self.changes if change.call in UNJUDGED]


def compare_runs(
    old: Side,
    new: Side,
    *,
    rng: np.random.Generator,
    limits: Limits | None = None,
    metrics: Sequence[str] = (),
) -> Compared:
    """Compare every target and load that both runs have; a tie is called a tie.

    Without `metrics` the headlines of each load: under a rate the time from the planned instant.
    """
    limits = limits or Limits()
    before, after = _cells(old), _cells(new)
    shared = [cell for cell in before if cell in after]
    changes: list[Change] = []
    for cell in shared:
        pair = (before[cell], after[cell])
        for metric in metrics or headlines(cell[1]):
            # Of a rate the low end is the bad one.
            tail = 0.05 if metric.endswith("_tps") else 0.95
            changes += [_change(pair, metric, q, (rng, limits)) for q in (0.5, tail)]
        changes += [_failures(pair), _cost(pair, limits)]
        changes += _passes(pair, (old.run.checks, new.run.checks))
    known = [c for c in changes if c.n_old or c.n_new]
    return Compared(
        old=old.run.id,
        new=new.run.id,
        tolerance=limits.share,
        points=limits.points,
        changes=tuple(_called(known, limits)),
        gone=tuple(cell for cell in before if cell not in after),
        warnings=tuple(_warnings(old, new, set(before) ^ set(after), shared)),
    )


def headlines(load: str) -> tuple[str, ...]:
    """Name the metrics that a load is judged by."""
    return HEADLINES if not load or load.startswith("c=") else OPEN_HEADLINES


Cell = tuple[str, str]
Numbers = tuple[list[float], Moods]  # in the order of sending


class _Cell(NamedTuple):
    """What one run has of a target at a load, in the order of sending."""

    cell: Cell
    attempts: list[AttemptRecord]
    summary: CellSummary | None
    hourly: bool

    @property
    def dollars(self) -> float | None:
        """What 1,000 requests cost, as the run says."""
        cost = None if self.summary is None else self.summary.cost.per_1k
        return None if cost is None else float(cost)

    def numbers(self, metric: str) -> Numbers:
        """The defined, positive values of a metric, and how they hang together in time."""
        return self._of([_number(attempt, metric) for attempt in self.attempts])

    def failed(self) -> Numbers:
        """1 for every request that failed and 0 for every good one."""
        seen = [a.outcome for a in self.attempts]
        return self._of([float(o.is_failure) if o.is_failure or o == "ok" else None for o in seen])

    def costs(self) -> Numbers:
        """What each request cost, up to a factor: dollars, or the time it held a paid machine."""
        if self.hourly:
            return self.numbers("e2e_ms")
        paid = [None if a.cost_usd is None else float(a.cost_usd) for a in self.attempts]
        if not any(paid):
            paid = [None if a.tokens_out is None else float(a.tokens_out) for a in self.attempts]
        return self._of(paid)

    def _of(self, values: Sequence[float | None]) -> Numbers:
        kept = [value is not None for value in values]
        return [value for value in values if value is not None], moods_of(self.attempts).of(kept)


def _number(attempt: AttemptRecord, metric: str) -> float | None:
    value: float | None = getattr(attempt, metric)
    return value if value is not None and value > 0 and in_statistics(attempt) else None


def _cells(side: Side) -> dict[Cell, _Cell]:
    """The attempts that each cell counts; twins are left out."""
    samples = Samples(side.run)
    twins = {target.name for target in side.run.targets if target.twin_of is not None}
    hourly = {target.name for target in side.run.targets if target.hourly_cost is not None}
    summaries = {(cell.target, cell.load): cell for cell in side.run.cells}
    cells: dict[Cell, _Cell] = {}
    for attempt in sorted(side.attempts, key=lambda row: row.t_send_ns or 0):
        recording = side.recordings.get(attempt.id)
        if attempt.target in twins or not samples.counts(attempt, recording):
            continue
        key = (attempt.target, load_of(attempt, recording))
        if key not in cells:
            cells[key] = _Cell(key, [], summaries.get(key), attempt.target in hourly)
        cells[key].attempts.append(attempt)
    return cells


def _plain(
    pair: tuple[_Cell, _Cell], figure: tuple[str, float | None], sides: tuple[Numbers, Numbers]
) -> Change:
    metric, q = figure
    counts = []
    for values, hang in sides:
        if q is None:
            series = np.asarray(values, dtype=np.float64)
            counts.append(int(len(values) / inflation(series, hang.unit)) if values else 0)
        else:
            counts.append(effective_n(values, q, hang))
    (target, load), (old, new) = pair[0].cell, sides
    return Change(
        target=target,
        load=load,
        metric=metric,
        q=q,
        n_old=len(old[0]),
        n_new=len(new[0]),
        n_eff_old=counts[0],
        n_eff_new=counts[1],
        waves_old=old[1].waves,
        waves_new=new[1].waves,
    )


def _change(
    pair: tuple[_Cell, _Cell],
    metric: str,
    q: float,
    setting: tuple[np.random.Generator, Limits],
) -> Change:
    rng, limits = setting
    before, after = (cell.numbers(metric) for cell in pair)
    plain = _plain(pair, (metric, q), (before, after))
    if min(plain.n_eff_old, plain.n_eff_new) < smallest_n(q):
        return plain
    old, new = quantile(before[0], q), quantile(after[0], q)
    if old is None or new is None:
        return plain
    drawn_old = _drawn(before[0], q, plain.n_eff_old, rng)
    drawn_new = _drawn(after[0], q, plain.n_eff_new, rng)
    rate = metric.endswith("_tps")
    drawn = drawn_old / drawn_new if rate else drawn_new / drawn_old
    low, high = quantiles(drawn.tolist(), (ALPHA / 2, 1 - ALPHA / 2))
    not_worse = int(np.count_nonzero(drawn <= 1.0 + limits.share))
    return msgspec.structs.replace(
        plain,
        old=old,
        new=new,
        worse=old / new if rate else new / old,
        interval=None if low is None or high is None else Interval(low, high),
        p_value=(1 + not_worse) / (1 + len(drawn)),
    )


def _drawn(
    values: Sequence[float], q: float, count: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Where the true quantile may lie: as many of `count` samples are below it as by chance."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    below = rng.binomial(count, q, size=ROUNDS) + rng.random(ROUNDS)
    places = np.floor(below / (count + 1) * len(ordered)).astype(np.int64)
    drawn: NDArray[np.float64] = ordered[np.minimum(places, len(ordered) - 1)]
    return drawn


def _failures(pair: tuple[_Cell, _Cell]) -> Change:
    """Compare the shares of failed requests by Newcombe's interval of their difference."""
    before, after = (cell.failed() for cell in pair)
    plain = _plain(pair, (FAILED, None), (before, after))
    if not plain.n_eff_old or not plain.n_eff_new:
        return plain
    old, new = (sum(values) / len(values) for values, _ in (before, after))
    n_old, n_new = plain.n_eff_old, plain.n_eff_new
    interval = unpaired((old, n_old), (new, n_new))
    p_value = more_failures((round(old * n_old), n_old), (round(new * n_new), n_new))
    return msgspec.structs.replace(
        plain, old=old, new=new, worse=new - old, interval=interval, p_value=p_value
    )


def more_failures(old: tuple[int, int], new: tuple[int, int]) -> float:
    """Probability of so many failures (of so many requests) in the new run, if nothing changed.

    Fisher's exact test of one side; what was observed counts half, or few requests could never
    show anything.
    """
    (bad_old, n_old), (bad_new, n_new) = old, new
    bad, n = bad_old + bad_new, n_old + n_new

    def chance(k: int) -> float:
        ways = _log_ways(bad, k) + _log_ways(n - bad, n_new - k) - _log_ways(n, n_new)
        return math.exp(ways)

    beyond = math.fsum(chance(k) for k in range(bad_new + 1, min(bad, n_new) + 1))
    return min(1.0, beyond + chance(bad_new) / 2.0)


def _log_ways(n: int, k: int) -> float:
    if not 0 <= k <= n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _cost(pair: tuple[_Cell, _Cell], limits: Limits) -> Change:
    """Compare what 1,000 requests cost, by the spread of what single requests cost."""
    before, after = (cell.costs() for cell in pair)
    plain = _plain(pair, (COST, None), (before, after))
    old, new = (cell.dollars for cell in pair)
    if not old or not new:
        return msgspec.structs.replace(plain, n_old=0, n_new=0)
    error = math.hypot(
        _relative_error(before[0], plain.n_eff_old), _relative_error(after[0], plain.n_eff_new)
    )
    ratio, reach = new / old, math.exp(_Z * error)
    interval = Interval(ratio / reach, ratio * reach)
    beyond = math.log(ratio / (1.0 + limits.share))
    p_value = 0.5 * math.erfc(beyond / error / math.sqrt(2)) if error else float(beyond <= 0.0)
    return msgspec.structs.replace(
        plain, old=old, new=new, worse=ratio, interval=interval, p_value=p_value
    )


def _passes(
    pair: tuple[_Cell, _Cell], checks: tuple[ChecksRecord | None, ChecksRecord | None]
) -> list[Change]:
    """Compare the pass rates: case by case where both runs asked the same ones."""
    before, after = (None if one.summary is None else one.summary.checks for one in pair)
    if before is None or after is None or before.rate is None or after.rate is None:
        return []
    same = None not in checks and len({one.sha256 for one in checks if one is not None}) == 1
    found = paired(before, after, checks[0].ids if checks[0] is not None else ())
    if same and found.n:
        interval, p_value, n = found.interval, found.p_value, (found.n, found.n)
    else:
        n = (before.answered, after.answered)
        interval = unpaired((after.rate, n[1]), (before.rate, n[0]))
        failed = (n[0] - before.passed, n[0]), (n[1] - after.passed, n[1])
        p_value = 2 * more_failures(*failed)
    (target, load), worse = pair[0].cell, before.rate - after.rate
    return [
        Change(
            target=target,
            load=load,
            metric=PASSED,
            n_old=n[0],
            n_new=n[1],
            n_eff_old=n[0],
            n_eff_new=n[1],
            old=before.rate,
            new=after.rate,
            worse=worse,
            interval=interval,
            p_value=min(1.0, p_value) / 2 if worse > 0 else 1.0,
        )
    ]


def _relative_error(values: Sequence[float], count: int) -> float:
    """Standard error of the mean over the mean; of a single independent sample it is unknown."""
    mean = math.fsum(values) / len(values) if values else 0.0
    if count < 2 or mean <= 0.0:
        return 1.0
    return float(np.std(values, ddof=1)) / mean / math.sqrt(count)


def needed(change: Change) -> int | None:
    """Requests a side with which an unjudged change could be judged, roughly; None: unknown."""
    fewest = min(change.n_old, change.n_new)
    effective = min(change.n_eff_old, change.n_eff_new)
    if not effective or change.call not in UNJUDGED:
        return None
    short = 1.0 if change.q is None else smallest_n(change.q) / effective
    if change.interval is not None and change.worse is not None:
        wide, blind = change.interval.high - change.worse, BLIND_POINTS
        if change.metric not in IN_POINTS:
            wide, blind = math.log(change.interval.high / change.worse), math.log1p(BLIND)
        short = max(short, (wide / blind) ** 2)
    return math.ceil(fewest * max(short, 1.0) * _MARGIN / 10) * 10


def _called(changes: Sequence[Change], limits: Limits) -> list[Change]:
    """Name every change; having looked many times makes a regression harder to claim.

    Times and speeds, failures, costs and quality are questions with a level of their own each.
    """
    called = list(changes)
    for kind in (None, FAILED, COST, PASSED):
        tested = [
            at
            for at, change in enumerate(changes)
            if change.p_value is not None
            and (change.metric == kind or (kind is None and change.q is not None))
        ]
        adjusted = holm([changes[at].p_value or 0.0 for at in tested])
        for at, p_value in zip(tested, adjusted, strict=True):
            change = changes[at]
            called[at] = msgspec.structs.replace(
                change, p_value=p_value, call=_name(change, p_value, limits)
            )
    return called


def _name(change: Change, p_value: float, limits: Limits) -> Call:
    if change.interval is None or change.worse is None:
        return "n too small"
    failed = change.metric in IN_POINTS
    nothing, least = (0.0, 0.0) if failed else (1.0, SMALLEST)
    interval = change.interval
    if failed:
        # Surely more than before, and by more than the tolerance: to be sure of the second as well
        # would need several times as many requests.
        sure = p_value <= ALPHA / 2 and change.worse > limits.points
    else:
        sure = interval.low > nothing + limits.share and p_value <= ALPHA / 2
    if sure:
        return "regression"
    if interval.low >= nothing - least and interval.high <= nothing + least:
        return "same"
    if interval.spans(nothing):
        blind = BLIND_POINTS if failed else BLIND
        return "unclear" if interval.high > nothing + blind else "tie"
    return "better" if interval.high < nothing else "worse"


def _warnings(old: Side, new: Side, alone: set[Cell], shared: Sequence[Cell]) -> list[str]:
    said = []
    if old.run.definitions != new.run.definitions:
        said.append(
            f"The runs use different definitions ({old.run.definitions}, {new.run.definitions})."
        )
    names = sorted(set(old.run.workload) | set(new.run.workload))
    differ = [name for name in names if old.run.workload.get(name) != new.run.workload.get(name)]
    if differ:
        said.append(f"The runs sent different workloads: {', '.join(differ)}.")
    if not shared:
        said.append("The runs have no target and load in common: nothing was compared.")
    elif alone:
        cells = ", ".join(f"{target} {load}".strip() for target, load in sorted(alone))
        said.append(f"Only one of the runs has: {cells}.")
    for side in (old, new):
        said += _doubts(side)
    return said


def _doubts(side: Side) -> list[str]:
    """List what the run itself says against its numbers."""
    said = []
    if side.run.finished is None:
        said.append(f"The run {side.run.id} was interrupted.")
    said += [
        f"The run {side.run.id} is void: an A/A pair differs at {board.load}."
        for board in side.run.boards
        if board.void
    ]
    for cell in side.run.cells:
        doubts = cell.doubts()
        if doubts:
            more = f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""
            where = f"{cell.target} at {cell.load} is doubtful in {side.run.id}"
            said.append(f"{where}: {doubt(*doubts[0])}{more}.")
    if untold(side.run, side.attempts, side.recordings):
        said.append(f"The run {side.run.id} {UNTOLD}.")
    return said
