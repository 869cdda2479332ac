from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lightgate.clock.quantile import Interval
from lightgate.ledger.runs.run import CellSummary, Estimate, Metric, Run, Versus
from lightgate.report.tables import arrange
from report.conftest import MODEL, renamed

if TYPE_CHECKING:
    from report.conftest import Sample


def test_blocks_go_from_light_to_heavy_and_rows_by_median(sample: Sample) -> None:
    found = arrange.blocks(sample.run)
    assert [block.load for block in found] == ["c=1", "c=8", "c=32"]
    assert [row.name for row in found[0].rows] == [
        "generalcompute",
        "groq",
        "fireworks",
        "together",
        "replicate",
    ]


def test_the_order_does_not_depend_on_the_record(sample: Sample) -> None:
    turned = msgspec.structs.replace(sample.run, cells=sample.run.cells[::-1])
    assert [b.load for b in arrange.blocks(turned)] == ["c=1", "c=8", "c=32"]
    names = [row.name for row in arrange.blocks(turned)[0].rows]
    assert names == [row.name for row in arrange.blocks(sample.run)[0].rows]


def test_twins_are_left_out(sample: Sample) -> None:
    assert f"groq-twin/{MODEL}" in {cell.target for cell in sample.run.cells}
    assert f"groq-twin/{MODEL}" not in arrange.targets(sample.run)


def test_two_targets_of_one_provider_keep_their_whole_names(sample: Sample) -> None:
    facts = [msgspec.structs.replace(t, provider="same") for t in sample.run.targets]
    run = msgspec.structs.replace(sample.run, targets=tuple(facts))
    assert arrange.names(run)[f"groq/{MODEL}"] == f"groq/{MODEL}"


def test_scheduled_loads_come_last_and_are_judged_from_the_plan() -> None:
    plan = Metric(name="ttft_plan_ms", quantiles=(Estimate(q=0.5, n=9, value=5.0),))
    cells = (
        CellSummary(target="a", load="20/s poisson", rate=20.0, metrics=(plan,)),
        CellSummary(target="a", load="5/s poisson", rate=5.0, metrics=(plan,)),
        CellSummary(target="a", load="c=64", concurrency=64),
    )
    found = arrange.blocks(Run(id="r", started="now", cells=cells))
    assert [(block.load, block.metric) for block in found] == [
        ("c=64", "ttft_ms"),
        ("5/s poisson", "ttft_plan_ms"),
        ("20/s poisson", "ttft_plan_ms"),
    ]


def test_a_target_without_a_median_comes_last() -> None:
    slow = Metric(name="ttft_ms", quantiles=(Estimate(q=0.5, n=9, value=900.0),))
    cells = (
        CellSummary(target="a", load="c=1", concurrency=1),
        CellSummary(target="b", load="c=1", concurrency=1, metrics=(slow,)),
    )
    rows = arrange.blocks(Run(id="r", started="now", cells=cells))[0].rows
    assert [row.name for row in rows] == ["b", "a"]


def test_who_ties_with_the_first_is_marked(sample: Sample) -> None:
    first, second = f"generalcompute/{MODEL}", f"groq/{MODEL}"

    def tie(versus: Versus) -> Versus:
        pair = {versus.a, versus.b} == {first, second} and versus.load == "c=8"
        return msgspec.structs.replace(versus, verdict="tie") if pair else versus

    run = msgspec.structs.replace(sample.run, versus=tuple(map(tie, sample.run.versus)))
    ties = {b.load: [row.name for row in b.rows if row.tie] for b in arrange.blocks(run)}
    assert ties == {"c=1": [], "c=8": ["groq"], "c=32": []}


def test_a_void_board_gives_no_ranks(sample: Sample) -> None:
    boards = tuple(msgspec.structs.replace(board, void=True) for board in sample.run.boards)
    for block in arrange.blocks(msgspec.structs.replace(sample.run, boards=boards)):
        assert block.void
        assert all(row.standing is None for row in block.rows)


def test_errors_leave_out_what_we_ended_ourselves() -> None:
    cell = CellSummary(
        target="a",
        load="c=1",
        outcomes={"ok": 6, "cut": 5, "cancelled": 1, "timeout": 1, "http_error": 3, "reset": 0},
    )
    assert arrange.failures(cell) == {"http_error": 3, "timeout": 1}
    assert arrange.error_share(cell) == 0.4
    assert arrange.error_share(CellSummary(target="a", load="c=1", outcomes={"cut": 3})) is None


def test_a_grade_straddles_with_its_interval() -> None:
    def cell(interval: Interval | None) -> CellSummary:
        found = Estimate(q=0.5, n=9, value=71.0, interval=interval)
        metric = Metric(name="speed_total_tps", quantiles=(found,))
        return CellSummary(target="a", load="c=1", metrics=(metric,))

    assert arrange.grade_of(cell(Interval(71.0, 90.0))) == "2"
    assert arrange.grade_of(cell(Interval(69.0, 90.0))) == "2\N{EN DASH}3"
    assert arrange.grade_of(cell(None)) is None


def test_a_hostile_name_is_made_harmless(sample: Sample) -> None:
    facts = [
        msgspec.structs.replace(target, provider=f"{target.provider}\x1b]0;gotcha\x07")
        for target in sample.run.targets
    ]
    run = msgspec.structs.replace(sample.run, targets=tuple(facts))
    assert all(name.isprintable() for name in arrange.names(run).values())
    again = renamed(sample.run, f"groq/{MODEL}", "new")
    assert "new" in arrange.targets(again)


def test_sentences_get_the_short_names() -> None:
    short = {"groq/m": "groq", "groq/m2": "groq two"}
    assert arrange.shortened("groq/m2 beats groq/m (x)", short) == "groq two beats groq (x)"
    assert arrange.shortened("as it was", {}) == "as it was"
