"""The record of a run: what is looked up in it, and the clocks of the hosts that made its load."""

from __future__ import annotations

from typing import Any

import pytest

from lightgate.ledger.runs.checked import PassRate
from lightgate.ledger.runs.hosts import HostHealth, worst_of
from lightgate.ledger.runs.run import CellSummary, Estimate, Metric, Run

HALF, MOST = Estimate(q=0.5, n=9, value=100.0), Estimate(q=0.95, n=9, value=300.0)
LATE = Estimate(q=0.95, n=10, infinite=True, doubtful=True)
CELL = CellSummary(
    target="a",
    load="c=1",
    metrics=(
        Metric(name="ttft_ms", quantiles=(HALF, MOST), with_failures=(HALF, LATE)),
        Metric(name="e2e_ms", quantiles=(LATE,)),
    ),
)


def test_a_quantile_is_found_by_its_metric_and_its_share() -> None:
    assert CELL.estimate("ttft_ms", 0.5) is HALF
    assert CELL.estimate("ttft_ms", 0.1 * 9.5) is MOST  # whatever the last bit of a share is
    assert CELL.estimate("ttft_ms", 0.95, failures=True) is LATE
    assert CELL.estimate("ttft_ms", 0.99) is None
    assert CELL.estimate("gap_ms", 0.5) is None
    assert CELL.value("ttft_ms", 0.5) == 100.0
    assert CELL.value("gap_ms", 0.5) is None
    assert CELL.value("e2e_ms", 0.95) is None
    assert CELL.doubts() == [("e2e_ms", LATE)]


def test_a_quantile_rests_on_its_independent_samples() -> None:
    assert Estimate(q=0.5, n=9).worth == 9
    assert Estimate(q=0.5, n=9, n_eff=4).worth == 4
    assert Estimate(q=0.5, n=9, n_eff=20).worth == 9


def test_a_targets_pass_rate_is_that_of_its_lightest_load() -> None:
    def cell(target: str, concurrency: int | None, passed: int | None) -> CellSummary:
        checks = None if passed is None else PassRate(cases=9, passed=passed)
        load = f"c={concurrency}"
        return CellSummary(target=target, load=load, concurrency=concurrency, checks=checks)

    cells = (cell("a", 8, 1), cell("a", 2, 2), cell("a", 1, None), cell("b", 1, 3),
             cell("b", None, 4), cell("c", 1, None))  # fmt: skip
    run = Run(id="r", started="2026-11-16T08:00:00Z", cells=cells)
    found = {name: run.pass_rate(name) for name in "abcd"}
    assert {name: rate and rate.passed for name, rate in found.items()} == {
        "a": 2, "b": 4, "c": None, "d": None,
    }  # fmt: skip


def host(name: str = "h", **changes: Any) -> HostHealth:
    sound = {
        "host": name, "region": "eu", "process": 0, "offset_ms": 1e6, "bound_ms": 5.0,
        "wall_offset_ms": 1000.0, "drift_ppm": 100.0,
    }  # fmt: skip
    return HostHealth(**{**sound, **changes})


def test_a_host_whose_clock_is_known_well_enough_is_not_doubted() -> None:
    assert host().doubts() == []
    assert host(drift_ppm=None).doubts() == []
    assert host(drift_ppm=-100.0, wall_offset_ms=-1000.0).doubts() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bound_ms": 5.06}, "The clock of h is known to 5.1 ms only"),
        ({"drift_ppm": 101.0}, "The clock of h runs away from that of this machine by 101 "),
        ({"drift_ppm": -101.0}, "The clock of h runs away from that of this machine by -101 "),
        (
            {"wall_offset_ms": 1500.0},
            "The wall clock of h differs from that of this machine by 1",
        ),
        (
            {"wall_offset_ms": -1500.0},
            "The wall clock of h differs from that of this machine by -",
        ),
        ({"clock_steps": 1}, "The wall clock of h was set 1 times."),
    ],
)
def test_what_is_not_as_it_should_be_is_one_sentence(change: dict[str, Any], said: str) -> None:
    (found,) = host(**change).doubts()
    assert found.startswith(said)
    assert "1.5 s" in found or "wall_offset_ms" not in change


def test_of_each_process_the_load_with_the_least_known_clock_is_kept() -> None:
    first, worse, same = host(bound_ms=1.0), host(bound_ms=3.0), host(bound_ms=3.0, region="us")
    better, other = host(bound_ms=2.0), host(process=1, bound_ms=0.5)
    early = host("a", process=7)
    assert worst_of([other, first, worse, same, better, early]) == (early, worse, other)
    assert worst_of([]) == ()
