"""The end of a run in the terminal: one table a load, then what was found in sentences.

Columns that do not fit side by side go into a second table under the first, so nothing is folded
or cut; where no terminal looks on, every load is one table.
"""

from __future__ import annotations

import io
import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from lightgate.report.charts.curves import curves
from lightgate.report.tables.arrange import (
    blocks,
    counted,
    error_share,
    failures,
    grade_of,
    names,
    shared_model,
    shortened,
    shown_workload,
    targets,
)
from lightgate.report.tables.figures import (
    DEFINITIONS,
    DOT,
    DOUBTFUL,
    GUESSED,
    LEGEND,
    bounds,
    clean,
    dollars,
    guessed,
    number,
    percent,
    probability,
    shorten,
    shown,
)
from lightgate.report.tables.layout import PIPE_WIDTH, TextColumn, print_columns
from lightgate.report.tables.own_or_api import folded_rows, own_columns, own_notes
from lightgate.report.tables.passes import CHECKS_HEADING, pass_sentences, rate_bounds, rate_of
from lightgate.report.tables.sentences import (
    FASTER_MEANS,
    answered,
    engine_sentences,
    failing_sentence,
    health_sentence,
    run_remarks,
    twin_sentences,
    versus_sentence,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console

    from lightgate.ledger.runs.run import CellSummary, Run
    from lightgate.report.tables.arrange import Block, CellRow

TIE: Final = "≈"
OWN_OR_API: Final = "Own machine or API"
_LONGEST_NAME: Final = 28


def print_run(run: Run, console: Console, *, with_curves: bool = True) -> None:
    """Print everything that a run found."""
    from rich.text import Text

    console.print(Text(_title(run), style="bold"))
    for block in blocks(run):
        console.print()
        _print_block(block, console)
    console.print()
    console.print(Text(_legend(run), style="dim"))
    if with_curves:
        drawn = curves(run, width=min(console.width, 100))
        if drawn is not None:
            console.print()
            console.print(drawn)
    for heading, lines in _sections(run):
        console.print()
        console.print(Text(heading, style="bold"))
        if heading == OWN_OR_API and (rows := folded_rows(run)):
            print_columns(own_columns(rows), console)
        for line in lines:
            console.print(Text(_indented(line, console.width)), soft_wrap=True)


def _indented(line: str, width: int) -> str:
    """A sentence of a section; what does not fit on its line goes on further to the right."""
    depth = " " * (2 + len(line) - len(line.lstrip()))
    return textwrap.fill(
        line.lstrip(),
        width,
        initial_indent=depth,
        subsequent_indent=f"{depth}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def plain(run: Run, *, width: int = PIPE_WIDTH, with_curves: bool = True) -> str:
    """Write the run as text without colours, lines not longer than `width` where that can be."""
    from rich.console import Console

    page = io.StringIO()
    console = Console(
        file=page, width=width, color_system=None, force_terminal=False, highlight=False
    )
    print_run(run, console, with_curves=with_curves)
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def _title(run: Run) -> str:
    model = shared_model(run)
    count = len(targets(run))
    many = "1 target" if count == 1 else f"{count} targets"
    sent = ", ".join(
        f"{clean(key).replace('_', ' ')} {clean(text)}" for key, text in shown_workload(run)
    )
    place = [f"from {clean(run.options['place'])}"] if run.options.get("place") else []
    known = [part for part in (model, sent) if part]
    parts = [f"Run {clean(run.id)}", *place, many, *known]
    return " · ".join(shorten(part, 120) for part in parts)


def _print_block(block: Block, console: Console) -> None:
    from rich.text import Text

    metric = DEFINITIONS[block.metric].title
    void = "  (void: a target compared with itself differs)" if block.void else ""
    console.print(Text(f"{clean(block.load)}, by {metric} p50{void}", style="bold"))
    if not block.rows:
        console.print(Text("  nothing was measured"))
        return
    print_columns(_columns(block), console)
    failing = failing_sentence(block)
    if failing:
        console.print(Text(failing))


def _columns(block: Block) -> list[list[TextColumn]]:
    """Return the columns: names, speed, steadiness, then errors and price."""
    rows, metric = block.rows, block.metric
    fast = [
        _column(DEFINITIONS[metric].title + " p50", rows, lambda row: _headline(row, metric)),
        _column("95 %", rows, lambda row: _interval(row.cell, metric)),
        _column("p95", rows, lambda row: shown(row.cell.estimate(metric, 0.95))),
        _column("p99", rows, lambda row: shown(row.cell.estimate(metric, 0.99))),
    ]
    if not block.wordless:
        fast += [
            _column("tok/s p50", rows, lambda row: _speed(row.cell, 0.5)),
            _column("slow 5 %", rows, lambda row: _speed(row.cell, 0.05)),
        ]
    system = [
        *([] if metric == "e2e_ms" else [_times("stall p95", rows), _times("e2e p50", rows)]),
        *_rates(block),
        _column("in flight", rows, lambda row: number(row.cell.inflight)),
    ]
    well = [
        _column("errors", rows, lambda row: _errors(row.cell)),
        _column("goodput", rows, lambda row: percent(row.cell.goodput)),
        *_passed(rows),
        _column("$/1k", rows, lambda row: dollars(row.cell.cost.per_1k)),
        *([] if block.wordless else [_column("grade", rows, lambda r: grade_of(r.cell) or DOT)]),
        _column("rank", rows, _rank),
        _column("P(fastest)", rows, _p_fastest),
        _column("n", rows, lambda row: counted(row.cell, metric)),
    ]
    target = tuple(shorten(row.name, _LONGEST_NAME) for row in rows)
    return [[TextColumn("target", target, right=False)], fast, system, well]


def _passed(rows: Iterable[CellRow]) -> list[TextColumn]:
    """Return the pass rates of the user's own checks, where there are some."""
    if all(row.cell.checks is None for row in rows):
        return []
    return [
        _column("passed", rows, lambda row: rate_of(row.cell)),
        _column("95 %", rows, lambda row: rate_bounds(row.cell)),
    ]


def _times(title: str, rows: Iterable[CellRow]) -> TextColumn:
    """Return the column of a time beside the headline: longest gap, or whole."""
    name, q = ("stall_ms", 0.95) if title == "stall p95" else ("e2e_ms", 0.5)
    return _column(title, rows, lambda row: shown(row.cell.estimate(name, q)))


def _rates(block: Block) -> list[TextColumn]:
    """Return what all requests together came to: tokens, or answers that have none."""
    rows = block.rows
    if not block.wordless:
        tokens = _column(
            "throughput", rows, lambda row: guessed(row.cell, number(row.cell.throughput_tps))
        )
        return [tokens]
    return [
        _column("req/s", rows, lambda row: number(row.cell.requests_per_s)),
        _column("tok in/s", rows, lambda row: number(row.cell.tokens_in_per_s)),
    ]


def _column(title: str, rows: Iterable[CellRow], show: Callable[[CellRow], str]) -> TextColumn:
    return TextColumn(title, tuple(show(row) for row in rows))


def _headline(row: CellRow, metric: str) -> str:
    return f"{TIE if row.tie else ''}{shown(row.cell.estimate(metric, 0.5))}"


def _speed(cell: CellSummary, q: float) -> str:
    return guessed(cell, shown(cell.estimate("speed_tps", q)))


def _interval(cell: CellSummary, metric: str) -> str:
    found = cell.estimate(metric, 0.5)
    return (bounds(found.interval) if found is not None else "") or DOT


def _errors(cell: CellSummary) -> str:
    bad = sum(failures(cell).values())
    return f"{bad:,} ({percent(error_share(cell), digits=1)})" if bad else "0"


def _rank(row: CellRow) -> str:
    if row.standing is None:
        return DOT
    best, worst = row.standing.best, row.standing.worst
    return str(best) if best == worst else f"{best}\N{EN DASH}{worst}"


def _p_fastest(row: CellRow) -> str:
    return DOT if row.standing is None else probability(row.standing.p_fastest)


def _legend(run: Run) -> str:
    marks = [LEGEND, "times in ms, throughput in tok/s"]
    arranged = blocks(run)
    if any(row.tie for block in arranged for row in block.rows):
        marks.append(f"{TIE} = ties with the first row")
    if any(row.cell.doubts() for block in arranged for row in block.rows):
        marks.append(f"{DOUBTFUL} = doubtful, see the remarks")
    if any(cell.tokens_source.get("estimate") for cell in run.cells):
        marks.append(f"{GUESSED} = from an estimate of the tokens, a quarter of the characters")
    return "; ".join(marks)


def _sections(run: Run) -> Iterator[tuple[str, list[str]]]:
    """Return the headings and their lines; headings without lines are left out."""
    found = [
        ("Who is faster", _versus_lines(run)),
        (CHECKS_HEADING, pass_sentences(run)),
        ("Why", _verdict_lines(run)),
        ("What the engine says", engine_sentences(run)),
        ("By region", _region_lines(run)),
        ("Which to take", _pick_lines(run)),
        ("Questions", _answer_lines(run)),
        (OWN_OR_API, own_notes(run)),
        ("Remarks", [*run_remarks(run), health_sentence(run.health)]),
    ]
    return ((heading, lines) for heading, lines in found if lines)


def _versus_lines(run: Run) -> list[str]:
    """Compare neighbours in each table; the page and the record have all pairs."""
    short = names(run)
    near = {
        (block.load, frozenset((upper.cell.target, lower.cell.target)))
        for block in blocks(run)
        for upper, lower in pairwise(block.rows)
    }
    lines = [
        f"{clean(versus.load)}: {versus_sentence(versus, short)}"
        for versus in run.versus
        if (versus.load, frozenset((versus.a, versus.b))) in near
    ]
    return [*lines, *([FASTER_MEANS] if lines else []), *twin_sentences(run)]


def _region_lines(run: Run) -> list[str]:
    """Tell the first token and the speed of each target from each region."""
    short = names(run)
    return [
        f"{clean(part.region)}: {short.get(cell.target, clean(cell.target))} at {clean(cell.load)},"
        f" first token p50 {shown(cell.estimate('ttft_ms', 0.5))},"
        f" p95 {shown(cell.estimate('ttft_ms', 0.95))},"
        f" {_speed(cell, 0.5)} tok/s, {cell.outcomes.get('ok', 0)} of {cell.requests} answered."
        for part in run.regions
        for cell in part.cells
    ]


def _verdict_lines(run: Run) -> list[str]:
    short = names(run)
    lines = []
    for verdict in run.verdicts:
        name = short.get(verdict.target, clean(verdict.target))
        lines.append(f"{name}: {verdict.name}. {clean(shortened(verdict.sentence, short))}")
        lines += [f"  - {clean(evidence)}" for evidence in verdict.evidence]
    return lines


def _answer_lines(run: Run) -> list[str]:
    return [
        line
        for question, lines in answered(run)
        for line in (question, *(f"  - {line}" for line in lines))
    ]


def _pick_lines(run: Run) -> list[str]:
    short = names(run)
    lines = []
    for pick in run.picks:
        name = "no pick" if pick.target is None else short.get(pick.target, clean(pick.target))
        because = clean(shortened(pick.because, short))
        lines.append(f"{pick.profile}: {name}. {because} (SLO: {clean(pick.source)})")
    return lines
