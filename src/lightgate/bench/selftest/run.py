"""Running the cells: the simulator in its own process, on its own core where there are two."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from typing import TYPE_CHECKING, Final

from lightgate.bench.loop import Done, Job, Load, closed_loop
from lightgate.bench.selftest.result import CellResult, summarise
from lightgate.bench.selftest.truth import compare, decode_log
from lightgate.dialect.request import Message, Request
from lightgate.errors import LightgateError
from lightgate.provider.prepare import prepare
from lightgate.provider.spec import Provider
from lightgate.provider.target import Target
from lightgate.wire.client import Client
from lightgate.wire.exchange import Deadlines
from lightgate.wire.fetch import fetch
from lightgate.wire.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lightgate.bench.selftest.plan import Cell
    from lightgate.bench.selftest.truth import Entry

RAMP_S: Final = {1: 0.0, 32: 0.5}  # the rest: one second, so that first tokens do not come as one
PROMPT: Final = "Say something of the length that was asked for."
DEADLINES: Final = Deadlines(connect_s=10, first_byte_s=30, idle_s=10, total_s=120)


async def run_cell(cell: Cell, port: int, on_done: Callable[[Done], None]) -> CellResult:
    """Run one cell against the simulator on this port and compare it with the log."""
    origin = Origin("http", "127.0.0.1", port)
    client = Client(stamp=cell.stamps)
    done: list[Done] = []

    def finished(item: Done) -> None:
        done.append(item)
        on_done(item)

    try:
        await client.warm(origin, cell.concurrency)
        cpu = time.process_time_ns()
        load = Load(cell.concurrency, RAMP_S.get(cell.concurrency, 1.0))
        await closed_loop(client, load, _jobs(cell, port), DEADLINES, finished)
        cpu = time.process_time_ns() - cpu
        entries = await _log(client, origin)
    finally:
        await client.close()
    errors = [compare(item, entries[item.job.id]) for item in done if item.job.id in entries]
    return summarise(cell, done, errors, cpu)


def _jobs(cell: Cell, port: int) -> Iterator[Job]:
    serial = f"{cell.scenario.name}-{cell.concurrency}-{cell.stamps}-{time.monotonic_ns():x}"
    models = itertools.cycle(cell.scenario.models)
    for number in range(cell.requests):
        job = f"{serial}-{number}"
        yield Job(job, prepare(*_request(cell, port, next(models)), (("x-request-id", job),)))


def _request(cell: Cell, port: int, model: str) -> tuple[Target, Request]:
    url = f"http://127.0.0.1:{port}/selftest/v1"
    row = Provider(name="selftest", title="Self test", base_url=url, auth="none", local=True)
    target = Target(name=f"selftest/{model}", provider=row, model=model, base_url=url)
    messages = (Message(role="user", content=PROMPT),)
    return target, Request(model=model, messages=messages, max_tokens=cell.tokens, stream=True)


async def _log(client: Client, origin: Origin) -> dict[str, Entry]:
    answer = await fetch(client, origin, "/sim/log")
    if answer.status != 200:
        raise LightgateError(f"The simulator's log answered {answer.status}.")
    log = decode_log(answer.body)
    return {entry.id: entry for entry in log.entries}


def pin_cores() -> set[int]:
    """Keep this process on the first of its cores; the rest, for the simulator, are returned.

    With one core, or on a system without affinity, nothing is pinned and the set is empty.
    """
    if not hasattr(os, "sched_setaffinity"):
        return set()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return set()
    os.sched_setaffinity(0, {cores[0]})
    return set(cores[1:])


async def settle() -> None:
    """Let the machine calm down between cells: closed sockets, the other process's writes."""
    await asyncio.sleep(0.2)
