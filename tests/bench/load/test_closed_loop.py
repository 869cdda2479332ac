"""Closed-loop load: a worker refills at once, whatever the others do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lightgate.bench.load.drive import Finished, drive
from lightgate.bench.selftest.result import offered
from lightgate.bench.selftest.run import driving
from lightgate.clock.outcome import Outcome
from lightgate.wire.client.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bench.conftest import Serve, Shape
    from lightgate.bench.load.jobs import Job

    Measure = Callable[[Shape], Finished]
    NewJob = Callable[[int, str], Job]

ANSWER = (
    b'data: {"choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"


class Kitchen:
    """Answers every request but the first at once; the first waits until all others are done."""

    def __init__(self, jobs: int) -> None:
        self.names: list[str] = []
        self.in_flight = 0
        self.most = 0
        self._others = jobs - 1
        self._all_others = asyncio.Event()

    async def script(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
            await reader.readexactly(int(fields[b"content-length"]))
            first = not self.names
            self.names.append(fields[b"x-request-id"].decode())
            self.in_flight += 1
            self.most = max(self.most, self.in_flight)
            if first:
                await self._all_others.wait()
            else:
                self._others -= 1
                if not self._others:
                    self._all_others.set()
            self.in_flight -= 1
            writer.write(HEAD % len(ANSWER) + ANSWER)
            await writer.drain()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client(stamp="read")
    yield client
    await client.close()


async def test_a_worker_never_waits_for_another(
    client: Client, serving: Serve, new_job: NewJob
) -> None:
    # Driven in waves this would end in a time-out: the first answer needs all others to be over.
    kitchen, done = Kitchen(jobs=9), list[Finished]()
    async with serving(kitchen.script) as port:
        jobs = (new_job(port, f"job-{number}") for number in range(9))
        async with asyncio.timeout(20):
            await drive(client, jobs, driving(3, 0.0), done.append)
    assert [item.called.outcome for item in done] == [Outcome.OK] * 9
    assert sorted(kitchen.names) == [f"job-{number}" for number in range(9)]
    assert done[-1].job.id == kitchen.names[0]
    by_worker = [sum(item.worker == n for item in done) for n in range(3)]
    assert 1 in by_worker
    assert kitchen.most <= 3


async def test_a_failed_request_does_not_stop_its_worker(
    client: Client, serving: Serve, new_job: NewJob
) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()

    done: list[Finished] = []
    async with serving(hang_up) as port:
        jobs = (new_job(port, f"job-{number}") for number in range(5))
        await drive(client, jobs, driving(1, 0.0), done.append)
    assert [item.called.outcome for item in done] == [Outcome.HTTP_ERROR] * 5
    assert [item.marks.plan is not None for item in done] == [True] * 5


async def test_more_workers_than_work(client: Client, serving: Serve, new_job: NewJob) -> None:
    done: list[Finished] = []
    async with serving(Kitchen(jobs=1_000).script) as port:
        await drive(client, iter(()), driving(4, 0.0), done.append)
        assert port
    assert done == []


def pair(measured: Measure, shape: type[Shape], *sends_ms: tuple[int, float]) -> list[Finished]:
    """Requests of 220 ms by (worker, send)."""
    return [measured(shape(worker=worker, send_ms=send_ms)) for worker, send_ms in sends_ms]


def test_the_full_concurrency_was_offered(measured: Measure, shape: type[Shape]) -> None:
    done = pair(measured, shape, (0, 0), (1, 100), (0, 220), (1, 320))
    assert offered(done, 2) == pytest.approx(1.0)


def test_idle_workers_show(measured: Measure, shape: type[Shape]) -> None:
    # Worker 0 rests from 220 to 440 ms; the window runs from 100 to 540 ms.
    done = pair(measured, shape, (0, 0), (1, 100), (0, 440), (1, 320))
    assert offered(done, 2) == pytest.approx((2 * 440 - 220) / (2 * 440))


def test_the_ramp_and_the_tail_are_left_out(measured: Measure, shape: type[Shape]) -> None:
    done = pair(measured, shape, (0, 0), (0, 220), (0, 440), (1, 500))
    assert offered(done, 2) == pytest.approx(1.0)


def test_no_window_no_number(measured: Measure, shape: type[Shape]) -> None:
    assert offered([], 1) is None
    assert offered(pair(measured, shape, (0, 0)), 2) is None  # one worker never came
    assert offered(pair(measured, shape, (0, 0), (1, 300)), 2) is None  # they never met
