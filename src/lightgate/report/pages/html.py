"""report.html: one file that opens offline, in light and dark, with nothing fetched from anywhere.

Whatever comes from outside (names, error texts, notes) is escaped where it is put in, and the
page's own policy forbids every script but the one whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.ledger.runs.samples import UNTOLD
from lightgate.report.charts.charts import cost_map, degradation, distributions
from lightgate.report.charts.strips import ROWS, strips
from lightgate.report.charts.svg import Picture, element, escape, marker, stylesheet
from lightgate.report.charts.use_chart import use_charts
from lightgate.report.pages import sections
from lightgate.report.pages.board import board, load_board
from lightgate.report.tables.arrange import blocks, names, shared_model, shown_workload, targets
from lightgate.report.tables.figures import (
    DEFINITIONS,
    LEGEND,
    clean,
    milliseconds,
    probability,
)
from lightgate.report.tables.passes import CHECKS_HEADING
from lightgate.report.tables.sentences import failing_sentence, health_sentence, run_remarks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.ledger.runs.run import Run
    from lightgate.report.pages.material import Material
    from lightgate.report.tables.arrange import Block

OPEN_REMARKS: Final = 4  # of "Before you trust it"; the others are folded up


def page(material: Material) -> str:
    """Write the whole page of a run."""
    made = [part for part in _parts(material) if part.body]
    body = _top(material.run, made) + "".join(map(_section, made))
    return document(_title(material.run), body)


def document(title: str, body: str) -> str:
    """Write a page with our style, our one script and a policy that forbids everything else."""
    script = stylesheet("report.js")
    seal = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{seal}'"
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title>"
        f"<style>{stylesheet('chart.css')}{stylesheet('report.css')}</style>"
    )
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body><main>{body}</main>'
        f'<div id="tip" role="tooltip" hidden></div><script>{script}</script></body></html>\n'
    )


class PagePart(NamedTuple):
    """One section of the page; those that few readers need are folded up."""

    key: str
    heading: str
    body: str
    folded: bool = False


def _parts(material: Material) -> list[PagePart]:
    """Return all sections: what a colleague reads in a minute first, the rest folded below."""
    run = material.run
    ended = sections.outcomes(material) if run.cells else ""
    return [
        PagePart("picks", "Which to take", sections.picks(run) if run.picks else ""),
        PagePart("leaderboard", "Leaderboard", _boards(run, blocks(run))),
        PagePart("checks", CHECKS_HEADING, sections.checks(run)),
        PagePart("remarks", "Before you trust it", _remarks(run)),
        PagePart("degradation", "Under load", _degradation(run)),
        PagePart("verdicts", "Why", sections.why(run)),
        PagePart("cost", "Cost and speed", _cost(run)),
        PagePart("questions", "Questions", sections.questions(run), folded=True),
        PagePart("comparisons", "Who is faster", sections.comparisons(run), folded=True),
        PagePart("distribution", "How TTFT is spread", _distributions(material), folded=True),
        PagePart("arrivals", "When tokens arrive", _arrivals(material), folded=True),
        PagePart("outcomes", "How requests ended", ended, folded=True),
        PagePart("method", "Method", sections.method(run), folded=True),
    ]


def _section(part: PagePart) -> str:
    heading = element("h2", escape(part.heading))
    if not part.folded:
        return element("section", heading + part.body, id=part.key)
    folded = element("details", element("summary", heading) + part.body, class_="part")
    return element("section", folded, id=part.key)


def _remarks(run: Run) -> str:
    """Write the first remarks openly, the others folded up."""
    told = run_remarks(run)
    first, rest = told[:OPEN_REMARKS], told[OPEN_REMARKS:]
    more = element("summary", f"{len(rest)} more") + sections.listing(rest) if rest else ""
    return sections.listing(first) + (element("details", more) if more else "")


def _title(run: Run) -> str:
    model = shared_model(run)
    short = list(names(run).values())
    who = ", ".join(short) if len(short) <= 3 else f"{len(short)} targets"
    return f"{who}: {model}" if model else f"How fast: {who}"


def _top(run: Run, found: Sequence[PagePart]) -> str:
    links = "".join(element("a", escape(part.heading), href=f"#{part.key}") for part in found)
    sent = ", ".join(f"{key.replace('_', ' ')} {text}" for key, text in shown_workload(run))
    place = f"from {clean(run.options['place'])}" if run.options.get("place") else ""
    parts = (run.started, place, sent, health_sentence(run.health))
    line = " · ".join(part for part in parts if part)
    finding = _finding(run)
    return element(
        "header",
        element("p", "lightgate bench", class_="brand")
        + element("h1", escape(clean(_title(run))))
        + (sections.paragraph(finding, class_="finding") if finding else "")
        + sections.paragraph(line, class_="soft")
        + element("nav", links, aria_label="Sections"),
    )


def _finding(run: Run) -> str:
    """Say the first row of the heaviest load in one sentence; empty where it has no number."""
    arranged = [block for block in blocks(run) if block.rows and not block.void]
    if not arranged:
        return ""
    block = arranged[-1]
    first = block.rows[0]
    middle = first.cell.value(block.metric, 0.5)
    if middle is None or len(targets(run)) < 2:
        return ""
    tied = [row.name for row in block.rows if row.tie]
    with_whom = f", tied with {', '.join(tied)}" if tied else ""
    sure = first.standing.p_fastest if first.standing else None
    odds = "" if sure is None else f"; P(fastest) {probability(sure)}"
    name = DEFINITIONS[block.metric].title
    odds += "; its cell is doubtful, see below" if first.cell.doubts() else ""
    return (
        f"At {block.load} {first.name} has the lowest {name}: "
        f"{milliseconds(middle)} at the median{with_whom}{odds}."
    )


def _boards(run: Run, arranged: Sequence[Block]) -> str:
    """Write the heaviest load openly and the others folded up; of one target, a row a load."""
    known = [block for block in arranged if block.rows]
    if not known:
        return ""
    failing = {block.load: _failing(block) for block in known}
    if len(targets(run)) == 1:
        parts = [load_board(run, known), *failing.values()]
    else:
        heaviest = known[-1]
        parts = [
            element("h3", escape(_board_title(heaviest))),
            board(run, heaviest) + failing[heaviest.load],
            *(
                element(
                    "details",
                    element("summary", escape(_board_title(block)))
                    + board(run, block)
                    + failing[block.load],
                )
                for block in reversed(known[:-1])
            ),
        ]
    text = f"Times in ms, throughput in tok/s. {LEGEND}; ≈ = ties with the first row."
    return "".join(parts) + sections.paragraph(text, class_="soft")


def _board_title(block: Block) -> str:
    void = " (ranking void: a target compared with itself differs)" if block.void else ""
    return f"{block.load}{void}"


def _failing(block: Block) -> str:
    text = failing_sentence(block)
    return sections.paragraph(f"W{text[1:]}.", class_="soft") if text else ""


def _degradation(run: Run) -> str:
    panels = degradation(run)
    text = "Points are quantiles, thin lines their 95 % intervals. Both axes are logarithmic."
    return figures(panels) + sections.paragraph(text, class_="soft") if panels else ""


def _distributions(material: Material) -> str:
    panels = distributions(material.run, material.by_cell)
    text = (
        "The share of requests whose first token had arrived. A curve that ends below 100 % lost "
        "the rest to failures. Markers stand at the median, failures counted as never arriving. "
        f"{_from(material)}"
    )
    return (
        _key(material.run) + figures(panels) + sections.paragraph(text, class_="soft")
        if panels
        else ""
    )


def _from(material: Material) -> str:
    """Say which requests a chart of single requests shows."""
    if material.untold:
        return f"This run {UNTOLD}, and left out of the tables."
    return "The requests are those of the tables: the warm-up and the ramp are cut off."


def _arrivals(material: Material) -> str:
    drawn = strips(material.run, material.by_cell, material.recordings)
    text = (
        f"One row a request, a tick where a burst arrived; up to {ROWS} requests a target, every "
        "k-th in the order of sending. The grey line is the wait for the first token, a cross a "
        f"failure, a faint tick reasoning. {_from(material)}"
    )
    return figures(drawn, wide=True) + sections.paragraph(text, class_="soft") if drawn else ""


def _cost(run: Run) -> str:
    drawn = cost_map(run)
    text = "Filled: the heaviest load; hollow: lighter ones."
    hosted = sections.break_even(run)
    charts = figures(use_charts(run), wide=True) if hosted else ""
    told = element("h3", "Own machine or API") + hosted + charts if hosted else ""
    if drawn is None:
        missing = "No price is known for these targets." if run.cells else ""
        return (sections.paragraph(missing, class_="soft") if missing else "") + told
    shown = figures([drawn], wide=True) + sections.paragraph(text, class_="soft")
    return shown + sections.costs(run) + told


def _key(run: Run) -> str:
    short = names(run)
    entries = [
        element("span", Picture(14, 14, marker(at, 7, 7), "").svg() + escape(short[target]))
        for at, target in enumerate(targets(run))
    ]
    return element("p", "".join(entries), class_="key")


def figures(drawn: Sequence[Picture], *, wide: bool = False) -> str:
    """Put charts side by side, or one below the other where they are wide."""
    made = "".join(element("figure", one.svg(), class_="tips", tabindex=0) for one in drawn)
    return element("div", made, class_="figures wide" if wide else "figures")
