"""One run with a ramp: every table, chart, file and comparison is made of the same requests.

Requests of the ramp find an idle server and take a quarter of the time: one of them among the
samples of a median shows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import pytest

from lightgate.bench.interop.exports import otel_metrics, vllm_results
from lightgate.bench.interop.reread import reread
from lightgate.bench.run.findings import LoadFacts, Measured, conclude
from lightgate.bench.statistics.regress import Side, compare_runs
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.load import with_failures
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import quantile
from lightgate.clock.tokens import Usage, count
from lightgate.ledger.runs.history import History
from lightgate.ledger.runs.recording import Recording
from lightgate.ledger.runs.run import Run, TargetFacts
from lightgate.report.charts.charts import distributions
from lightgate.report.charts.strips import chosen
from lightgate.report.pages.html import page
from lightgate.report.pages.material import gather
from lightgate.report.tables.figures import milliseconds

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.ledger.runs.run import CellSummary, Estimate

MS = 1_000_000
WORKERS, ROUNDS, BLOCKS = 8, 4, 12
LOAD = f"c={WORKERS}"
COUNTED = (WORKERS * ROUNDS - (WORKERS - 1)) * BLOCKS
NAMES = ("fast", "slow")


class Ramped(NamedTuple):
    run: Run
    attempts: list[AttemptRecord]
    recordings: dict[str, Recording]


def request(name: str, block: int, number: int) -> tuple[AttemptRecord, Recording]:
    """Worker by worker, a millisecond apart; the answer ends 400 ms after its send."""
    worker, turn = number % WORKERS, number // WORKERS
    begin = (block * 10_000 + NAMES.index(name) * 5_000 + turn * 400 + worker) * MS
    wait = (25.0 if turn == 0 else 100.0) * (1.0 + 0.01 * number) * (1 + NAMES.index(name))
    marks = Marks(plan=begin, stamp_source="kernel")
    marks.send = begin
    for at in (wait, 390.0):
        marks.burst(begin + round(at * MS), begin + round(at * MS), 1, 4)
    marks.answer, marks.end = marks.first, begin + 400 * MS
    key = f"{name}-{block}-{number}"
    facts = AttemptFacts(
        id=key,
        exchange_id=key,
        source="bench",
        target=name,
        provider="lab",
        model="m",
        dialect="openai",
        seq=block * 100 + number,
        concurrency=WORKERS,
        outcome=Outcome.OK,
        status=200,
        wall_ns=1_763_000_000_000_000_000 + begin,
    )
    tokens = count(marks, Usage(tokens_in=10, tokens_out=2))
    return AttemptRecord.of(facts, marks, tokens), Recording.of(key, marks, load=LOAD, block=block)


@pytest.fixture(scope="module")
def ramped() -> Ramped:
    pairs = [
        request(name, block, number)
        for block in range(BLOCKS)
        for name in NAMES
        for number in range(WORKERS * ROUNDS)
    ]
    attempts, recordings = [a for a, _ in pairs], {r.id: r for _, r in pairs}
    row = TargetFacts(name="", provider="lab", model="m", base_url="http://h", dialect="openai")
    run = Run(
        id="r-1",
        started="2026-11-15T10:00:00Z",
        finished="2026-11-15T10:05:00Z",
        targets=tuple(msgspec.structs.replace(row, name=name) for name in NAMES),
    )
    measured = Measured(attempts=attempts, recordings=recordings)
    loads = [LoadFacts(label=LOAD, concurrency=WORKERS)]
    return Ramped(conclude(run, measured, loads, slo=None, seed=1), attempts, recordings)


@pytest.fixture(scope="module")
def older(ramped: Ramped) -> Ramped:
    """The same run as an older Lightgate wrote it."""
    cells = tuple(msgspec.structs.replace(cell, windows_ns=None) for cell in ramped.run.cells)
    run = msgspec.structs.replace(ramped.run, id="r-0", cells=cells)
    return Ramped(run, ramped.attempts, ramped.recordings)


def cell_of(run: Run, name: str) -> CellSummary:
    return next(cell for cell in run.cells if cell.target == name)


def p50(run: Run, name: str, metric: str = "ttft_ms") -> Estimate:
    found = cell_of(run, name).estimate(metric, 0.5)
    assert found is not None
    return found


def test_the_ramp_is_cut_off_and_the_windows_are_kept(ramped: Ramped) -> None:
    for cell in ramped.run.cells:
        assert (cell.requests, cell.warmup) == (COUNTED, (WORKERS - 1) * BLOCKS)
        assert cell.windows_ns is not None
        assert len(cell.windows_ns) == BLOCKS


@pytest.mark.parametrize("name", NAMES)
def test_the_charts_show_the_requests_of_the_table(ramped: Ramped, name: str) -> None:
    material = gather(*ramped)
    samples = material.by_cell[name, LOAD]
    table = p50(ramped.run, name)
    values = with_failures(samples, lambda attempt: attempt.ttft_ms)
    assert len(samples) == table.n == COUNTED
    assert quantile(values, 0.5) == table.value
    (panel,) = distributions(ramped.run, material.by_cell)
    said = re.findall(rf"{name}: half within ([^,]+), n = (\d+)", panel.svg())
    assert set(said) == {(milliseconds(table.value), str(COUNTED))}
    ids = {attempt.id for attempt in samples}
    assert {strip.attempt.id for strip in chosen(samples, material.recordings)} <= ids


def test_the_page_says_which_requests_it_shows(ramped: Ramped, older: Ramped) -> None:
    assert page(gather(*ramped)).count("The requests are those of the tables") == 2
    assert not gather(*ramped).untold
    old = page(gather(*older))
    assert old.count("the ramp is taken in here, and left out of the tables") == 2
    assert "The requests are those of the tables" not in old
    assert len(gather(*older).by_cell["fast", LOAD]) == WORKERS * ROUNDS * BLOCKS


@pytest.mark.parametrize("name", NAMES)
def test_a_reread_and_the_exports_take_the_same(ramped: Ramped, name: str) -> None:
    table = p50(ramped.run, name)
    cell = next(c for c in reread(*ramped, "aiperf") if c.target == name)
    line = next(one for one in cell.lines if one.metric == "ttft_ms" and one.q == 0.5)
    assert (cell.requests, line.n, line.ours) == (table.n, table.n, table.value)
    result = next(r for r in vllm_results(*ramped) if r["label"].startswith(name))
    assert result["num_prompts"] == table.n
    metrics = otel_metrics(*ramped)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    points = next(m for m in metrics if m["name"].endswith("operation.duration"))["histogram"]
    assert {point["count"] for point in points["dataPoints"]} == {str(COUNTED)}


def test_two_runs_are_compared_by_their_tables(ramped: Ramped, older: Ramped) -> None:
    found = compare_runs(Side(*ramped), Side(*ramped), rng=np.random.default_rng(1))
    change = next(c for c in found.changes if (c.target, c.metric) == ("fast", "ttft_ms"))
    table = p50(ramped.run, "fast")
    assert (change.old, change.n_old, change.new) == (table.value, table.n, table.value)
    assert found.warnings == ()
    with_old = compare_runs(Side(*older), Side(*ramped), rng=np.random.default_rng(1))
    assert any("r-0 was written before" in warning for warning in with_old.warnings)
    assert not any("r-1 was" in warning for warning in with_old.warnings)


def test_targets_are_compared_by_the_same_requests(ramped: Ramped) -> None:
    versus = next(v for v in ramped.run.versus if v.metric == "ttft_ms")
    assert versus.comparison.n == COUNTED
    board = next(board for board in ramped.run.boards if board.metric == "ttft_ms")
    medians = {standing.name: standing.median for standing in board.standings}
    assert medians == {name: p50(ramped.run, name).value for name in NAMES}


def test_the_history_holds_the_same(ramped: Ramped, tmp_path: Path) -> None:
    with History(tmp_path / "history.sqlite") as history:
        history.append(*ramped, schedule="nightly")
        ((run_id, values),) = history.samples(
            "ttft_ms", target="fast", load=LOAD, schedule="nightly"
        )
    table = p50(ramped.run, "fast")
    assert (run_id, len(values), quantile(values, 0.5)) == ("r-1", table.n, table.value)
