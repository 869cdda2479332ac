"""What it costs to read, scan and record one streamed token, beside a bare byte counter.

256 streams of 100 tokens a second from the simulator, read three ways in turn in one process:
`bytes` counts what arrives and does nothing else; `read` and `kernel` are provider.call with its
two kinds of stamp. CPU time is this process's own; the simulator runs on the other core.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import time
from typing import TYPE_CHECKING, cast

import uvloop

from lightgate.bench.load.drive import Finished, drive
from lightgate.bench.selftest.plan import SCENARIOS, SelftestCell
from lightgate.bench.selftest.run import WORLD, Lab, driving, pin_cores
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from lightgate.wire.client.client import Client

if TYPE_CHECKING:
    from lightgate.clock.marks import StampSource


class Counter(asyncio.Protocol):
    """Sends one request and counts the bytes of the answer."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.bytes = 0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send at once."""
        cast("asyncio.Transport", transport).write(self.payload)

    def data_received(self, data: bytes) -> None:
        """Count, and look for the end of the chunked body."""
        self.bytes += len(data)
        if data.endswith(b"0\r\n\r\n") and not self.ended.done():
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """It should not end before the body does."""
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionResetError())


async def count_bytes(cell: SelftestCell, lab: Lab) -> tuple[float, int]:
    """CPU seconds and tokens of the bare counter."""
    loop = asyncio.get_running_loop()
    work = iter(lab.jobs(cell))
    cpu = time.process_time()

    async def worker(number: int) -> None:
        await asyncio.sleep(number / cell.concurrency)
        for job in work:
            transport, counter = await loop.create_connection(
                lambda job=job: Counter(job.prepared.payload),  # type: ignore[misc] # bound now
                lab.origin.host,
                lab.origin.port,
            )
            await counter.ended
            transport.close()

    await asyncio.gather(*(worker(n) for n in range(cell.concurrency)))
    return time.process_time() - cpu, cell.requests * cell.tokens


async def clock_tokens(cell: SelftestCell, lab: Lab, stamps: StampSource) -> tuple[float, int]:
    """CPU seconds and tokens of provider.call."""
    client = Client(stamp=stamps)
    tokens = 0

    def on_done(done: Finished) -> None:
        nonlocal tokens
        tokens += done.called.tokens.streamed or 0

    await client.warm(lab.origin, cell.concurrency)
    cpu = time.process_time()
    await drive(client, lab.jobs(cell), driving(cell.concurrency, 1.0), on_done)
    cpu = time.process_time() - cpu
    await client.close()
    return cpu, tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    core = pin_cores()
    plain = SCENARIOS[0]
    cell = SelftestCell(plain, options.streams, options.streams * 3, 100, "kernel")
    costs: dict[str, list[float]] = {"bytes": [], "read": [], "kernel": []}
    with SimProcess(SimOptions(world=WORLD, cpu=core)) as sim:
        lab = Lab(sim.facts)
        for _ in range(options.rounds):
            for way, seen in costs.items():
                run = (
                    count_bytes(cell, lab)
                    if way == "bytes"
                    else clock_tokens(cell, lab, "kernel" if way == "kernel" else "read")
                )
                cpu, tokens = uvloop.run(run)
                seen.append(cpu / tokens * 1e6)
    bare = statistics.median(costs["bytes"])
    print(f"{options.streams} streams x 100 tokens/s, {options.rounds} rounds of {cell.requests}")
    print(f"{'way':<8}{'us/token':>10}{'min':>8}{'max':>8}{'x bytes':>9}")
    for way, seen in costs.items():
        middle = statistics.median(seen)
        print(f"{way:<8}{middle:>10.1f}{min(seen):>8.1f}{max(seen):>8.1f}{middle / bare:>9.2f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MB; limit 40 us/token: {max(costs['kernel']) <= 40}")


if __name__ == "__main__":
    main()
