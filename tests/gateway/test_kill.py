"""What holds when workers are killed, and when two hundred want what is enough for ten."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from gateway.faulted import TIMES, Field, model
from gateway.workers import Workers
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.ledger.store.keys import KeyTerms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.conftest import Start
    from lightgate.ledger.journal.notes import Reserved, Settled
    from sim.conftest import Answer, Line

KILL = Path(__file__).parents[2] / "benchmarks" / "kill.py"
KILLS, CLIENTS = 8, 16
WANTED, ENOUGH = 200, 10
ONE_NANO = 118_000  # what a request of this module reserves: 62 tokens in, 12 and 16 out
WHO = {"user": "x"}  # as many bytes as make it the same for streamed and whole answers
BUDGET = Decimal(ENOUGH * ONE_NANO) / 1_000_000_000
SLOW = "lab/plain!silence:0.5"  # all of them are there before the first one is over


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program of `make soak`, which does the same a hundred times."""
    spec = importlib.util.spec_from_file_location("kill", KILL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "kill", module)
    spec.loader.exec_module(module)
    return module


async def test_what_a_client_saw_outlives_the_worker(kill: Any, tmp_path: Path) -> None:
    verdict = await kill.besiege(tmp_path, KILLS, CLIENTS, seed=4)
    assert verdict.holds, verdict
    assert verdict.seen >= KILLS
    assert verdict.exchanges >= verdict.seen
    assert verdict.cut >= 1  # it did hit requests under way


def judge(
    answers: Sequence[Answer],
    reserved: Sequence[Reserved],
    settled: Sequence[Settled],
    *,
    each: int = 1,
) -> None:
    """As many were let in as the budget covers, and what they cost is within it."""
    assert {note.nano_usd for note in reserved} == {each * ONE_NANO}
    statuses = Counter(answer.status for answer in answers)
    assert statuses == {200: ENOUGH // each, 402: WANTED - ENOUGH // each}
    for answer in answers:
        if answer.status == 402:
            assert answer.json["error"]["code"] == "budget"
            assert "x-lightgate-target" not in answer.headers
    assert len(reserved) == len(settled) == ENOUGH // each
    costs = [(n.exchange.cost_nano or 0) + (n.exchange.loser_cost_nano or 0) for n in settled]
    assert 0 < sum(costs) <= ENOUGH * ONE_NANO


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("race", [1, 2])
async def test_two_hundred_at_once_against_a_budget_for_ten(
    start: Start, stream: bool, race: int
) -> None:
    targets = [SLOW, "lab/plain!silence:0.6"][:race]
    terms = {"key": KeyTerms(name="key", budget_usd=BUDGET, may_race=True)}
    rig = await start(model("m", targets, f"race = {race}"), terms=terms)
    field = Field(rig)
    answers = await asyncio.gather(
        *(rig.chat("m", stream=stream, headers=field.headers, **WHO) for _ in range(WANTED))
    )
    judge(answers, rig.reserved(), rig.settled(), each=race)
    await field.at_peace()


async def shared_out(
    lines: list[Line], children: list[asyncio.subprocess.Process]
) -> list[list[Line]]:
    """Which connections each worker has accepted, once it has them all."""
    async with asyncio.timeout(100):
        while True:
            open_ = [psutil.Process(child.pid).net_connections("tcp") for child in children]
            ports = [{each.raddr[1] for each in some if len(each.raddr)} for some in open_]
            parts = [[line for line in lines if line.port in known] for known in ports]
            if sum(map(len, parts)) == len(lines):
                return parts
            await asyncio.sleep(0.01)


async def test_two_workers_share_a_budget_for_ten(tmp_path: Path) -> None:
    terms = KeyTerms(name="key", budget_usd=BUDGET)
    slow = model("m", ["lab/plain!silence:3"]).replace(TIMES, "")
    gateway = await Workers.open(tmp_path / "data", slow, terms)
    try:
        children = [await gateway.start(index) for index in (0, 1)]
        lines = [await gateway.line() for _ in range(WANTED)]
        ours, theirs = await shared_out(lines, children)
        first = [ours[0], theirs[0]]  # both have a part in it; for the rest they contend
        for line in first:
            gateway.send(line, "m", **WHO)
        async with asyncio.timeout(100):
            while len(gateway.reserved()) < len(first):
                await asyncio.sleep(0.01)
        for line in lines:
            if line not in first:
                gateway.send(line, "m", **WHO)
        answers = await asyncio.gather(*(line.answer() for line in lines))
        for line in lines:
            await line.close()
        for child in children:
            child.terminate()
            assert await child.wait() == 0
        judge(answers, gateway.reserved(), gateway.settled())
        assert {note.exchange.worker for note in gateway.settled()} == {0, 1}
        with SpendCounters.open(gateway.data / "spend", 0, gateway.keys) as spend:
            standing = spend.standing(gateway.keys[0].id)
        assert standing is not None
        assert standing.held_nano == 0
        assert standing.spent_nano == sum(n.exchange.cost_nano or 0 for n in gateway.settled())
    finally:
        await gateway.close()
