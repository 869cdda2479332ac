"""A crowd at one worker: streams, slow clients, idle connections, unfinished bodies.

    python benchmarks/crowd.py [--streams 2000] [--slow 2000] [--connections 6000] [--json]

One worker that may have 1 GiB. A good client is measured alone, then among clients that read one
byte a second, send one byte a second, or have sent half a head; 60 bodies of 10 MB with one key
stay unfinished; then streams of 20 tokens, half a second apart, begin within 20 seconds; in the end
connections are opened beyond the limit. Exit code 6 if a stream fails, if the time added to its
first token is above 100 ms at p99, if the good client waits more than 10 ms longer at p99 among the
slow ones than alone, if what is beyond a limit is not refused with 503 and `retry-after` within 10
ms at the median, or if the worker needs more memory than it may have.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import overhead

if TYPE_CHECKING:
    from collections.abc import Sequence

ADDED_MS, DISTURBED_MS, REFUSED_MS, MEMORY = 100.0, 10.0, 10.0, 1 << 30
TOKENS, QUICK_TOKENS = 20, 50
BODIES, BODY = 60, 10_000_000
HELD = 13  # of them, within half of 256 MiB: the part of one key
GULPS = 20  # of the slow readers, at an upstream that writes far more than they take
MORE = 100  # connections beyond the limit
LIMITS = """
[gateway.limits]
connections = {connections}
"""
OTHERS = """
[providers.{name}]
base_url = "http://127.0.0.1:{port}/v1"
api_key = "none"
[models.{name}]
targets = ["{name}/bench"]
"""


def request(model: str, *, length: int = 0, stream: bool = True) -> bytes:
    """A request; with a length its body is said to be that long, and is not sent."""
    body = json.dumps({"model": model, "stream": stream, "max_tokens": 100,
                       "messages": [{"role": "user", "content": "Hello"}]}).encode()  # fmt: skip
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: crowd\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {os.environ[overhead.KEY_VARIABLE]}\r\n"
        f"content-length: {length or len(body)}\r\n\r\n"
    )
    return head.encode() + (b"" if length else body)


# The clients that are not good ones


async def connect(port: int, *, small: bool = False) -> tuple[asyncio.StreamReader, Any]:
    """A connection; a small one takes in next to nothing that is not read."""
    sock = socket.socket()
    if small:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=sock, limit=2)


async def slow(port: int, number: int, stop: asyncio.Event) -> None:
    """One slow client: a reader, a sender, or half a head, each again when it is turned away."""
    while not stop.is_set():
        with contextlib.suppress(OSError):
            reader, writer = await connect(port, small=True)
            kind = number % 3
            if kind == 0:
                writer.write(request("gulp" if number < 3 * GULPS else "bench"))
            sending = request("bench")
            if kind == 2:
                writer.write(sending[:40])
            for byte in sending:
                if kind == 1:
                    writer.write(bytes([byte]))
                if stop.is_set() or await _ended(reader, kind):
                    break
            writer.transport.abort()
        await asyncio.sleep(0.1)


async def _ended(reader: asyncio.StreamReader, kind: int) -> bool:
    """Let a second pass; whether the gateway has closed the connection meanwhile."""
    if kind == 0:
        await asyncio.sleep(1.0)
        return not await reader.read(1)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await reader.read(-1)  # a refusal and the end after it
            return True
    return False


async def unfinished(port: int, stop: asyncio.Event) -> bool:
    """Send a body of 10 MB but for its end; whether it was refused."""
    try:
        reader, writer = await connect(port)
        writer.write(request("bench", length=BODY))
        piece, left = bytes(1 << 16), BODY - 1000
        while left > 0 and not reader.at_eof() and not writer.is_closing():
            writer.write(piece[:left])
            left -= len(piece)
            await writer.drain()
            await asyncio.sleep(0)
        answered = asyncio.ensure_future(reader.read(1))
        over = asyncio.ensure_future(stop.wait())
        await asyncio.wait({answered, over}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        refused = answered.done()
        answered.cancel()
        writer.transport.abort()
    except OSError:
        return True
    return refused


async def _first(bodies: list[asyncio.Task[bool]], number: int) -> None:
    """Wait until so many have ended."""
    for _, ended in zip(range(number), asyncio.as_completed(bodies), strict=False):
        await asyncio.shield(ended)


class Refusals(NamedTuple):
    """Requests or connections beyond a limit: how many were refused in the right way, how fast."""

    asked: int
    right: int
    took_ms: list[float]

    def median(self) -> float:
        """The time to the refusal."""
        return round(overhead.quantile(self.took_ms, 0.5), 2) if self.took_ms else -1.0


def refusals(port: int, number: int, payload: bytes) -> Refusals:
    """Send something that must be refused, so often, one after the other."""
    took, right, wrong = [], 0, 0
    while right + wrong < number and wrong < 5:
        said, began = b"", time.monotonic()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as link:
            if payload:
                link.sendall(payload)
            said = link.recv(4096).lower()
            took.append((time.monotonic() - began) * 1e3)
        fine = said.startswith(b"http/1.1 503 ") and b"\r\nretry-after: " in said
        right, wrong = right + fine, wrong + (not fine)
    return Refusals(number, right, took)


def fill(port: int) -> list[socket.socket]:
    """Begin bodies until one is refused: the last bytes that may be held, in small pieces."""
    held = []
    for _ in range(400):
        held.append(socket.create_connection(("127.0.0.1", port), 1))
        held[-1].sendall(request("bench", length=BODY) + bytes(1 << 16))
        held[-1].settimeout(0.02)
        with contextlib.suppress(TimeoutError):
            held[-1].recv(1)
            break
    return held


# The good client


def streams(port: int, *flags: str) -> dict[str, Any]:
    """streams.py on the load's core; what it saw."""
    program = [overhead.PYTHON, str(overhead.HERE / "streams.py"), "--port", str(port)]
    seen = overhead.on_load_core([*program, "--key", overhead.KEY_VARIABLE, *flags], {})
    return dict(seen)


def good(port: int) -> dict[str, Any]:
    """A client with quick streams: what was added to its first tokens and to all later ones."""
    seen = streams(
        port, "--model", "quick", "--streams", "4", "--each", "8", "--tokens", str(QUICK_TOKENS)
    )
    return {
        "failed": seen["failures"],
        **quantiles("ttft", seen["transit_ms"]),
        **quantiles("token", seen["token_ms"]),
    }


def quantiles(name: str, values: Sequence[float]) -> dict[str, float]:
    shares = (("p50", 0.5), ("p99", 0.99))
    return {f"{name}_{n}_ms": round(overhead.quantile(list(values), q), 2) for n, q in shares}


async def asking(port: int, stop: asyncio.Event) -> list[float]:
    """Ask for whole answers ten times a second; milliseconds of each, -1 for a failed one."""
    took = []
    while not stop.is_set():
        began = time.monotonic()
        status = await asyncio.to_thread(overhead.ask, port)
        took.append((time.monotonic() - began) * 1e3 if status == 200 else -1.0)
        await asyncio.sleep(0.1)
    return took


# The phases


class Crowd:
    """One worker and all of its clients; `found` is what is printed."""

    def __init__(self, subject: overhead.Subject, options: argparse.Namespace) -> None:
        self.subject, self.options, self.port = subject, options, subject.port
        self.found: dict[str, Any] = {}
        self.missed: list[str] = []
        self._stop = asyncio.Event()
        self._idle: list[tuple[asyncio.StreamReader, Any]] = []
        self._most_mb = 0.0

    async def run(self) -> None:
        """All phases; the slow clients stay from the second one on."""
        watching = asyncio.ensure_future(self._watch())
        alone = await asyncio.to_thread(good, self.port)
        slows = [
            asyncio.ensure_future(slow(self.port, n, self._stop)) for n in range(self.options.slow)
        ]
        await asyncio.sleep(12.0)  # half heads have been told to go once by then
        among = await asyncio.to_thread(good, self.port)
        self._judge_good(alone, among)
        await self._bodies()
        await self._streams()
        await self._too_many()
        self._stop.set()
        for _, writer in self._idle:
            writer.transport.abort()
        await asyncio.gather(*slows)
        watching.cancel()
        self.found["worker_most_mb"] = round(self._most_mb)
        self._limit("memory", self._most_mb, MEMORY / (1 << 20))

    def _limit(self, what: str, value: float, limit: float) -> None:
        if not value <= limit:
            self.missed.append(f"{what}: {value:g}, limit {limit:g}")

    def _judge_good(self, alone: dict[str, Any], among: dict[str, Any]) -> None:
        self.found["good_alone"], self.found["good_among_slow"] = alone, among
        self._limit("failed streams of the good client", alone["failed"] + among["failed"], 0)
        for name in ("ttft_p99_ms", "token_p99_ms"):
            self._limit(f"good client, {name}", among[name], alone[name] + DISTURBED_MS)

    async def _bodies(self) -> None:
        """60 unfinished bodies: a part is held, the rest refused, and others go on."""
        before, self._most_mb = overhead.rss_mb(self.subject.carrier), 0.0
        stop = asyncio.Event()
        bodies = [asyncio.create_task(unfinished(self.port, stop)) for _ in range(BODIES)]
        with contextlib.suppress(TimeoutError):  # the others are held, or on their way
            await asyncio.wait_for(_first(bodies, BODIES - HELD), 40)
        last = await asyncio.to_thread(fill, self.port)
        beyond = request("bench", length=BODY) + bytes(1 << 16)
        more = await asyncio.to_thread(refusals, self.port, MORE, beyond)
        status = await asyncio.to_thread(overhead.ask, self.port)
        stop.set()
        for link in last:
            link.close()
        refused = sum(await asyncio.gather(*bodies))
        self.found["bodies"] = {
            "unfinished": BODIES,
            "refused": refused,
            "more_mb": round(self._most_mb - before),
            "refusal_ms": more.median(),
            "refused_rightly": more.right,
            "small_one_meanwhile": status,
        }
        self._limit("MB for unfinished bodies", self._most_mb - before, 160)
        self._limit("ms to the refusal of a body", more.median(), REFUSED_MS)
        self._limit("bodies not refused rightly", MORE - more.right, 0)
        self._limit("status of a small request meanwhile", status, 200)

    async def _streams(self) -> None:
        """Many streams at once, with a client that asks for whole answers beside them."""
        over = asyncio.Event()
        waits = asyncio.ensure_future(asking(self.port, over))
        meter, began = overhead.Meter(self.subject), time.monotonic()
        flags = ("--streams", str(self.options.streams), "--each", "1", "--tokens", str(TOKENS))
        seen = await asyncio.to_thread(streams, self.port, *flags, "--spread-s", "20")
        busy = meter.carrier_us() / 1e6 / (time.monotonic() - began)
        over.set()
        took = await waits
        answered = [one for one in took if one >= 0]
        self.found["streams"] = {
            "whole": seen["streams"],
            "failed": seen["failures"],
            "why": seen["failed"],
            **quantiles("added", seen["transit_ms"]),
            "asked_meanwhile": len(took),
            "failed_meanwhile": len(took) - len(answered),
            **quantiles("whole_answer", answered),
            "worker_busy": round(busy, 2),
        }
        self._limit("streams that failed", seen["failures"], 0)
        self._limit("added_p99_ms", self.found["streams"]["added_p99_ms"], ADDED_MS)
        self._limit("whole answers that failed", len(took) - len(answered), 0)

    async def _too_many(self) -> None:
        """Connections up to the limit, then more."""
        while len(self._idle) < self.options.connections:  # with the slow ones more than may be
            with contextlib.suppress(OSError):
                self._idle.append(await connect(self.port))
        await asyncio.sleep(0.5)
        more = await asyncio.to_thread(refusals, self.port, MORE, b"")
        self.found["connections"] = {
            "limit": self.options.connections,
            "beyond": more.asked,
            "refused_rightly": more.right,
            "refusal_ms": more.median(),
        }
        self._limit("connections not refused rightly", more.asked - more.right, MORE // 20)
        self._limit("ms to the refusal of a connection", more.median(), REFUSED_MS)

    async def _watch(self) -> None:
        while True:
            self._most_mb = max(self._most_mb, overhead.rss_mb(self.subject.carrier))
            await asyncio.sleep(0.1)


def new_key(file: Path) -> str:
    command = [overhead.PYTHON, "-m", "lightgate", "keys", "create", "--name", "crowd"]
    made = subprocess.run(
        [*command, "--config", str(file), "--json"], check=True, capture_output=True
    )
    return str(json.loads(made.stdout)["key"])


def main() -> int:
    parser = argparse.ArgumentParser(description="A crowd at one worker.")
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--slow", type=int, default=2000)
    parser.add_argument("--connections", type=int, default=6000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pace = ("--gap-ms", "500", "--tokens", str(TOKENS))
    quick = ("--gap-ms", "20", "--tokens", str(QUICK_TOKENS), "--stamped")
    gulp = ("--gap-ms", "5", "--tokens", "12000")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(overhead.provider(*pace))
        others = {
            "quick": stack.enter_context(overhead.provider(*quick)),
            "gulp": stack.enter_context(overhead.provider(*gulp)),
        }
        port, console = overhead.free_port(), overhead.free_port()
        text = overhead.CONFIG.format(port=port, folder=folder)
        text += LIMITS.format(connections=options.connections)
        text += overhead.MODEL.format(policy="ordered")
        text += "".join(overhead.PROVIDER.format(n=n, upstream=upstream) for n in range(1, 6))
        text += "".join(OTHERS.format(name=name, port=port) for name, port in others.items())
        file = folder / "lightgate.toml"
        file.write_text(text, "ascii")
        os.environ[overhead.KEY_VARIABLE] = new_key(file)
        flags = ["--config", str(file), "--console-port", str(console), "--no-demo"]
        command = [overhead.PYTHON, "-m", "lightgate", "up", *flags]
        carrier = "lightgate.gateway.process.worker"
        subject = stack.enter_context(overhead.Subject("lightgate", port, command, carrier))
        resource.prlimit(subject.carrier, resource.RLIMIT_AS, (MEMORY, MEMORY))
        crowd = Crowd(subject, options)
        asyncio.run(crowd.run())
    if options.json:
        print(json.dumps(crowd.found | {"missed": crowd.missed}))
    else:
        print("\n".join(f"{name}: {value}" for name, value in crowd.found.items()))
        print("\n".join(f"MISSED: {miss}" for miss in crowd.missed))
    return 6 if crowd.missed else 0


if __name__ == "__main__":
    sys.exit(main())
