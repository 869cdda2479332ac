"""Several targets in one run, interleaved in time: blocks in which each gets the same prompts.

Measured one after the other, two equal providers "differ" in most runs, because the hour does. So
time is cut into blocks; in each block every target gets the same prompts at the same load, and the
order is thrown anew. The statistics compare targets inside a block only. A single target, and
targets that are driven together, have one stretch of load; blocks are labels in it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from bisect import bisect_right
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.bench.load.drive import LEAD_NS, Driven, Driving, Finished, drive, drive_from
from lightgate.bench.load.jobs import EXTRA, JobSource, Stretch, starts
from lightgate.bench.load.quiet import breathe
from lightgate.clock.outcome import Outcome
from lightgate.clock.source import SYSTEM
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lightgate.bench.load.jobs import Job
    from lightgate.bench.load.shape import Pacer
    from lightgate.wire.client.client import Client

STARTS_PER_S: Final = 2_000  # no faster: the first requests of more workers would queue here
NS_PER_S: Final = 1_000_000_000


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

    `sizes` are the requests of one target in each block; without them blocks of `size` go on for
    the duration of the `Driving`. `warmup` are those that each target gets first, with prompts of
    their own. `together` drives all targets at the same time instead of in turns. With `stagger`
    the workers of a closed loop begin over the time of one request, so that answers of equal length
    do not end, and the next ones do not begin, all at once.
    """

    sizes: tuple[int, ...] = ()
    size: int = 0
    warmup: int = 0
    seed: int = 1
    together: bool = False
    stagger: bool = True

    @property
    def starts(self) -> list[int]:
        """The number of the first request of each block, and that after the last one."""
        return list(itertools.accumulate(self.sizes, initial=0))

    def numbers(self, block: int) -> range:
        """The numbers of the requests of a block."""
        if not self.sizes:
            return range(block * self.size, (block + 1) * self.size)
        first, after = self.starts[block : block + 2]
        return range(first, after)

    def labels(self) -> Callable[[int], int]:
        """Make the function that tells the block of a request's number."""
        if not self.sizes:
            return lambda number: number // self.size
        starts = self.starts
        return lambda number: bisect_right(starts, number) - 1


class InBlock(msgspec.Struct, frozen=True):
    """One request that was made, and where it belongs.

    `block` is None for a warm-up, and for a request of an unbroken stretch that does not count.
    """

    lane: str
    block: int | None
    finished: Finished


class LaneTurn(NamedTuple):
    """One target's time: in one block, in its warm-up, or (unbroken) in the whole run."""

    lane: str
    block: int | None
    warmup: bool
    driven: Driven


class Unbroken(NamedTuple):
    """The requests of one target in a stretch over all blocks, and how they are driven."""

    source: JobSource
    driving: Driving
    finished: Callable[[Finished], None]


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
    return await Interleaved(client, plan, driving, on_done, pacer).run(lanes)


class Interleaved:
    """One load under way: its warm-up, then its stretches."""

    def __init__(
        self,
        client: Client,
        plan: Blocks,
        driving: Driving,
        on_done: Callable[[InBlock], None],
        pacer: Pacer | None = None,
    ) -> None:
        self._client = client
        self._plan = plan
        self._driving = msgspec.structs.replace(driving, requests=None)
        self._counted = msgspec.structs.replace(self._driving, duration_ns=None, start_ns=None)
        self._on_done = on_done
        self._pacer = pacer
        self._extra: dict[str, Iterator[int]] = {}  # numbers of prompts that do not count
        self.takes_ns: dict[str, int] = {}  # the time of one request, as far as it is known

    async def run(self, lanes: Sequence[Lane]) -> list[LaneTurn]:
        """Run the warm-up and the blocks; see `interleave`."""
        plan, names = self._plan, {lane.name for lane in lanes}
        wrong = min(plan.sizes, default=plan.size) < 1
        if wrong or not lanes or len(names) < len(lanes):
            raise UsageError("An interleaved run needs targets with names of their own and blocks.")
        if not plan.sizes and self._driving.duration_ns is None:
            raise UsageError("An interleaved run needs a number of blocks or a duration.")
        turns = await self.warm(lanes)
        given_up = {turn.lane for turn in turns if turn.driven.gave_up}
        left = [lane for lane in lanes if lane.name not in given_up]
        unbroken = plan.together or len(lanes) == 1
        return turns + await (self.together(left) if unbroken else self.in_turns(left))

    async def warm(self, lanes: Sequence[Lane]) -> list[LaneTurn]:
        """Warm each target up in a closed loop, at the concurrency of the run."""
        return [await self._warm(lane) for lane in lanes if self._plan.warmup]

    async def in_turns(self, lanes: Sequence[Lane]) -> list[LaneTurn]:
        """Drive one target at a time, so that targets do not share this machine or its network."""
        plan, by_name = self._plan, {lane.name: lane for lane in lanes}
        duration = self._driving.duration_ns
        until = None if duration is None else SYSTEM.now_ns() + duration
        turns: list[LaneTurn] = []
        for block in itertools.count():
            past = until is not None and SYSTEM.now_ns() >= until
            if past or not by_name or (plan.sizes and block == len(plan.sizes)):
                break
            for name in order(list(by_name), block, plan.seed):
                turn = await self._turn(by_name[name], block)
                turns.append(turn)
                if turn.driven.gave_up:
                    del by_name[name]
        return turns

    async def together(self, lanes: Sequence[Lane]) -> list[LaneTurn]:
        """Drive all targets at once, each in its own loop or on the same plan."""
        begin = self._driving.start_ns or SYSTEM.now_ns() + LEAD_NS

        async def one(lane: Lane) -> LaneTurn:
            source, driving, finished = self.unbroken(lane)
            driving = msgspec.structs.replace(driving, start_ns=begin)
            driven = await drive_from(self._client, source, driving, finished)
            return LaneTurn(lane.name, None, warmup=False, driven=driven)

        breathe()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(lane)) for lane in lanes]
        return [task.result() for task in tasks]

    def unbroken(self, lane: Lane, *, spare: int = 0) -> Unbroken:
        """Make what one stretch over all blocks of a lane is driven by; for `spare` see Stretch."""
        label, sizes = self._plan.labels(), self._plan.sizes

        def finished(item: Finished) -> None:
            job = item.job
            block = label(job.number) if job.part == "counted" else None
            self._on_done(InBlock(lane.name, block, item))

        numbers = range(sum(sizes)) if sizes else itertools.count()
        if self._pacer is not None:
            return Unbroken(starts(map(lane.job, numbers), self._pacer), self._driving, finished)
        workers = self._driving.concurrency
        stretch = Stretch(lane.job, numbers, self._more(lane), workers, spare=spare)
        driving = msgspec.structs.replace(self._driving, ramp_s=self.ramp_s(lane))
        return Unbroken(stretch, driving, finished)

    def ramp_s(self, lane: Lane) -> float:
        """The time over which the workers of a lane begin: that of a request, if it is known."""
        takes, workers = self.takes_ns.get(lane.name), self._driving.concurrency
        if takes is None or not self._plan.stagger or workers == 1:
            return self._driving.ramp_s
        return max(takes / NS_PER_S, workers / STARTS_PER_S)

    async def _turn(self, lane: Lane, block: int) -> LaneTurn:
        times: list[int] = []

        def finished(item: Finished) -> None:
            self._on_done(InBlock(lane.name, block, item))
            if item.job.part == "counted" and (time := _time_ns(item)):
                times.append(time)

        breathe()
        numbers, workers = self._plan.numbers(block), self._counted.concurrency
        stretch = Stretch(lane.job, numbers, self._more(lane), workers)
        driving = msgspec.structs.replace(self._counted, ramp_s=self.ramp_s(lane))
        driven = await drive_from(self._client, stretch, driving, finished)
        if times:
            self.takes_ns[lane.name] = round(median(times))
        return LaneTurn(lane.name, block, warmup=False, driven=driven)

    async def _warm(self, lane: Lane) -> LaneTurn:
        times: list[int] = []

        def finished(item: Finished) -> None:
            self._on_done(InBlock(lane.name, None, item))
            if time := _time_ns(item):
                times.append(time)

        jobs = (
            msgspec.structs.replace(lane.job(number), part="warm-up", cancel_ns=None)
            for number in itertools.islice(self._more(lane), self._plan.warmup)
        )
        breathe()
        few = min(self._plan.warmup, self._counted.concurrency)
        driving = msgspec.structs.replace(self._counted, concurrency=few, ramp_s=0.0)
        driven = await drive(self._client, jobs, driving, finished)
        if times:
            self.takes_ns[lane.name] = min(times)  # a cold one says nothing about those to come
        return LaneTurn(lane.name, None, warmup=True, driven=driven)

    def _more(self, lane: Lane) -> Iterator[int]:
        return self._extra.setdefault(lane.name, itertools.count(EXTRA))


def _time_ns(item: Finished) -> int | None:
    """The time that a request kept its worker; None where it failed."""
    marks = item.marks
    if item.called.outcome is not Outcome.OK or marks.send is None or marks.end is None:
        return None
    return marks.end - marks.send
