"""Small cells of the self test, end to end. No time is asserted: kinds, counts and outcomes are.

The simulator is a task of the same loop, with its clock: on a busy machine it would write two
bursts together, which are one burst then. Counts and outcomes hold also from another process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from lightgate.bench.selftest.plan import OTHER_SCENARIOS, SCENARIOS, SelftestCell
from lightgate.bench.selftest.run import Lab, run_cell
from lightgate.sim.server.routes import base_urls
from lightgate.sim.server.serve import SimFacts, SimOptions
from lightgate.sim.server.server import SimServer
from lightgate.sim.server.spawn import SimProcess
from lightgate.sim.world_file import load
from lightgate.wire.link.stamper import best_source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from lightgate.bench.load.drive import Finished
    from lightgate.bench.selftest.result import CellResult
    from own_time import OwnTime

TOKENS = 25
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
QUICK = ("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S12")  # S8 stalls for two seconds
PROVIDERS = ("lab", "lab-anthropic", "lab-gemini")


@pytest.fixture
def sim() -> Iterator[SimProcess]:
    """A fresh simulator: which of its requests fail goes by their number."""
    with SimProcess(SimOptions(world="selftest")) as sim:
        yield sim


@pytest.fixture
async def beside(own: OwnTime) -> AsyncIterator[SimFacts]:
    """A fresh simulator in this loop."""
    world = load("selftest")
    server = SimServer(world, seed=1, stamp="read")
    port = await server.start()
    yield SimFacts(
        port=port, host="127.0.0.1", pid=0, world="selftest", seed=1, trouble_ports={},
        providers=base_urls(world, "127.0.0.1", port, {}),
    )  # fmt: skip
    await server.close()


async def run(facts: SimFacts, cell: SelftestCell) -> tuple[CellResult, list[Finished]]:
    done: list[Finished] = []
    result = await run_cell(cell, Lab(facts), done.append)
    assert result.scenario.startswith(cell.scenario.name)
    assert result.requests == len(done) == cell.requests
    assert (result.lost, result.wrong_tokens, result.wrong_outcomes) == (0, 0, ()), result
    assert result.ttft_ms is not None
    assert result.tokens > 0
    return result, done


async def judge(facts: SimFacts, name: str, provider: str, streams: int) -> list[Finished]:
    cell = SelftestCell(BY_NAME[name], streams, streams, TOKENS, "read", provider)
    result, done = await run(facts, cell)
    assert (result.wrong_kinds, result.unmeasured) == (0, 0), result
    return done


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_kinds_counts_and_outcomes_are_right(beside: SimFacts, provider: str) -> None:
    names = [name for name in QUICK if provider == "lab" or name in OTHER_SCENARIOS]
    finished = await asyncio.gather(*(judge(beside, name, provider, 4) for name in names))
    for name, done in zip(names, finished, strict=True):
        hidden = 10 if name == "S6" else 0
        streamed = [item.called.tokens.streamed for item in done]
        assert streamed == [TOKENS - hidden] * 4, name


FAILURES = {"ok": 27, "rate_limited": 2, "reset": 1, "empty": 1, "stream_error": 1}


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_failures_are_told_apart(beside: SimFacts, provider: str) -> None:
    done = await judge(beside, "S10", provider, 32)
    assert Counter(str(item.called.outcome) for item in done) == FAILURES


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_so_are_those_of_another_process(sim: SimProcess, provider: str) -> None:
    cell = SelftestCell(BY_NAME["S10"], 32, 32, TOKENS, best_source(), provider)
    _, done = await run(sim.facts, cell)
    assert Counter(str(item.called.outcome) for item in done) == FAILURES


async def test_the_log_is_read_on_from_where_it_was_left(sim: SimProcess) -> None:
    lab, cell = Lab(sim.facts), SelftestCell(BY_NAME["S1"], 1, 1, 2, best_source())
    for _ in range(2):
        result = await run_cell(cell, lab, lambda _: None)
        assert (result.requests, result.lost) == (1, 0)
