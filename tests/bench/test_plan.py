from __future__ import annotations

import pytest

from lightgate.bench.selftest.plan import (
    BESIDE,
    OTHER_DIALECTS,
    OTHER_SCENARIOS,
    SCENARIOS,
    SLOW,
    SelftestCell,
    budget,
    cells,
)
from lightgate.sim.world_file import load


def test_every_scenario_of_the_plan_is_in_the_world() -> None:
    world = load("selftest")
    for scenario in (*SCENARIOS, SLOW):
        assert set(scenario.models) <= set(world.providers["lab"].models)
    for dialect in OTHER_DIALECTS:
        assert set(world.providers[dialect].models) == set(world.providers["lab"].models)
    assert set(OTHER_SCENARIOS) <= {scenario.name for scenario in SCENARIOS}


def test_the_scenarios_that_were_promised() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert names == ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S10", "S12"]


def test_kernel_stamps_meet_every_scenario_read_stamps_the_plain_one() -> None:
    plan = cells(stamps=("kernel", "read"), concurrency=(1, 256, 1024), quick=False)
    kernel = [cell for cell in plan if cell.stamps == "kernel"]
    read = [cell for cell in plan if cell.stamps == "read"]
    assert [cell.scenario for cell in kernel] == [*SCENARIOS, *BESIDE, *SCENARIOS, SLOW]
    assert [cell.scenario for cell in read] == [SCENARIOS[0], *BESIDE, SCENARIOS[0], SLOW]


def test_read_stamps_alone_meet_every_scenario() -> None:
    plan = cells(stamps=("read",), concurrency=(1,), quick=False)
    assert [cell.scenario for cell in plan] == [*SCENARIOS, *BESIDE]
    assert [cell.name for cell in plan if cell.hog] == ["S1 hog", "S12 hog"]


def test_the_other_dialects_are_met_at_32() -> None:
    plan = cells(stamps=("kernel",), concurrency=(32,), quick=False)
    others = [cell for cell in plan if cell.provider != "lab"]
    assert {cell.provider for cell in others} == set(OTHER_DIALECTS)
    assert len(others) == len(OTHER_DIALECTS) * len(OTHER_SCENARIOS)
    assert others[0].name == "S1 anthropic"
    assert plan[0].name == "S1"


@pytest.mark.parametrize("workers", [1, 2, 32, 256, 1024])
@pytest.mark.parametrize("quick", [True, False])
def test_every_worker_has_something_to_do(workers: int, quick: bool) -> None:
    for cell in cells(stamps=("kernel",), concurrency=(workers,), quick=quick):
        assert cell.concurrency == workers
        rounds = 1 if cell.scenario is SLOW else 2  # without a refill there is no closed loop
        assert cell.requests >= workers * rounds
        assert cell.tokens >= 20


def test_quick_is_less() -> None:
    def requests(plan: list[SelftestCell]) -> int:
        return sum(cell.requests for cell in plan)

    quick = cells(stamps=("kernel",), concurrency=(1, 32), quick=True)
    whole = cells(stamps=("kernel",), concurrency=(1, 32), quick=False)
    assert len(quick) == len(whole)
    assert requests(quick) < requests(whole)


def test_the_budget_is_the_published_one() -> None:
    kernel = SelftestCell(SCENARIOS[0], 1, 24, 20, "kernel")
    assert budget(kernel, 80_000) == (100_000, 200_000, 200_000, 0.005, 0.98)
    read = kernel._replace(stamps="read")
    assert budget(read, 80_000) == (260_000, 200_000, 200_000, 0.005, 0.98)
    for cell in (kernel, read):  # beside a hog only the bounds are judged
        beside = budget(cell._replace(hog=True), 80_000)
        assert beside == (None, None, 200_000, 0.005, 0.0)
