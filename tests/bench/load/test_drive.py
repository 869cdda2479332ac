"""Driving a cell: plans that nothing moves, workers that refill, ends that lose nothing."""

from __future__ import annotations

import asyncio
import itertools
import socket
from typing import TYPE_CHECKING

import msgspec
import pytest

from bench.conftest import job_at
from lightgate.bench.load.drive import AHEAD, Driving, Finished, drive
from lightgate.bench.load.shape import Burst, Constant, Poisson, Ramp, parse_rate
from lightgate.bench.run.order import target
from lightgate.clock.outcome import Outcome
from lightgate.clock.source import SYSTEM
from lightgate.dialect.request import Message, Request
from lightgate.errors import RateLimited, UsageError
from lightgate.provider.prepare import prepare
from lightgate.sim.server.routes import base_urls
from lightgate.sim.server.serve import SimFacts
from lightgate.sim.server.server import SimServer
from lightgate.sim.world_file import parse
from lightgate.wire.client.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from bench.conftest import Serve
    from lightgate.bench.load.jobs import Job
    from own_time import OwnTime

MS = 1_000_000
S = 1_000_000_000
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":null}]}\n\n'
REST = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % (
    len(TOKEN) + len(REST)
)
LIMITED = (
    b"HTTP/1.1 429 Busy\r\nretry-after-ms: 40\r\ncontent-type: application/json\r\n"
    b"content-length: 2\r\n\r\n{}"
)


class Desk:
    """A provider whose answers a test lets go: all at once, unless it is told otherwise."""

    def __init__(self, answer: Callable[[str], Awaitable[bytes]] | None = None) -> None:
        self.names: list[str] = []
        self.in_flight: list[str] = []
        self.most = 0
        self.opening = b""  # written when a request arrives
        self.news = asyncio.Condition()
        self._answer = answer

    async def script(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
            await reader.readexactly(int(fields[b"content-length"]))
            name = fields[b"x-request-id"].decode()
            async with self.news:
                self.names.append(name)
                self.in_flight.append(name)
                self.most = max(self.most, len(self.in_flight))
                self.news.notify_all()
            writer.write(self.opening)
            text = HEAD + TOKEN + REST if self._answer is None else await self._answer(name)
            self.in_flight.remove(name)
            writer.write(text)
            await writer.drain()

    async def has(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        async with self.news:
            await self.news.wait_for(lambda: len(self.names) >= count)


async def never(_: str) -> bytes:
    await asyncio.Event().wait()
    return b""


def jobs(port: int, count: int | None = None) -> Iterator[Job]:
    numbers = itertools.count() if count is None else iter(range(count))
    return (job_at(port, f"job-{number}") for number in numbers)


def outcomes(done: list[Finished]) -> list[Outcome]:
    return [item.called.outcome for item in done]


@pytest.fixture
async def client(own: OwnTime) -> AsyncIterator[Client]:
    client = Client(stamp="read")
    yield client
    await client.close()


# Closed loops


async def test_a_request_may_be_cancelled_at_its_first_token_or_after_a_time(
    client: Client, serving: Serve
) -> None:
    desk, done = Desk(never), list[Finished]()
    desk.opening = HEAD + TOKEN
    async with serving(desk.script) as port:
        early = [msgspec.structs.replace(job, cancel_ns=0) for job in jobs(port, 3)]
        await drive(client, iter(early), Driving(concurrency=2), done.append)
        desk.opening = b""
        late = [msgspec.structs.replace(job, cancel_ns=1_000_000) for job in jobs(port, 3)]
        driven = await drive(client, iter(late), Driving(concurrency=2), done.append)
    assert outcomes(done) == [Outcome.CANCELLED] * 6
    assert [item.marks.first is not None for item in done] == [True] * 3 + [False] * 3
    assert (driven.started, driven.cut) == (3, 0)


async def test_a_request_that_ends_before_it_would_be_cancelled_is_like_any_other(
    client: Client, serving: Serve
) -> None:
    desk, done = Desk(), list[Finished]()
    async with serving(desk.script) as port:
        calm = [msgspec.structs.replace(job, cancel_ns=3_600 * 10**9) for job in jobs(port, 4)]
        await drive(client, iter(calm), Driving(concurrency=2), done.append)
    assert outcomes(done) == [Outcome.OK] * 4


async def test_a_count_of_requests(client: Client, serving: Serve) -> None:
    desk, done = Desk(), list[Finished]()
    wall = SYSTEM.wall_ns()
    async with serving(desk.script) as port:
        driven = await drive(client, jobs(port), Driving(concurrency=3, requests=20), done.append)
    assert outcomes(done) == [Outcome.OK] * 20
    assert sorted(desk.names) == sorted(f"job-{number}" for number in range(20))
    assert {item.worker for item in done} == {0, 1, 2}
    assert desk.most <= 3
    assert (driven.started, driven.cut, driven.dropped, driven.gave_up) == (20, 0, 0, "")
    assert all(item.wall_ns >= wall for item in done)
    plans = [item.marks.plan or 0 for item in done]
    assert driven.begin_ns <= min(plans)
    assert max(plans) <= driven.stopped_ns <= driven.ended_ns


async def test_a_worker_never_waits_for_another(client: Client, serving: Serve) -> None:
    # In waves this would hang: the first answer waits until all others have come.
    async def answer(name: str) -> bytes:
        if name == desk.names[0]:
            await desk.has(9)
        return HEAD + TOKEN + REST

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        await drive(client, jobs(port, 9), Driving(concurrency=3), done.append)
    assert outcomes(done) == [Outcome.OK] * 9


async def test_the_end_of_a_duration_cuts_what_is_under_way(client: Client, serving: Serve) -> None:
    desk, done = Desk(never), list[Finished]()
    desk.opening = HEAD + TOKEN
    async with serving(desk.script) as port:
        driving = Driving(concurrency=4, duration_ns=400 * MS)
        driven = await drive(client, jobs(port), driving, done.append)
    assert outcomes(done) == [Outcome.CUT] * 4
    assert (driven.started, driven.cut) == (4, 4)
    assert client.open_connections == 0
    for item in done:
        assert item.called.error is None
        assert len(item.marks.burst_ns) == 1  # counts for throughput
        assert item.marks.end is not None
        assert item.marks.end >= driven.begin_ns + 395 * MS  # the grain of the loop's timers


async def test_what_is_cut_before_any_answer_still_has_its_end(
    client: Client, serving: Serve
) -> None:
    desk, done = Desk(never), list[Finished]()
    async with serving(desk.script) as port:
        await drive(client, jobs(port), Driving(duration_ns=100 * MS), done.append)
    (item,) = done
    assert item.called.outcome is Outcome.CUT
    assert item.marks.send is not None
    assert item.marks.end is not None
    assert item.marks.end > item.marks.send


async def test_cooling_down_waits_and_starts_nothing(client: Client, serving: Serve) -> None:
    start = SYSTEM.now_ns()

    async def answer(_: str) -> bytes:
        while SYSTEM.now_ns() < start + 210 * MS:  # after the end of the duration
            await asyncio.sleep(0.005)
        return HEAD + TOKEN + REST

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        driving = Driving(concurrency=3, duration_ns=200 * MS, cool_down_s=60, start_ns=start)
        driven = await drive(client, jobs(port), driving, done.append)
    assert outcomes(done) == [Outcome.OK] * 3
    assert (driven.started, driven.cut) == (3, 0)
    assert driven.begin_ns == start


async def test_cooling_down_has_a_limit(client: Client, serving: Serve) -> None:
    desk, done = Desk(never), list[Finished]()
    async with serving(desk.script) as port:
        driving = Driving(concurrency=2, duration_ns=100 * MS, cool_down_s=0.05)
        driven = await drive(client, jobs(port), driving, done.append)
    assert outcomes(done) == [Outcome.CUT] * 2
    ends = [item.marks.end or 0 for item in done]
    assert min(ends) >= driven.begin_ns + 145 * MS  # 5 ms for the grain of the loop's timers


async def test_cancelling_keeps_what_was_measured(client: Client, serving: Serve) -> None:
    async def answer(name: str) -> bytes:
        return await never(name) if name in {"job-2", "job-3"} else HEAD + TOKEN + REST

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        work = asyncio.ensure_future(
            drive(client, jobs(port, 4), Driving(concurrency=2), done.append)
        )
        await desk.has(4)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert sorted((item.job.id, item.called.outcome) for item in done) == [
        ("job-0", Outcome.OK),
        ("job-1", Outcome.OK),
        ("job-2", Outcome.CUT),
        ("job-3", Outcome.CUT),
    ]


async def test_a_defect_of_ours_ends_the_drive(client: Client, serving: Serve) -> None:
    class FullError(Exception):
        pass

    def keep(item: Finished) -> None:
        if item.called.outcome is Outcome.OK:
            raise FullError

    async def answer(name: str) -> bytes:
        return await never(name) if name == "job-0" else HEAD + TOKEN + REST

    desk = Desk(answer)
    async with serving(desk.script) as port:
        with pytest.raises(FullError):
            await drive(client, jobs(port), Driving(concurrency=2), keep)
    assert client.open_connections <= 1  # the one under way was closed


@pytest.mark.parametrize("respect", [True, False])
async def test_a_429_pauses_the_workers_and_is_never_sent_again(
    client: Client, serving: Serve, *, respect: bool
) -> None:
    async def answer(name: str) -> bytes:
        return LIMITED if name == "job-0" else HEAD + TOKEN + REST

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        driving = Driving(requests=3, respect_429=respect)
        driven = await drive(client, jobs(port), driving, done.append)
    assert outcomes(done) == [Outcome.RATE_LIMITED, Outcome.OK, Outcome.OK]
    assert desk.names == ["job-0", "job-1", "job-2"]
    error = done[0].called.error
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == 0.04
    if respect:
        waited = (done[1].marks.plan or 0) - (done[0].marks.end or 0)
        assert waited >= 40 * MS
        assert driven.paused_ns >= 39 * MS
    else:
        assert driven.paused_ns == 0


async def test_the_end_does_not_wait_for_a_pause(client: Client, serving: Serve) -> None:
    async def answer(_: str) -> bytes:
        return LIMITED.replace(b": 40", b": 99000")

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        driven = await drive(client, jobs(port), Driving(duration_ns=100 * MS), done.append)
    assert outcomes(done) == [Outcome.RATE_LIMITED]
    assert 0 < driven.paused_ns < 99 * S  # only what fell into the run


async def test_an_endpoint_that_is_down_is_given_up(client: Client) -> None:
    with socket.socket() as closed:  # bound and not listening: nobody else gets the port
        closed.bind(("127.0.0.1", 0))
        done: list[Finished] = []
        driving = Driving(duration_ns=60 * S, give_up=5)
        driven = await drive(client, jobs(closed.getsockname()[1]), driving, done.append)
    assert outcomes(done) == [Outcome.RESET] * 5
    assert "127.0.0.1" in driven.gave_up
    assert not driven.key_refused


@pytest.mark.parametrize("code", [401, 403])
async def test_a_key_that_is_no_longer_taken_is_given_up(
    client: Client, serving: Serve, code: int
) -> None:
    async def answer(_: str) -> bytes:
        return b"HTTP/1.1 %d No\r\ncontent-length: 2\r\n\r\n{}" % code

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        driven = await drive(client, jobs(port), Driving(requests=9, give_up=3), done.append)
    assert len(done) == 3
    assert str(code) in driven.gave_up
    assert driven.key_refused


async def test_one_success_in_between_is_no_reason_to_give_up(
    client: Client, serving: Serve
) -> None:
    async def answer(name: str) -> bytes:
        if int(name.removeprefix("job-")) % 3 == 2:
            return HEAD + TOKEN + REST
        return b"HTTP/1.1 401 No\r\ncontent-length: 2\r\n\r\n{}"

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        driven = await drive(client, jobs(port), Driving(requests=9, give_up=3), done.append)
    assert len(done) == 9
    assert driven.gave_up == ""


async def test_no_load_is_no_load(client: Client) -> None:
    with pytest.raises(UsageError):
        await drive(client, iter(()), Driving(concurrency=0), lambda _: None)
    driven = await drive(client, iter(()), Driving(concurrency=3), lambda _: None)
    assert driven.started == 0


# Plans


async def test_planned_instants_do_not_move_while_the_server_is_frozen(
    client: Client, serving: Serve
) -> None:
    # It thaws only when all have arrived: whoever waits for an answer before sending would hang.
    thawed: list[int] = []

    async def answer(_: str) -> bytes:
        await desk.has(30)
        thawed.append(SYSTEM.now_ns())
        return HEAD + TOKEN + REST

    desk, done = Desk(answer), list[Finished]()
    pacer = Poisson(parse_rate("200/s"), seed=5)
    async with serving(desk.script) as port:
        driven = await drive(client, jobs(port, 30), Driving(), done.append, pacer)
    done.sort(key=lambda item: item.marks.plan or 0)
    plan = list(itertools.islice(pacer.offsets(), 30))
    assert [(item.marks.plan or 0) - driven.begin_ns for item in done] == plan
    assert desk.most == 30
    for item in done:
        assert (item.marks.send or 0) >= (item.marks.plan or 0)  # never early
        # The whole freeze is in the number, from the planned instant on.
        assert (item.marks.first or 0) >= thawed[0]
    assert [item.job.id for item in done] == [f"job-{number}" for number in range(30)]


async def test_a_busy_client_is_late_and_says_so(
    client: Client, serving: Serve, own: OwnTime
) -> None:
    def slow(port: int) -> Iterator[Job]:
        for number, job in enumerate(jobs(port, AHEAD + 40)):
            if number == AHEAD + 10:  # not prepared before the plan began
                own.wait(0.1)
            yield job

    desk, done = Desk(), list[Finished]()
    pacer = Burst(AHEAD + 20, 50 * MS)
    async with serving(desk.script) as port:
        driven = await drive(client, slow(port), Driving(), done.append, pacer)
    lags = {item.job.id: item.marks.dispatch_lag_ns for item in done}
    assert len(lags) == AHEAD + 40
    assert lags[f"job-{AHEAD + 10}"] >= 100 * MS
    plans = {(item.marks.plan or 0) - driven.begin_ns for item in done}
    assert plans == {0, 50 * MS}


async def test_a_plan_ends_with_its_duration(client: Client, serving: Serve) -> None:
    desk, done = Desk(), list[Finished]()
    pacer = Constant(parse_rate("100/s"))
    async with serving(desk.script) as port:
        driving = Driving(duration_ns=200 * MS, cool_down_s=30)
        driven = await drive(client, jobs(port), driving, done.append, pacer)
    assert outcomes(done) == [Outcome.OK] * 20  # 0 to 190 ms; the one at 200 ms is outside
    offsets = sorted((item.marks.plan or 0) - driven.begin_ns for item in done)
    assert offsets == [number * 10 * MS for number in range(20)]


async def test_a_plan_that_ends_by_itself(client: Client, serving: Serve) -> None:
    desk, done = Desk(), list[Finished]()
    pacer = Ramp(parse_rate("100/s"), parse_rate("0/s"), 100 * MS)
    async with serving(desk.script) as port:
        await drive(client, jobs(port), Driving(), done.append, pacer)
    assert outcomes(done) == [Outcome.OK] * 6


async def test_what_may_not_be_sent_is_dropped(client: Client, serving: Serve) -> None:
    async def answer(_: str) -> bytes:
        await asyncio.sleep(0)
        return HEAD + TOKEN + REST

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        driving = Driving(requests=10, max_inflight=3)
        driven = await drive(client, jobs(port), driving, done.append, Burst(10, S))
    assert (driven.started, driven.dropped) == (3, 7)
    assert sorted(desk.names) == ["job-0", "job-1", "job-2"]
    assert outcomes(done) == [Outcome.OK] * 3


async def test_a_429_never_moves_a_plan(client: Client, serving: Serve) -> None:
    async def answer(_: str) -> bytes:
        return LIMITED.replace(b": 40", b": 99000")

    desk, done = Desk(answer), list[Finished]()
    pacer = Constant(parse_rate("200/s"))
    async with serving(desk.script) as port:
        driven = await drive(client, jobs(port, 8), Driving(), done.append, pacer)
    assert outcomes(done) == [Outcome.RATE_LIMITED] * 8
    assert driven.paused_ns == 0


async def test_cancelling_a_plan_keeps_what_was_measured(client: Client, serving: Serve) -> None:
    desk, done = Desk(never), list[Finished]()
    async with serving(desk.script) as port:
        pacer = Burst(5, 3600 * S)
        work = asyncio.ensure_future(drive(client, jobs(port), Driving(), done.append, pacer))
        await desk.has(5)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert outcomes(done) == [Outcome.CUT] * 5


async def test_against_the_simulator(client: Client) -> None:
    model = {"exact": {"ttft_ms": 5, "gap_ms": 1}, "shape": {"tokens": 4}}
    world = parse(
        {
            "name": "w",
            "title": "W",
            "source": "the tests",
            "providers": {"lab": {"models": {"m": model}}},
        },
        "w",
    )
    server = SimServer(world, seed=1, stamp="read")
    port = await server.start()
    urls = base_urls(world, "127.0.0.1", port, {})
    facts = SimFacts(
        port=port, host="127.0.0.1", pid=1, world="w", seed=1, providers=urls, trouble_ports={}
    )
    asked = Request(model="m", messages=(Message(role="user", content="hi"),), max_tokens=4)
    prepared = prepare(target(facts, world, "lab", "m"), asked)
    done: list[Finished] = []
    try:
        work = (
            msgspec.structs.replace(job_at(port, str(number)), prepared=prepared)
            for number in range(12)
        )
        pacer = Poisson(parse_rate("300/s"), seed=2)
        await drive(client, work, Driving(), done.append, pacer)
    finally:
        await server.close()
    assert outcomes(done) == [Outcome.OK] * 12
    assert {item.called.tokens.out for item in done} == {4}
