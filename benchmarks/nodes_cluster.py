"""The machines of nodes.py, the stores that they share, and the clients that ask them.

A machine is a whole `lightgate up` with a data folder of its own. The first one reaches both stores
through proxies that can be cut or fall silent; the second one's data folder is a small filesystem
that can be full. Clients do what a load balancer does: they ask machines in turn that say that they
are ready, and the next one where a connection is refused. A request that reached a machine is never
sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import overhead
from soak_chaos import SoakDisk

from lightgate.gateway.process.gauges import read_gauges
from lightgate.gateway.shared.scripts import EPOCH
from lightgate.ledger.journal.journal import journals, read_frames
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, add_key, new_key
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from postgres import PostgresServer
    from redis_server import RedisServer

READY_S: Final = 90.0
LOOK_S: Final = 0.5  # between two looks whether a machine is ready
TOKENS: Final = 20  # of the longest answer
DISK_MB: Final = 48
NANO: Final = 1_000_000_000
CONFIG: Final = """
[gateway]
data = "{data}"
workers = 1
drain = "5s"
[providers.lab]
base_url = "{base_url}"
api_key = "none"
[prices."lab/m"]
input = 1
output = 2
[ledger]
url = "{ledger}"
[shared]
url = "{shared}"
"""


class Proxy:
    """A process between a machine and a store; without it there is no way."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._child: subprocess.Popen[bytes] | None = None
        self.port = 0

    def open(self) -> None:
        """Carry connections, on the same port as before."""
        command = [sys.executable, __file__, str(self.port), str(self._to)]
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

    def fall_silent(self) -> None:
        """Carry nothing, as a network that loses every packet."""
        if self._child is not None:
            self._child.send_signal(signal.SIGSTOP)

    def speak(self) -> None:
        """Carry again."""
        if self._child is not None:
            self._child.send_signal(signal.SIGCONT)


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
    """A request as its client saw it; status 0: the connection broke, before or in the answer."""

    name: str
    at: float
    node: int
    key: str
    status: int
    took_s: float
    id: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    gate_ms: float = 0.0  # that the gateway itself took
    said: str = ""


class Node:
    """One machine: a data folder, and `lightgate up` on it."""

    def __init__(self, folder: Path, data: Path, config: str) -> None:
        self.data = data
        self.log = folder / "log.jsonl"
        self._file = folder / "lightgate.toml"
        self._file.write_text(config, "ascii")
        self.port, self._console = overhead.free_port(), overhead.free_port()
        self.child: asyncio.subprocess.Process | None = None
        self.deaths: list[tuple[float, float]] = []
        self.ready = False

    async def start(self) -> None:
        """Start it, and wait until it serves."""
        flags = ("--port", str(self.port), "--console-port", str(self._console), "--log", "json")
        with self.log.open("ab") as log:
            self.child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "lightgate", "up", "--no-demo", "--config", str(self._file),
                *flags, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
        async with asyncio.timeout(READY_S):
            while not await self.look():
                if self.child.returncode is not None:
                    raise RuntimeError(f"A machine does not start:\n{self.log.read_text()}")
                await asyncio.sleep(0.05)

    def pids(self) -> list[int]:
        """All of its processes."""
        alive = self.child is not None and self.child.returncode is None
        return overhead.tree(self.child.pid) if alive and self.child is not None else []

    async def look(self) -> bool:
        """Look whether it is ready."""
        try:
            self.ready = (await self.get("/health/ready"))[0] == 200
        except (OSError, EOFError, TimeoutError):
            self.ready = False
        return self.ready

    async def state(self) -> str:
        """The state of the shared store, as the machine tells it."""
        return str(json.loads((await self.get("/health/ready"))[1]).get("shared", ""))

    async def get(self, path: str, secret: str = "") -> tuple[int, bytes]:
        """Ask for a page."""
        head = f"GET {path} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n"
        head += f"authorization: Bearer {secret}\r\n\r\n" if secret else "\r\n"
        async with asyncio.timeout(5):
            status, _, body = await _ask(self.port, head.encode())
        return status, body

    async def until(self, state: str) -> None:
        """Wait until the shared store is in a state."""
        async with asyncio.timeout(READY_S):
            while await self.state() != state:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)

    async def kill(self, gone_s: float) -> None:
        """End all of its processes at once without a word, and start it again after a while."""
        if self.child is None:
            return
        began = time.monotonic()
        pids = self.pids()
        for number in (signal.SIGSTOP, signal.SIGKILL):  # so that none sees another's death
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        await self.child.wait()
        self.deaths.append((began, time.monotonic()))
        await asyncio.sleep(gone_s)
        await self.start()

    async def stop(self) -> None:
        """End it in good order."""
        if self.child is not None and self.child.returncode is None:
            self.child.terminate()
            await self.child.wait()


async def _ask(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in head[1:] if ": " in line)
        fields = {name.lower(): value for name, value in pairs}
        return int(head[0].split(" ", 2)[1]), fields, await reader.read(-1)
    finally:
        writer.close()


class Cluster:
    """The machines, their keys, and what their clients saw."""

    def __init__(
        self, folder: Path, stores: tuple[PostgresServer, RedisServer], base_url: str, count: int
    ) -> None:
        self.postgres, self.redis = stores
        self.to_ledger, self.to_shared = Proxy(self.postgres.port), Proxy(self.redis.port)
        self.url = self.postgres.database()
        self.secrets: dict[str, str] = {}
        self.records: dict[str, KeyRecord] = {}
        self.seen: list[Answer] = []
        self._folder = folder
        self._base_url = base_url
        self._count = count
        self._asked = 0
        self.nodes: list[Node] = []
        self.disk: SoakDisk | None = None
        self._looking: asyncio.Task[None] | None = None

    def key(self, name: str, **terms: Any) -> None:
        """Make a key that all machines know."""
        self.secrets[name], self.records[name] = new_key(KeyTerms(name=name, **terms))

    async def start(self) -> None:
        """Start all machines at the same time."""
        self.redis.command("FLUSHALL")
        self.redis.command("SET", EPOCH, "1")  # as if it had been there for long
        self.to_ledger.open()
        self.to_shared.open()
        with Ledger.open(self.url) as ledger, ledger.writing() as connection:
            for record in self.records.values():
                add_key(connection, record)
        for number in range(self._count):
            self.nodes.append(self._node(number))
        await asyncio.gather(*(node.start() for node in self.nodes))
        self._looking = asyncio.create_task(self._look())
        for node in self.nodes:
            await node.until("joined")

    def _node(self, number: int) -> Node:
        folder = self._folder / f"node{number}"
        folder.mkdir()
        data, ledger, shared = folder / "data", self.url, self.redis.port
        if number == 0:
            shared = self.to_shared.port
            ledger = ledger.replace(f":{self.postgres.port}/", f":{self.to_ledger.port}/")
        if number == 1:
            self.disk = SoakDisk(folder, DISK_MB)
            data = self.disk.data
        config = CONFIG.format(
            data=data, base_url=self._base_url, ledger=ledger, shared=f"redis://127.0.0.1:{shared}"
        )
        return Node(folder, data, config)

    async def stop(self) -> None:
        """End all machines."""
        if self._looking is not None:
            self._looking.cancel()
        await asyncio.gather(*(node.stop() for node in self.nodes))
        self.to_ledger.cut()
        self.to_shared.cut()

    def close(self) -> None:
        """Take the small filesystem away."""
        if self.disk is not None:
            self.disk.close()

    async def _look(self) -> None:
        """Ask the machines whether they are ready, as a load balancer does, until cancelled."""
        while True:
            await asyncio.gather(*(node.look() for node in self.nodes))
            await asyncio.sleep(LOOK_S)

    async def ask(self, number: int, key: str) -> None:
        """Ask a machine or, where it cannot be reached, the next one; note how it went."""
        self._asked += 1
        name = f"r{self._asked:06d}"
        began, node = time.monotonic(), number
        for step in range(2 * len(self.nodes)):
            node = (number + step) % len(self.nodes)
            if not self.nodes[node].ready and step < len(self.nodes):
                continue
            try:
                answer = await self._answer(name, node, key)
            except ConnectionRefusedError:
                self.nodes[node].ready = False  # until the next look
                continue
            break
        else:
            answer = Answer(name, 0.0, node, key, 0, 0.0, said="no machine took it")
        self.seen.append(answer._replace(at=began, took_s=time.monotonic() - began))

    async def _answer(self, name: str, node: int, key: str) -> Answer:
        streamed = key != "plain" or self._asked % 2 > 0
        asked: dict[str, Any] = {
            "model": "lab/m",
            "messages": [{"role": "user", "content": "Say something."}],
            "max_tokens": TOKENS - self._asked % 7 if key == "plain" else TOKENS,
            "stream": streamed,
        }
        if streamed:
            asked["stream_options"] = {"include_usage": True}
        body = json.dumps(asked).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n"
            f"authorization: Bearer {self.secrets[key]}\r\nx-request-id: {name}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        try:
            status, fields, got = await _ask(self.nodes[node].port, head.encode() + body)
        except ConnectionRefusedError:
            raise
        except (OSError, EOFError) as error:
            return Answer(name, 0.0, node, key, 0, 0.0, said=type(error).__name__)
        made = fields.get("x-lightgate-id", "")
        gate_ms = float(fields.get("x-lightgate-overhead-ms", 0))
        if status != 200:
            return Answer(name, 0.0, node, key, status, 0.0, made, gate_ms=gate_ms,
                          said=got.decode("utf-8", "replace")[:300])  # fmt: skip
        usage = _usage(got, streamed=streamed)
        if usage is None:
            return Answer(name, 0.0, node, key, 0, 0.0, made, said="the answer is not whole")
        return Answer(name, 0.0, node, key, status, 0.0, made, *usage, gate_ms=gate_ms)

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
        """The notes of one kind in all journals that are not finished."""
        files = [path for node in self.nodes for path in journals(node.data / "journal")]
        return [note for path in files for note, _ in read_frames(path) if isinstance(note, kind)]

    def timeouts(self) -> list[int]:
        """How often requests of each machine have waited for the shared store in vain."""
        return [
            sum(g.store.timeouts for _, g in read_gauges(node.data) if g.store is not None)
            for node in self.nodes
        ]

    async def told(self, key: str, number: int) -> int:
        """Nano-dollars of a key, spent and reserved, as a machine tells them."""
        body = (await self.nodes[number].get("/v1/usage", self.secrets[key]))[1]
        budget = json.loads(body)["budget"]
        found = Decimal(str(budget["spent_usd"])) + Decimal(str(budget["reserved_usd"]))
        return int(found * NANO)


def _usage(body: bytes, *, streamed: bool) -> tuple[int, int] | None:
    """The tokens that an answer says it took; None where its end is missing."""
    try:
        if not streamed:
            usage = json.loads(body)["usage"]
        elif b"data: [DONE]" in body:
            events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]
            usage = next(u for e in reversed(events) if (u := json.loads(e).get("usage")))
        else:
            return None
    except (ValueError, KeyError, StopIteration):
        return None
    return usage["prompt_tokens"], usage["completion_tokens"]


if __name__ == "__main__":
    asyncio.run(carry(int(sys.argv[1]), int(sys.argv[2])))
