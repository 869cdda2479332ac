from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from bench.statistics.test_regress import noisy, side
from cli.test_compare import write
from lightgate.bench.run.schedule import Schedules, new_schedule
from lightgate.clock.quantile import Interval
from lightgate.console.api.figures import Figure
from lightgate.console.work.follow import RunFollower
from lightgate.console.work.own_gateway import OwnGateway
from lightgate.console.work.run_note import BOOT, RunNote, write_note
from lightgate.console.work.runs import (
    RunUnknown,
    compare,
    folder_of,
    one_run,
    run_list,
    schedule_list,
)
from lightgate.errors import UsageError
from lightgate.ledger.runs.folder import RunFolder
from lightgate.ledger.runs.hosts import HostHealth
from lightgate.ledger.runs.run import (
    CellSummary,
    CellVerdict,
    Estimate,
    Metric,
    RegionCells,
    Run,
    TargetFacts,
)

if TYPE_CHECKING:
    from pathlib import Path

    from console.conftest import Get


def note(**changes: Any) -> RunNote:
    facts: dict[str, Any] = {
        "started": "2026-11-16T12:00:00Z", "targets": ("lab/s1",), "loads": ("c=1",), "total": 20,
        "line": "lightgate bench gateway/lab/s1", "boot": BOOT,
    }  # fmt: skip
    return RunNote(**{**facts, **changes})


def test_the_list_is_newest_first_and_says_where_a_run_is_from(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for at, name in enumerate(("mine", "nightly-20261116120000000", "console-20261116130000000")):
        write(runs / name, side(noisy(at + 1, 40)))
        os.utime(runs / name / "attempts.jsonl", (1000 + at, 1000 + at))
    write_note(runs / "console-20261116130000000", note(exit_code=0))
    (runs / ".hidden").mkdir()
    found = run_list(OwnGateway(tmp_path)).rows
    assert [row.source for row in found] == ["console", "nightly", "bench"]
    assert {row.state for row in found} == {"finished"}


def cell(target: str, workers: int, ttft_ms: float) -> CellSummary:
    rows = (Estimate(q=0.5, n=40, value=ttft_ms, interval=Interval(ttft_ms - 9, ttft_ms + 9)),
            Estimate(q=0.95, n=40))  # fmt: skip
    return CellSummary(
        target=target, load=f"c={workers}", concurrency=workers, requests=40,
        outcomes={"ok": 38, "timeout": 2}, metrics=(Metric(name="ttft_ms", quantiles=rows),),
    )  # fmt: skip


def test_one_run_has_cells_with_intervals_and_verdicts(tmp_path: Path) -> None:
    facts: dict[str, Any] = {
        "provider": "lab",
        "model": "s1",
        "base_url": "http://lab",
        "dialect": "openai",
    }
    made = Run(
        id="r", started="2026-11-16T12:00:00Z", finished="2026-11-16T12:01:00Z",
        options={"targets": "lab/a,lab/b", "requests": "40"},
        targets=(
            TargetFacts(name="lab/a", **facts), TargetFacts(name="lab/b", **facts),
            TargetFacts(name="lab/a (twin)", twin_of="lab/a", **facts),
        ),
        cells=(cell("lab/b", 8, 300), cell("lab/b", 1, 90), cell("lab/a", 8, 200),
               cell("lab/a", 1, 100), cell("lab/a (twin)", 1, 1)),
        verdicts=(CellVerdict(target="lab/b", name="admission queue", evidence=("3 times",),
                              sentence="It queues."),),
    )  # fmt: skip
    RunFolder.create(tmp_path / "runs" / "a").write_run(made)
    told = one_run(tmp_path, "a")
    assert [(one.target, one.load) for one in told.cells] == [
        ("lab/a", "c=1"), ("lab/a", "c=8"), ("lab/b", "c=1"), ("lab/b", "c=8"),
    ]  # fmt: skip
    assert told.cells[0].ttft_p50 == Figure(100, 91, 109, 40)
    assert told.cells[0].ttft_p95 == Figure(None, None, None, 40)  # too few
    assert told.cells[0].speed_p50 == Figure(None, None, None, 0)
    assert (told.row.requests, told.row.failed) == (160, 8)
    (verdict,) = told.verdicts
    assert (verdict.name, verdict.evidence) == ("admission queue", ("3 times",))
    assert told.line == "lightgate bench lab/a lab/b --requests 40"
    (row,) = run_list(OwnGateway(tmp_path)).rows
    assert (row.best, row.ttft_p50.v, row.loads) == ("lab/b", 90, ("c=1", "c=8"))


def from_two_regions() -> Run:
    """A run whose load came from two hosts; the one in the west heard its first tokens later."""
    facts: dict[str, Any] = {"provider": "lab", "base_url": "http://lab", "dialect": "openai"}
    clock: dict[str, Any] = {"process": 0, "offset_ms": 5.0, "wall_offset_ms": 1.0}
    return Run(
        id="r", started="2026-11-16T12:00:00Z", finished="2026-11-16T12:01:00Z",
        targets=(TargetFacts(name="lab/a", model="a", **facts),),
        cells=(cell("lab/a", 8, 200), cell("lab/a", 1, 100)),
        regions=(
            RegionCells(region="east", cells=(cell("lab/a", 8, 180), cell("lab/a", 1, 80))),
            RegionCells(region="west", cells=(cell("lab/a", 8, 220), cell("lab/a", 1, 120))),
        ),
        hosts=(
            HostHealth(host="h1", region="east", bound_ms=0.25, **clock),
            HostHealth(host="h2", region="west", bound_ms=9.5, **clock),
        ),
    )  # fmt: skip


async def test_the_regions_of_a_run_stand_beside_the_whole(get: Get, tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "runs" / "far").write_run(from_two_regions())
    told = one_run(tmp_path, "far")
    assert [(one.region, one.load, one.ttft_p50.v) for one in told.cells] == [
        ("", "c=1", 100), ("", "c=8", 200),
    ]  # fmt: skip
    assert [(one.region, one.load, one.ttft_p50.v) for one in told.regions] == [
        ("east", "c=1", 80), ("east", "c=8", 180), ("west", "c=1", 120), ("west", "c=8", 220),
    ]  # fmt: skip
    assert told.health == [
        "h1 in east: its clock is known to 0.25 ms.",
        "h2 in west: its clock is known to 9.50 ms.",
        (
            "The clock of h2 is known to 9.5 ms only: its requests may have begun that much earlier"
            " or later than those of other hosts."
        ),
    ]
    sheet = await get("/api/runs/far.csv")
    assert sheet.status == 200
    assert [line.split(",")[0] for line in sheet.text.splitlines()] == [
        "region", "", "", "east", "east", "west", "west",
    ]  # fmt: skip


def test_a_run_under_way_and_one_that_failed(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "console-1"
    folder.mkdir(parents=True)
    write_note(folder, note())
    (folder / "attempts.jsonl").write_bytes(b"{}\n{}\n{")
    (row,) = run_list(OwnGateway(tmp_path)).rows
    assert (row.state, row.requests, row.total, row.targets) == ("running", 2, 20, ("lab/s1",))
    write_note(folder, note(exit_code=5, said=("lightgate: The key was refused.",)))
    row = one_run(tmp_path, "console-1").row
    assert (row.state, row.problem) == ("failed", "lightgate: The key was refused.")
    write_note(folder, note(boot="another life"))
    row = one_run(tmp_path, "console-1").row
    assert (row.state, row.problem) == ("failed", "The console ended while it ran.")
    (folder / "run.json").write_text("{")
    assert one_run(tmp_path, "console-1").row.problem.endswith("is not JSON.")


def test_a_line_that_is_no_attempt_ends_no_following(tmp_path: Path) -> None:
    """The stream was a 500, or broke off."""
    whole = tmp_path / "whole"
    write(whole, side(noisy(1, 3)))
    first, *rest = (whole / "attempts.jsonl").read_bytes().splitlines(keepends=True)
    folder = tmp_path / "runs" / "console-1"
    folder.mkdir(parents=True)
    write_note(folder, note())
    (folder / "attempts.jsonl").write_bytes(b"".join((first, first[:20], b"\n\xff\n", *rest)))
    told = RunFollower(tmp_path, "console-1").look()
    assert (told.done, told.state) == (1 + len(rest), "running")


@pytest.mark.parametrize("name", ["", ".", "..", "../runs/a", "a/b", "none", "a\x00", "%2e%2e"])
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    with pytest.raises(RunUnknown):
        folder_of(tmp_path, name)


def test_two_runs_are_compared_as_the_command_does(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "old", side(noisy(1, 100)))
    write(tmp_path / "runs" / "slow", side(noisy(3, 100, 1.5)), workload={"prompts": "x"})
    told = compare(tmp_path, "old", "slow")
    assert {one.verdict for one in told.changes} >= {"regression"}
    worst = next(one for one in told.changes if one.figure == "ttft_ms p50")
    assert worst.worse is not None
    assert worst.low is not None
    assert 1.05 < worst.low <= worst.worse
    assert told.warnings
    for a, b in (("old", "old"), ("", "old")):
        with pytest.raises(UsageError):
            compare(tmp_path, a, b)


def test_schedules_with_their_next_and_last_run(tmp_path: Path) -> None:
    book = Schedules(tmp_path)
    hook = "https://hooks.example/secret-path"
    book.add(new_schedule("nightly", ["lab/s1"], every="6h", now_ns=10**18, webhook=hook))
    (tmp_path / "runs" / "nightly-1").mkdir(parents=True)
    book.settle("nightly", tmp_path / "runs" / "nightly-1", "steady")
    (row,) = schedule_list(OwnGateway(tmp_path)).rows
    assert (row.name, row.every, row.last_run, row.last_result) == (
        "nightly", "6h", "nightly-1", "steady",
    )  # fmt: skip
    assert "secret-path" not in row.webhook
    assert row.line == "lightgate bench lab/s1"
    assert "--world tables-2025" in schedule_list(OwnGateway(tmp_path)).try_line


async def test_over_http(get: Get, tmp_path: Path) -> None:
    write(tmp_path / "runs" / "old", side(noisy(1, 40)))
    told = json.loads((await get("/api/runs")).text)
    assert [row["id"] for row in told["rows"]] == ["old"]
    assert (await get("/api/runs/old")).status == 200
    assert (await get("/api/runs/none")).status == 404
    assert (await get("/api/runs.csv")).text.startswith("id,started")
    assert (await get("/api/compare?a=old&b=old")).status == 400
    assert (await get("/api/compare?a=old&b=none")).status == 404
    assert json.loads((await get("/api/schedules")).text)["rows"] == []
    assert (await get("/api/run-live?id=none")).status == 404
