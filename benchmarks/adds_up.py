"""Whether the gateway's own numbers add up: overhead + provider time = what a client outside sees.

A worker in a process of its own stands before the simulator. Another clock, the harness with the
kernel's stamps, measures every request from outside, from its first byte sent to the last byte of
the answer. The gateway's numbers of the same request come from GET /v1/requests/{id}.

    python benchmarks/adds_up.py [--requests 300]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from lightgate.clock.marks import Marks
from lightgate.config.load import parse_config
from lightgate.dialect.request import Message, Request
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.provider.call import Call
from lightgate.provider.catalogue import Provider
from lightgate.provider.prepare import prepare
from lightgate.provider.target import Target
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from lightgate.wire.client.client import Client
from lightgate.wire.client.fetch import fetch
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.link.stamper import best_source
from lightgate.wire.origin import split_url

CONFIG: Final = """
[providers.lab]
base_url = "{url}"
api_key = "none"
[models.plain]
targets = ["lab/s1"]
policy = "ordered"
"""
LIMIT_MS: Final = 0.3
LIMIT_SHARE: Final = 0.02


async def one(client: Client, target: Target, *, stream: bool, tokens: int) -> tuple[str, float]:
    """The id and the outside milliseconds of one request."""
    request = Request(
        model="plain",
        messages=(Message(role="user", content="Say something."),),
        stream=stream,
        max_tokens=tokens,
    )
    marks = Marks()
    call = Call(prepare(target, request), marks)
    called = await call.run(client, Deadlines())
    if called.error is not None or marks.send is None or marks.closed is None:
        raise SystemExit(f"A request failed: {called.error}")
    id_ = next(value for name, value in call.headers if name == b"x-lightgate-id")
    return id_.decode(), (marks.closed - marks.send) / 1e6


async def visitor(
    client: Client, target: Target, count: int, *, stream: bool
) -> list[tuple[str, float]]:
    """Requests one after the other."""
    return [await one(client, target, stream=stream, tokens=5) for _ in range(count)]


async def measure(port: int, requests: int) -> list[dict[str, Any]]:
    """Every load, one after the other."""
    base = f"http://127.0.0.1:{port}/v1"
    provider = Provider(name="gate", title="The gateway", base_url=base, auth="none")
    target = Target(name="gate/plain", provider=provider, model="plain", base_url=base)
    client = Client(stamp=best_source())
    rows = []
    try:
        for stream, width in ((False, 1), (False, 32), (True, 1), (True, 32)):
            each = max(1, requests // width)
            await visitor(client, target, 5, stream=stream)
            came = await asyncio.gather(
                *(visitor(client, target, each, stream=stream) for _ in range(width))
            )
            found = [pair for pairs in came for pair in pairs]
            load = f"{'stream' if stream else 'whole'} c={width}"
            rows.append(await compare(client, base, found, load))
    finally:
        await client.close()
    return rows


async def compare(
    client: Client, base: str, found: list[tuple[str, float]], load: str
) -> dict[str, Any]:
    """The differences between outside and inside, in milliseconds."""
    origin, root = split_url(base)
    off, share, overheads = [], [], []
    for id_, outside_ms in found:
        answer = await fetch(client, origin, f"{root}/requests/{id_}")
        exchange = json.loads(answer.body)["exchange"]
        provider_ms = (exchange["last_in_ns"] - exchange["sent_ns"]) / 1e6
        said = exchange["overhead_ms"] + provider_ms
        off.append(abs(outside_ms - said))
        share.append(off[-1] / outside_ms)
        overheads.append(exchange["overhead_ms"])
    off.sort()
    share.sort()
    overheads.sort()
    n = len(off)
    return {
        "load": load,
        "n": n,
        "off_p50_ms": off[n // 2],
        "off_p99_ms": off[int(0.99 * n)],
        "off_p99_share": share[int(0.99 * n)],
        "overhead_p50_ms": overheads[n // 2],
        "overhead_p99_ms": overheads[int(0.99 * n)],
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, SimProcess(SimOptions(world="selftest")) as sim:
        data = Path(folder)
        text = CONFIG.format(url=sim.facts.providers["lab"])
        put_snapshot(data, make_snapshot(parse_config(text), (), {}))
        worker = subprocess.Popen(
            [sys.executable, "-m", "lightgate.gateway.process.worker", "--data", folder],
            stdout=subprocess.PIPE,
        )
        try:
            if worker.stdout is None:
                raise SystemExit("The worker says nothing.")
            port = json.loads(worker.stdout.readline())["port"]
            rows = asyncio.run(measure(port, given.requests))
        finally:
            worker.terminate()
            worker.wait(10)
    if given.json:
        print(json.dumps(rows))
        return
    print("| load | n | off p50 ms | off p99 ms | of the time | overhead p50, p99 ms | holds |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        holds = row["off_p99_ms"] <= LIMIT_MS or row["off_p99_share"] <= LIMIT_SHARE
        print(
            f"| {row['load']} | {row['n']} | {row['off_p50_ms']:.3f} | {row['off_p99_ms']:.3f} |"
            f" {row['off_p99_share']:.2%} | {row['overhead_p50_ms']:.3f},"
            f" {row['overhead_p99_ms']:.3f} | {'yes' if holds else 'NO'} |"
        )


if __name__ == "__main__":
    main()
