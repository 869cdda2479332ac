"""The parts of the page below the leaderboard: findings in words, outcomes, method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.clock.outcome import Outcome
from lightgate.report.charts.svg import Picture, element, escape
from lightgate.report.pages.material import error_texts
from lightgate.report.pages.matrix import MATRIX_MEANS, matrices
from lightgate.report.tables.arrange import loads, names, shortened, targets
from lightgate.report.tables.figures import (
    DEFINITIONS,
    DOT,
    dollars,
    number,
    percent,
    shorten,
)
from lightgate.report.tables.own_or_api import HEADS, own_notes, own_rows
from lightgate.report.tables.passes import (
    FAILED_HEADS,
    PAIR_MEANS,
    RATE_HEADS,
    failed_rows,
    pair_sentences,
    rate_rows,
)
from lightgate.report.tables.sentences import (
    FASTER_MEANS,
    answered,
    engine_sentences,
    health_sentence,
    twin_sentences,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lightgate.ledger.runs.run import CellSummary, CellVerdict, Pick, Run, TargetFacts
    from lightgate.report.pages.material import Material

_BAR: Final = (320.0, 12.0)
# Our own doing and the provider's refusals are told apart by colour; the legend names them all.
_KINDS: Final = {
    "ok": "ok",
    "rate_limited": "warn",
    "cut": "other",
    "cancelled": "other",
}


def paragraph(text: str, **attributes: object) -> str:
    """Write one paragraph of plain text."""
    return element("p", escape(text), **attributes)


def listing(lines: Iterable[str]) -> str:
    """Write a list of plain sentences."""
    items = "".join(element("li", escape(line)) for line in lines)
    return element("ul", items) if items else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], **attributes: object) -> str:
    """Write a plain table; the cells are markup."""
    top = element("tr", "".join(element("th", escape(text), scope="col") for text in head))
    body = "".join(element("tr", "".join(f"<td>{cell}</td>" for cell in row)) for row in rows)
    made = element("table", element("thead", top) + element("tbody", body), **attributes)
    return element("div", made, class_="scroll")


def picks(run: Run) -> str:
    """Write a card for each use, with the target to take."""
    return element("div", "".join(_pick(pick, names(run)) for pick in run.picks), class_="cards")


def _pick(pick: Pick, short: Mapping[str, str]) -> str:
    name = "no pick" if pick.target is None else short.get(pick.target, pick.target)
    limits = ", ".join(f"{key} {number(limit)}" for key, limit in pick.slo.items()) or "none"
    return element(
        "article",
        element("h3", escape(pick.profile))
        + paragraph(name, class_="big")
        + paragraph(shortened(pick.because, short))
        + paragraph(f"SLO: {limits} ({pick.source})", class_="soft"),
        class_="card",
    )


def questions(run: Run) -> str:
    """Write the questions that people bring to a report, with their answers."""
    return "".join(
        element("h3", escape(question)) + listing(lines) for question, lines in answered(run)
    )


def why(run: Run) -> str:
    """Write the verdicts, and what engines and GPUs said of themselves."""
    told = listing(engine_sentences(run))
    said = element("h3", "What the engine says") + told if told else ""
    return (verdicts(run) if run.verdicts else "") + said


def checks(run: Run) -> str:
    """Write who passed how many of the user's own cases, and fold up what did not pass."""
    rows = [tuple(map(escape, row)) for row in rate_rows(run)]
    if not rows or run.checks is None:
        return ""
    made = table(RATE_HEADS, rows, class_="plain")
    pairs = listing(pair_sentences(run))
    made += (pairs + paragraph(PAIR_MEANS, class_="soft")) if pairs else ""
    bad = [tuple(map(escape, row)) for row in failed_rows(run)]
    if bad:
        left = f", {run.checks.left_out:,} more in checks.jsonl" if run.checks.left_out else ""
        summary = element("summary", escape(f"{len(bad):,} cases that did not pass{left}"))
        made += element("details", summary + table(FAILED_HEADS, bad, class_="plain"))
    told = f"{len(run.checks.ids):,} cases of {run.checks.file}, SHA-256 {run.checks.sha256[:16]}…"
    return made + paragraph(told, class_="soft")


def verdicts(run: Run) -> str:
    """Write a card for each target: the verdict, how it degrades, the evidence."""
    short = names(run)
    made = [_verdict(verdict, short) for verdict in run.verdicts]
    return element("div", "".join(made), class_="cards wide")


def _verdict(verdict: CellVerdict, short: Mapping[str, str]) -> str:
    name = short.get(verdict.target, verdict.target)
    calm = "calm" if verdict.name in {"healthy", "not judged"} else "alert"
    badge = element("span", escape(verdict.name), class_=f"badge {calm}")
    return element(
        "article",
        element("h3", f"{escape(name)} {badge}")
        + paragraph(shortened(verdict.sentence, short))
        + listing(verdict.evidence),
        class_="card",
    )


def comparisons(run: Run) -> str:
    """Write every comparison of two targets as matrices; the first is open, the others folded."""
    made = matrices(run)
    if not made:
        return ""
    parts = [
        element("details", element("summary", escape(heading)) + table, open=None if at else "")
        for at, (heading, table) in enumerate(made)
    ]
    read = paragraph(f"{MATRIX_MEANS} {FASTER_MEANS}", class_="soft")
    return read + "".join(parts) + listing(twin_sentences(run))


def outcomes(material: Material) -> str:
    """Draw how requests ended, one bar per cell, and list what was said when they failed."""
    run, short = material.run, names(material.run)
    rows = [
        (escape(short[cell.target]), escape(cell.load), _bar(cell), escape(_counts(cell)))
        for load in loads(run)
        for cell in run.cells
        if cell.load == load and cell.target in short
    ]
    made = table(("target", "load", "ended", "counts"), rows, class_="plain")
    texts = [
        (
            f"{error.times:,}",
            escape(short.get(error.target, error.target)),
            escape(error.outcome if error.status is None else f"{error.outcome} {error.status}"),
            escape(shorten(error.text, 300)) or DOT,
        )
        for error in error_texts(material)
    ]
    if texts:
        made += element("h3", "What was said") + table(
            ("times", "target", "outcome", "error"), texts, class_="plain"
        )
    return made


def _bar(cell: CellSummary) -> str:
    total = sum(cell.outcomes.values())
    if not total:
        return DOT
    width, height = _BAR
    x, parts = 0.0, []
    for name, count in _ordered(cell):
        share = count / total * width
        title = element(
            "title", escape(f"{name}: {count:,} of {total:,} ({percent(count / total, digits=1)})")
        )
        kind = _KINDS.get(name, "bad")
        parts.append(
            element("rect", title, x=x, y=0, width=max(share, 1.0), height=height, class_=kind)
        )
        x += share
    return Picture(width, height, "".join(parts), _counts(cell)).svg()


def _ordered(cell: CellSummary) -> list[tuple[str, int]]:
    known = [outcome.value for outcome in Outcome]
    return sorted(
        ((name, count) for name, count in cell.outcomes.items() if count),
        key=lambda pair: (
            pair[0] != Outcome.OK.value,
            known.index(pair[0]) if pair[0] in known else 99,
        ),
    )


def _counts(cell: CellSummary) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in _ordered(cell))


def break_even(run: Run) -> str:
    """Write from which use on a machine of one's own is cheaper than each API."""
    rows = [tuple(map(escape, row)) for row in own_rows(run)]
    made = table(HEADS, rows, class_="plain") if rows else ""
    return made + "".join(paragraph(note, class_="soft") for note in own_notes(run))


def costs(run: Run) -> str:
    """Write the one cost of every cell, and what is derived from it for reading."""
    short, facts = names(run), {target.name: target for target in run.targets}
    rows = [
        (
            escape(short[cell.target]),
            escape(cell.load),
            dollars(cell.cost.per_1k),
            dollars(cell.cost.out_per_mtok),
            number(cell.cost.tokens_per_dollar),
            number(cell.cost.speed_per_dollar),
            _listed(facts[cell.target]),
        )
        for load in loads(run)
        for cell in run.cells
        if cell.load == load and cell.target in short and cell.cost.per_1k is not None
    ]
    heads = (
        *("target", "load", "$/1k requests", "$/Mtok out, with prompts", "tokens per $"),
        *("tok/s per $/h", "listed, in / out"),
    )
    if not rows:
        return ""
    summary = element("summary", "Cost of every cell")
    return element("details", summary + table(heads, rows, class_="plain"))


def _listed(target: TargetFacts) -> str:
    if target.hourly_cost is not None:
        return f"{dollars(target.hourly_cost)} an hour"
    return f"{dollars(target.price_input)} / {dollars(target.price_output)}"


def method(run: Run) -> str:
    """Write how the run was measured, so that every number can be judged and measured again."""
    requests = sum(cell.requests for cell in run.cells)
    warmup = sum(cell.warmup for cell in run.cells)
    facts = {
        "run": run.id,
        "started": run.started,
        "finished": run.finished or "interrupted",
        "definitions": run.definitions,
        "requests": f"{requests:,} counted, {warmup:,} cut off (warm-up and ramp)",
        "client": health_sentence(run.health).removeprefix("Client: "),
    }
    groups = (
        ("Run", facts),
        ("Sent", run.workload),
        ("Asked for", run.options),
        ("Made on", run.environment),
    )
    made = "".join(
        element("div", element("h3", title) + _facts(rows)) for title, rows in groups if rows
    )
    return element("div", made, class_="facts") + _targets(run) + _how_to_read()


def _facts(rows: Mapping[str, str]) -> str:
    lines = "".join(
        element("dt", escape(key.replace("_", " "))) + element("dd", escape(text) or DOT)
        for key, text in rows.items()
    )
    return element("dl", lines)


def _targets(run: Run) -> str:
    order = targets(run)
    rows = [
        (
            escape(target.name),
            escape(target.base_url),
            escape(target.dialect),
            _listed(target),
            escape(target.price_as_of or DOT),
            "" if target.name in order else escape(f"A/A twin of {target.twin_of}"),
        )
        for target in run.targets
    ]
    head = ("target", "address", "dialect", "$/Mtok in / out", "price of", "")
    return table(head, rows, class_="plain") if rows else ""


def _how_to_read() -> str:
    lines = [f"{meaning.title}: {meaning.text}" for meaning in DEFINITIONS.values()]
    first = (
        "Quantiles are nearest-rank: values that were observed. Intervals are 95 %, from order "
        "statistics; a number without one is a dot. Only complete answers enter them; failures are "
        "counted, drawn as requests that never arrive, and held against goodput. Outliers stay in."
    )
    return element("h3", "How to read it") + paragraph(first) + listing(lines)
