"""Limits on the numbers of a cell, and searches for the load that still keeps them.

`--fail-if "ttft_p95>500ms"` says when a run has failed. A number that does not exist, for lack of
samples, or that a late client cannot know, keeps no limit. The searches are pure: what was tried so
far in, the next load or the end out.
"""

from __future__ import annotations

import math
import operator
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.bench.statistics.summary import DURATION_QS, RATE_QS, error_rate
from lightgate.clock.load import Slo
from lightgate.clock.quantile import smallest_n
from lightgate.errors import UsageError
from lightgate.ledger.runs.doubt import doubt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from decimal import Decimal

    from lightgate.ledger.runs.run import CellSummary

DURATIONS: Final = ("ttft", "ttft_plan", "ttfa", "tth", "e2e", "e2e_plan", "stall", "gap")
SPEEDS: Final = ("speed", "speed_total")
SHARES: Final[dict[str, Callable[[CellSummary], float | None]]] = {
    "error_rate": error_rate,
    "goodput": lambda cell: cell.goodput,
    "retain": lambda cell: cell.retain,
    "batch_eff": lambda cell: cell.batch_eff,
    "offered_share": lambda cell: cell.offered_share,
    "pass": lambda cell: None if cell.checks is None else cell.checks.rate,
    "pass_low": lambda cell: (
        None if cell.checks is None or cell.checks.interval is None else cell.checks.interval.low
    ),
}
PLAIN: Final[dict[str, Callable[[CellSummary], float | None]]] = {
    "throughput": lambda cell: cell.throughput_tps,
    "requests_per_s": lambda cell: cell.requests_per_s,
    "tokens_in_per_s": lambda cell: cell.tokens_in_per_s,
    "inflight": lambda cell: cell.inflight,
    "cost_1k": lambda cell: _float(cell.cost.per_1k),
    "cost_per_mtok": lambda cell: _float(cell.cost.out_per_mtok),
    "cost_per_request": lambda cell: _float(cell.cost.per_request),
    "cost_per_good_request": lambda cell: _float(cell.cost.per_good_request),
}
_COMPARE: Final = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_CHECK: Final = re.compile(
    r"\s*(?P<name>[a-z0-9_]+)\s*(@\s*(?P<load>[^<>]+?)\s*)?"
    r"(?P<sign>>=|<=|>|<)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z%/]*)\s*"
)
_UNITS_MS: Final = {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}
_SPEED_UNITS: Final = frozenset({"", "tok/s", "tps"})
_RATES: Final = {"": 1.0, "tok/s": 1.0, "tps": 1.0}
_DEMANDS: Final[dict[str, tuple[str, str, dict[str, float]]]] = {
    "ttft": ("ttft_ms", "<", _UNITS_MS),
    "ttft_plan": ("ttft_plan_ms", "<", _UNITS_MS),
    "ttfa": ("ttfa_ms", "<", _UNITS_MS),
    "e2e": ("e2e_ms", "<", _UNITS_MS),
    "stall": ("stall_ms", "<", _UNITS_MS),
    "tpot": ("speed_tps", "<", _UNITS_MS),
    "speed": ("speed_tps", ">", _RATES),
    "speed_total": ("speed_total_tps", ">", _RATES),
}
_DEMAND: Final = re.compile(
    r"\s*(?P<name>[a-z0-9_]+)\s*(?P<sign><=?|>=?)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z/]*)\s*"
)
_SLO_HINT: Final = f'Write "ttft<500ms,tpot<40ms"; there are {", ".join(_DEMANDS)}.'
EXAMPLE: Final = 'Write it like "ttft_p95>500ms", "speed_p50<80", "error_rate>1%", "pass<90%".'


def parse_slo(text: str) -> Slo:
    """Read the demands on a single request, such as "ttft<500ms,tpot<40ms,speed>25"."""
    demands: dict[str, float] = {}
    for part in text.split(","):
        match = _DEMAND.fullmatch(part)
        name = match["name"] if match is not None else ""
        if match is None or name not in _DEMANDS:
            raise UsageError(f"{part.strip()!r} is no demand on a request.", hint=_SLO_HINT)
        field, sign, units = _DEMANDS[name]
        unit = units.get(match["unit"])
        amount = float(match["number"]) * (unit or 0.0)
        if match["sign"][0] != sign or unit is None or amount <= 0:
            raise UsageError(f"{part.strip()!r} cannot be demanded so.", hint=_SLO_HINT)
        demands[field] = 1000.0 / amount if name == "tpot" else amount
    return Slo(**demands)


class Check(NamedTuple):
    """One limit: it is missed where the number of a cell is on the wrong side of it."""

    text: str
    name: str
    sign: str
    limit: float  # ms, tok/s, a share, or dollars
    metric: str | None = None  # of a quantile
    q: float | None = None
    load: str | None = None  # None: every load


class Missed(NamedTuple):
    """A limit that one cell did not keep, and why; `judged` is false where that is not known."""

    check: str
    target: str
    load: str
    reason: str
    judged: bool = True

    def __str__(self) -> str:
        return f"{self.target} at {self.load}: {self.check}: {self.reason}"


def parse(text: str) -> Check:
    """Read one limit, such as "ttft_p95>500ms" or, for one load alone, "ttft_p95@c=8>500ms"."""
    match = _CHECK.fullmatch(text)
    if match is None:
        raise UsageError(f'"{text}" is no limit.', hint=EXAMPLE)
    name, unit, load = match["name"], match["unit"], match["load"]
    number = float(match["number"])
    metric, q = _quantile(text, name)
    return Check(
        text=text.strip(),
        name=name,
        sign=match["sign"],
        limit=_scaled(text, name, metric, number, unit),
        metric=metric,
        q=q,
        load=load,
    )


def missed(checks: Iterable[Check], cells: Sequence[CellSummary]) -> list[Missed]:
    """Hold every cell against every limit that is meant for it.

    A limit that cannot be judged is not kept either; one for a load that was never measured is
    listed once.
    """
    found: list[Missed] = []
    for check in checks:
        meant = [cell for cell in cells if check.load is None or cell.load == check.load]
        if not meant:
            reason = "nothing was measured there"
            place = ("every target", check.load or "any load")
            found.append(Missed(check.text, *place, reason, judged=False))
        for cell in meant:
            unknown = _unknown(check, cell)
            reason = unknown or _broken(check, cell)
            if reason:
                found.append(Missed(check.text, cell.target, cell.load, reason, not unknown))
    return found


class Tried(NamedTuple):
    """A load that was tried: requests per second, and whether every limit was kept."""

    rate: float
    kept: bool


class Search(NamedTuple):
    """Bounds of a search for the highest rate; `precision` is a share of the rate."""

    start: float = 1.0
    least: float = 0.05
    most: float = 1000.0
    precision: float = 0.05
    tries: int = 16


class SearchStep(NamedTuple):
    """The next load to try, or None with the answer: the best load, if there is one."""

    next: float | None
    best: float | None
    reason: str


def next_rate(tried: Sequence[Tried], search: Search) -> SearchStep:
    """Search for the highest rate that keeps every limit.

    Doubles until one fails (or halves until one holds), then cuts the ratio in half until it is
    within the precision. A rate above a failed one is not believed, even if it was kept.
    """
    if not tried:
        return SearchStep(min(max(search.start, search.least), search.most), None, "the first rate")
    failed = min((one.rate for one in tried if not one.kept), default=math.inf)
    kept = max((one.rate for one in tried if one.kept and one.rate < failed), default=None)
    ending = _ending(kept, failed, search)
    if ending or len(tried) >= search.tries:
        return SearchStep(None, kept, ending or f"stopped after {len(tried)} tries")
    if kept is None:
        return SearchStep(max(search.least, failed / 2.0), None, f"{failed:g}/s does not hold")
    if math.isinf(failed):
        return SearchStep(min(search.most, kept * 2.0), kept, f"{kept:g}/s holds")
    return SearchStep(math.sqrt(kept * failed), kept, f"between {kept:g}/s and {failed:g}/s")


class Sweep(NamedTuple):
    """Bounds of a sweep; a doubling that surely gains less than `gain` is saturation."""

    start: int = 1
    most: int = 8192
    gain: float = 0.05
    errors: float = 0.05  # above this share of failures, more load measures nothing
    cpu: float = 0.85  # of the client's core: above it, the client is what is measured
    machine: float = 0.8  # of all cores of its machine: a core of two that is full, and a client
    offered: float = 0.9  # of the asked load: below it without a refusal, the client is late


def next_concurrency(cells: Sequence[CellSummary], sweep: Sweep) -> SearchStep:
    """Sweep to saturation: doubles the concurrency of one target until more of it gains nothing.

    A change within what chance makes of two throughputs is no saturation: the sweep goes on. The
    best load is the smallest that has all but `gain` of the highest throughput.
    """
    ordered = sorted(
        (cell for cell in cells if cell.concurrency), key=lambda cell: cell.concurrency or 0
    )
    if not ordered:
        return SearchStep(sweep.start, None, "the first load")
    best, last = _knee(ordered, sweep.gain), ordered[-1]
    at = last.concurrency or sweep.start
    reason = _saturated(ordered, sweep)
    if reason:
        return SearchStep(None, best, reason)
    if at >= sweep.most:
        return SearchStep(None, best, f"not saturated at the highest allowed load of {sweep.most}")
    return SearchStep(min(sweep.most, at * 2), best, f"{last.load} may still gain")


def _saturated(ordered: Sequence[CellSummary], sweep: Sweep) -> str:
    """Say why more load than that of the last cell says nothing more; empty where it may."""
    last = ordered[-1]
    errors, here = error_rate(last), last.throughput_tps
    if here is None:
        return f"{last.load} has no throughput"
    if errors is not None and errors > sweep.errors:
        return f"{errors:.0%} of the requests failed at {last.load}"
    before = max(
        (cell for cell in ordered[:-1] if cell.throughput_tps),
        key=lambda cell: cell.throughput_tps or 0.0,
        default=None,
    )
    gained = None if before is None else _gained(before, last)
    own = _own_limit(last, sweep, gaining=gained is None or gained.least >= sweep.gain)
    if own:
        change = "" if gained is None else f", and the throughput changed by {gained.value:+.0%}"
        return f"{own} at {last.load}{change}: that is the client's own limit, not the server's"
    if gained is not None and gained.most < sweep.gain:
        change = f"({gained.least:+.0%} to {gained.most:+.0%})"
        said = f"{last.load} changed the throughput by {gained.value:+.0%} {change}"
        return f"{said}{_full_machine(last, sweep)}"
    return ""


def _full_machine(cell: CellSummary, sweep: Sweep) -> str:
    """Say that the machine of the client was full, as it is where the server runs there too."""
    if cell.machine_cpu is None or cell.machine_cpu < sweep.machine:
        return ""
    return (
        f", while the cores of this client's machine were {cell.machine_cpu:.0%} busy: that is the"
        " client's own limit, and need not be the server's"
    )


class _Gain(NamedTuple):
    """The change of throughput between two cells, and what their intervals leave open."""

    value: float
    least: float
    most: float


def _gained(before: CellSummary, here: CellSummary) -> _Gain:
    ratio = (here.throughput_tps or 0.0) / (before.throughput_tps or 1.0)
    reach = math.hypot(_reach(before), _reach(here))
    return _Gain(ratio - 1.0, ratio * (1.0 - reach) - 1.0, ratio * (1.0 + reach) - 1.0)


def _reach(cell: CellSummary) -> float:
    """Half of the interval of a cell's throughput, as a share of it; where unknown, a tenth."""
    found = cell.throughput_interval
    if found is None or not cell.throughput_tps:
        return 0.1
    return (found.high - found.low) / 2.0 / cell.throughput_tps


def _own_limit(cell: CellSummary, sweep: Sweep, *, gaining: bool) -> str:
    """Say what shows that the client itself was at its limit; empty where nothing does.

    While throughput surely grows, lateness alone is the machine's: only a full core is a limit.
    """
    if cell.client_cpu is not None and cell.client_cpu >= sweep.cpu:
        return f"this client's core was {cell.client_cpu:.0%} busy"
    if gaining:
        return ""
    failed = error_rate(cell) or 0.0
    if cell.offered_share is not None and cell.offered_share < sweep.offered and not failed:
        return f"this client kept only {cell.offered_share:.0%} of the load in flight"
    medians = [found for _, found in cell.doubts() if found.q == 0.5]
    if medians:
        return "this client read too late to be sure of a median"
    return ""


def _quantile(text: str, name: str) -> tuple[str | None, float | None]:
    """The metric and the quantile of a name such as ttft_p95; None of a number that has none."""
    if name in SHARES or name in PLAIN:
        return None, None
    if name.endswith("_slow5"):
        name = name.removesuffix("_slow5") + "_p5"
    metric, _, percent = name.rpartition("_p")
    if metric not in (*DURATIONS, *SPEEDS) or not percent.isdigit():
        known = ", ".join([*(f"{one}_p95" for one in DURATIONS), *(f"{s}_p50" for s in SPEEDS)])
        raise UsageError(
            f'"{text}": there is no number "{name}".',
            hint=f"Known: {known}, {', '.join([*SHARES, *PLAIN])}.",
        )
    rates = metric in SPEEDS
    qs, q = RATE_QS if rates else DURATION_QS, int(percent) / 100.0
    if q not in qs:
        those = ", ".join(f"{metric}_p{one * 100:g}" for one in qs)
        raise UsageError(f'"{text}": {name} is not measured.', hint=f"Measured are {those}.")
    return metric + ("_tps" if rates else "_ms"), q


def _scaled(text: str, name: str, metric: str | None, number: float, unit: str) -> float:
    if metric is not None and metric.endswith("_ms"):
        if unit not in _UNITS_MS:
            raise UsageError(f'"{text}": {name} needs a time, such as 500ms or 2s.', hint=EXAMPLE)
        return number * _UNITS_MS[unit]
    if name in SHARES:
        if unit not in {"", "%"} or (unit == "" and number > 1.0 and name != "retain"):
            raise UsageError(f'"{text}": {name} needs a share, such as 1% or 0.01.', hint=EXAMPLE)
        return number / 100.0 if unit == "%" else number
    allowed = _SPEED_UNITS if metric is not None or name == "throughput" else {""}
    if unit not in allowed:
        raise UsageError(f'"{text}": {name} has no unit "{unit}".', hint=EXAMPLE)
    return number


def _unknown(check: Check, cell: CellSummary) -> str:
    """Why nobody can say whether a cell keeps a limit; nothing where it can be said."""
    if check.metric is None or check.q is None:
        known = (SHARES | PLAIN)[check.name](cell) is not None
        return _unasked(check, cell) if known else "unknown"
    seen = cell.estimate(check.metric, check.q)
    if seen is None or seen.value is None:
        count = 0 if seen is None else seen.worth
        return f"n too small: {count} independent samples, {smallest_n(check.q)} needed"
    if seen.doubtful and _COMPARE[check.sign](seen.value, check.limit):
        better = seen.low if check.metric.endswith("_ms") else seen.high
        if better is None or not _COMPARE[check.sign](better, check.limit):
            return f"could not be judged: {doubt(check.metric, seen)}"
    return ""


def _unasked(check: Check, cell: CellSummary) -> str:
    """Why cases without an answer leave a limit on the pass rate open; else nothing."""
    if check.name != "pass" or cell.checks is None:
        return ""
    ends = (cell.checks.lowest, cell.checks.highest)
    if len({_COMPARE[check.sign](end, check.limit) for end in ends}) == 1:
        return ""
    missing = cell.checks.count("unanswered")
    return f"could not be judged: {missing} of {cell.checks.cases} cases have no answer"


def _broken(check: Check, cell: CellSummary) -> str:
    """Why a cell does not keep a limit; nothing where it does, or where its number is unknown."""
    if check.metric is None or check.q is None:
        value = (SHARES | PLAIN)[check.name](cell)
    else:
        value = cell.value(check.metric, check.q)
    if value is None or not _COMPARE[check.sign](value, check.limit):
        return ""
    return f"it is {_shown(check, value)}"


def _shown(check: Check, value: float) -> str:
    if check.name in SHARES:
        return f"{value:.1%}"
    if check.metric is None:
        return f"{value:.4g}"
    return f"{value:,.1f} {'tok/s' if check.metric.endswith('_tps') else 'ms'}"


def _ending(kept: float | None, failed: float, search: Search) -> str:
    """Why a search is over, or nothing."""
    if kept is None:
        return f"even {search.least:g}/s does not hold" if failed <= search.least else ""
    if kept >= search.most:
        return f"the highest allowed rate of {search.most:g}/s still holds"
    if failed <= kept * (1.0 + search.precision):
        return f"{kept:g}/s holds and {failed:g}/s does not"
    return ""


def _knee(ordered: Iterable[CellSummary], gain: float) -> float | None:
    known = [(c.throughput_tps, c.concurrency) for c in ordered if c.throughput_tps is not None]
    if not known:
        return None
    highest = max(rate for rate, _ in known)
    return next(c for rate, c in known if rate >= highest * (1.0 - gain))


def _float(value: Decimal | None) -> float | None:
    return None if value is None else float(value)
