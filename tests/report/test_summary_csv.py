from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lightgate.ledger.runs.run import Estimate, Run
from lightgate.report.tables.summary_csv import columns, summary_csv
from report.conftest import MODEL, make, renamed

if TYPE_CHECKING:
    from report.conftest import Sample

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "reports.md"


def rows(run: Run) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(summary_csv(run))))


def test_the_guide_lists_the_columns_in_their_order() -> None:
    text = GUIDE.read_text("utf-8")
    table = text.split("## summary.csv", 1)[1].split("\n## ", 1)[0]
    documented = [
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([a-z0-9_]+)`", line.split("|")[1])
    ]
    assert documented == list(columns())


def test_one_row_a_cell_twins_included(sample: Sample) -> None:
    found = rows(sample.run)
    assert len(found) == len(sample.run.cells)
    assert {row["twin_of"] for row in found} == {"", f"groq/{MODEL}"}


def test_values_are_those_of_the_record(sample: Sample) -> None:
    cell = sample.run.cells[7]
    row = rows(sample.run)[7]
    assert row["target"] == cell.target
    assert int(row["concurrency"]) == cell.concurrency
    assert float(row["ttft_p50_ms"]) == cell.value("ttft_ms", 0.5)
    assert float(row["ttft_p95_ms"]) == cell.value("ttft_ms", 0.95)
    assert float(row["speed_slow5_tps"]) == cell.value("speed_tps", 0.05)
    assert row["steady"] == "true"
    assert row["cost_out_per_mtok"] == "0.79"
    assert int(row["outcome_ok"]) == cell.outcomes["ok"]
    assert int(row["outcome_reset"]) == 0


def test_what_does_not_exist_is_empty() -> None:
    row = rows(make(n=20).run)[0]
    assert row["ttft_n"] == "20"
    assert row["ttft_p50_ms"] != ""
    assert row["ttft_p95_ms"] == ""
    assert row["rate"] == ""


def test_a_quantile_that_is_a_failure_is_inf() -> None:
    cell = make(n=80).run.cells[0]
    hard = (
        Estimate(q=0.5, n=80, value=200.0),
        Estimate(q=0.9, n=80, infinite=True),
        Estimate(q=0.95, n=80),  # of a run that did not record it: enough samples, yet no value
        Estimate(q=0.99, n=80),
    )
    metric = msgspec.structs.replace(cell.metrics[0], with_failures=hard)
    cell = msgspec.structs.replace(cell, metrics=(metric,))
    row = rows(Run(id="r", started="now", cells=(cell,)))[0]
    found = [row[f"ttft_with_failures_{tail}_ms"] for tail in ("p50", "p90", "p95", "p99")]
    assert found == ["200.0", "inf", "inf", ""]
    assert row["ttft_with_failures_n"] == "80"


def test_a_name_cannot_be_a_formula(sample: Sample) -> None:
    run = renamed(sample.run, f"groq/{MODEL}", '=HYPERLINK("http://x","y")')
    run = msgspec.structs.replace(run, targets=())
    assert rows(run)[1]["target"] == '\'=HYPERLINK("http://x","y")'
