"""The speed report as a page: one file that opens offline; the console serves the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.report.charts.speed_chart import speed_chart
from lightgate.report.charts.svg import element, escape
from lightgate.report.charts.use_chart import use_charts
from lightgate.report.pages import sections
from lightgate.report.pages.html import document, figures
from lightgate.report.tables.figures import DEFINITIONS, clean, dollars, explain, number
from lightgate.report.tables.hours import HEADS, hour_cells
from lightgate.report.tables.speed_lines import cells, heads, notes, title, tokens
from lightgate.report.tables.speed_report import arranged, grade_of, speed_of, ttft_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lightgate.ledger.store.hourly import HourlyRow
    from lightgate.ledger.store.queries import SpeedRow
    from lightgate.report.tables.speed_report import SpeedQuestion, SpeedReport

_MEANING: Final = {
    "grade": DEFINITIONS["grade"].text,
    "tok/s p50": f"Median. {DEFINITIONS['speed_total_tps'].text}",
    "95 %": "Interval of the median, from order statistics.",
    "TTFT p50": DEFINITIONS["ttft_ms"].text,
    "TTFT p95": DEFINITIONS["ttft_ms"].text,
    "n": "Successful requests.",
    "left out": "Attempts that failed, were cancelled, lost a race or were probes; their share.",
    "tokens out": "Of all attempts.",
    "cost": "Dollars of all attempts whose price is known.",
    "$/1k": "Dollars of 1,000 answered requests, what failed and lost a race included.",
    "tok/$": "Output tokens that a dollar bought.",
}


def speed_report_html(
    rows: Iterable[SpeedRow], asked: SpeedQuestion, hourly: Sequence[HourlyRow] = ()
) -> str:
    """Write the whole page: the chart, the table, what was left out, and what the numbers are."""
    report = arranged(rows, asked, hourly)
    return speed_page(report)


def speed_page(report: SpeedReport, more: Sequence[str] = ()) -> str:
    """Write the page of a report whose groups are sorted out; `more` are further sections."""
    asked = report.asked
    head = (
        element("p", "lightgate report", class_="brand")
        + element("h1", escape(f"How fast requests were, by {asked.by}"))
        + sections.paragraph(_finding(report), class_="finding")
        + sections.paragraph(title(report), class_="soft")
    )
    drawn = speed_chart(report)
    body = [element("header", head)]
    if drawn is not None:
        body.append(element("section", figures([drawn], wide=True), id="chart"))
    if report.rows:
        body.append(element("section", _table(report), id="groups"))
    if report.hourly:
        body.append(element("section", _hours(report.hourly), id="hours"))
    if report.own is not None:
        drawn_use = figures(use_charts(report.own), wide=True)
        hosted = element("h2", "Own machine or API, for this traffic")
        hosted += sections.break_even(report.own) + drawn_use
        body.append(element("section", hosted, id="own"))
    body += more
    told = "".join(sections.paragraph(line, class_="soft") for line in notes(report))
    body.append(element("section", told, id="notes"))
    return document(title(report), "".join(body))


def _finding(report: SpeedReport) -> str:
    first = next((row for row in report.rows if row.speed_total_p50 is not None), None)
    if not report.requests:
        return "There was no successful request in this period."
    if first is None:
        least = report.asked.min_requests
        return f"No {report.asked.by} has {least:,} successful requests in this period."
    judged = grade_of(first)
    graded = "" if judged is None else f", grade {judged}"
    near = [clean(row.name) for row in report.rows if row is not first and _overlap(first, row)]
    unsure = f" The interval of {' and '.join(near)} overlaps with it." if near else ""
    return (
        f"{clean(first.name)} is the fastest: {number(first.speed_total_p50)} tok/s at the median"
        f"{graded}, n = {first.successes:,}.{unsure}"
    )


def _overlap(first: SpeedRow, other: SpeedRow) -> bool:
    ahead, behind = first.speed_total_interval, other.speed_total_interval
    return ahead is not None and behind is not None and behind.high >= ahead.low


def _table(report: SpeedReport) -> str:
    top = "".join(
        element(
            "th",
            escape(head.title),
            scope="col",
            title=_MEANING.get(head.title),
            class_=None if head.right else "name",
        )
        for head in heads(report)
    )
    body = "".join(_row(row) for row in report.rows)
    made = element("thead", element("tr", top)) + element("tbody", body)
    return element("div", element("table", made, class_="board"), class_="scroll tips", tabindex=0)


def _hours(rows: Sequence[HourlyRow]) -> str:
    """Write the table of self-hosted providers."""
    top = "".join(
        element("th", escape(title), scope="col", class_="name" if at == 0 else None)
        for at, title in enumerate(HEADS)
    )
    lines = []
    for row in rows:
        name, *shown = hour_cells(row)
        first = element("th", escape(name), scope="row", class_="name", title=row.provider)
        lines.append(element("tr", first + "".join(element("td", escape(text)) for text in shown)))
    made = element("thead", element("tr", top)) + element("tbody", "".join(lines))
    return element("div", element("table", made, class_="board"), class_="scroll", tabindex=0)


def _row(row: SpeedRow) -> str:
    name, *shown = cells(row)
    told = _behind(row)
    made = [element("th", escape(name), scope="row", class_="name", title=row.name)]
    made += [
        element("td", escape(text), title=meaning, class_="lead" if at == 1 else None)
        for at, (text, meaning) in enumerate(zip(shown, told, strict=True))
    ]
    return element("tr", "".join(made))


def _behind(row: SpeedRow) -> Sequence[str]:
    """Return the tooltip of each figure of a row: interval, n, definition."""
    counted = f"n = {row.successes:,}."
    speed = explain(speed_of(row), "speed_total_tps")
    each = row.cost_usd / row.successes if row.cost_usd and row.successes else None
    return (
        f"{counted} {_MEANING['grade']}",
        speed,
        speed,
        explain(ttft_of(row, 0.5), "ttft_ms"),
        explain(ttft_of(row, 0.95), "ttft_ms"),
        _MEANING["n"],
        f"{row.attempts:,} attempts. {_MEANING['left out']}",
        f"{tokens(row.tokens_in)} in, {tokens(row.tokens_out)} out. {counted}",
        f"{dollars(each)} a successful request. {_MEANING['cost']} {counted}",
        f"{_MEANING['$/1k']} {counted}",
        _MEANING["tok/$"],
    )
