"""One stretch of a closed loop: what is asked for is counted, under the full load."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest

from bench.conftest import job_at
from bench.load.test_drive import HEAD, REST, TOKEN, Desk
from lightgate.bench.load.drive import Driving, Finished, drive_from
from lightgate.bench.load.jobs import EXTRA, Job, Stretch, most_fillers, most_ramp
from lightgate.bench.load.processes import SPARE, LoadProcesses, drive_processes_from
from lightgate.clock.outcome import Outcome
from lightgate.wire.client.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.conftest import Serve

MS = 1_000_000


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client(stamp="read")
    yield client
    await client.close()


def stretch(port: int, asked: int | None, workers: int, spare: int = 0) -> Stretch:
    def job(number: int) -> Job:
        return msgspec.structs.replace(job_at(port, f"job-{number}"), number=number)

    numbers = itertools.count() if asked is None else range(asked)
    return Stretch(job, numbers, itertools.count(EXTRA), workers, spare=spare)


def parts(done: list[Finished]) -> Counter[str]:
    return Counter(item.job.part for item in done)


async def taken(source: Stretch, count: int) -> list[Job]:
    found = []
    for _ in range(count):
        start = await source.next()
        assert start is not None
        found.append(start.job)
    return found


async def test_the_ramp_is_over_when_the_last_worker_begins() -> None:
    source = stretch(1, 3, workers=3)
    seen = []
    for _ in range(3):
        source.joined()
        seen += await taken(source, 1)
    assert [job.part for job in seen] == ["ramp", "ramp", "counted"]
    assert [job.number for job in seen] == [EXTRA, EXTRA + 1, 0]


async def test_a_ramp_has_an_end_even_where_requests_end_before_all_workers_begin() -> None:
    source = stretch(1, 1, workers=8)
    source.joined()
    # One worker goes round and round; what the other seven need is left for them.
    early = await taken(source, most_ramp(8) - 7)
    assert {job.part for job in early} == {"ramp"}
    waiting = asyncio.ensure_future(source.next())
    for _ in range(7):
        source.joined()
    start = await waiting
    assert start is not None
    assert start.job.part == "counted"


async def test_one_worker_needs_neither_ramp_nor_fillers() -> None:
    source = stretch(1, 2, workers=1)
    source.joined()
    jobs = await taken(source, 2)
    assert [job.part for job in jobs] == ["counted"] * 2
    assert await source.next() is None
    assert [source.ended(job) for job in jobs] == [False, True]


async def test_fillers_keep_the_load_up_until_the_last_counted_one_has_ended() -> None:
    source = stretch(1, 1, workers=2)
    source.joined()
    (ramp,) = await taken(source, 1)
    source.joined()
    (only,) = await taken(source, 1)
    assert not source.ended(ramp)
    fillers = await taken(source, most_fillers(2))
    assert {job.part for job in fillers} == {"filler"}
    assert await source.next() is None  # there are no more than were announced
    assert not source.ended(fillers[0])
    assert source.ended(only)


async def test_a_closed_stretch_counts_what_is_under_way() -> None:
    source = stretch(1, None, workers=2)
    source.joined()
    source.joined()
    one, two = await taken(source, 2)
    assert not source.ended(one)
    assert not source.close()
    (more,) = await taken(source, 1)
    assert more.part == "filler"
    assert source.ended(two)


async def test_asked_is_counted_and_the_last_ones_meet_the_full_load(
    client: Client, serving: Serve
) -> None:
    # The last counted request is answered only once three others are in flight beside it.
    async def answer(name: str) -> bytes:
        if name == "job-39":
            async with desk.news:
                await desk.news.wait_for(lambda: len(desk.in_flight) == 4)
        else:
            await asyncio.sleep(0.001)
        return HEAD + TOKEN + REST

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        driven = await drive_from(client, stretch(port, 40, 4), Driving(concurrency=4), done.append)
    by_part = parts(done)
    assert by_part["counted"] == 40
    assert 3 <= by_part["ramp"] <= most_ramp(4)
    assert 1 <= by_part["filler"] <= most_fillers(4)
    assert driven.started == len(done)
    assert desk.most == 4
    counted = [item for item in done if item.job.part == "counted"]
    assert sorted(item.job.number for item in counted) == list(range(40))
    assert {item.called.outcome for item in counted} == {Outcome.OK}


async def test_fillers_are_cut_at_the_end(client: Client, serving: Serve) -> None:
    async def answer(name: str) -> bytes:
        number = int(name.removeprefix("job-"))
        if number > EXTRA:  # a filler: the only request of the ramp has the first number
            fillers.set()
            await asyncio.Event().wait()
        if number == 1:
            await fillers.wait()
        return HEAD + TOKEN + REST

    fillers = asyncio.Event()
    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        await drive_from(client, stretch(port, 2, 2), Driving(concurrency=2), done.append)
    ends = {item.job.part: item.called.outcome for item in done}
    assert ends == {"ramp": Outcome.OK, "counted": Outcome.OK, "filler": Outcome.CUT}


async def test_a_duration_counts_what_began_in_it(client: Client, serving: Serve) -> None:
    async def answer(_: str) -> bytes:
        await asyncio.sleep(0.002)
        return HEAD + TOKEN + REST

    desk, done = Desk(answer), list[Finished]()
    driving = Driving(concurrency=3, duration_ns=60 * MS, cool_down_s=30.0)
    async with serving(desk.script) as port:
        driven = await drive_from(client, stretch(port, None, 3), driving, done.append)
    counted = [item for item in done if item.job.part == "counted"]
    assert counted
    assert {item.called.outcome for item in counted} == {Outcome.OK}
    assert {(item.marks.send or 0) < driven.begin_ns + 160 * MS for item in counted} == {True}


async def test_several_processes_count_what_was_asked(serving: Serve) -> None:
    async def answer(_: str) -> bytes:
        await asyncio.sleep(0.005)
        return HEAD + TOKEN + REST

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        driving = Driving(concurrency=4, ramp_s=0.02)
        source = stretch(port, 30, 4, spare=2 * SPARE)
        driven = await drive_processes_from(
            source, driving, LoadProcesses(processes=2), done.append
        )
    by_part = parts(done)
    assert by_part["counted"] == 30
    assert {i.called.outcome for i in done if i.job.part == "counted"} == {Outcome.OK}
    assert 4 <= by_part["ramp"] <= most_ramp(4) + 2 * SPARE
    assert by_part["filler"] <= most_fillers(4)
    assert not driven.lost
