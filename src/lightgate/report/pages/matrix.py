"""Every target against every other as a matrix: one table for each load and metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.report.charts.svg import element, escape
from lightgate.report.tables.arrange import blocks, loads, names
from lightgate.report.tables.figures import DOT, percent, probability
from lightgate.report.tables.sentences import faster_by, title_of, versus_sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.ledger.runs.run import Run, Versus

MATRIX_MEANS: Final = (
    "Read a row: with + its target is so much faster than the one above, with \N{MINUS SIGN} the "
    "one above is so much faster. \u2248 is a tie; a question mark is a difference that is not "
    "sure. Point at a figure for its interval, P and n."
)


def matrices(run: Run) -> list[tuple[str, str]]:
    """Return a heading and a table for each load and metric, the heaviest load first."""
    made = []
    for load in reversed(loads(run)):
        found = [versus for versus in run.versus if versus.load == load]
        for metric in dict.fromkeys(versus.metric for versus in found):
            pairs = {
                frozenset((versus.a, versus.b)): versus
                for versus in found
                if versus.metric == metric
            }
            table = _matrix(run, load, pairs)
            if table:
                made.append((f"{load}, {title_of(metric)}", table))
    return made


def _matrix(run: Run, load: str, pairs: Mapping[frozenset[str], Versus]) -> str:
    """Write one matrix, its targets in the order of the board."""
    short = names(run)
    block = next(block for block in blocks(run) if block.load == load)
    order = [row.cell.target for row in block.rows]
    if not any(pair <= set(order) for pair in pairs):
        return ""
    head = "".join(element("th", escape(short[name]), scope="col") for name in order)
    rows = "".join(
        element(
            "tr",
            element("th", escape(short[row]), scope="row")
            + "".join(_cell(row, pairs.get(frozenset((row, column))), short) for column in order),
        )
        for row in order
    )
    corner = element("td")
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", corner + head)) + element("tbody", rows),
            class_="matrix",
        ),
        class_="scroll tips",
        tabindex=0,
    )


def _cell(row: str, versus: Versus | None, short: Mapping[str, str]) -> str:
    if versus is None or versus.a == versus.b:
        return element("td", DOT, class_="none")
    found = f"{versus_sentence(versus, dict(short))}; p (Holm) {probability(versus.p_adjusted)}, "
    told = f"{found}n = {versus.comparison.n:,}."
    if versus.verdict == "tie":
        return element("td", "\u2248", class_="none", title=told)
    share, _, _ = faster_by(versus)
    if versus.verdict not in {"a faster", "b faster"}:
        return element("td", f"{percent(share)} ?", class_="none", title=told)
    ahead = (versus.verdict == "a faster") == (row == versus.a)
    sign = "+" if ahead else "\N{MINUS SIGN}"
    return element("td", f"{sign}{percent(share)}", class_="calm" if ahead else "alert", title=told)
