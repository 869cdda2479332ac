"""summary.csv: one row a cell, flat columns, empty where a number does not exist.

The columns are a contract with spreadsheets and scripts: add at the end, never rename. They are
listed in docs/guides/reports.md; a test compares the two.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from lightgate.clock.outcome import Outcome
from lightgate.clock.timing import SHOWN
from lightgate.ledger.runs.checked import STATES
from lightgate.report.tables.arrange import error_share, grade_of
from lightgate.report.tables.figures import reached

if TYPE_CHECKING:
    from lightgate.ledger.runs.run import CellSummary, Run, TargetFacts

_DURATIONS: Final = (
    "ttft_ms",
    "ttft_plan_ms",
    "ttfa_ms",
    "e2e_ms",
    "e2e_plan_ms",
    "stall_ms",
    "gap_ms",
    "tth_ms",
)
# Columns are added at the end of the file: a new number of SHOWN gets its own there.
_ADDED: Final = tuple([name for name in SHOWN if name.endswith("_ms") and name not in _DURATIONS])
_FAILING: Final = tuple(name for name in _DURATIONS if name != "gap_ms")  # a failure has no gaps
_RATES: Final = ("speed_tps", "speed_total_tps")
_TAILS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_SLOW: Final = {"p50": 0.5, "slow5": 0.05}
_PLAIN: Final = (
    "window_s",
    "steady",
    "throughput_tps",
    "inflight",
    "little",
    "offered_share",
    "batch_eff",
    "retain",
    "goodput",
    "words_per_s",
    "parallel_gain",
    "tokens_in_p50",
    "tokens_out_p50",
    "cold_ttft_p50_ms",
    "cached_ttft_p50_ms",
)
_COSTS: Final = (
    "out_per_mtok",
    "in_per_mtok",
    "per_request",
    "per_good_request",
    "spent",
    "source",
)
_PLAIN_ADDED: Final = ("requests_per_s", "tokens_in_per_s")
_CHECKED: Final = (
    *("check_cases", "pass_rate", "pass_rate_low", "pass_rate_high"),
    *(f"check_{state}" for state in STATES),
)
_COSTS_ADDED: Final = ("per_1k", "tokens_per_dollar", "speed_per_dollar")


def columns() -> tuple[str, ...]:
    """Return the header of the file."""
    return (
        *("run_id", "started", "definitions", "target", "provider", "model", "twin_of"),
        *("load", "concurrency", "rate", "requests", "warmup"),
        *(f"outcome_{outcome.value}" for outcome in Outcome),
        "error_share",
        *(name for metric in _DURATIONS for name in _quantile_columns(metric, _TAILS)),
        *(name for metric in _RATES for name in _quantile_columns(metric, _SLOW)),
        *("grade", *_PLAIN),
        *(f"cost_{name}" for name in _COSTS),
        *(name for metric in _FAILING for name in _failing_columns(metric)),
        *(name for metric in _ADDED for name in _quantile_columns(metric, _TAILS)),
        *(name for metric in _ADDED for name in _failing_columns(metric)),
        *(f"cost_{name}" for name in _COSTS_ADDED),
        "doubtful",
        *(name for metric in (*_DURATIONS, *_ADDED) for name in _bound_columns(metric, _TAILS)),
        *(name for metric in _RATES for name in _bound_columns(metric, _SLOW)),
        *_PLAIN_ADDED,
        *_CHECKED,
    )


def summary_csv(run: Run) -> str:
    """Write the whole file, with its header."""
    page = io.StringIO()
    writer = csv.DictWriter(page, columns(), lineterminator="\n")
    writer.writeheader()
    facts = {target.name: target for target in run.targets}
    for cell in run.cells:
        writer.writerow(_row(run, cell, facts.get(cell.target)))
    return page.getvalue()


def _quantile_columns(metric: str, tails: dict[str, float]) -> tuple[str, ...]:
    stem, _, unit = metric.rpartition("_")
    names = [f"{stem}_{tail}_{unit}" for tail in tails]
    return (f"{stem}_n", *names, f"{stem}_p50_low_{unit}", f"{stem}_p50_high_{unit}")


def _failing_columns(metric: str) -> tuple[str, ...]:
    stem, _, unit = metric.rpartition("_")
    return (
        f"{stem}_with_failures_n",
        *(f"{stem}_with_failures_{tail}_{unit}" for tail in _TAILS),
    )


def _bound_columns(metric: str, tails: dict[str, float]) -> tuple[str, ...]:
    stem, _, unit = metric.rpartition("_")
    return tuple(f"{stem}_{tail}_bound_{end}_{unit}" for tail in tails for end in ("low", "high"))


def _row(run: Run, cell: CellSummary, facts: TargetFacts | None) -> dict[str, object]:
    row: dict[str, object] = {
        "run_id": harmless(run.id),
        "started": harmless(run.started),
        "definitions": harmless(run.definitions),
        "target": harmless(cell.target),
        "provider": harmless(facts.provider if facts else None),
        "model": harmless(facts.model if facts else None),
        "twin_of": harmless(facts.twin_of if facts else None),
        "load": harmless(cell.load),
        "concurrency": cell.concurrency,
        "rate": cell.rate,
        "requests": cell.requests,
        "warmup": cell.warmup,
        "error_share": error_share(cell),
        "grade": grade_of(cell),
        "doubtful": "; ".join(f"{metric} {one.q:g}" for metric, one in cell.doubts()),
    }
    row |= {f"outcome_{outcome.value}": cell.outcomes.get(outcome.value, 0) for outcome in Outcome}
    for metric in (*_DURATIONS, *_ADDED):
        row |= _quantiles(cell, metric, _TAILS)
    for metric in _RATES:
        row |= _quantiles(cell, metric, _SLOW)
    for metric in (*_FAILING, *_ADDED):
        row |= _failing(cell, metric)
    for metric in (*_DURATIONS, *_ADDED, *_RATES):
        row |= _bounds(cell, metric, _SLOW if metric in _RATES else _TAILS)
    row |= {name: harmless(getattr(cell, name)) for name in (*_PLAIN, *_PLAIN_ADDED)}
    row |= _checked(cell)
    return row | {
        f"cost_{name}": harmless(getattr(cell.cost, name)) for name in (*_COSTS, *_COSTS_ADDED)
    }


def _checked(cell: CellSummary) -> dict[str, object]:
    """Write the pass rate of the user's own checks; empty columns where there were none."""
    found = cell.checks
    if found is None:
        return {}
    interval = found.interval
    ends = (None, None) if interval is None else (interval.low, interval.high)
    counts = (found.count(state) for state in STATES)
    return dict(zip(_CHECKED, (found.cases, found.rate, *ends, *counts), strict=True))


def _quantiles(cell: CellSummary, metric: str, tails: dict[str, float]) -> dict[str, object]:
    found = [cell.estimate(metric, q) for q in tails.values()]
    middle = found[0]
    between = None if middle is None else middle.interval
    figures = [
        None if middle is None else middle.n,
        *(None if one is None else one.value for one in found),
        None if between is None else between.low,
        None if between is None else between.high,
    ]
    return dict(zip(_quantile_columns(metric, tails), figures, strict=True))


def _bounds(cell: CellSummary, metric: str, tails: dict[str, float]) -> dict[str, object]:
    found = [cell.estimate(metric, q) for q in tails.values()]
    ends = [end for one in found for end in ((None, None) if one is None else (one.low, one.high))]
    return dict(zip(_bound_columns(metric, tails), ends, strict=True))


def _failing(cell: CellSummary, metric: str) -> dict[str, object]:
    """Write a quantile; one that is a failure is `inf`, which scripts read as a number."""
    found = [cell.estimate(metric, q, failures=True) for q in _TAILS.values()]
    figures = [None if found[0] is None else found[0].n, *map(reached, found)]
    return dict(zip(_failing_columns(metric), figures, strict=True))


def harmless(value: object) -> object:
    """Make text from outside harmless: a spreadsheet must not read it as a formula."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
