"""Running the cells: the simulator in its own process, on its own core where there are two."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from lightgate.bench.load.drive import Driving, Finished, drive
from lightgate.bench.load.jobs import Job
from lightgate.bench.load.quiet import quiet
from lightgate.bench.run.doctor import check_clock
from lightgate.bench.run.order import target
from lightgate.bench.selftest.plan import budget
from lightgate.bench.selftest.result import CellResult, decode_page, errors_of, summarise
from lightgate.dialect.request import Message, Request
from lightgate.errors import LightgateError
from lightgate.provider.prepare import prepare
from lightgate.sim.world_file import load
from lightgate.wire.client.client import Client
from lightgate.wire.client.fetch import fetch
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lightgate.bench.selftest.plan import SelftestCell
    from lightgate.bench.selftest.result import LogEntry
    from lightgate.sim.server.serve import SimFacts

WORLD: Final = "selftest"
RAMP_S: Final = {1: 0.0, 32: 0.5}  # the rest: one second, so that first tokens do not come as one
PROMPT: Final = "Say something of the length that was asked for."
# It looks now and then whether its parent still lives: it must not outlive a killed test.
HOG: Final = (
    "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"
)
DEADLINES: Final = Deadlines(connect_s=10, first_byte_s=30, idle_s=10, total_s=120)


class Lab:
    """A running simulator of the world `selftest`, and how far its log was read."""

    def __init__(self, facts: SimFacts) -> None:
        self._facts = facts
        self._world = load(WORLD)
        self._read = 0  # the number of the next entry of the log
        self.origin = Origin("http", facts.host, facts.port)

    def jobs(self, cell: SelftestCell) -> Iterator[Job]:
        """The requests of a cell, each with an id that the simulator logs."""
        serial = f"{cell.name}-{cell.concurrency}-{cell.stamps}-{time.monotonic_ns():x}"
        serial = serial.replace(" ", "-")
        models = itertools.cycle(
            (target(self._facts, self._world, cell.provider, model), _request(model, cell.tokens))
            for model in cell.scenario.models
        )
        for number in range(cell.requests):
            job = f"{serial}-{number}"
            yield Job(job, prepare(*next(models), (("x-request-id", job),)))

    async def entries(self, client: Client) -> dict[str, LogEntry]:
        """Fetch what the simulator logged since the last call, by request id."""
        found: dict[str, LogEntry] = {}
        more = True
        while more:
            answer = await fetch(client, self.origin, f"/sim/log?since={self._read}")
            if answer.status != 200:
                raise LightgateError(f"The simulator's log answered {answer.status}.")
            page = decode_page(answer.body)
            found |= {entry.request_id: entry for entry in page.entries}
            self._read, more = page.next, page.more
        return found


async def run_cell(
    cell: SelftestCell, lab: Lab, on_done: Callable[[Finished], None], *, wake_ns: float = 0.0
) -> CellResult:
    """Run one cell against the simulator and compare it with the log.

    `wake_ns` is how long this machine takes to wake a sleeping reader: see `wake_time_ns`.
    """
    client = Client(stamp=cell.stamps)
    done: list[Finished] = []

    def finished(item: Finished) -> None:
        done.append(item)
        on_done(item)

    try:
        await client.warm(lab.origin, cell.concurrency)
        with hog() if cell.hog else nullcontext(), quiet():
            cpu = time.process_time_ns()
            ramp_s = RAMP_S.get(cell.concurrency, 1.0)
            await drive(client, lab.jobs(cell), driving(cell.concurrency, ramp_s), finished)
            cpu = time.process_time_ns() - cpu
        await settle()
        entries = await lab.entries(client)
    finally:
        await client.close()
    errors = [errors_of(item, entries[item.job.id]) for item in done if item.job.id in entries]
    return summarise(cell, done, errors, budget(cell, wake_ns), cpu_ns=cpu)


async def wake_time_ns() -> float:
    """Measure how long after the arrival of a byte this machine has a sleeping reader awake."""
    clock = await check_clock()
    return 1000.0 * max(clock.wake_p50_us, clock.stamp_error_p50_us)


@contextmanager
def hog() -> Iterator[None]:
    """Let another process have as much of this one's core as it gets; it ends with this one."""
    process = subprocess.Popen([sys.executable, "-c", HOG])  # noqa: S603 - own words
    try:
        yield
    finally:
        process.kill()
        process.wait()


def driving(workers: int, ramp_s: float) -> Driving:
    """Drive a closed loop in which a 429 holds no worker: some scenarios answer with one."""
    return Driving(concurrency=workers, ramp_s=ramp_s, respect_429=False, deadlines=DEADLINES)


def _request(model: str, tokens: int) -> Request:
    messages = (Message(role="user", content=PROMPT),)
    return Request(model=model, messages=messages, max_tokens=tokens, stream=True)


def pin_cores() -> int | None:
    """Keep this process on the first of its cores; the core for the simulator is returned.

    With one core, or on a system without affinity, nothing is pinned and there is none.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return None
    os.sched_setaffinity(0, {cores[0]})
    return cores[1]


async def settle() -> None:
    """Let the machine calm down between cells: closed sockets, the other process's writes."""
    await asyncio.sleep(0.2)
