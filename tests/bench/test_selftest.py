"""Small cells of the self test, end to end. No time is asserted: kinds, counts and outcomes are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lightgate.bench.selftest.plan import OTHER_SCENARIOS, SCENARIOS, SelftestCell
from lightgate.bench.selftest.run import Lab, run_cell
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from lightgate.wire.link.stamper import best_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.bench.load.drive import Finished
    from lightgate.bench.selftest.result import CellResult

TOKENS = 25
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
QUICK = ("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S12")  # S8 stalls for two seconds
PROVIDERS = ("lab", "lab-anthropic", "lab-gemini")


@pytest.fixture
def sim() -> Iterator[SimProcess]:
    """A fresh simulator: which of its requests fail goes by their number."""
    with SimProcess(SimOptions(world="selftest")) as sim:
        yield sim


async def judge(sim: SimProcess, name: str, provider: str, streams: int) -> list[Finished]:
    done: list[Finished] = []
    cell = SelftestCell(BY_NAME[name], streams, streams, TOKENS, best_source(), provider)
    result: CellResult = await run_cell(cell, Lab(sim.facts), done.append)
    assert result.scenario.startswith(name)
    assert result.requests == len(done) == streams
    wrong = (result.wrong_kinds, result.wrong_tokens, result.wrong_outcomes)
    assert wrong == (0, 0, ()), result
    assert (result.lost, result.unmeasured) == (0, 0), result
    assert result.ttft_ms is not None
    assert result.tokens > 0
    return done


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_kinds_counts_and_outcomes_are_right(sim: SimProcess, provider: str) -> None:
    names = [name for name in QUICK if provider == "lab" or name in OTHER_SCENARIOS]
    finished = await asyncio.gather(*(judge(sim, name, provider, 4) for name in names))
    for name, done in zip(names, finished, strict=True):
        hidden = 10 if name == "S6" else 0
        streamed = [item.called.tokens.streamed for item in done]
        assert streamed == [TOKENS - hidden] * 4, name


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_failures_are_told_apart(sim: SimProcess, provider: str) -> None:
    done = await judge(sim, "S10", provider, 32)
    outcomes = [str(item.called.outcome) for item in done]
    assert {name: outcomes.count(name) for name in set(outcomes)} == {
        "ok": 27,
        "rate_limited": 2,
        "reset": 1,
        "empty": 1,
        "stream_error": 1,
    }


async def test_the_log_is_read_on_from_where_it_was_left(sim: SimProcess) -> None:
    lab, cell = Lab(sim.facts), SelftestCell(BY_NAME["S1"], 1, 1, 2, best_source())
    for _ in range(2):
        result = await run_cell(cell, lab, lambda _: None)
        assert (result.requests, result.lost) == (1, 0)
