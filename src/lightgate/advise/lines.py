"""Advice as lines: a table to choose from, then each advice with what to do and how to check it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from lightgate.advise.words import seconds, usd
from lightgate.report.tables.figures import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.advise.advice import Advice, AdvisedChange, SavedBounds
    from lightgate.advise.advise import AdviceReport

HEADS: Final = (
    "#", "what", "model", "seconds a request", "dollars", "effort", "method", "n",
)  # fmt: skip
MEANS: Final = (
    "Means over the requests that an advice touches, with the interval that holds the true one with"
    " 90 %; what is saved is positive. Ranked by the lower bound of the saved share, less where the"
    " effort is larger. What advice saves that names another under `not with` cannot be added."
)
WIDTH: Final = 100  # of a line in a file or a pipe, and the most in a terminal


def title(report: AdviceReport, width: int = WIDTH) -> str:
    """Say what was looked at and how much was found."""
    found = len(report.offered)
    what = "no advice" if not found else "1 advice" if found == 1 else f"{found} pieces of advice"
    return _filled(
        f"{what[0].upper()}{what[1:]} for {report.requests:,} answered requests of"
        f" {len(report.models)} model{'s' if len(report.models) != 1 else ''},"
        f" {report.since[:16]}Z to {report.until[:16]}Z.",
        width,
    )


def cells(at: int, advice: Advice) -> tuple[str, ...]:
    """The row of one advice."""
    change = advice.change
    return (
        str(at),
        advice.kind,
        clean(advice.model),
        "·" if change is None else _between(change.seconds_mean, seconds),
        "·" if change is None else saved_dollars(change),
        advice.effort,
        "·" if change is None else change.method,
        f"{advice.evidence.n:,}",
    )


def saved_dollars(change: AdvisedChange) -> str:
    """Dollars a month, or per 1,000 requests where there is no month."""
    if change.dollars_per_month is not None:
        return f"{_between(change.dollars_per_month, usd)} a month"
    return f"{_between(change.dollars_per_1k, usd)} per 1,000"


def _between(figure: SavedBounds, shown: Callable[[float], str]) -> str:
    if figure.value == figure.low == figure.high == 0.0:
        return "0"
    return f"{shown(figure.value)} ({shown(figure.low)} to {shown(figure.high)})"


def details(at: int, advice: Advice, width: int) -> list[str]:
    """The lines below the table for one advice."""
    change = advice.change
    lines = [_filled(f"{at}. {clean(advice.finding)}", width, indent="   ")]
    if change is not None:
        lines.append(_line("saves", saving(change), width))
    if advice.rehearsal is not None:
        lines.append(_line("rehearsed", rehearsed(advice), width))
    lines.append(_line("worse", advice.worse, width))
    lines += _block("do", advice.apply)
    lines.append(_line("check", f"{advice.verify}: {advice.expect}", width))
    if advice.excludes:
        lines.append(_line("not with", ", ".join(advice.excludes), width))
    told = f"{advice.evidence.n:,} requests, {advice.evidence.query}"
    lines.append(_line("evidence", told, width))
    return lines


def saving(change: AdvisedChange) -> str:
    """What a change saves, in one line."""
    return (
        f"{_between(change.seconds_mean, seconds)} a request ({change.of}), median"
        f" {seconds(change.seconds_p50)}, p95 {seconds(change.seconds_p95)};"
        f" {saved_dollars(change)}; {change.method}"
    )


def rehearsed(advice: Advice) -> str:
    """What the rehearsal saved, in one line."""
    told = advice.rehearsal
    if told is None:
        return ""
    money = "" if told.dollars_per_1k is None else f", {usd(told.dollars_per_1k)} per 1,000"
    return (
        f"{seconds(told.seconds_mean)} a request{money}, in {told.seeds} runs of the ledger's past"
    )


def refused_lines(report: AdviceReport) -> list[str]:
    """What is not offered, each with its reason."""
    return [
        f"{advice.id}: {clean(advice.finding)} Not offered: {advice.because}."
        if advice.state == "refused"
        else f"{advice.id}: {clean(advice.finding)} {advice.because}."
        for advice in report.advice
        if advice.state != "advised"
    ]


def plain_advice(report: AdviceReport, *, everything: bool, width: int = WIDTH) -> str:
    """The whole report as text below its table: details, and what is not offered."""
    lines: list[str] = []
    for at, advice in enumerate(report.offered, 1):
        lines += [*details(at, advice, width), ""]
    rest = refused_lines(report)
    if everything:
        lines += [_filled(line, width, indent="  ") for line in rest]
    elif rest:
        told = sum(advice.state == "informative" for advice in report.advice)
        known = f", {told} of them worth knowing" if told else ""
        lines.append(
            _filled(
                f"{_changes(len(rest))} looked at{known}; --all says what they are and why they"
                " are not offered.",
                width,
            )
        )
    return "\n".join(lines)


def _changes(n: int) -> str:
    return "1 other change was" if n == 1 else f"{n} other changes were"


def _line(name: str, text: str, width: int) -> str:
    wide = _filled(clean(text), width, " " * 14, " " * 14)
    return f"   {name:<11}{wide.lstrip()}"


def _filled(text: str, width: int, indent: str = "", first: str = "") -> str:
    """Text in lines of a width, all but the first indented; names and commands stay whole."""
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _block(name: str, text: str) -> list[str]:
    first, *others = text.rstrip("\n").split("\n")
    return [f"   {name:<11}{first}", *(f"{'':14}{line}" for line in others)]
