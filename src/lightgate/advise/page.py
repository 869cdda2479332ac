"""Advice as a section of an HTML report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.advise.lines import HEADS, MEANS, cells, refused_lines, saving, title
from lightgate.report.charts.svg import element, escape
from lightgate.report.pages.sections import listing, paragraph, table

if TYPE_CHECKING:
    from lightgate.advise.advice import Advice
    from lightgate.advise.advise import AdviceReport


def advice_section(report: AdviceReport) -> str:
    """Write the section: the table, each advice, and what is not offered."""
    made = element("h2", "What to change") + paragraph(title(report), class_="finding")
    if report.offered:
        rows = [tuple(map(escape, cells(at, one))) for at, one in enumerate(report.offered, 1)]
        made += element("div", table(HEADS, rows, class_="plain"), class_="scroll", tabindex=0)
        made += paragraph(MEANS, class_="soft")
        made += "".join(_one(at, one) for at, one in enumerate(report.offered, 1))
    rest = refused_lines(report)
    if rest:
        head = element(
            "summary", escape(f"{len(rest)} other changes, and why they are not offered")
        )
        made += element("details", head + listing(rest))
    return element("section", made, id="advice")


def _one(at: int, advice: Advice) -> str:
    told = element("h3", escape(f"{at}. {advice.kind}, {advice.model}")) + paragraph(advice.finding)
    if advice.change is not None:
        told += paragraph(f"Saves {saving(advice.change)}.", class_="soft")
    told += paragraph(f"Worse: {advice.worse}", class_="soft")
    told += element("pre", escape(advice.apply.rstrip("\n")))
    return told + paragraph(f"Check: {advice.verify}: {advice.expect}", class_="soft")
