"""Is anything lost when the gateway is killed? SIGKILL under load, again and again.

    python benchmarks/kill.py [--kills 100] [--clients 24] [--seed 1]

A worker serves clients that stream; at a random moment it gets SIGKILL, its journal is shipped as
`lightgate up` would ship it, the spend counters are restored from the ledger, and the next worker
begins on the same folder. In the end every `x-lightgate-id` that a client has seen must be in the
ledger once, what was cut must be there at its estimated price, and rows, sums and spend counters
must agree to the nano-dollar. Exit code 6 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from lightgate.clock.source import SYSTEM
from lightgate.config.load import parse_config
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.gateway.spend.counters import SpendCounters, restore
from lightgate.ledger.journal.ship import ORPHANED, Shipper
from lightgate.ledger.store import schema
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, new_key
from lightgate.ledger.store.queries import spend_per_key
from lightgate.ledger.store.store import Ledger
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

READY_S, ANSWER_S = 30.0, 20.0
SHIP_EACH_S = 0.05
WORLD = """
name = "one"
title = "One provider"
source = "this benchmark"
[providers.lab.models.m]
exact = { ttft_ms = 5, gap_ms = 2 }
"""
CONFIG = """
[providers.lab]
base_url = "{base_url}"
api_key = "none"
[prices."lab/m"]
input = 1
output = 2
"""
_ID = re.compile(rb"(?i)\r\nx-lightgate-id: ([^\r]+)\r\n")


class Verdict(NamedTuple):
    """What is in the ledger against what clients saw; all but the first five should be zero."""

    kills: int
    seen: int  # ids in heads that clients received
    exchanges: int
    cut: int  # never settled, taken in at the reserved price
    cut_but_answered: int  # of them, those whose client had the whole answer
    missing: int  # seen and not in the ledger
    doubled: int
    unpriced: int  # cut without an estimate
    open_reservations: int
    adrift_nano: int  # the largest difference between rows, sums and spend counters

    @property
    def holds(self) -> bool:
        """Whether nothing was lost, doubled or unpaid."""
        return not any(self[5:])


class Siege:
    """One data folder that outlives its workers."""

    def __init__(self, data: Path, base_url: str, seed: int) -> None:
        self.data = data
        self.seen: Counter[str] = Counter()
        self.whole: set[str] = set()  # ids whose answers came to their end
        self._serves = asyncio.Event()  # a client of the worker of now has a head
        self._dice = random.Random(seed)  # noqa: S311 - moments of death, no secrets
        self._secret, key = new_key(KeyTerms(name="siege", budget_usd=Decimal(1_000_000)))
        self._key: KeyRecord = key
        put_snapshot(
            data, make_snapshot(parse_config(CONFIG.format(base_url=base_url)), (key,), {})
        )
        self._ledger = Ledger.open("sqlite", data)
        self._shipper = Shipper(self._ledger, data / "journal")

    async def life(self, clients: int) -> None:
        """One worker from its start to its death."""
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "lightgate.gateway.process.worker", "--data", str(self.data),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        if worker.stdout is None:
            raise RuntimeError("The worker has no output to be read.")
        async with asyncio.timeout(READY_S):
            told = await worker.stdout.readline()
        if not told:
            raise RuntimeError("The worker did not start; its reason is above.")
        port = json.loads(told)["port"]
        asking = [asyncio.create_task(self._client(port, n)) for n in range(clients)]
        dead = asyncio.Event()
        shipping = asyncio.create_task(self._ship(dead))
        self._serves.clear()
        async with asyncio.timeout(ANSWER_S):
            await self._serves.wait()
        await asyncio.sleep(self._dice.uniform(0.0, 0.25))
        worker.kill()
        await worker.wait()
        await asyncio.gather(*asking)
        dead.set()
        await shipping  # a pass that began before the death does not know of it
        await asyncio.to_thread(self._shipper.drain)
        with SpendCounters.open(self.data / "spend", 0, [self._key]) as spend:
            restore(spend, self._ledger, [self._key], SYSTEM.wall_ns())

    async def _client(self, port: int, number: int) -> None:
        """Ask until the worker is gone; every second answer is not streamed."""
        stream = number % 2 == 0
        while True:
            try:
                await self._ask(port, stream=stream)
            except (OSError, EOFError):
                return

    async def _ask(self, port: int, *, stream: bool) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(self._request(stream=stream))
            head = await reader.readuntil(b"\r\n\r\n")
            found = _ID.search(head)
            if found is None or not head.startswith(b"HTTP/1.1 200 "):
                raise RuntimeError(f"An answer without an id: {head!r}")
            made = found[1].decode()
            self.seen[made] += 1
            self._serves.set()
            body = await reader.read(-1)
            if body.endswith(b"0\r\n\r\n") or (not stream and body.endswith(b"}")):
                self.whole.add(made)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _request(self, *, stream: bool) -> bytes:
        body = json.dumps(
            {
                "model": "lab/m",
                "messages": [{"role": "user", "content": "Say something."}],
                "max_tokens": self._dice.randint(1, 40),
                "stream": stream,
            }
        ).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n"
            f"authorization: Bearer {self._secret}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def _ship(self, dead: asyncio.Event) -> None:
        """As the control process does, beside the traffic."""
        while not dead.is_set():
            await asyncio.sleep(SHIP_EACH_S)
            await asyncio.to_thread(self._shipper.ship)

    def verdict(self, kills: int) -> Verdict:
        """Compare."""
        exchanges = schema.exchanges
        with self._ledger.reading() as connection:
            rows = connection.execute(
                sa.select(
                    exchanges.c.id, exchanges.c.error, exchanges.c.cost_usd,
                    exchanges.c.cost_source, exchanges.c.loser_cost_usd,
                )
            ).all()  # fmt: skip
            waiting = connection.execute(
                sa.select(sa.func.count()).select_from(schema.reservations)
            ).scalar_one()
        times = Counter(row.id for row in rows)
        cut = [row for row in rows if row.error == ORPHANED]
        paid = sum(
            (Decimal(cost) for row in rows for cost in (row.cost_usd, row.loser_cost_usd) if cost),
            Decimal(0),
        )
        return Verdict(
            kills=kills,
            seen=len(self.seen),
            exchanges=len(rows),
            cut=len(cut),
            cut_but_answered=sum(row.id in self.whole for row in cut),
            missing=sum(made not in times for made in self.seen),
            doubled=sum(count - 1 for count in times.values())
            + sum(count - 1 for count in self.seen.values()),
            unpriced=sum(row.cost_source != "estimated" or not row.cost_usd for row in cut),
            open_reservations=int(waiting),
            adrift_nano=self._adrift(int(paid * 1_000_000_000)),
        )

    def _adrift(self, rows_nano: int) -> int:
        summed = spend_per_key(self._ledger).get(self._key.id, Decimal(0))
        with SpendCounters.open(self.data / "spend", 0, [self._key]) as spend:
            standing = spend.standing(self._key.id)
        if standing is None:
            raise RuntimeError("The key is not in the spend counters.")
        others = (int(summed * 1_000_000_000), standing.spent_nano)
        return max(*(abs(rows_nano - other) for other in others), standing.held_nano)

    def close(self) -> None:
        """Let go of the ledger."""
        self._ledger.close()


async def besiege(folder: Path, kills: int, clients: int, seed: int) -> Verdict:
    """Kill so many workers one after the other, then look."""
    world = folder / "one.toml"
    world.write_text(WORLD)
    with SimProcess(SimOptions(world=str(world))) as sim:
        siege = Siege(folder / "data", sim.facts.providers["lab"], seed)
        try:
            for _ in range(kills):
                await siege.life(clients)
            return siege.verdict(kills)
        finally:
            siege.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began_ns = time.monotonic_ns()
    with tempfile.TemporaryDirectory() as folder:
        verdict = asyncio.run(besiege(Path(folder), args.kills, args.clients, args.seed))
    took_s = (time.monotonic_ns() - began_ns) / 1e9
    print(f"{args.clients} clients, {took_s:.0f} s\n| | |\n|---|---|")
    for name, value in verdict._asdict().items():
        print(f"| {name.replace('_', ' ')} | {value:,} |")
    print("nothing was lost, doubled or unpaid" if verdict.holds else "THE CLAIM DOES NOT HOLD")
    return 0 if verdict.holds else 6


if __name__ == "__main__":
    sys.exit(main())
