"""What clients notice of a batch: the same interactive load with and without one, in turn.

    python benchmarks/batch_beside.py [--blocks 8] [--seconds 15] [--rate 10] [--json]

A gateway with one worker and its process of batches, in front of two simulated targets: an engine
with sixteen slots and a queue, and an API without a limit. Clients ask the one or the other at
random instants (Poisson), streamed. A batch of thousands of lines for the same target is left
before every other block and cancelled after it. Exit code 6 if the first token or the whole answer
comes more than 5 % later at p99 with the batch than without it, or if the batch does not move; 7 if
the client itself was so late that its p99 says nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import overhead

from lightgate.clock.source import SYSTEM
from lightgate.config.load import parse_config
from lightgate.gateway.batches.records import INPUT, BatchJob, StoredFile, new_id
from lightgate.gateway.batches.store import PART, BatchStore
from lightgate.gateway.process.lock import PARENT_DEATH_ENV
from lightgate.gateway.served.inner import SECRET_ENV, new_secret
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import BatchTerms, put_snapshot
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST = 1.05
LATE_MS = 3.0  # of the client's own loop at p99, in a run that can be judged
LINES = 20_000
SETTLE_S = 3.0  # of each block that are not counted: what was before still runs
WORLD = """
name = "beside"
title = "An engine with a queue, and an API"
source = "benchmarks/batch_beside.py"

[providers.engine]
slots = 16
[providers.engine.models.m]
exact = { ttft_ms = 150, gap_ms = 10 }
shape = { tokens = 20 }
[providers.api.models.m]
exact = { ttft_ms = 150, gap_ms = 10 }
shape = { tokens = 20 }
"""


def now_s() -> float:
    """Seconds of the clock."""
    return SYSTEM.now_ns() / 1e9


class Seen(NamedTuple):
    """One streamed answer: milliseconds to the first event and to the end."""

    first_ms: float
    whole_ms: float


def body_of(target: str, *, stream: bool) -> bytes:
    """A request for twenty tokens."""
    said = [{"role": "user", "content": "Say something."}]
    asked = {"model": f"{target}/m", "messages": said, "max_tokens": 20, "stream": stream}
    return json.dumps(asked).encode()


async def ask(port: int, body: bytes) -> Seen | None:
    """Ask on a connection of its own; None where it failed."""
    begun = now_s()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"data:")
        first = now_s()
        rest = await reader.read()
    except (asyncio.IncompleteReadError, OSError):
        return None
    finally:
        writer.close()
    if b" 200 " not in head.partition(b"\r\n")[0] or b"[DONE]" not in rest:
        return None
    return Seen((first - begun) * 1e3, (now_s() - begun) * 1e3)


async def watch(late: list[float]) -> None:
    """Note how late this loop is, every ten milliseconds."""
    while True:
        due = now_s() + 0.01
        await asyncio.sleep(0.01)
        late.append((now_s() - due) * 1e3)


async def load(port: int, target: str, dice: random.Random, given: Any) -> list[Seen]:
    """Ask at random instants for a block; what was seen after it has settled."""
    body, tasks = body_of(target, stream=True), []
    start = at = now_s()
    while at - start < given.seconds + SETTLE_S:
        at += dice.expovariate(given.rate)
        await asyncio.sleep(max(0.0, at - now_s()))
        tasks.append((at - start, asyncio.create_task(ask(port, body))))
    found = [(when, await task) for when, task in tasks]
    if failed := sum(seen is None for _, seen in found):
        print(f"{failed} requests failed", file=sys.stderr)
    return [seen for when, seen in found if seen is not None and when >= SETTLE_S]


def leave(store: BatchStore, target: str) -> BatchJob:
    """Leave a batch for a target."""
    url, body = "/v1/chat/completions", body_of(target, stream=False).decode()
    text = "".join(
        f'{{"custom_id":"a{n}","method":"POST","url":"{url}","body":{body}}}\n'
        for n in range(LINES)
    ).encode()
    now = store.now_s
    file = StoredFile(
        id=new_id("file-"), owner="", purpose=INPUT, filename="a", size=len(text), created_s=now,
        digest=new_id(""),
    )  # fmt: skip
    part = store.path(file.id + PART)
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(text)
    store.add_file(file, BatchTerms())
    job = BatchJob(
        id=new_id("batch_"), owner="", kind="openai", endpoint=url, input_file=file.id,
        output_file=new_id("file-"), error_file=new_id("file-"), created_s=now,
        expires_s=now + 86_400, keep_s=86_400, digest=new_id(""),
    )  # fmt: skip
    return store.add_job(job, BatchTerms(), repeated=False)


async def end(store: BatchStore, job: BatchJob) -> int:
    """Cancel a batch and wait for its end; the lines that were done."""
    store.change(job.id, lambda now: now.moved("cancelling", store.now_s))
    while True:
        now = store.job("", job.id, "openai")
        if now is None or not now.active:
            return 0 if now is None else now.completed
        await asyncio.sleep(0.05)


@contextlib.contextmanager
def child(secret: str, *words: str) -> Iterator[dict[str, Any]]:
    """A process of the gateway, and the facts of its ready line."""
    process = subprocess.Popen(
        [sys.executable, "-m", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, PARENT_DEATH_ENV: "1", SECRET_ENV: secret},
    )  # fmt: skip
    try:
        if process.stdout is None:
            raise RuntimeError("the child has no output")
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate(timeout=30)


async def compare(port: int, store: BatchStore, target: str, given: Any) -> dict[str, Any]:
    """Measure one target: blocks without and with a batch, one after the other."""
    dice, alone, beside, lines = random.Random(given.seed), [], [], 0  # noqa: S311 - a benchmark
    await load(port, target, dice, argparse.Namespace(seconds=2.0, rate=given.rate))
    late: list[float] = []
    watching = asyncio.create_task(watch(late))
    for _ in range(given.blocks // 2):
        alone += await load(port, target, dice, given)
        job = await asyncio.to_thread(leave, store, target)
        beside += await load(port, target, dice, given)
        lines += await end(store, job)
    watching.cancel()
    figures: dict[str, Any] = {"target": target, "n": [len(alone), len(beside)], "lines": lines}
    figures["client_late_ms_p99"] = overhead.quantile(late, 0.99)
    figures["lines_per_s"] = lines / (given.blocks // 2 * (given.seconds + SETTLE_S))
    for name in Seen._fields:
        for share in (50, 95, 99):
            pair = [
                overhead.quantile([getattr(seen, name) for seen in part], share / 100)
                for part in (alone, beside)
            ]
            figures[f"{name}_p{share}"] = [*pair, pair[1] / pair[0]]
    return figures


async def measure(given: Any) -> list[dict[str, Any]]:
    """Start everything and measure both targets."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        world, data = Path(folder) / "world.toml", Path(folder) / "data"
        world.write_text(WORLD, "utf-8")
        sim = stack.enter_context(SimProcess(SimOptions(world=str(world))))
        text = "".join(
            f'[providers.{name}]\nbase_url = "{sim.facts.providers[name]}"\napi_key = "none"\n'
            for name in ("engine", "api")
        )
        put_snapshot(data, make_snapshot(parse_config(text), (), {}))
        secret, where = new_secret(), ("--data", str(data))
        worker = child(secret, "lightgate.gateway.process.worker", *where)
        port = stack.enter_context(worker)["port"]
        url = f"http://127.0.0.1:{port}"
        stack.enter_context(child(secret, "lightgate.gateway.runner", *where, "--url", url))
        store = BatchStore(data)
        try:
            return [await compare(port, store, target, given) for target in ("engine", "api")]
        finally:
            store.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=15.0, help="of one block")
    parser.add_argument("--rate", type=float, default=10.0, help="requests of clients a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = asyncio.run(measure(given))
    if given.json:
        print(json.dumps(found))
    for figures in () if given.json else found:
        print(f"{figures['target']}: {figures['n'][0]} requests alone, {figures['n'][1]} beside a"
              f" batch that did {figures['lines_per_s']:.1f} lines/s; the client itself was"
              f" {figures['client_late_ms_p99']:.1f} ms late at p99")  # fmt: skip
        for name, row in figures.items():
            if isinstance(row, list) and len(row) == 3:
                print(f"  {name:14} {row[0]:8.1f} ms alone {row[1]:8.1f} ms beside  x {row[2]:.3f}")
    late = [
        f"{figures['target']} {name}"
        for figures in found
        for name in ("first_ms_p99", "whole_ms_p99")
        if figures[name][2] > MOST
    ]
    still = [figures["target"] for figures in found if not figures["lines"]]
    for name in (*late, *still):
        print(f"missed: {name}", file=sys.stderr)
    busy = any(figures["client_late_ms_p99"] > LATE_MS for figures in found)
    if late and busy and not still:
        print("The client itself was late: too busy a machine to judge by.", file=sys.stderr)
        return 7
    return 6 if late or still else 0


if __name__ == "__main__":
    raise SystemExit(main())
