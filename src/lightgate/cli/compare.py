"""`lightgate compare`: two runs, and whether the newer one is worse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lightgate.cli.options import json_option
from lightgate.cli.output import Column, emit_json, emit_table, note
from lightgate.errors import ThresholdMissed, UsageError

if TYPE_CHECKING:
    from lightgate.bench.statistics.regress import Change, Compared, Side

_COLUMNS = (
    Column("target"), Column("load"), Column("metric"), Column("n", "right"), Column("A", "right"),
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
    help="Exit with 6 if B is surely worse than A by more than this, such as 5%.",
)
@click.option(
    "--metric", "metrics", multiple=True, help="Only this one, such as ttft_ms; repeatable."
)
@click.option("--seed", default=1, show_default=True, help="Seed of the resampling.")
@json_option
def command(
    *,
    old: Path,
    new: Path,
    limit: str | None,
    metrics: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Compare the run folders A (old) and B (new), target by target and load by load.

    A change is a ratio of medians with its interval; a tie is called a tie. A regression is a
    change whose whole interval lies beyond the tolerance (5 % unless --fail-on-regression says).
    """
    import numpy as np

    from lightgate.bench.statistics.regress import METRICS, TOLERANCE, compare_runs

    for metric in metrics:
        if metric not in METRICS:
            raise UsageError(
                f"There is no metric {metric!r}.", hint=f"One of {', '.join(METRICS)}."
            )
    tolerance = TOLERANCE if limit is None else _share(limit)
    compared = compare_runs(
        _side(old), _side(new), rng=np.random.default_rng(seed), tolerance=tolerance,
        metrics=metrics,
    )  # fmt: skip
    for warning in compared.warnings:
        note(f"Warning: {warning}")
    if not compared.changes:
        raise UsageError("Nothing could be compared.", hint="Do the runs share a target and load?")
    if as_json:
        emit_json({"regressions": len(compared.regressions), "comparison": compared})
    else:
        emit_table(
            _COLUMNS, [_row(change) for change in compared.changes], caption=_CAPTION, names=3
        )
    if limit is not None:
        _judge(compared)


_CAPTION = (
    "Medians; 1.10 is ten percent worse, whatever the metric; failed is in points. The interval"
    " holds what varies inside the runs, not what changes between them."
)


def _judge(compared: Compared) -> None:
    worst = compared.regressions
    if worst:
        first = worst[0]
        more = f" (and {len(worst) - 1} more)" if len(worst) > 1 else ""
        where = f"{first.target} {first.load}".strip()
        raise ThresholdMissed(
            f"{where}: {first.metric} is worse by more than {compared.tolerance:.3g}: "
            f"{_by(first)} ({_interval(first)}){more}."
        )
    unsure = sum(change.call == "n too small" for change in compared.changes)
    note("No regression." + (f" {unsure} comparisons had too few samples." if unsure else ""))


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
    from lightgate.bench.statistics.regress import FAILED

    shown = "{:.1%}" if change.metric == FAILED else "{:,.1f}"
    cells = ("·" if value is None else shown.format(value) for value in (change.old, change.new))
    return (
        change.target, change.load, change.metric, f"{change.n_old}, {change.n_new}", *cells,
        _by(change), _interval(change), change.call,
    )  # fmt: skip


def _by(change: Change) -> str:
    from lightgate.bench.statistics.regress import FAILED

    if change.worse is None or change.interval is None:
        return "·"
    return f"{change.worse:+.1%}" if change.metric == FAILED else f"{change.worse:.3f}"


def _interval(change: Change) -> str:
    from lightgate.bench.statistics.regress import FAILED

    if change.interval is None:
        return "·"
    form = "{:+.1%} to {:+.1%}" if change.metric == FAILED else "{:.3f} to {:.3f}"
    return form.format(change.interval.low, change.interval.high)
