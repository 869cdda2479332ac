"""What a failure costs in time, and how soon providers are left alone when the client leaves.

    python benchmarks/rescue.py [--requests 200]

One worker in front of the simulator. A model with one good target is asked in turns with models
whose first target fails at once; what those take longer, first token to first token, is the rescue.
Then clients leave in every window, and the simulator's own log says when it saw its side closed.
Exit code 6 if a p99 is above 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from lightgate.config.load import parse_config
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

ALLOWED_MS = 100.0
READY_S = 30.0
EACH = 4  # requests of one target; with a fifth failure its breaker would open, and hide the rest
EARNED_BY = 6
WORLD = """
name = "one"
title = "One provider"
source = "this benchmark"
[providers.lab.models.m]
exact = { ttft_ms = 5, gap_ms = 0 }
[providers.lab.models.far]
exact = { ttft_ms = 60000, gap_ms = 0 }
"""
FAULTS = (
    "status:503", "status:529", "rate-limited:0", "error-200:503", "stream-error:0", "reset:0",
    "early-close", "garbage", "html", "empty",
)  # fmt: skip
WINDOWS = {
    "before the first token": ("lab/far", True),
    "mid-stream": ("lab/m!stall:3", True),
    "not streamed": ("lab/far", False),
    "in a race of two": ("race", True),
}


def _config(base_url: str, refused: int, copies: int) -> str:
    """Every fault as the first target of a model, in so many copies with breakers of their own."""
    urls = {"lab": base_url}
    pairs = {"race": '"lab/far", "lab/far!hang"', "none": '"lab/m"'}
    for copy in range(copies):
        urls |= {f"lab{copy}": base_url, f"gone{copy}": f"http://127.0.0.1:{refused}/v1"}
        pairs[f"refused-{copy}"] = f'"gone{copy}/m", "lab/m"'
        pairs |= {f"{fault}-{copy}": f'"lab{copy}/m!{fault}", "lab/m"' for fault in FAULTS}
    parts = ["[gateway.breaker]\nstreak = 1000000\n"]
    for name, url in urls.items():
        parts.append(f'[providers.{name}]\nbase_url = "{url}"\napi_key = "none"\n')
        parts.append('dialect = "openai"\n')
    for name, targets in pairs.items():
        race = "race = 2\n" if name == "race" else ""
        parts.append(
            f'[models."{name}"]\ntargets = [{targets}]\npolicy = "ordered"\nhedge = "off"\n{race}'
        )
    return "".join(parts)


def _request(model: str, *, stream: bool = True) -> bytes:
    say = [{"role": "user", "content": "Say something."}]
    body = json.dumps({"model": model, "messages": say, "max_tokens": 8, "stream": stream}).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body), body,
    )  # fmt: skip


async def _first_token_ms(port: int, model: str) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic_ns()
    writer.write(_request(model))
    head = await reader.readuntil(b"\r\n\r\n")
    took = (time.monotonic_ns() - began) / 1e6
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    attempts = b"\r\nx-lightgate-attempts: %d\r\n" % (1 if model == "none" else 2)
    if not head.startswith(b"HTTP/1.1 200 ") or attempts not in head:
        raise RuntimeError(f"{model}: this was no rescue: {head!r}")
    return took


async def _leave(port: int, model: str, *, stream: bool) -> int:
    """Ask, wait until the provider has the request, hang up; the instant in nanoseconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_request(model, stream=stream))
    if "stall" in model:
        await reader.readuntil(b"\r\n\r\n")
    else:
        await asyncio.sleep(0.03)
    left = time.monotonic_ns()
    writer.transport.abort()
    return left


async def _closing_ms(port: int, log: str, window: str, count: int) -> list[float]:
    model, stream = WINDOWS[window]
    attempts = 2 if model == "race" else 1
    times = []
    for _ in range(count):
        await asyncio.to_thread(_clear, log)
        left = await _leave(port, model, stream=stream)
        entries: list[dict[str, int]] = []
        while len(entries) < attempts:
            entries = await asyncio.to_thread(_entries, log)
        times.append(max(entry["ended_ns"] - left for entry in entries) / 1e6)
    return times


def _clear(log: str) -> None:
    request = urllib.request.Request(log, method="DELETE")  # noqa: S310 - our own simulator
    urllib.request.urlopen(request).close()  # noqa: S310


def _entries(log: str) -> list[dict[str, int]]:
    with urllib.request.urlopen(log) as answer:  # noqa: S310
        return [entry for entry in json.load(answer)["entries"] if entry["gone"]]


def _row(name: str, values: list[float]) -> float:
    ordered = sorted(values)
    p50, p99 = (ordered[math.ceil(q * len(ordered)) - 1] for q in (0.5, 0.99))
    print(f"| {name} | {len(ordered)} | {p50:.2f} | {p99:.2f} | {ordered[-1]:.2f} |")
    return p99


async def _measure(folder: Path, sim: SimProcess, requests: int) -> bool:
    copies = -(-requests // EACH)
    facts = sim.facts
    config = parse_config(_config(facts.providers["lab"], facts.trouble_ports["refused"], copies))
    put_snapshot(folder, make_snapshot(config, (), {}))
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lightgate.gateway.process.worker", "--data", str(folder),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    if worker.stdout is None:
        raise RuntimeError("The worker has no output to be read.")
    try:
        async with asyncio.timeout(READY_S):
            told = await worker.stdout.readline()
        if not told:
            raise RuntimeError("The worker did not start; its reason is above.")
        port = json.loads(told)["port"]
        times: dict[str, list[float]] = {name: [] for name in ("refused", *FAULTS)}
        without: list[float] = []
        for place in range(requests):
            for name, found in times.items():
                # Second tries are a fifth of the traffic at most: the others earn this one.
                without.extend([await _first_token_ms(port, "none") for _ in range(EARNED_BY)])
                found.append(await _first_token_ms(port, f"{name}-{place // EACH}"))
        plain = sorted(without)[len(without) // 2]
        print(f"an answer without a failure has its first token after {plain:.2f} ms (p50)\n")
        print("| rescue from | n | p50 ms | p99 ms | max ms |\n|---|---|---|---|---|")
        worst = [_row(name, [took - plain for took in times[name]]) for name in times]
        print("\n| client leaves | n | p50 ms | p99 ms | max ms |\n|---|---|---|---|---|")
        log = f"{sim.url}/sim/log"
        closings = {name: await _closing_ms(port, log, name, requests) for name in WINDOWS}
        worst += [_row(name, found) for name, found in closings.items()]
    finally:
        worker.terminate()
        await worker.wait()
    return max(worst) <= ALLOWED_MS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200, help="for each kind")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        world = Path(folder) / "one.toml"
        world.write_text(WORLD)
        with SimProcess(SimOptions(world=str(world), trouble=True)) as sim:
            holds = asyncio.run(_measure(Path(folder) / "data", sim, args.requests))
    print(f"\nevery p99 is within {ALLOWED_MS:g} ms" if holds else "\nTOO SLOW")
    return 0 if holds else 6


if __name__ == "__main__":
    sys.exit(main())
