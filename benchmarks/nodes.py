"""Several machines with one store: limits hold over all, and traffic goes on without the store.

    python benchmarks/nodes.py [--nodes 4] [--minute 75] [--only budget,minute,chaos,queue]

Every machine is a worker process with a data folder of its own; all ask one simulator and share one
Redis or Valkey server, the first machine through a proxy that can be cut. The parts:

- budget: 1,000 requests at once over all machines, with a budget for 100 of them;
- minute: twice as many requests and tokens as a key may use in a minute, for --minute seconds;
- chaos: the server is frozen, stopped, emptied and cut off, and a machine is killed, under traffic
  of a key without limits and of one with a budget that is large enough;
- queue: one gateway and two that share what they know, in virtual time, in a world of queues.

Exit code 6 if a budget is exceeded by more than one reservation for each machine, a limit by more
than 2 %, a request fails that no provider and no death explains, a request waits for more than one
time-out, a cent is forgotten, or two machines are more than 20 % slower than one at TTFT p95.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from worlds import USUAL, Job, do

from lightgate.config.load import parse_config
from lightgate.gateway.process.gauges import read_gauges
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.gateway.shared.scripts import EPOCH
from lightgate.gateway.shared.store import PATIENCE_S, SHARED_ENV
from lightgate.ledger.journal.journal import journals, read_frames
from lightgate.ledger.journal.notes import Reserved, Settled
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, new_key
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from redis_server import RedisServer, program

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

READY_S: Final = 60.0
TOKENS: Final = 20  # of an answer
RPM: Final = 240
_RESERVED: Final = 129_000  # nano-dollars that one request reserves
_TOKENS: Final = 23  # that one takes
BEHIND: Final = 503  # a worker that is late with its work on a busy machine takes no more
WORLD: Final = """
name = "one"
title = "One provider"
source = "this benchmark"
[providers.lab.models.m]
exact = { ttft_ms = 30, gap_ms = 2 }
"""
CONFIG: Final = """
[providers.lab]
base_url = "{base_url}"
api_key = "none"
[prices."lab/m"]
input = 1
output = 2
"""


class Proxy:
    """A process between a machine and the store; without it there is no way."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._child: subprocess.Popen[bytes] | None = None
        self.port = 0

    def open(self) -> None:
        """Carry connections, on the same port as before."""
        command = [sys.executable, __file__, "--proxy", f"{self.port}:{self._to}"]
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE)
        if self._child.stdout is None:
            raise RuntimeError("The proxy has no output to be read.")
        self.port = int(self._child.stdout.readline())

    def cut(self) -> None:
        """End all connections, and take no more."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None


async def carry(port: int, to: int) -> None:
    """Be a proxy until killed."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    server = await asyncio.start_server(one, "127.0.0.1", port)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


class Answer(NamedTuple):
    """A request as its client saw it; status 0: the connection broke."""

    at: float
    node: int
    key: str
    status: int
    took_s: float


class Node:
    """One machine: a data folder, and a worker that serves it."""

    def __init__(self, data: Path, url: str) -> None:
        self.data = data
        self._url = url
        self.port = 0
        self.child: asyncio.subprocess.Process | None = None
        self.deaths: list[tuple[float, float]] = []

    async def start(self) -> None:
        """Start the worker, and wait until it serves and has joined the store."""
        self.child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "lightgate.gateway.process.worker", "--data", str(self.data),
            "--port", str(self.port), stdout=asyncio.subprocess.PIPE,
            env={**os.environ, SHARED_ENV: self._url},
        )  # fmt: skip
        if self.child.stdout is None:
            raise RuntimeError("The worker has no output to be read.")
        async with asyncio.timeout(READY_S):
            self.port = json.loads(await self.child.stdout.readline())["port"]

    async def state(self) -> str:
        """The state of the store, as the machine tells it."""
        body = (await self.get("/health/ready"))[1]
        return str(json.loads(body)["shared"])

    async def get(self, path: str, secret: str = "") -> tuple[int, bytes]:
        """Ask for a page."""
        head = f"GET {path} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n"
        head += f"authorization: Bearer {secret}\r\n\r\n" if secret else "\r\n"
        return await _ask(self.port, head.encode())

    async def until(self, state: str) -> None:
        """Wait until the store is in a state."""
        async with asyncio.timeout(READY_S):
            while await self.state() != state:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """End the worker without a word, and start it again."""
        if self.child is None:
            return
        began = time.monotonic()
        self.child.send_signal(signal.SIGKILL)
        await self.child.wait()
        await self.start()
        self.deaths.append((began, time.monotonic()))

    async def stop(self) -> None:
        """End the worker."""
        if self.child is not None and self.child.returncode is None:
            self.child.terminate()
            await self.child.wait()


async def _ask(port: int, request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), await reader.read(-1)
    finally:
        writer.close()


class Cluster:
    """The machines, their keys, and what their clients saw."""

    def __init__(self, folder: Path, redis: RedisServer, base_url: str, count: int) -> None:
        self.redis = redis
        self.proxy = Proxy(redis.port)
        self.secrets: dict[str, str] = {}
        self.records: dict[str, KeyRecord] = {}
        self.seen: list[Answer] = []
        self._folder = folder
        self._base_url = base_url
        self._count = count
        self.nodes: list[Node] = []

    def key(self, name: str, **terms: Any) -> None:
        """Make a key that all machines know."""
        self.secrets[name], self.records[name] = new_key(KeyTerms(name=name, **terms))

    async def start(self) -> None:
        """Start all machines."""
        self.redis.command("FLUSHALL")
        self.redis.command("SET", EPOCH, "1")  # as if it had been there for long
        self.proxy.open()
        config = parse_config(CONFIG.format(base_url=self._base_url))
        snapshot = make_snapshot(config, tuple(self.records.values()), {})
        for number in range(self._count):
            data = self._folder / f"node{number}"
            put_snapshot(data, snapshot)
            port = self.redis.port if number else self.proxy.port
            self.nodes.append(Node(data, f"redis://127.0.0.1:{port}"))
        await asyncio.gather(*(node.start() for node in self.nodes))
        for node in self.nodes:
            await node.until("joined")

    async def stop(self) -> None:
        """End all machines."""
        await asyncio.gather(*(node.stop() for node in self.nodes))
        self.proxy.cut()

    async def ask(self, number: int, key: str) -> None:
        """Ask one machine, and note how it went."""
        say = [{"role": "user", "content": "Say something."}]
        asked = {"model": "lab/m", "messages": say, "max_tokens": TOKENS, "stream": True}
        body = json.dumps(asked).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n"
            f"authorization: Bearer {self.secrets[key]}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        began, status = time.monotonic(), 0
        with contextlib.suppress(OSError, EOFError):
            status = (await _ask(self.nodes[number].port, head.encode() + body))[0]
        self.seen.append(Answer(began, number, key, status, time.monotonic() - began))

    async def flow(self, key: str, rate: float, seconds: float) -> None:
        """Ask all machines in turn, at a rate."""
        began, asks = time.monotonic(), set()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            asks.add(asyncio.create_task(self.ask(number % len(self.nodes), key)))
        await asyncio.gather(*asks)

    def statuses(self, key: str) -> Counter[int]:
        """How the requests of a key went."""
        return Counter(answer.status for answer in self.seen if answer.key == key)

    def notes(self, kind: type[Any]) -> list[Any]:
        """The notes of one kind in all journals."""
        files = [path for node in self.nodes for path in journals(node.data / "journal")]
        return [note for path in files for note, _ in read_frames(path) if isinstance(note, kind)]

    def timeouts(self) -> list[int]:
        """How often requests of each machine have waited for the store in vain."""
        return [
            sum(g.store.timeouts for _, g in read_gauges(node.data) if g.store is not None)
            for node in self.nodes
        ]

    def spent(self, key: str) -> tuple[int, int]:
        """Nano-dollars of a key by the journals: settled, and reserved by the dead."""
        settled: list[Settled] = self.notes(Settled)
        done = {note.exchange.id for note in settled}
        own = self.records[key].id
        paid = sum(
            attempt.facts.cost_nano or 0
            for note in settled
            if note.exchange.key_id == own
            for attempt in note.attempts
        )
        cut = [
            note.nano_usd
            for note in self.notes(Reserved)
            if note.key_id == own and note.exchange_id not in done
        ]
        return paid, sum(cut)

    async def told(self, key: str, number: int) -> int:
        """Nano-dollars of a key, spent and reserved, as a machine tells them."""
        body = (await self.nodes[number].get("/v1/usage", self.secrets[key]))[1]
        budget = json.loads(body)["budget"]
        found = Decimal(str(budget["spent_usd"])) + Decimal(str(budget["reserved_usd"]))
        return int(found * 1_000_000_000)


class Check(NamedTuple):
    """One finding, and whether it is as it must be."""

    text: str
    holds: bool


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
    return [
        Check(f"1,000 requests at once over {count} machines: {dict(said)}",
              set(said) <= {200, 402} and (said[200] >= 100 - count or late)),
        Check(f"spent and reserved at most {peak} of {limit} nano-dollars, {peak / limit:.2%}; "
              f"a request reserves {each}, spent in the end {taken}",
              (peak >= 0.95 * limit or late) and peak <= limit + count * each),
        Check(f"requests have waited for the store in vain: {late} (a busy machine; then shares "
              "hold, and a part of the budget may be left)", holds=True),
    ]  # fmt: skip


async def minute(cluster: Cluster, seconds: float) -> list[Check]:
    """Twice as much as a minute allows, in requests and in tokens."""
    rate = 2 * RPM / 60
    await asyncio.gather(*(cluster.flow(key, rate, seconds) for key in ("often", "long")))
    found = []
    for key in ("often", "long"):
        times = sorted(a.at for a in cluster.seen if a.key == key and a.status == 200)
        most = max(sum(1 for at in times if begin <= at < begin + 60) for begin in times)
        found.append(
            Check(f"{key}: at most {most} of {RPM} requests in any 60 s; "
                  f"{dict(cluster.statuses(key))}", 0.98 * RPM <= most <= 1.02 * RPM)
        )  # fmt: skip
    return found


async def chaos(cluster: Cluster) -> list[Check]:
    """Everything that can happen to the store and to a machine, under traffic."""
    redis, cut = cluster.redis, cluster.proxy
    events: list[tuple[str, float, Callable[[], object], Callable[[], object]]] = [
        ("frozen", 3.0, redis.freeze, redis.thaw),
        ("stopped", 3.0, redis.stop, redis.start),
        ("emptied", 3.0, lambda: redis.command("FLUSHALL"), lambda: None),
        ("cut off", 3.0, cut.cut, cut.open),
        ("frozen again", 3.0, redis.freeze, redis.thaw),
    ]
    windows: dict[str, tuple[float, float]] = {}

    async def trouble() -> None:
        for name, lasts_s, begin, end in events:
            began = time.monotonic()
            await _done(begin())
            await asyncio.sleep(lasts_s)
            await _done(end())
            for node in cluster.nodes:
                await node.until("joined")
            windows[name] = began, time.monotonic()
            await asyncio.sleep(2.5)
        await cluster.nodes[-1].kill()
        await cluster.nodes[-1].until("joined")

    before = len(cluster.seen)
    over = asyncio.create_task(trouble())
    while not over.done():
        await asyncio.gather(cluster.flow("plain", 20, 2), cluster.flow("large", 20, 2))
    await over
    await asyncio.sleep(3.0)
    seen = cluster.seen[before:]
    return [
        *_failures(cluster, seen),
        *_waits(cluster, seen, windows),
        *[await _books(cluster, number) for number in range(len(cluster.nodes))],
    ]


async def _done(made: object) -> None:
    if asyncio.iscoroutine(made):
        waited: Coroutine[Any, Any, object] = made
        await waited


def _failures(cluster: Cluster, seen: list[Answer]) -> list[Check]:
    def explained(answer: Answer) -> bool:
        deaths = cluster.nodes[answer.node].deaths
        return any(answer.at + answer.took_s >= a and answer.at <= b for a, b in deaths)

    unwell = [answer for answer in seen if answer.status != 200]
    behind = sum(answer.status == BEHIND for answer in unwell)
    failed = [a for a in unwell if a.status != BEHIND and not explained(a)]
    by_death = len(unwell) - len(failed) - behind
    return [
        Check(f"chaos: {len(seen)} requests; failed without a death of their machine: "
              f"{Counter((a.key, a.status) for a in failed)}; with one: {by_death}; "
              f"turned away by a worker that was behind: {behind}", not failed)
    ]  # fmt: skip


def _waits(
    cluster: Cluster, seen: list[Answer], windows: dict[str, tuple[float, float]]
) -> list[Check]:
    """Requests with limits against those without: what the store costs, and how often."""
    found = []
    for name, (began, ended) in windows.items():
        within = [a for a in seen if began <= a.at <= ended and a.status == 200]
        plain = sorted(a.took_s for a in within if a.key == "plain")
        large = sorted(a.took_s for a in within if a.key == "large")
        usual = plain[len(plain) // 2]
        late = [t for t in large if t > usual + PATIENCE_S / 2]
        found.append(
            Check(f"{name}: median {usual * 1e3:.0f} ms without limits; with a budget the longest "
                  f"{large[-1] * 1e3:.0f} ms, {len(late)} of {len(large)} waited",
                  large[-1] <= max(plain[-1], usual) + 2 * PATIENCE_S)
        )  # fmt: skip
    for number, count in enumerate(cluster.timeouts()):
        found.append(
            Check(f"machine {number}: time-outs that requests waited for: {count}",
                  count <= 1 + (cluster.seen[-1].at - cluster.seen[0].at) // 60)
        )  # fmt: skip
    return found


async def _books(cluster: Cluster, number: int) -> Check:
    paid, cut = cluster.spent("large")
    told = await cluster.told("large", number)
    return Check(
        f"machine {number}: the store tells {told} nano-dollars, the journals {paid} and {cut} "
        f"of a killed machine",
        told == paid + cut,
    )


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
    with RedisServer() as redis, SimProcess(SimOptions(world=_world(folder))) as sim:
        base_url = sim.facts.providers["lab"]
        cluster = Cluster(folder, redis, base_url, options.nodes)
        cluster.key("plain")
        cluster.key("hundred", budget_usd=Decimal(100 * _RESERVED) / 1_000_000_000)
        cluster.key("often", rpm=RPM)
        cluster.key("long", tpm=RPM * _TOKENS)
        cluster.key("large", budget_usd=Decimal(100), rpm=100_000)
        await cluster.start()
        try:
            plays: dict[str, Callable[[], Awaitable[list[Check]]]] = {
                "budget": lambda: budget(cluster),
                "minute": lambda: minute(cluster, options.minute),
                "chaos": lambda: chaos(cluster),
            }
            for name, play in plays.items():
                if name in parts:
                    found += await play()
        finally:
            await cluster.stop()
    return found


def _world(folder: Path) -> str:
    path = folder / "one.toml"
    path.write_text(WORLD)
    return str(path)


def main() -> int:
    """Play, print, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--minute", type=float, default=75.0)
    parser.add_argument("--proxy", default="", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="budget,minute,chaos,queue")
    options = parser.parse_args()
    if options.proxy:
        port, _, to = options.proxy.partition(":")
        asyncio.run(carry(int(port), int(to)))
    if program() is None:
        sys.stderr.write("There is no redis-server: `make .debian/stamp` fetches one.\n")
        return 3
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(run(options, Path(folder)))
    for check in found:
        sys.stdout.write(f"{'ok  ' if check.holds else 'MISS'} {check.text}\n")
    return 0 if all(check.holds for check in found) else 6


if __name__ == "__main__":
    raise SystemExit(main())
