"""A recording read again by another tool's rules, beside ours, with the reason of each difference.

Percentiles are taken as that tool takes them; ours are nearest ranks. A quantile with too few
samples for an interval is marked `enough = False`: our side then has no value at all.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.bench.interop.rules import RULES, RuleReading
from lightgate.clock.load import in_statistics
from lightgate.clock.quantile import compat, quantile, smallest_n
from lightgate.clock.timing import NS_PER_MS
from lightgate.errors import UsageError
from lightgate.ledger.runs.samples import Samples, load_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.bench.interop.rules import Percentile, Rule
    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.recording import Recording
    from lightgate.ledger.runs.run import Run

METRICS: Final = ("ttft_ms", "ttfa_ms", "tpot_ms", "itl_ms", "speed_tps", "e2e_ms", "tokens")
DURATIONS: Final = (0.5, 0.95, 0.99)
RATES: Final = (0.5, 0.05)  # of a rate the bad tail is the low one
SAME: Final = 0.002  # differences below this share need no reason

Pair = tuple["AttemptRecord", "Recording"]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One quantile of one metric, theirs and ours; `beside` names our metric."""

    metric: str
    beside: str
    q: float
    n: int
    theirs: float | None
    ours: float | None
    enough: bool
    why: str = ""  # empty where the two are the same

    @property
    def ratio(self) -> float | None:
        """Theirs over ours."""
        return None if self.theirs is None or not self.ours else self.theirs / self.ours


class Reread(msgspec.Struct, frozen=True, kw_only=True):
    """One target under one load, read by the rule `rule`."""

    rule: str
    target: str
    load: str
    requests: int
    lines: tuple[Line, ...]


def reread(
    run: Run, attempts: Sequence[AttemptRecord], recordings: Mapping[str, Recording], rule: str
) -> list[Reread]:
    """Read every cell of a run by one rule: the successes that its own tables are made of."""
    if rule not in RULES:
        raise UsageError(f"There is no rule {rule!r}.", hint=f"One of: {', '.join(RULES)}.")
    samples = Samples(run)
    cells: dict[tuple[str, str], list[Pair]] = {}
    for attempt in attempts:
        recording = recordings.get(attempt.id)
        if recording is None or not in_statistics(attempt):
            continue
        if samples.counts(attempt, recording):
            key = (attempt.target, load_of(attempt, recording))
            cells.setdefault(key, []).append((attempt, recording))
    if not cells:
        raise UsageError(
            "Nothing here can be read again: no successful request has its bursts recorded.",
            hint="A run folder needs attempts.jsonl and bursts.jsonl of the same run.",
        )
    return [
        Reread(
            rule=rule,
            target=target,
            load=load,
            requests=len(pairs),
            lines=tuple(_lines(pairs, RULES[rule])),
        )
        for (target, load), pairs in cells.items()
    ]


def percentile(
    values: Sequence[float], q: float, how: Percentile, weights: Sequence[float] | None = None
) -> float | None:
    """A percentile by a tool's own rule; weights belong to the step rule alone."""
    if not values:
        return None
    if how == "linear":
        return compat(values, q)
    if how == "index":
        return sorted(values)[min(len(values) - 1, int(len(values) * q))]
    if weights is None:
        return quantile(values, q)
    ordered = sorted(zip(values, weights, strict=True))
    goal, reached = q * math.fsum(weights) * (1.0 - 1e-12), 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= goal:
            return value
    return ordered[-1][0]


def _lines(pairs: Sequence[Pair], rule: Rule) -> list[Line]:
    readings = [rule.read(attempt, recording) for attempt, recording in pairs]
    lines: list[Line] = []
    for metric in METRICS:
        theirs, weights = _theirs(readings, metric, rule)
        if not theirs:
            continue
        beside = rule.speed_beside if metric == "speed_tps" else _BESIDE.get(metric, metric)
        ours = [value for pair in pairs for value in _ours(pair, beside)]
        for q in _wanted(metric):
            enough = min(len(theirs), len(ours) or len(theirs)) >= smallest_n(q)
            line = Line(
                metric=metric,
                beside=beside,
                q=q,
                n=len(theirs),
                theirs=percentile(theirs, q, rule.percentile, weights),
                ours=quantile(ours, q) if len(ours) >= smallest_n(q) else None,
                enough=enough,
            )
            lines.append(msgspec.structs.replace(line, why=_why(line, rule, ours)))
    return lines


_BESIDE: Final = {"itl_ms": "gap_ms", "tokens": "tokens_out"}


def _wanted(metric: str) -> tuple[float, ...]:
    if metric == "tokens":
        return (0.5,)
    return RATES if metric.endswith("_tps") else DURATIONS


def _theirs(
    readings: Sequence[RuleReading], metric: str, rule: Rule
) -> tuple[list[float], list[float] | None]:
    if metric == "itl_ms":
        values = [gap for reading in readings for gap in reading.itl_ms]
    else:
        seen = [getattr(reading, metric) for reading in readings]
        values = [value for value in seen if value is not None]
    if metric not in rule.weighted:
        return values, None
    # GuideLLM: a TPOT counts once for each token, an ITL once for each token but the first.
    less = 1.0 if metric == "itl_ms" else 0.0
    weights = [
        (reading.tokens or 0.0) - less
        for reading in readings
        if (reading.itl_ms if metric == "itl_ms" else reading.tpot_ms is not None)
    ]
    return values, weights


def _ours(pair: Pair, metric: str) -> list[float]:
    attempt, recording = pair
    if metric == "gap_ms":
        return [(later - earlier) / NS_PER_MS for earlier, later in pairwise(recording.at_ns)]
    if metric == "tpot_ms":
        return [1000.0 / attempt.speed_tps] if attempt.speed_tps else []
    value = getattr(attempt, metric)
    return [] if value is None else [float(value)]


def _why(line: Line, rule: Rule, ours: Sequence[float]) -> str:
    """The reason of a difference: the definition, or only the way percentiles are taken."""
    if not ours:
        return "not in this file by our definition"
    nearest = quantile(ours, line.q)
    if line.theirs is None or nearest is None or _same(line.theirs, nearest):
        return ""
    by_their_rule = percentile(ours, line.q, rule.percentile)
    if by_their_rule is not None and _same(line.theirs, by_their_rule):
        return _PERCENTILES[rule.percentile]
    return rule.reasons.get(line.metric, _PERCENTILES[rule.percentile])


_PERCENTILES: Final = {
    "linear": "percentiles are interpolated between two observed values",
    "step": "each request counts as often as it has tokens",
    "index": "percentiles are the value at the place int(n x q), one too far",
}


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= SAME * abs(b)
