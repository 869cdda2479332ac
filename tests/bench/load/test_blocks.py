"""Interleaved targets: the same prompts in every block, in an order that is thrown anew."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest

from bench.conftest import job_at
from bench.load.test_drive import HEAD, REST, TOKEN, Desk, never
from lightgate.bench.load.blocks import Blocks, InBlock, Lane, interleave, order
from lightgate.bench.load.drive import Driving
from lightgate.bench.load.shape import Constant, parse_rate
from lightgate.clock.outcome import Outcome
from lightgate.errors import UsageError
from lightgate.wire.client.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.conftest import Serve
    from lightgate.bench.load.jobs import Job

MS = 1_000_000
NAMES = ("a", "b", "a-twin")


def lane(port: int, name: str) -> Lane:
    def job(index: int) -> Job:
        return msgspec.structs.replace(job_at(port, f"{name}:{index}"), number=index)

    return Lane(name, job)


def counted(done: list[InBlock]) -> list[InBlock]:
    return [item for item in done if item.finished.job.part == "counted"]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client(stamp="read")
    yield client
    await client.close()


def test_the_order_is_random_and_seeded() -> None:
    drawn = [tuple(order(NAMES, block, seed=4)) for block in range(600)]
    assert drawn == [tuple(order(NAMES, block, seed=4)) for block in range(600)]
    assert drawn != [tuple(order(NAMES, block, seed=5)) for block in range(600)]
    seen = Counter(drawn)
    assert set(seen) == set(itertools.permutations(NAMES))
    assert min(seen.values()) > 60  # 100 each is fair; 60 is more than four sigma away


async def test_every_lane_gets_every_prompt_of_a_block_in_its_turn(
    client: Client, serving: Serve
) -> None:
    desk, done = Desk(), list[InBlock]()
    alone: list[bool] = []

    async def answer(_: str) -> bytes:
        alone.append(len({name.partition(":")[0] for name in desk.in_flight}) == 1)
        return HEAD + TOKEN + REST

    desk._answer = answer
    async with serving(desk.script) as port:
        turns = await interleave(
            client,
            [lane(port, name) for name in NAMES],
            Blocks(sizes=(4,) * 3, seed=9),
            Driving(concurrency=1),
            done.append,
        )
    where = Counter((item.lane, item.block, item.finished.job.number) for item in done)
    assert where == {(name, prompt // 4, prompt): 1 for name in NAMES for prompt in range(3 * 4)}
    assert all(item.finished.job.id == f"{item.lane}:{item.finished.job.number}" for item in done)
    assert all(alone)  # targets do not disturb each other
    assert desk.most == 1
    assert [(turn.block, turn.lane) for turn in turns] == [
        (block, name) for block in range(3) for name in order(NAMES, block, 9)
    ]
    for before, after in itertools.pairwise(turns):
        assert before.driven.ended_ns <= after.driven.begin_ns


async def test_warm_ups_come_first_and_have_prompts_of_their_own(
    client: Client, serving: Serve
) -> None:
    desk, done = Desk(), list[InBlock]()
    async with serving(desk.script) as port:
        plan = Blocks(sizes=(2,) * 2, warmup=3)
        lanes = [lane(port, "a"), lane(port, "b")]
        turns = await interleave(client, lanes, plan, Driving(), done.append)
    assert [turn.warmup for turn in turns] == [True] * 2 + [False] * 4
    assert [item.block is None for item in done] == [True] * 6 + [False] * 8
    for name in ("a", "b"):
        warm = {
            item.finished.job.number for item in done if item.block is None and item.lane == name
        }
        measured = {
            item.finished.job.number
            for item in done
            if item.block is not None and item.lane == name
        }
        assert len(warm) == 3
        assert measured == {0, 1, 2, 3}
        assert not warm & measured


async def test_a_block_that_began_is_finished(client: Client, serving: Serve) -> None:
    async def answer(_: str) -> bytes:
        await asyncio.sleep(0.02)  # any time: the test holds for every one
        return HEAD + TOKEN + REST

    desk, done = Desk(answer), list[InBlock]()
    async with serving(desk.script) as port:
        lanes = [lane(port, "a"), lane(port, "b")]
        driving = Driving(duration_ns=100 * MS, concurrency=2)
        await interleave(client, lanes, Blocks(size=3), driving, done.append)
    assert {item.finished.called.outcome for item in counted(done)} == {Outcome.OK}
    blocks = Counter(item.block for item in counted(done))
    assert set(blocks.values()) == {6}


async def test_a_target_that_is_down_loses_its_turns_only(client: Client, serving: Serve) -> None:
    desk, done = Desk(), list[InBlock]()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        async with serving(desk.script) as port:
            lanes = [lane(port, "up"), lane(closed.getsockname()[1], "down")]
            plan = Blocks(sizes=(4,) * 5)
            turns = await interleave(client, lanes, plan, Driving(give_up=2), done.append)
    counts = Counter(item.lane for item in done)
    assert counts == {"up": 20, "down": 2}
    assert [turn.lane for turn in turns if turn.driven.gave_up] == ["down"]


async def test_together_all_targets_are_under_way_at_once(client: Client, serving: Serve) -> None:
    # In turns this would hang: nobody is answered until both targets have been asked.
    async def answer(_: str) -> bytes:
        async with desk.news:
            await desk.news.wait_for(lambda: {n[0] for n in desk.names} == {"a", "b"})
        return HEAD + TOKEN + REST

    desk, done = Desk(answer), list[InBlock]()
    async with serving(desk.script) as port:
        lanes = [lane(port, "a"), lane(port, "b")]
        plan = Blocks(sizes=(3,) * 4, together=True)
        turns = await interleave(client, lanes, plan, Driving(concurrency=2), done.append)
    where = Counter((item.lane, item.block) for item in counted(done))
    assert where == {(name, block): 3 for name in "ab" for block in range(4)}
    assert min(turn.driven.started for turn in turns) > 12
    assert turns[0].driven.begin_ns == turns[1].driven.begin_ns


async def test_together_on_one_plan_every_pair_has_one_instant(
    client: Client, serving: Serve
) -> None:
    desk, done = Desk(), list[InBlock]()
    async with serving(desk.script) as port:
        lanes = [lane(port, "a"), lane(port, "b")]
        plan = Blocks(sizes=(2,) * 3, together=True)
        pacer = Constant(parse_rate("100/s"))
        turns = await interleave(client, lanes, plan, Driving(), done.append, pacer)
    by_prompt: dict[int, set[int]] = {}
    for item in done:
        by_prompt.setdefault(item.finished.job.number, set()).add(item.finished.marks.plan or 0)
    assert [len(plans) for plans in by_prompt.values()] == [1] * 6
    assert [turn.block for turn in turns] == [None, None]


async def test_cancelling_keeps_what_was_measured(client: Client, serving: Serve) -> None:
    desk, done = Desk(never), list[InBlock]()
    async with serving(desk.script) as port:
        lanes = [lane(port, "a"), lane(port, "b")]
        plan = Blocks(sizes=(3,) * 4, together=True)
        work = asyncio.ensure_future(
            interleave(client, lanes, plan, Driving(concurrency=2), done.append)
        )
        await desk.has(4)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert [item.finished.called.outcome for item in done] == [Outcome.CUT] * 4


async def test_what_cannot_be_run(client: Client) -> None:
    two = [lane(1, "a"), lane(1, "b")]
    for lanes, plan in (
        (two, Blocks(sizes=(0,))),
        (two, Blocks(size=1)),
        ([], Blocks(sizes=(1,))),
        ([*two, lane(1, "a")], Blocks(sizes=(1,))),
    ):
        with pytest.raises(UsageError):
            await interleave(client, lanes, plan, Driving(), lambda _: None)
