"""The speed report as lines: a table for people, Markdown for pasting, CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.report.money.machines import MEANS as OWN_MEANS
from lightgate.report.money.machines import use_sentences
from lightgate.report.tables.figures import (
    DOT,
    bounds,
    clean,
    dollars,
    milliseconds,
    number,
    percent,
    shorten,
)
from lightgate.report.tables.hours import HEADS, MEANS, hour_cells, hour_columns
from lightgate.report.tables.layout import GAP, PIPE_WIDTH, TextColumn, print_columns
from lightgate.report.tables.own_or_api import HEADS as OWN_HEADS
from lightgate.report.tables.own_or_api import folded_rows, own_columns, own_notes
from lightgate.report.tables.speed_report import (
    cost_1k_of,
    definition,
    grade_of,
    owner_sentence,
    preliminary_sentence,
    small_sentence,
    tokens_per_dollar_of,
    ttft_of,
)
from lightgate.report.tables.summary_csv import harmless

if TYPE_CHECKING:
    from rich.console import Console

    from lightgate.ledger.store.queries import SpeedRow
    from lightgate.report.tables.speed_report import SpeedReport

_SMALL_LINES: Final = 12  # groups that are named below the table
_GROUPS: Final = (1, 4, 6, 12)  # columns that stay together: speed, TTFT, how many and how dear
_NARROWEST: Final = 16  # of the names
_MILLION: Final = 1_000_000
_COLUMNS: Final = (
    "by",
    "name",
    "since",
    "until",
    "enough",
    "exact",
    "requests",
    "attempts",
    "grade",
    "speed_total_p50_tps",
    "speed_total_p50_low_tps",
    "speed_total_p50_high_tps",
    "ttft_p50_ms",
    "ttft_p95_ms",
    "tokens_in",
    "tokens_out",
    "cost_usd",
    "cost_1k_usd",
    "tokens_per_dollar",
)


class ReportHead(NamedTuple):
    """A column's heading and whether numbers stand in it."""

    title: str
    right: bool = True


def heads(report: SpeedReport) -> tuple[ReportHead, ...]:
    """Return the headings of the table."""
    return (
        ReportHead(report.asked.by, right=False),
        ReportHead("grade"),
        ReportHead("tok/s p50"),
        ReportHead("95 %"),
        ReportHead("TTFT p50"),
        ReportHead("TTFT p95"),
        ReportHead("n"),
        ReportHead("left out"),
        ReportHead("tokens out"),
        ReportHead("cost"),
        ReportHead("$/1k"),
        ReportHead("tok/$"),
    )


def cells(row: SpeedRow) -> tuple[str, ...]:
    """Return the cells of one group."""
    return (
        clean(row.name),
        grade_of(row) or DOT,
        number(row.speed_total_p50),
        bounds(row.speed_total_interval) or DOT,
        milliseconds(ttft_of(row, 0.5).value),
        milliseconds(ttft_of(row, 0.95).value),
        f"{row.successes:,}",
        left_out(row),
        tokens(row.tokens_out),
        dollars(row.cost_usd or None),
        dollars(cost_1k_of(row)),
        _per_dollar(row),
    )


def _per_dollar(row: SpeedRow) -> str:
    bought = tokens_per_dollar_of(row)
    return DOT if bought is None else tokens(round(bought))


def left_out(row: SpeedRow) -> str:
    """Write how many attempts failed, were cancelled, lost a race or were probes; their share."""
    rest = row.attempts - row.successes
    return f"{rest:,} ({percent(rest / row.attempts, digits=1)})" if rest > 0 else "0"


def tokens(count: int) -> str:
    """Write a count of tokens: whole, or in millions."""
    return f"{count:,}" if count < _MILLION else f"{number(count / _MILLION)} M"


def title(report: SpeedReport) -> str:
    """Write what the report is about."""
    asked = report.asked
    return (
        f"Speed by {asked.by}, {asked.since[:16]}Z to {asked.until[:16]}Z, "
        f"{report.requests:,} successful requests"
    )


def notes(report: SpeedReport) -> list[str]:
    """Write the lines below the table: groups that are too small, and what the numbers are."""
    lines = [line] if (line := preliminary_sentence(report)) else []
    if report.small:
        named = [
            f"{shorten(clean(row.name), 60)} ({row.successes:,})"
            for row in report.small[:_SMALL_LINES]
        ]
        more = len(report.small) - len(named)
        listed = ", ".join([*named, *([f"{more:,} more"] if more else [])])
        lines.append(f"{small_sentence(report)}: {listed}.")
    if any(not row.exact for row in report.rows):
        lines.append("Speeds and times come from sketches and are within 1 %.")
    lines += [line] if (line := owner_sentence(report.asked)) else []
    lines += [definition(report.asked), *([MEANS] if report.hourly else [])]
    if report.own is not None:
        lines += [*use_sentences(report.machines, report.own.break_even), OWN_MEANS]
        lines += own_notes(report.own)[1:]
    return lines


def print_speed(report: SpeedReport, console: Console) -> None:
    """Print the table, in several parts where the terminal is narrow, and the notes below it."""
    from rich.text import Text

    console.print(Text(title(report), style="bold"))
    console.print()
    if report.rows:
        print_columns(_columns(report, console.width), console)
        console.print()
    elif not report.requests:
        console.print(Text("There was no successful request in this period."))
        console.print()
    else:
        console.print(Text(f"{small_sentence(report)}; --min-requests 1 shows them all the same."))
        console.print()
    if report.hourly:
        print_columns(hour_columns(report.hourly), console)
        console.print()
    if report.own is not None and (rows := folded_rows(report.own)):
        print_columns(own_columns(rows), console)
        console.print()
    for line in notes(report):
        console.print(Text(line, style="dim"))


def _columns(report: SpeedReport, width: int) -> list[list[TextColumn]]:
    """Return names, speed, TTFT and counts; names are cut where the widest group would not fit."""
    rows = [cells(row) for row in report.rows]
    columns = [
        TextColumn(head.title, tuple(shown), right=head.right)
        for head, shown in zip(heads(report), zip(*rows, strict=True), strict=True)
    ]
    groups = [columns[start:stop] for start, stop in pairwise(_GROUPS)]
    widest = max(sum(column.width + GAP for column in group) for group in groups)
    room = max(width - widest, _NARROWEST)
    names = tuple(shorten(name, room) for name in columns[0].cells)
    return [[TextColumn(columns[0].title, names, right=False)], *groups]


def plain_speed(report: SpeedReport) -> str:
    """Write the report as text without colours."""
    from rich.console import Console

    page = io.StringIO()
    print_speed(
        report, Console(file=page, width=PIPE_WIDTH, color_system=None, force_terminal=False)
    )
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def speed_data(report: SpeedReport) -> dict[str, object]:
    """Return the report for programs; groups that are too small have their counts only."""
    return {
        **msgspec.structs.asdict(report.asked),
        "definition": definition(report.asked),
        "requests": report.requests,
        "rows": [
            {
                "grade": grade_of(row),
                **msgspec.structs.asdict(row),
                "cost_1k_usd": cost_1k_of(row),
                "tokens_per_dollar": tokens_per_dollar_of(row),
            }
            for row in report.rows
        ],
        "small": [
            {"name": row.name, "successes": row.successes, "attempts": row.attempts}
            for row in report.small
        ],
        "hourly": [msgspec.structs.asdict(row) for row in report.hourly],
        "machines": report.machines,
        "break_even": () if report.own is None else report.own.break_even,
    }


def markdown(report: SpeedReport) -> str:
    """Write the report as Markdown, for an issue, a chat or a wiki."""
    head = heads(report)
    lines = [f"**{title(report)}**", ""]
    if report.rows:
        lines += [
            f"| {' | '.join(one.title for one in head)} |",
            f"|{'|'.join('--:' if one.right else ':--' for one in head)}|",
            *(f"| {' | '.join(_in_markdown(row))} |" for row in report.rows),
            "",
        ]
    if report.hourly:
        lines += [
            f"| {' | '.join(HEADS)} |",
            f"|:--|{'--:|' * (len(HEADS) - 1)}",
            *(f"| {' | '.join(map(_literal, hour_cells(row)))} |" for row in report.hourly),
            "",
        ]
    if report.own is not None and (rows := folded_rows(report.own)):
        lines += [
            f"| {' | '.join(OWN_HEADS)} |",
            f"|{':--|' * len(OWN_HEADS)}",
            *(f"| {' | '.join(map(_literal, row))} |" for row in rows),
            "",
        ]
    for line in notes(report):
        lines += [_literal(line), ""]
    return "\n".join(lines)


def speed_csv(report: SpeedReport) -> str:
    """Write one row per group, not rounded; groups that are too small have their counts only."""
    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in report.rows:
        writer.writerow(_values(report, row, enough=True))
    for row in report.small:
        writer.writerow(_values(report, row, enough=False))
    return page.getvalue()


def _values(report: SpeedReport, row: SpeedRow, *, enough: bool) -> list[object]:
    asked, between = report.asked, row.speed_total_interval
    measured = (
        grade_of(row),
        row.speed_total_p50,
        None if between is None else between.low,
        None if between is None else between.high,
        ttft_of(row, 0.5).value,
        ttft_of(row, 0.95).value,
    )
    return [
        *(asked.by, harmless(row.name), asked.since, asked.until),
        *(harmless(enough), harmless(row.exact), row.successes, row.attempts),
        *(measured if enough else [None] * len(measured)),
        *(row.tokens_in, row.tokens_out, row.cost_usd),
        *(cost_1k_of(row), tokens_per_dollar_of(row)),
    ]


def _in_markdown(row: SpeedRow) -> list[str]:
    name, *shown = cells(row)
    return [_literal(name), *shown]


def _literal(text: str) -> str:
    """Escape text, so that it cannot end a cell, start a link or be markup."""
    return "".join(f"\\{char}" if char in "\\|`*_[]<>" else char for char in text)
