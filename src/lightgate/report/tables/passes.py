"""The user's own checks in words: pass rates, targets against each other, what did not pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.ledger.runs.checked import STATES
from lightgate.report.tables.arrange import names
from lightgate.report.tables.figures import DOT, clean, percent, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.ledger.runs.checked import FailedCase, PassPair, PassRate
    from lightgate.ledger.runs.run import CellSummary, Run

CHECKS_HEADING: Final = "Your checks"
RATE_HEADS: Final = ("target", "load", "passed", "95 %", *STATES[1:], "by tag")
FAILED_HEADS: Final = ("target", "load", "case", "state", "why")
PAIR_MEANS: Final = (
    "All targets were asked the same cases, so they are compared by the cases on which they "
    "disagree (McNemar's exact test). A case without an answer is in no rate."
)
_SHOWN: Final = 10  # cases that did not pass, in the terminal


def rate_of(cell: CellSummary) -> str:
    """Write the pass rate of a cell; a dot where there is none."""
    return DOT if cell.checks is None else percent(cell.checks.rate, digits=1)


def rate_bounds(cell: CellSummary) -> str:
    """Write the interval of the pass rate."""
    found = None if cell.checks is None else cell.checks.interval
    return DOT if found is None else f"{100 * found.low:.0f}\N{EN DASH}{100 * found.high:.0f} %"


def rate_rows(run: Run) -> list[tuple[str, ...]]:
    """Return a row for each cell, under `RATE_HEADS`."""
    short = names(run)
    return [
        (
            short[cell.target],
            clean(cell.load),
            f"{rate_of(cell)} ({cell.checks.passed:,} of {cell.checks.answered:,})",
            rate_bounds(cell),
            *(f"{cell.checks.count(state):,}" for state in STATES[1:]),
            _tags(cell.checks),
        )
        for cell in run.cells
        if cell.checks is not None and cell.target in short
    ]


def _tags(found: PassRate) -> str:
    told = [f"{clean(tag)} {passed}/{n}" for tag, (passed, n) in found.tags.items()]
    return ", ".join(told) or DOT


def failed_rows(run: Run) -> list[tuple[str, ...]]:
    """Return the cases that did not pass, under `FAILED_HEADS`."""
    short = names(run)
    return [_failed(one, short) for one in (() if run.checks is None else run.checks.failures)]


def _failed(one: FailedCase, short: Mapping[str, str]) -> tuple[str, ...]:
    name = short.get(one.target, clean(one.target))
    return (name, clean(one.load), clean(one.case), one.state, shorten(clean(one.why), 300))


def pass_sentences(run: Run) -> list[str]:
    """Say who passed how much, who passed more, and what did not pass."""
    if run.checks is None:
        return []
    short = names(run)
    lines = [
        f"{short[cell.target]} at {clean(cell.load)} passes {cell.checks.says()}"
        f"{_apart(cell.checks)}."
        for cell in run.cells
        if cell.checks is not None and cell.target in short
    ]
    lines += pair_sentences(run)
    bad = failed_rows(run)
    lines += [
        f"  - {name} at {load}, case {case}: {state}: {why}"
        for name, load, case, state, why in bad[:_SHOWN]
    ]
    more = len(bad) - _SHOWN + run.checks.left_out
    return [*lines, *([f"  - and {more:,} more, in checks.jsonl"] if more > 0 else [])]


def _apart(found: PassRate) -> str:
    """Say how many did not pass, by their states."""
    counts = [(found.count(state), state) for state in STATES[1:]]
    told = ", ".join(f"{count:,} {state}" for count, state in counts if count)
    return f": {told}" if told else ""


def pair_sentences(run: Run) -> list[str]:
    """Say of every two targets which of them passes more, and how sure that is."""
    short = names(run)
    pairs = () if run.checks is None else run.checks.pairs
    twins = {target.name for target in run.targets if target.twin_of is not None}
    return [_twice(one, short) if one.b in twins else _pair(one, short) for one in pairs]


def _pair(one: PassPair, short: Mapping[str, str]) -> str:
    a, b = (short.get(name, clean(name)) for name in (one.a, one.b))
    told = {
        "a passes more": f"{a} passes more than {b}",
        "b passes more": f"{b} passes more than {a}",
        "too few differ": f"{a} and {b}: they differ in too few cases to say which passes more",
    }.get(one.verdict, f"{a} and {b}: no difference shown")
    gap = ""
    if one.difference is not None and one.interval is not None:
        low, high = 100 * one.interval.low, 100 * one.interval.high
        gap = f"; {100 * one.difference:+.1f} points ({low:+.1f} to {high:+.1f})"
    return (
        f"{clean(one.load)}: {told}: {one.only_a} cases only {a} passes, {one.only_b} only {b}"
        f"{gap}; p = {one.p_adjusted:.2g}"
    )


def _twice(one: PassPair, short: Mapping[str, str]) -> str:
    changed, all_ = one.only_a + one.only_b, one.both + one.only_a + one.only_b + one.neither
    name = short.get(one.a, clean(one.a))
    return f"{clean(one.load)}: {name} asked twice: {changed} of {all_} cases came out differently"
