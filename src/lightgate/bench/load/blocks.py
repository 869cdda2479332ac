"""Several targets in one run, interleaved in time: blocks in which each gets the same prompts.

Measured one after the other, two equal providers "differ" in most runs, because the hour does. So
time is cut into blocks; in each block every target gets the same prompts at the same load, and the
order is thrown anew. The statistics compare targets inside a block only.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lightgate.bench.load.drive import LEAD_NS, Driven, Driving, Finished, drive
from lightgate.bench.load.quiet import breathe
from lightgate.clock.source import SYSTEM
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightgate.bench.load.drive import Job
    from lightgate.bench.load.shape import Pacer
    from lightgate.wire.client.client import Client


class Lane(NamedTuple):
    """One target of the run, or the second half of an A/A pair.

    `job(i)` makes the job of number i: the same i is the same prompt for every lane. Its unique
    first words must differ between two lanes of one endpoint, or one warms the other's prompt
    cache.
    """

    name: str
    job: Callable[[int], Job]


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """The cut of a run into blocks.

    `size` are the requests of one target in one block; `warmup` those that each target gets first,
    with prompts of their own. `together` drives all targets at the same time instead of in turns.
    Without `blocks` the run goes on for the duration of its `Driving`.
    """

    size: int
    blocks: int | None = None
    warmup: int = 0
    seed: int = 1
    together: bool = False


class InBlock(msgspec.Struct, frozen=True):
    """One request that was made, and where it belongs; `block` is None for a warm-up."""

    lane: str
    block: int | None
    finished: Finished


class LaneTurn(NamedTuple):
    """One target's time: in one block, in its warm-up, or (together) in the whole run."""

    lane: str
    block: int | None
    warmup: bool
    driven: Driven


def order(names: Sequence[str], block: int, seed: int) -> list[str]:
    """The order of the turns in one block: random, and the same for the same seed."""
    drawn = list(names)
    random.Random(f"{seed}/{block}").shuffle(drawn)  # noqa: S311 - a design, not a secret
    return drawn


async def interleave(
    client: Client,
    lanes: Sequence[Lane],
    plan: Blocks,
    driving: Driving,
    on_done: Callable[[InBlock], None],
    pacer: Pacer | None = None,
) -> list[LaneTurn]:
    """Run the blocks; `on_done` gets each request the moment it ends.

    In turns, a block that has begun is finished, also past the end of the duration; a target that
    was given up gets no more turns. `driving.requests` is not used: the plan has the counts.
    """
    names = {lane.name for lane in lanes}
    if plan.size < 1 or not lanes or len(names) < len(lanes):
        raise UsageError("An interleaved run needs targets with names of their own and blocks.")
    if plan.blocks is None and driving.duration_ns is None:
        raise UsageError("An interleaved run needs a number of blocks or a duration.")
    run = _Interleaved(client, plan, driving, on_done, pacer)
    turns = await run.warm(lanes)
    given_up = {turn.lane for turn in turns if turn.driven.gave_up}
    left = [lane for lane in lanes if lane.name not in given_up]
    return turns + await (run.together(left) if plan.together else run.in_turns(left))


class _Interleaved:
    def __init__(
        self,
        client: Client,
        plan: Blocks,
        driving: Driving,
        on_done: Callable[[InBlock], None],
        pacer: Pacer | None,
    ) -> None:
        self._client = client
        self._plan = plan
        self._driving = msgspec.structs.replace(driving, requests=None)
        self._counted = msgspec.structs.replace(self._driving, duration_ns=None, start_ns=None)
        self._on_done = on_done
        self._pacer = pacer

    async def warm(self, lanes: Sequence[Lane]) -> list[LaneTurn]:
        """Warm each target up in a closed loop, at the concurrency of the run."""
        first = (self._plan.blocks or 0) * self._plan.size
        # Without a number of blocks the indices of their prompts have no end: go below zero.
        warmup = self._plan.warmup
        indices = range(first, first + warmup) if self._plan.blocks else range(-warmup, 0)
        if not warmup:
            return []
        return [await self._turn(lane, None, indices, None) for lane in lanes]

    async def in_turns(self, lanes: Sequence[Lane]) -> list[LaneTurn]:
        """Drive one target at a time, so that targets do not share this machine or its network."""
        plan, by_name = self._plan, {lane.name: lane for lane in lanes}
        duration = self._driving.duration_ns
        until = None if duration is None else SYSTEM.now_ns() + duration
        turns: list[LaneTurn] = []
        for block in itertools.count():
            past = until is not None and SYSTEM.now_ns() >= until
            if past or not by_name or block == plan.blocks:
                break
            indices = range(block * plan.size, (block + 1) * plan.size)
            for name in order(list(by_name), block, plan.seed):
                turn = await self._turn(by_name[name], block, indices, self._pacer)
                turns.append(turn)
                if turn.driven.gave_up:
                    del by_name[name]
        return turns

    async def together(self, lanes: Sequence[Lane]) -> list[LaneTurn]:
        """Drive all targets at once, each in its own loop or on the same plan."""
        plan = self._plan
        ends = None if plan.blocks is None else plan.blocks * plan.size
        driving = self._driving
        if driving.start_ns is None:
            driving = msgspec.structs.replace(driving, start_ns=SYSTEM.now_ns() + LEAD_NS)

        async def one(lane: Lane) -> LaneTurn:
            def finished(item: Finished) -> None:
                self._on_done(InBlock(lane.name, item.job.number // plan.size, item))

            jobs = map(lane.job, itertools.count() if ends is None else range(ends))
            driven = await drive(self._client, jobs, driving, finished, self._pacer)
            return LaneTurn(lane.name, None, warmup=False, driven=driven)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(lane)) for lane in lanes]
        return [task.result() for task in tasks]

    async def _turn(
        self, lane: Lane, block: int | None, indices: range, pacer: Pacer | None
    ) -> LaneTurn:
        def finished(item: Finished) -> None:
            self._on_done(InBlock(lane.name, block, item))

        breathe()
        jobs = map(lane.job, indices)
        driven = await drive(self._client, jobs, self._counted, finished, pacer)
        return LaneTurn(lane.name, block, block is None, driven)
