from __future__ import annotations

import io
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from lightgate.ledger.runs.run import Metric, Run
from lightgate.report.tables.arrange import names
from lightgate.report.tables.sentences import cell_remark
from lightgate.report.tables.text import plain, print_run
from report.conftest import MODEL, make, renamed

if TYPE_CHECKING:
    from report.conftest import Sample


def block(text: str, load: str) -> list[str]:
    lines = text.splitlines()
    start = lines.index(f"{load}, by TTFT p50")
    end = next((at for at in range(start, len(lines)) if not lines[at]), len(lines))
    return lines[start + 1 : end]


def test_without_a_terminal_each_load_is_one_table(sample: Sample) -> None:
    head, *rows, failing = block(plain(sample.run), "c=8")
    for title in ("target", "TTFT p50", "95 %", "p99", "slow 5 %", "stall p95", "goodput", "grade"):
        assert title in head
    assert len(rows) == 5
    assert rows[0].split()[0] == "generalcompute"
    assert failing.startswith("with failures, which never arrive: ")


def test_quantiles_with_failures_are_told_where_they_differ(sample: Sample) -> None:
    text = plain(sample.run)
    assert not any(line.startswith("with failures") for line in block(text, "c=1"))  # none failed
    cells = []
    for cell in sample.run.cells:
        metrics = []
        for metric in cell.metrics:
            hard = tuple(
                msgspec.structs.replace(one, value=None, interval=None, infinite=True)
                if one.q == 0.95 and cell.target == f"groq/{MODEL}" and cell.load == "c=1"
                else one
                for one in metric.with_failures
            )
            metrics.append(msgspec.structs.replace(metric, with_failures=hard))
        cells.append(msgspec.structs.replace(cell, metrics=tuple(metrics)))
    lines = block(plain(msgspec.structs.replace(sample.run, cells=tuple(cells))), "c=1")
    assert lines[-1] == "with failures, which never arrive: groq p95 ∞"


def test_figures_are_those_of_the_record(sample: Sample) -> None:
    cell = next(c for c in sample.run.cells if c.target == f"groq/{MODEL}" and c.load == "c=8")
    ttft = next(metric for metric in cell.metrics if metric.name == "ttft_ms")
    middle, _, tail, far = ttft.quantiles
    assert middle.value is not None
    assert middle.interval is not None
    assert tail.value is not None
    assert far.value is None  # 80 samples say nothing about p99
    row = next(line for line in block(plain(sample.run), "c=8") if line.startswith("groq"))
    wanted = f"{middle.value:,.0f}  [{middle.interval.low:,.0f}, {middle.interval.high:,.0f}]"
    shown = " ".join(row.split())
    assert " ".join(wanted.split()) in shown
    assert f"{tail.value:,.0f} ·" in shown


def test_n_is_that_of_the_figure_beside_it(sample: Sample) -> None:
    """Failures are counted, and in no time to the first token."""
    seen, short = set(), names(sample.run)
    for cell in sample.run.cells:
        if cell.target not in short:  # the twin of an A/A pair has no row
            continue
        found = cell.estimate("ttft_ms", 0.5)
        assert found is not None
        rows = block(plain(sample.run), cell.load)
        (row,) = [line.split() for line in rows if line.startswith(f"{short[cell.target]} ")]
        failed = found.n != cell.requests
        assert row[-1] == (f"{found.n}/{cell.requests}" if failed else str(found.n))
        seen.add(failed)
    assert seen == {True, False}


def test_a_figure_on_fewer_requests_says_so(sample: Sample) -> None:
    cell = sample.run.cells[0]
    metrics = tuple(
        msgspec.structs.replace(
            metric,
            quantiles=tuple(
                msgspec.structs.replace(one, n=one.n - 7) if metric.name == "speed_tps" else one
                for one in metric.quantiles
            ),
        )
        for metric in cell.metrics
    )
    found = cell.estimate("speed_tps", 0.5)
    assert found is not None
    fewer = msgspec.structs.replace(cell, metrics=metrics)
    assert f"n = {found.n - 7} for speed" in cell_remark(fewer)
    assert "n = " not in cell_remark(cell)


def test_too_few_samples_are_dots_with_a_legend() -> None:
    few = make(n=5)
    text = plain(few.run)
    row = next(line for line in block(text, "c=1") if line.startswith("groq"))
    assert row.split()[1:7] == ["·"] * 6
    assert "p50 needs 6" in text


def test_a_narrow_terminal_gets_several_tables_and_no_longer_lines(sample: Sample) -> None:
    lines = block(plain(sample.run, width=80), "c=32")
    assert max(map(len, lines)) <= 80
    heads = [line for line in lines if line.startswith("target")]
    assert len(heads) == 3
    assert sum(line.startswith("replicate") for line in lines) == 3


def test_a_terminal_is_not_left_with_cut_lines(sample: Sample) -> None:
    page = io.StringIO()
    print_run(sample.run, Console(file=page, width=80, force_terminal=True, highlight=False))
    assert "\x1b[1m" in page.getvalue()
    assert "…" not in page.getvalue()


def doubted(metric: Metric) -> Metric:
    if metric.name != "ttft_ms":
        return metric
    first, *others = metric.quantiles
    first = msgspec.structs.replace(first, low=1.0, high=first.value, doubtful=True)
    return msgspec.structs.replace(metric, quantiles=(first, *others))


def test_ties_and_doubtful_cells_are_marked(sample: Sample) -> None:
    pairs = tuple(msgspec.structs.replace(v, verdict="tie") for v in sample.run.versus)
    cells = tuple(
        msgspec.structs.replace(c, metrics=tuple(map(doubted, c.metrics)))
        if c.target == f"together/{MODEL}"
        else c
        for c in sample.run.cells
    )
    text = plain(msgspec.structs.replace(sample.run, versus=pairs, cells=cells))
    rows = block(text, "c=1")
    marks = {row.split()[0]: row.split()[1][:2] for row in rows[1:]}
    assert marks["together"].startswith("≈")
    assert not marks["generalcompute"].startswith("≈")
    assert "≈ = ties with the first row" in text
    (row,) = [row for row in rows if row.startswith("together")]
    assert row.split()[1].endswith("?")
    assert "? = doubtful, see the remarks" in text
    assert "together at c=1: doubtful: TTFT p50 lies between 1 and " in text


def test_everything_that_was_found_is_said(sample: Sample) -> None:
    text = plain(sample.run)
    for part in (
        "Who is faster",
        "c=1: generalcompute is ",
        "groq: intermittent queue.",
        "  - speed keeps 46 % at c=32",
        "voice: generalcompute.",
        "agent: no pick.",
        "7.44 million",
        "Client: kernel stamps",
        "TTFT p95, ms",
    ):
        assert part in text
    # Neighbours in the table only: four pairs a load.
    found = (" faster to the first token than ", " tie on TTFT: ", ", TTFT: ratio ")
    assert sum(any(part in line for part in found) for line in text.splitlines()) == 12


def test_names_cannot_write_to_the_terminal_or_be_markup(sample: Sample) -> None:
    run = renamed(sample.run, f"groq/{MODEL}", "[red]x\x1b[2J/y")
    run = renamed(run, MODEL, "other")
    first = msgspec.structs.replace(run.targets[0], model="another")
    text = plain(msgspec.structs.replace(run, targets=(first, *run.targets[1:])))
    assert "\x1b" not in text
    assert "[red]x�[2J/y" in text


def test_an_empty_run_prints_what_there_is() -> None:
    text = plain(Run(id="r", started="now"))
    assert text.startswith("Run r · 0 targets\n")
    assert "interrupted" in text


def test_sentences_go_on_further_to_the_right(sample: Sample) -> None:
    lines = plain(sample.run, width=80, with_curves=False).splitlines()
    start = lines.index("Why")
    section = [line for line in lines[start + 1 :] if line]
    assert max(map(len, section)) <= 80
    assert any(line.startswith("    ") for line in section)
    assert all(line.startswith("  ") for line in section[: section.index("Which to take")])
