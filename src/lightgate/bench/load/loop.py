"""Closed-loop load: so many workers, each sends its next request as soon as its last one ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lightgate.bench.load.drive import Driving, Finished, drive
from lightgate.clock.load import Span, Window, inflight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lightgate.clock.marks import Marks
    from lightgate.provider.call import Called
    from lightgate.provider.prepare import Prepared
    from lightgate.wire.client.client import Client
    from lightgate.wire.client.roundtrip import Deadlines


class Job(NamedTuple):
    """One request to be made; `id` joins it with other records of it."""

    id: str
    prepared: Prepared


class Done(NamedTuple):
    """One request that was made."""

    job: Job
    marks: Marks
    called: Called
    worker: int


class Load(NamedTuple):
    """How hard to drive: workers, and over how long they start one after the other."""

    concurrency: int
    ramp_s: float = 0.0


async def closed_loop(
    client: Client,
    load: Load,
    jobs: Iterator[Job],
    deadlines: Deadlines,
    on_done: Callable[[Done], None],
) -> None:
    """Run the jobs until they are used up; no waves: a worker never waits for another.

    A 429 makes nobody wait: the self test asks for them.
    """
    driving = Driving(
        concurrency=load.concurrency, ramp_s=load.ramp_s, respect_429=False, deadlines=deadlines
    )

    def finished(item: Finished) -> None:
        on_done(Done(item.job, item.marks, item.called, item.worker))

    await drive(client, jobs, driving, finished)


def offered(done: list[Done], concurrency: int) -> float | None:
    """Mean requests in flight while every worker was at work, as a share of what was asked.

    The window runs from the last worker's first send to the first worker's last end.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    spans: list[Span] = []
    for item in done:
        begin, end = item.marks.send, item.marks.end
        if begin is None or end is None:
            continue
        spans.append(Span(begin, end))
        first[item.worker] = min(begin, first.get(item.worker, begin))
        last[item.worker] = max(end, last.get(item.worker, end))
    if len(first) < concurrency or min(last.values()) <= max(first.values()):
        return None
    mean = inflight(spans, Window(max(first.values()), min(last.values())))
    return None if mean is None else mean / concurrency
