"""`lightgate compare`: two runs, and whether the newer one is worse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lightgate.cli.options import json_option
from lightgate.cli.output import Column, emit_json, emit_table, note
from lightgate.errors import NotJudged, ThresholdMissed, UsageError

if TYPE_CHECKING:
    from lightgate.bench.statistics.regress import Change, Compared, Side

_COLUMNS = (
    Column("target"), Column("load"), Column("figure"), Column("n", "right"), Column("A", "right"),
    Column("B", "right"), Column("worse by", "right"), Column("95 % interval", "right"),
    Column("verdict"),
)  # fmt: skip
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?)%?")


@click.command("compare", epilog="Example: lightgate compare runs/monday runs/today")
@click.argument("old", metavar="A", type=click.Path(path_type=Path))
@click.argument("new", metavar="B", type=click.Path(path_type=Path))
@click.option(
    "--fail-on-regression",
    "limit",
    metavar="PERCENT",
    help="Exit with 6 if B is surely worse than A by more than this, such as 5%, and with 7 if that"
    " cannot be said.",
)
@click.option(
    "--failure-points",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.0, 100.0),
    help="Failed requests per hundred, above those of A, that are a regression.",
)
@click.option(
    "--metric", "metrics", multiple=True, help="Only this one, such as ttft_ms; repeatable."
)
@click.option("--seed", default=1, show_default=True, help="Seed of the resampling.")
@json_option
def command(**given: Any) -> None:
    """Compare the run folders A (old) and B (new), target by target and load by load.

    Medians, slow ends (p95, of speeds the slow 5 %), failures and costs, each with its interval; a
    tie is called a tie. A regression is a change whose whole interval lies beyond the tolerance
    (5 % unless --fail-on-regression says), or surely more failures or fewer passed cases of
    --checks, by more than a point.
    """
    import numpy as np

    from lightgate.bench.statistics.regress import METRICS, TOLERANCE, Limits, compare_runs

    limit, metrics = given["limit"], given["metrics"]
    for metric in metrics:
        if metric not in METRICS:
            raise UsageError(
                f"There is no metric {metric!r}.", hint=f"One of {', '.join(METRICS)}."
            )
    limits = Limits(TOLERANCE if limit is None else _share(limit), given["failure_points"] / 100)
    rng = np.random.default_rng(given["seed"])
    old, new = _side(given["old"]), _side(given["new"])
    compared = compare_runs(old, new, rng=rng, limits=limits, metrics=metrics)
    for warning in compared.warnings:
        note(f"Warning: {warning}")
    if not compared.changes:
        raise UsageError("Nothing could be compared.", hint="Do the runs share a target and load?")
    if given["as_json"]:
        counts = {"regressions": len(compared.regressions), "unjudged": len(compared.unjudged)}
        emit_json({**counts, "comparison": compared})
    else:
        emit_table(
            _COLUMNS, [_row(change) for change in compared.changes], caption=_CAPTION, names=3
        )
    if limit is not None:
        _judge(compared)


_CAPTION = (
    "1.10 is ten percent worse, whatever the figure; failed and pass are in points. The interval"
    " holds what varies inside the runs, not what changes between them."
)


def _judge(compared: Compared) -> None:
    worst, unjudged = compared.regressions, compared.unjudged
    if worst:
        first = worst[0]
        raise ThresholdMissed(
            f"{_place(first)}: {_figure(first)} is worse by {_by(first)} ({_interval(first)}), more"
            f" than {_limit(first, compared)}{_more(worst)}."
        )
    if unjudged:
        from lightgate.bench.statistics.regress import needed

        first = unjudged[0]
        requests = max((needed(change) or 0 for change in unjudged), default=0)
        raise NotJudged(
            f"{_place(first)}: {_figure(first)} could not be judged: {_why(first)}"
            f"{_more(unjudged)}.",
            hint=f"About {requests:,} requests a side would do." if requests else "",
        )
    if compared.gone:
        target, load = compared.gone[0]
        raise NotJudged(f"{target} at {load} could not be judged: run B does not have it.")
    note("No regression.")


def _more(changes: list[Change]) -> str:
    return f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""


def _place(change: Change) -> str:
    return f"{change.target} {change.load}".strip()


def _limit(change: Change, compared: Compared) -> str:
    from lightgate.bench.statistics.regress import IN_POINTS

    if change.metric in IN_POINTS:
        return f"{compared.points * 100:.3g} points"
    return f"{compared.tolerance * 100:.3g} %"


def _why(change: Change) -> str:
    if change.call == "unclear":
        return f"the interval of the change is {_interval(change)}"
    return f"n too small ({_count(change, new=False)} and {_count(change, new=True)})"


def _side(path: Path) -> Side:
    from lightgate.bench.statistics.regress import Side
    from lightgate.ledger.runs.folder import RunFolder

    folder = RunFolder(path)
    return Side(folder.run(), folder.attempts(), folder.recordings())


def _share(text: str) -> float:
    match = _PERCENT.fullmatch(text.strip())
    share = float(match[1]) / 100 if match else -1.0
    if not 0.0 <= share < 1.0:
        raise UsageError(f"--fail-on-regression {text!r} is no percentage.", hint="Such as 5%.")
    return share


def _row(change: Change) -> tuple[str, ...]:
    from lightgate.bench.statistics.regress import COST, FAILED, PASSED

    shown = {FAILED: "{:.1%}", PASSED: "{:.1%}", COST: "${:,.4g}"}.get(change.metric, "{:,.1f}")
    cells = ("·" if value is None else shown.format(value) for value in (change.old, change.new))
    counts = f"{_count(change, new=False)}, {_count(change, new=True)}"
    return (
        change.target, change.load, _figure(change), counts, *cells, _by(change),
        _interval(change), change.call,
    )  # fmt: skip


def _figure(change: Change) -> str:
    """Name a figure as the tables do."""
    if change.q is None:
        return change.metric
    return f"{change.metric} {'slow 5 %' if change.q < 0.5 else f'p{change.q * 100:g}'}"


def _count(change: Change, *, new: bool) -> str:
    """Say how many requests there were, and how few they are worth where they hang together."""
    n, worth, waves = (
        (change.n_new, change.n_eff_new, change.waves_new)
        if new
        else (change.n_old, change.n_eff_old, change.waves_old)
    )
    if worth >= n:
        return f"{n:,}"
    return f"{n:,} in {waves:,} waves" if waves else f"{n:,} worth {worth:,}"


def _by(change: Change) -> str:
    from lightgate.bench.statistics.regress import IN_POINTS

    if change.worse is None or change.interval is None:
        return "·"
    return f"{change.worse:+.1%}" if change.metric in IN_POINTS else f"{change.worse:.3f}"


def _interval(change: Change) -> str:
    from lightgate.bench.statistics.regress import IN_POINTS

    if change.interval is None:
        return "·"
    form = "{:+.1%} to {:+.1%}" if change.metric in IN_POINTS else "{:.3f} to {:.3f}"
    return form.format(change.interval.low, change.interval.high)
