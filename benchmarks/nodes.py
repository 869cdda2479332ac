"""Several machines with two stores: limits hold over all, the books are right, traffic goes on.

    python benchmarks/nodes.py [--nodes 4] [--minute 75] [--only budget,minute,chaos,queue] [--keep]

Every machine is a whole `lightgate up` with a data folder of its own; all ask one simulator and
share one PostgreSQL ledger and one Redis or Valkey server, started here on loopback. The parts:

- budget: 1,000 requests at once over all machines, with a budget for 100 of them;
- minute: twice as many requests and tokens as a key may use in a minute, for --minute seconds;
- chaos: PostgreSQL is frozen, stopped, restarted and crashed, Redis is frozen, stopped and emptied,
  the network between a machine and both stores is cut and then silent, a disk is full and a machine
  is killed, under traffic of a key without limits and of one with a budget that is large enough;
- queue: one gateway and two that share what they know, in virtual time, in a world of queues.

After the first three, the ledger is held against what every client wrote down, request by request.
Exit code 6 if a budget is exceeded by more than one reservation for each machine, a limit by more
than 2 %, a client sees an error that no provider caused (but a connection that breaks when its
machine is killed), a request waits for more than one time-out a minute, ledger and transcripts
differ, or two machines are more than 20 % slower than one at TTFT p95.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from nodes_books import Check, audit, shipped
from nodes_cluster import Answer, Cluster
from soak import apart
from worlds import USUAL, Job, do

from lightgate.gateway.shared.store import PATIENCE_S
from lightgate.ledger.journal.notes import Reserved, Settled
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from postgres import PostgresServer
from postgres import programs as postgres_programs
from redis_server import RedisServer, program

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RPM: Final = 240
LASTS_S: Final = 4.0  # a trouble
REST_S: Final = 2.5  # after it is over
GONE_S: Final = 3.0  # that a killed machine stays away
_RESERVED: Final = 151_000  # nano-dollars that one request reserves
_TOKENS: Final = 23  # that one takes
_SHOWN: Final = 4
WORLD: Final = """
name = "one"
title = "One provider"
source = "this benchmark"
[providers.lab.models.m]
exact = { ttft_ms = 30, gap_ms = 20 }
"""


async def budget(cluster: Cluster) -> list[Check]:
    """1,000 at once with a budget for 100."""
    count, own = len(cluster.nodes), cluster.records["hundred"]
    await asyncio.gather(*(cluster.ask(number % count, "hundred") for number in range(1000)))
    await asyncio.sleep(0.5)
    said = cluster.statuses("hundred")
    limit = int((own.budget_usd or 0) * 1_000_000_000)
    reserved = {note.exchange_id: note.nano_usd for note in cluster.notes(Reserved)}
    changes = []
    for note in cluster.notes(Settled):
        made = note.exchange
        if made.key_id == own.id:
            held = reserved[made.id]
            changes.append((made.routed_ns or made.received_ns, held))
            changes.append((made.closed_ns, (made.cost_nano or 0) - held))
    taken = peak = 0
    for _, change in sorted(changes):
        taken += change
        peak = max(peak, taken)
    each, late = max(reserved.values()), any(cluster.timeouts())
    least = 1 if late else 100 - count
    return [
        Check(f"1,000 requests at once over {count} machines: {dict(said)}",
              set(said) <= ({200, 402, 429} if late else {200, 402}) and said[200] >= least),
        Check(f"spent and reserved at most {peak} of {limit} nano-dollars, {peak / limit:.2%}; "
              f"a request reserves {each}, spent in the end {taken}",
              (peak >= 0.95 * limit or late) and peak <= limit + count * each),
        Check(f"requests have waited for the store in vain: {late} (a busy machine; then shares "
              "hold, a part of the budget may be left, and 429 says when to ask again)",
              holds=True),
    ]  # fmt: skip


async def minute(cluster: Cluster, seconds: float) -> list[Check]:
    """Twice as much as a minute allows, in requests and in tokens."""
    rate = 2 * RPM / 60
    await asyncio.gather(*(cluster.flow(key, rate, seconds) for key in ("often", "long")))
    found = []
    for key in ("often", "long"):
        times = sorted(a.at for a in cluster.seen if a.key == key and a.status == 200)
        most = max(sum(1 for at in times if begin <= at < begin + 60) for begin in times)
        said = cluster.statuses(key)
        found.append(
            Check(f"{key}: at most {most} of {RPM} requests in any 60 s; {dict(said)}",
                  0.98 * RPM <= most <= 1.02 * RPM and set(said) <= {200, 429})
        )  # fmt: skip
    return found


def troubles(cluster: Cluster) -> list[tuple[str, Callable[[], object], Callable[[], object]]]:
    """What happens to the stores, the network and a disk: its name, beginning and end."""
    postgres, redis, disk = cluster.postgres, cluster.redis, cluster.disk
    first, second = cluster.to_ledger, cluster.to_shared

    def each(*calls: Callable[[], object]) -> Callable[[], object]:
        return lambda: [call() for call in calls]

    found: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        ("PostgreSQL frozen", postgres.freeze, postgres.thaw),
        ("Redis frozen", redis.freeze, redis.thaw),
        ("PostgreSQL stopped", postgres.stop, postgres.start),
        ("Redis stopped", redis.stop, redis.start),
        ("PostgreSQL restarted", each(postgres.stop, postgres.start), lambda: None),
        ("PostgreSQL crashed", postgres.crash, lambda: None),
        ("Redis emptied", lambda: redis.command("FLUSHALL"), lambda: None),
        ("network cut", each(first.cut, second.cut), each(first.open, second.open)),
        ("network silent", each(first.fall_silent, second.fall_silent),
         each(first.speak, second.speak)),
        ("both frozen", each(postgres.freeze, redis.freeze), each(postgres.thaw, redis.thaw)),
    ]  # fmt: skip
    if disk is not None:
        node = cluster.nodes[1]
        found.append(("disk full", lambda: disk.fill(node.pids()), lambda: disk.free(node.pids())))
    return found


async def chaos(cluster: Cluster) -> list[Check]:
    """Everything that can happen to the stores and to a machine, under traffic."""
    windows: dict[str, tuple[float, float]] = {}

    async def trouble() -> None:
        for name, begin, end in troubles(cluster):
            began = time.monotonic()
            await asyncio.to_thread(begin)
            await asyncio.sleep(LASTS_S)
            await asyncio.to_thread(end)
            for node in cluster.nodes:
                await node.until("joined")
            windows[name] = began, time.monotonic()
            await asyncio.sleep(REST_S)
        windows["killed"] = await _killed(cluster, away=False)
        windows["killed, and started without stores"] = await _killed(cluster, away=True)

    before = len(cluster.seen)
    over = asyncio.create_task(trouble())
    while not over.done():
        await asyncio.gather(cluster.flow("plain", 10, 2), cluster.flow("large", 10, 2))
    await over
    seen = cluster.seen[before:]
    return [*_failures(cluster, seen, windows), *_waits(cluster, seen, windows)]


async def _killed(cluster: Cluster, *, away: bool) -> tuple[float, float]:
    """Kill a machine; it comes back, perhaps while neither store says a word."""
    began, last = time.monotonic(), cluster.nodes[-1]
    if away:
        cluster.postgres.freeze()
        cluster.redis.freeze()
    await last.kill(GONE_S)
    for number in range(20):  # it knows its keys, and whose key it does not know gets nothing
        await cluster.ask(len(cluster.nodes) - 1, "plain" if number % 2 else "large")
    unknown = (await last.get("/v1/models", "lg-" + 43 * "x"))[0]
    if away:
        cluster.postgres.thaw()
        cluster.redis.thaw()
    if unknown != 401:
        raise RuntimeError(f"A key that nobody knows got {unknown}.")
    await last.until("joined")
    ended = time.monotonic()
    await asyncio.sleep(REST_S)
    return began, ended


def _failures(
    cluster: Cluster, seen: list[Answer], windows: dict[str, tuple[float, float]]
) -> list[Check]:
    """Errors that clients saw; the only ones that are explained broke when their machine died."""

    def explained(answer: Answer) -> bool:
        deaths = cluster.nodes[answer.node].deaths
        ended = answer.at + answer.took_s
        return answer.status == 0 and any(answer.at <= b and ended >= a for a, b in deaths)

    unwell = [answer for answer in seen if answer.status != 200]
    failed = [answer for answer in unwell if not explained(answer)]

    def when(answer: Answer) -> str:
        around = [name for name, (a, b) in windows.items() if a <= answer.at + answer.took_s <= b]
        return ", ".join(around) or "no trouble"

    kinds = Counter((when(a), a.key, a.status, a.said[:80]) for a in failed)
    return [
        Check(f"chaos: {len(seen)} requests in {len(windows)} troubles; errors that clients saw: "
              f"{len(failed)} {kinds.most_common(_SHOWN)}; connections that broke as their machine "
              f"was killed: {len(unwell) - len(failed)}", not failed)
    ]  # fmt: skip


def _waits(
    cluster: Cluster, seen: list[Answer], windows: dict[str, tuple[float, float]]
) -> list[Check]:
    """What the gateway itself took of requests with a budget and of those without."""
    found = []
    for name, (began, ended) in windows.items():
        within = [a for a in seen if began <= a.at <= ended and a.status == 200]
        plain, large = (
            sorted(a.gate_ms for a in within if a.key == key) for key in ("plain", "large")
        )
        if not plain or not large:
            found.append(Check(f"{name}: no request was answered", holds=False))
            continue
        late = sum(took > plain[-1] + PATIENCE_S * 500 for took in large)
        found.append(
            Check(f"{name} ({ended - began:.1f} s): the gateway took {plain[len(plain) // 2]:.1f} "
                  f"ms at the median and {plain[-1]:.0f} at most without limits; with a budget "
                  f"{large[len(large) // 2]:.1f} and {large[-1]:.0f}, {late}/{len(large)} waited",
                  large[-1] <= plain[-1] + 1.5 * PATIENCE_S * 1000)
        )  # fmt: skip
    lasted = seen[-1].at - seen[0].at
    counts = cluster.timeouts()
    found.append(
        Check(f"time-outs that requests of each machine waited for, in {lasted:.0f} s: {counts}",
              max(counts) <= 1 + lasted // 60)
    )  # fmt: skip
    return found


async def store_books(cluster: Cluster) -> list[Check]:
    """Hold what the shared store tells of a budget against the journals, at every machine."""
    await asyncio.sleep(1.5)
    own, found = cluster.records["large"].id, []
    rows = await asyncio.to_thread(_spent, cluster, own)
    for number in range(len(cluster.nodes)):
        told = await cluster.told("large", number)
        text = f"machine {number}: the store tells {told} nano-dollars, the ledger {rows}"
        found.append(Check(text, told == rows))
    return found


def _spent(cluster: Cluster, key_id: str) -> int:
    statement = f"SELECT sum(cost_nano) FROM exchange_notes WHERE key_id = '{key_id}'"  # noqa: S608 - own id
    ((found,),) = cluster.postgres.run(statement, cluster.url.rpartition("/")[2])
    return int(found or 0)


async def queue() -> list[Check]:
    """Two machines that share what they know against one, in virtual time."""
    world, names = "queue-8-80", ("fastest", "fastest@2m")
    played = [
        await asyncio.to_thread(do, Job(world, USUAL[world], seed, (), names)) for seed in (1, 2, 3)
    ]
    one, two = (sum(p.found[name].ttft_s[1] for p in played) / len(played) for name in names)
    return [
        Check(f"{world}: TTFT p95 {one:.3f} s with one machine, {two:.3f} s with two, "
              f"{two / one:.2f} times", two <= 1.2 * one)
    ]  # fmt: skip


async def run(options: argparse.Namespace, folder: Path) -> list[Check]:
    """Play the parts one after the other."""
    parts = options.only.split(",")
    found = await queue() if "queue" in parts else []
    if not {"budget", "minute", "chaos"} & set(parts):
        return found
    installed = postgres_programs()
    if installed is None:
        raise SystemExit("PostgreSQL is not installed.")
    with (
        PostgresServer(installed, settings=()) as postgres,
        RedisServer() as redis,
        SimProcess(SimOptions(world=_world(folder))) as sim,
    ):
        base_url = sim.facts.providers["lab"]
        cluster = Cluster(folder, (postgres, redis), base_url, options.nodes)
        cluster.key("plain")
        cluster.key("hundred", budget_usd=Decimal(100 * _RESERVED) / 1_000_000_000)
        cluster.key("often", rpm=RPM)
        cluster.key("long", tpm=RPM * _TOKENS)
        cluster.key("large", budget_usd=Decimal(100), rpm=100_000)
        try:
            found += await _play(cluster, parts, options)
        finally:
            if options.keep:
                shutil.copytree(folder, options.keep, dirs_exist_ok=True)
            cluster.close()
    return found


async def _play(cluster: Cluster, parts: list[str], options: argparse.Namespace) -> list[Check]:
    found: list[Check] = []
    plays: dict[str, Callable[[], Awaitable[list[Check]]]] = {
        "budget": lambda: budget(cluster),
        "minute": lambda: minute(cluster, options.minute),
        "chaos": lambda: chaos(cluster),
    }
    try:
        await cluster.start()
        for name, play in plays.items():
            if name in parts:
                found += await play()
        found.append(await shipped(cluster))
        if "chaos" in parts:
            found += await store_books(cluster)
    finally:
        await cluster.stop()
    return found + await asyncio.to_thread(audit, cluster)


def _world(folder: Path) -> str:
    path = folder / "one.toml"
    path.write_text(WORLD)
    return str(path)


def main() -> int:
    """Play, print, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--minute", type=float, default=75.0)
    parser.add_argument("--only", default="budget,minute,chaos,queue")
    parser.add_argument("--keep", type=Path, help="copy data folders and logs there")
    options = parser.parse_args()
    if program() is None:
        sys.stderr.write("There is no redis-server: `make .debian/stamp` fetches one.\n")
        return 3
    apart()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(run(options, Path(folder)))
    for check in found:
        sys.stdout.write(f"{'ok  ' if check.holds else 'MISS'} {check.text}\n")
    return 0 if all(check.holds for check in found) else 6


if __name__ == "__main__":
    raise SystemExit(main())
