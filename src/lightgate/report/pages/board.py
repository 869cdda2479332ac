"""The leaderboard of the page: one table a load, every number with its n and its definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.report.charts.charts import whisker, whisker_scale
from lightgate.report.charts.svg import element, escape
from lightgate.report.tables.arrange import (
    counted,
    error_share,
    failures,
    grade_of,
    headline,
    sample_count,
    targets,
)
from lightgate.report.tables.figures import (
    DEFINITIONS,
    DOT,
    dollars,
    explain,
    guessed,
    number,
    percent,
    probability,
    shown,
)
from lightgate.report.tables.passes import rate_bounds, rate_of
from lightgate.report.tables.sentences import cell_remark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lightgate.ledger.runs.run import CellSummary, Run
    from lightgate.report.charts.svg import Scale
    from lightgate.report.tables.arrange import Block, CellRow


class BoardFigure(NamedTuple):
    """A number as it is shown, with its interval, its n and its definition."""

    text: str
    title: str


WHISKERS: Final = "interval, and to p95"
# Heading and definition.
_HEADS: Final = (
    ("p95", "metric"),
    ("p99", "metric"),
    ("tok/s", "speed_tps"),
    ("slow 5 %", "speed_tps"),
    ("stall p95", "stall_ms"),
    ("e2e p50", "e2e_ms"),
    ("through\u00adput", "throughput"),
    ("in flight", "inflight"),
    ("errors", "errors"),
    ("good\u00adput", "goodput"),
    ("passed", "passed"),
    ("$/1k", "cost"),
    ("grade", "grade"),
    ("P(fast\u00adest)", "p_fastest"),
    ("n", "n"),
)


def board(run: Run, block: Block) -> str:
    """Write the table of one load, a row for each target."""
    return _table(run, "target", [(row, row.name) for row in block.rows], block)


def load_board(run: Run, arranged: Sequence[Block]) -> str:
    """Write the one table of a run with a single target, a row for each load."""
    rows = [(row, row.cell.load) for block in arranged for row in block.rows]
    return _table(run, "load", rows, arranged[0])


def _table(run: Run, first: str, rows: Sequence[tuple[CellRow, str]], block: Block) -> str:
    metric = block.metric
    series = {target: at for at, target in enumerate(targets(run))}
    scale = whisker_scale([row.cell for row, _ in rows], metric)
    heads = _heads(first, metric, wordless=block.wordless)
    if all(row.cell.checks is None for row, _ in rows):
        heads = [head for head in heads if head[0] != "passed"]
    body = "".join(
        _row(row, name, [head for head, _ in heads], metric, (series[row.cell.target], scale))
        for row, name in rows
    )
    named = {first: "name", WHISKERS: "w"}
    head = "".join(_th(text, title, class_=named.get(text)) for text, title in heads)
    table = element("thead", element("tr", head)) + element("tbody", body)
    return element("div", element("table", table, class_="board"), class_="scroll tips", tabindex=0)


def _named(metric: str, *, wordless: bool) -> Iterator[tuple[str, str]]:
    """Return the headings of the figures; answers without tokens have no speed."""
    for head, name in _HEADS:
        if name == "throughput" and wordless:
            yield from (("req/s", "served"), ("tok in/s", "read"))
        elif not (wordless and name in {"speed_tps", "grade"}):
            yield head, metric if name == "metric" else name


def _heads(first: str, metric: str, *, wordless: bool) -> list[tuple[str, str]]:
    """Return the headings with their definitions."""
    title = DEFINITIONS[metric].title
    meaning = f"{title}, ms. {DEFINITIONS[metric].text}"
    order = "From the lightest load." if first == "load" else f"Ordered by the median of {title}."
    return [
        (first, order),
        ("rank", f"{DEFINITIONS['rank'].text}"),
        (f"{title} p50", meaning),
        (WHISKERS, "The median, its 95 % interval (band) and p95 (end of the line), logarithmic."),
        *((head, DEFINITIONS[name].text) for head, name in _named(metric, wordless=wordless)),
    ]


def _th(text: str, title: str, **attributes: object) -> str:
    return element("th", escape(text), scope="col", title=title, **attributes)


def _row(
    row: CellRow,
    called: str,
    heads: Sequence[str],
    metric: str,
    drawing: tuple[int, Scale | None],
) -> str:
    """Write one row; each cell carries its heading, which a narrow screen shows beside it."""
    cell, (series, scale) = row.cell, drawing
    remark = cell_remark(cell)
    flag = element("span", "!", class_="flag", title=remark) if remark else ""
    tie = element("span", "≈", class_="tie", title="Ties with the first row.") if row.tie else ""
    name = element("th", escape(called) + flag, scope="row", class_="name", title=cell.target)
    drawn = "" if scale is None else whisker(series, cell, metric, scale)
    labels = [head.replace("\u00ad", "") for head in heads]
    known = _figures(row, metric)
    figures = "".join(_td(known[label], label) for label in labels[4:])
    rank = _td(_rank(row), labels[1])
    lead = _td(_quantile(cell, metric, 0.5), labels[2], tie, class_="lead")
    wide = element("td", drawn or DOT, class_="w")
    return element("tr", f"{name}{rank}{lead}{wide}{figures}")


def _td(figure: BoardFigure, label: str, before: str = "", **attributes: object) -> str:
    text = before + escape(figure.text)
    return element("td", text, title=figure.title, data_label=label, **attributes)


def _figures(row: CellRow, metric: str) -> dict[str, BoardFigure]:
    """Return the figures of a row by their headings."""
    cell = row.cell
    n = f"n = {sample_count(cell, metric):,}."
    graded = f"n = {sample_count(cell, 'speed_total_tps'):,}."
    return {
        "p95": _quantile(cell, metric, 0.95),
        "p99": _quantile(cell, metric, 0.99),
        "tok/s": _quantile(cell, "speed_tps", 0.5),
        "slow 5 %": _quantile(cell, "speed_tps", 0.05),
        "stall p95": _quantile(cell, "stall_ms", 0.95),
        "e2e p50": _quantile(cell, "e2e_ms", 0.5),
        "throughput": BoardFigure(
            guessed(cell, number(cell.throughput_tps)), _window(cell, "throughput", "tok/s")
        ),
        "req/s": BoardFigure(number(cell.requests_per_s), _window(cell, "served", "per second")),
        "tok in/s": BoardFigure(number(cell.tokens_in_per_s), _window(cell, "read", "tok/s")),
        "in flight": BoardFigure(number(cell.inflight), _window(cell, "inflight", "requests")),
        "errors": BoardFigure(percent(error_share(cell), digits=1), _errors(cell)),
        "goodput": BoardFigure(
            percent(cell.goodput), f"n = {cell.requests:,}. {DEFINITIONS['goodput'].text}"
        ),
        "passed": BoardFigure(
            rate_of(cell), f"95 %: {rate_bounds(cell)}. {DEFINITIONS['passed'].text}"
        ),
        "$/1k": BoardFigure(dollars(cell.cost.per_1k), _cost(cell)),
        "grade": BoardFigure(grade_of(cell) or DOT, f"{graded} {DEFINITIONS['grade'].text}"),
        "P(fastest)": BoardFigure(
            DOT if row.standing is None else probability(row.standing.p_fastest),
            f"{n} {DEFINITIONS['p_fastest'].text}",
        ),
        "n": BoardFigure(
            counted(cell, metric), f"{cell.warmup:,} were cut off. {DEFINITIONS['n'].text}"
        ),
    }


def _quantile(cell: CellSummary, metric: str, q: float) -> BoardFigure:
    failing = cell.estimate(metric, q, failures=True)
    told = explain(cell.estimate(metric, q), metric, failing)
    text = shown(cell.estimate(metric, q))
    return BoardFigure(guessed(cell, text) if metric == "speed_tps" else text, told)


def _rank(row: CellRow) -> BoardFigure:
    if row.standing is None:
        return BoardFigure(DOT, "No ranking here: nothing to compare, too few blocks, or void.")
    best, worst = row.standing.best, row.standing.worst
    text = str(best) if best == worst else f"{best}\N{EN DASH}{worst}"
    n = sample_count(row.cell, headline(row.cell))
    return BoardFigure(text, f"{DEFINITIONS['rank'].text} n = {n:,}.")


def _window(cell: CellSummary, name: str, unit: str) -> str:
    window = "" if cell.window_s is None else f" over a window of {number(cell.window_s)} s"
    law = "" if cell.little is None else f" Little's law says {number(cell.little)}."
    return f"{unit}{window}. {DEFINITIONS[name].text}{law if name == 'inflight' else ''}"


def _errors(cell: CellSummary) -> str:
    listed = ", ".join(f"{name} {count:,}" for name, count in failures(cell).items()) or "none"
    return f"{listed}; n = {cell.requests:,}. {DEFINITIONS['errors'].text}"


def _cost(cell: CellSummary) -> str:
    cost = cell.cost
    if cost.per_1k is None:
        return f"The price is unknown. {DEFINITIONS['cost'].text}"
    parts = [f"Source: {cost.source or 'unknown'}"]
    if cost.out_per_mtok is not None:
        parts.append(f"{dollars(cost.out_per_mtok)} per million output tokens, prompts included")
    if cost.per_good_request is not None:
        parts.append(f"{dollars(cost.per_good_request)} per good request")
    return f"{'; '.join(parts)}. {DEFINITIONS['cost'].text}"
