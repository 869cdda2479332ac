"""Several processes see what one would have seen: nothing twice, nothing moved, nothing lost."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from bench.conftest import MS, Shape, job_at
from bench.load.test_drive import HEAD, LIMITED, REST, TOKEN, Desk, jobs, never, outcomes
from lightgate.bench.load.drive import Driving, Finished
from lightgate.bench.load.frames import (
    UP,
    Go,
    JobFrame,
    Ready,
    Result,
    Setup,
    frame,
    pack,
    receive,
    unpack,
)
from lightgate.bench.load.processes import (
    CHILD,
    LoadProcesses,
    drive_processes,
    processes_for,
    shares,
)
from lightgate.bench.load.shape import Constant, parse_rate
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.source import SYSTEM
from lightgate.errors import (
    AttemptError,
    DeadlineMissed,
    HttpRefused,
    LightgateError,
    PeerReset,
    RateLimited,
    TooLarge,
    UsageError,
)
from lightgate.wire.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.conftest import Serve

    Measure = Callable[[Shape], Finished]

TWO = LoadProcesses(processes=2)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.subprocess.Process]:
    """The processes that are started, in order."""
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def spy(*args: str, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*args, **options)
        started.append(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spy)
    return started


def attempt(item: Finished) -> AttemptRecord:
    facts = AttemptFacts(
        id="i",
        exchange_id="e",
        source="bench",
        target="t",
        provider="p",
        model="m",
        dialect="d",
        outcome=item.called.outcome,
        wall_ns=item.wall_ns,
    )
    return AttemptRecord.of(facts, item.marks, item.called.tokens)


def test_shares_are_whole_and_fair() -> None:
    assert shares(10, 4) == [3, 3, 2, 2]
    assert shares(2, 4) == [1, 1]
    assert shares(7, 1) == [7]


def test_one_process_is_enough_for_a_thousand_streams() -> None:
    assert [processes_for(streams) for streams in (1, 1_000, 1_001, 4_000)] == [1, 1, 2, 4]
    assert processes_for(8, asked=3) == 3
    assert processes_for(10**6) == 64


async def there_and_back(item: Finished) -> Finished:
    reader = asyncio.StreamReader()
    reader.feed_data(frame(pack(3, item, 5)))
    result = await receive(reader, UP)
    assert isinstance(result, Result)
    assert (result.number, result.worker) == (3, 5)
    return unpack(result, item.job)


async def test_a_finished_request_survives_the_pipe(measured: Measure, shape: type[Shape]) -> None:
    done = measured(shape(bound_ms=0.5, send_ms=40))
    done.marks.tcp_ns, done.marks.resent, done.marks.dispatch_lag_ns = 7, True, 9 * MS
    item = Finished(done.job, done.marks, done.called, 5, 1_700_000_000_000_000_000)
    back = await there_and_back(item)
    assert (back.called, back.worker, back.wall_ns) == (item.called, 5, item.wall_ns)
    for name in Marks.__slots__:
        assert getattr(back.marks, name) == getattr(item.marks, name), name
    assert attempt(back) == attempt(item)


@pytest.mark.parametrize(
    "error",
    [
        RateLimited("Busy.", retry_after_s=2.5),
        HttpRefused("No.", code=503, hint="Wait."),
        DeadlineMissed("Late.", phase="idle"),
        PeerReset("Gone.", early=True),
        TooLarge("Big."),
    ],
)
async def test_every_kind_of_error_survives_the_pipe(
    measured: Measure, shape: type[Shape], error: AttemptError
) -> None:
    done = measured(shape(outcome=Outcome(error.outcome)))
    called = msgspec.structs.replace(done.called, error=error)
    back = (await there_and_back(Finished(done.job, done.marks, called, 0, 1))).called.error
    assert type(back) is type(error)
    assert vars(back) == vars(error)


async def test_a_frame_that_was_cut_short_is_the_end(measured: Measure, shape: type[Shape]) -> None:
    done = measured(shape())
    whole = frame(pack(1, Finished(done.job, done.marks, done.called, 0, 1), 0))
    for size in (0, 2, 4, len(whole) - 1):
        reader = asyncio.StreamReader()
        reader.feed_data(whole[:size])
        reader.feed_eof()
        assert await receive(reader, UP) is None


async def test_each_request_is_made_once(serving: Serve) -> None:
    desk, done = Desk(), list[Finished]()
    async with serving(desk.script) as port:
        crew = LoadProcesses(processes=2, warm=(Origin("http", "127.0.0.1", port),))
        crewed = await drive_processes(
            jobs(port), Driving(concurrency=5, requests=40), crew, done.append
        )
    assert outcomes(done) == [Outcome.OK] * 40
    asked = sorted(f"job-{number}" for number in range(40))
    assert sorted(desk.names) == asked
    assert sorted(item.job.id for item in done) == asked
    assert {item.worker for item in done} == {0, 1, 2, 3, 4}
    assert desk.most <= 5
    assert (crewed.driven.started, crewed.driven.cut, crewed.lost) == (40, 0, ())


async def test_planned_instants_are_those_of_one_plan(serving: Serve) -> None:
    # Nobody is answered before all have come, so no child waits for an answer of its own.
    async def answer(_: str) -> bytes:
        await desk.has(20)
        return HEAD + TOKEN + REST

    desk, done = Desk(answer), list[Finished]()
    pacer = Constant(parse_rate("100/s"))
    async with serving(desk.script) as port:
        driving = Driving(duration_ns=200 * MS, cool_down_s=30)
        crewed = await drive_processes(jobs(port), driving, TWO, done.append, pacer)
    done.sort(key=lambda item: item.marks.plan or 0)
    offsets = [(item.marks.plan or 0) - crewed.driven.begin_ns for item in done]
    assert offsets == list(itertools.islice(pacer.offsets(), 20))
    assert [item.job.id for item in done] == [f"job-{number}" for number in range(20)]
    assert all((item.marks.send or 0) >= (item.marks.plan or 0) for item in done)
    assert desk.most == 20


async def test_the_end_of_a_duration_cuts_in_every_process(serving: Serve) -> None:
    desk, done = Desk(never), list[Finished]()
    async with serving(desk.script) as port:
        driving = Driving(concurrency=3, duration_ns=300 * MS)
        crewed = await drive_processes(jobs(port), driving, TWO, done.append)
    assert outcomes(done) == [Outcome.CUT] * 3
    assert (crewed.driven.started, crewed.driven.cut, crewed.lost) == (3, 3, ())


async def test_a_killed_process_is_reported_and_its_results_are_kept(
    serving: Serve, children: list[asyncio.subprocess.Process]
) -> None:
    # The first two requests are answered, the next two hold both processes.
    held = asyncio.Event()

    async def answer(name: str) -> bytes:
        if name in desk.names[:2]:
            await desk.has(2)
        elif name in desk.names[2:4]:
            await held.wait()
        return HEAD + TOKEN + REST

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        driving = Driving(concurrency=2, requests=30)
        work = asyncio.ensure_future(drive_processes(jobs(port), driving, TWO, done.append))
        await desk.has(4)
        while len(done) < 2:
            await asyncio.sleep(0)
        os.kill(children[0].pid, signal.SIGKILL)
        await children[0].wait()
        held.set()
        crewed = await work
    (lost,) = crewed.lost
    assert (lost.process, lost.pid, lost.exit_code) == (0, children[0].pid, -signal.SIGKILL)
    assert lost.unfinished >= 1
    assert len(done) == 30 - lost.unfinished  # the others were made, each once
    assert len({item.job.id for item in done}) == len(done)
    assert len(set(desk.names)) == len(desk.names)  # nothing was sent again
    assert {item.worker for item in done} == {0, 1}
    assert crewed.driven.started == len(done)


async def test_cancelling_halts_all_and_keeps_what_was_measured(
    serving: Serve, children: list[asyncio.subprocess.Process]
) -> None:
    desk, done = Desk(never), list[Finished]()
    async with serving(desk.script) as port:
        work = asyncio.ensure_future(
            drive_processes(jobs(port), Driving(concurrency=4), TWO, done.append)
        )
        await desk.has(4)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert outcomes(done) == [Outcome.CUT] * 4
    assert [process.returncode is not None for process in children] == [True, True]


async def test_a_defect_of_ours_ends_it(
    serving: Serve, children: list[asyncio.subprocess.Process]
) -> None:
    class FullError(Exception):
        pass

    def keep(_: Finished) -> None:
        raise FullError

    desk = Desk()
    async with serving(desk.script) as port:
        with pytest.raises(FullError):
            await drive_processes(jobs(port), Driving(concurrency=2), TWO, keep)
    assert [process.returncode is not None for process in children] == [True, True]


async def test_a_child_ends_quietly_when_its_parent_is_gone(serving: Serve) -> None:
    desk = Desk(never)
    async with serving(desk.script) as port:
        pipe, (ours, its) = asyncio.subprocess.PIPE, os.pipe()
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", CHILD, stdin=pipe, stdout=its, stderr=pipe
        )
        os.close(its)
        assert child.stdin is not None
        assert child.stderr is not None
        setup = Setup(
            driving=Driving(), stamp="read", planned=False, first_worker=0, warm=(), connections=0
        )
        prepared = job_at(port, "x").prepared
        order = JobFrame(
            number=1,
            offset_ns=None,
            origin=prepared.origin,
            payload=prepared.payload,
            dialect=prepared.dialect.name,
            quirks=prepared.quirks,
            streamed=True,
        )
        child.stdin.write(frame(setup))
        ready = frame(Ready())
        assert os.read(ours, len(ready)) == ready
        child.stdin.write(frame(Go(SYSTEM.now_ns())) + frame(order))
        await desk.has(1)
        os.close(ours)
        child.stdin.close()
        assert await child.stderr.read() == b""
        assert await child.wait() == 0


async def test_a_429_for_one_process_holds_them_all(serving: Serve) -> None:
    done, heard = list[Finished](), asyncio.Event()

    async def answer(name: str) -> bytes:
        if name == "job-0":
            await desk.has(2)
            return LIMITED.replace(b": 40", b": 400")
        await heard.wait()  # until the parent knows of the 429
        return HEAD + TOKEN + REST

    def keep(item: Finished) -> None:
        done.append(item)
        heard.set()

    desk = Desk(answer)
    async with serving(desk.script) as port:
        driving = Driving(concurrency=2, requests=20)
        crewed = await drive_processes(jobs(port), driving, TWO, keep)
    assert done[0].called.outcome is Outcome.RATE_LIMITED
    assert outcomes(done[1:]) == [Outcome.OK] * 19
    until = (done[0].marks.end or 0) + 400 * MS
    early = [item.job.id for item in done if (item.marks.send or 0) < until]
    assert sorted(early) == ["job-0", "job-1"]
    assert {item.worker for item in done} == {0, 1}
    assert crewed.driven.paused_ns >= 390 * MS


async def test_what_all_processes_meet_in_a_row_is_given_up_by_all(serving: Serve) -> None:
    """Each sees one refusal, and two are enough."""

    async def answer(name: str) -> bytes:
        if name not in {"job-0", "job-1"}:
            return await never(name)
        await desk.has(2)
        return b"HTTP/1.1 401 No\r\ncontent-length: 2\r\n\r\n{}"

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        driving = Driving(concurrency=2, requests=100, give_up=2)
        crewed = await drive_processes(jobs(port), driving, TWO, done.append)
    assert "401" in crewed.driven.gave_up
    assert crewed.driven.key_refused
    assert crewed.lost == ()
    refused = [item for item in done if item.called.outcome is Outcome.HTTP_ERROR]
    assert sorted(item.worker for item in refused) == [0, 1]
    assert outcomes(done).count(Outcome.CUT) == len(done) - 2 == crewed.driven.cut
    assert crewed.driven.started == len(done) < 6


async def test_a_success_of_another_process_is_a_reason_to_go_on(serving: Serve) -> None:
    """Of every pair one is refused; never three in a row of what the parent sees."""

    async def answer(name: str) -> bytes:
        number = int(name.removeprefix("job-"))
        await desk.has(2 * (number // 2) + 2)  # both are under way, so each has one of the pair
        if number % 2:
            return HEAD + TOKEN + REST
        return b"HTTP/1.1 401 No\r\ncontent-length: 2\r\n\r\n{}"

    desk, done = Desk(answer), list[Finished]()
    async with serving(desk.script) as port:
        driving = Driving(concurrency=2, requests=8, give_up=3)
        crewed = await drive_processes(jobs(port), driving, TWO, done.append)
    assert len(done) == 8
    assert crewed.driven.gave_up == ""


async def test_a_process_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(LightgateError, match="did not start"):
        await drive_processes(iter((job_at(1, "x"),)), Driving(), TWO, lambda _: None)


async def test_how_many_processes_there_may_be() -> None:
    for number in (0, 65):
        with pytest.raises(UsageError, match="--processes"):
            await drive_processes(
                iter(()), Driving(), LoadProcesses(processes=number), lambda _: None
            )
    with pytest.raises(UsageError, match="in flight"):
        await drive_processes(iter(()), Driving(concurrency=0), TWO, lambda _: None)
