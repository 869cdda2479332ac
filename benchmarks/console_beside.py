"""What the data plane notices of the console, and how soon a page is painted.

    python benchmarks/console_beside.py [--blocks 8] [--seconds 15] [--rate 40] [--json]

A gateway with one worker in front of a simulated API, and its console on a ledger with two weeks of
traffic. Clients ask at random instants (Poisson). During every other block the console is asked in
a loop as its pages ask: the board of 14 days, series, requests, failures, never the same question
twice. The overhead is what the gateway itself says in `x-lightgate-overhead-ms`. Then every page is
opened five times by Chromium, each time anew, for its first contentful paint. Exit code 6 if p99 of
the overhead is more than 10 % above that without the console, or a page's median paint takes more
than a second; 7 if the client itself was so late that the p99 says nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import overhead
from batch_beside import LATE_MS, SETTLE_S, body_of, child, now_s, watch

from lightgate.clock.source import SYSTEM
from lightgate.config.load import parse_config
from lightgate.console.site.pages import PAGES
from lightgate.gateway.served.inner import new_secret
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST: Final = 1.10
PAINT_MS: Final = 1000.0
LOADS: Final = 5
KEPT: Final = 20_000  # exchanges in the ledger
QUESTIONS: Final = (
    "/api/board?from=-14d", "/api/requests?from=-24h", "/api/series?from=-7d",
    "/api/requests?from=-14d&outcome=bad", "/api/board?from=-24h&use=voice", "/metrics?",
)  # fmt: skip
WORLD: Final = """
name = "console"
title = "An API"
source = "benchmarks/console_beside.py"

[providers.api.models.m]
exact = { ttft_ms = 40, gap_ms = 2 }
shape = { tokens = 20 }
"""
_OVERHEAD: Final = re.compile(rb"x-lightgate-overhead-ms: ([0-9.]+)")
_PAINT: Final = """() => new Promise((told) => {
  new PerformanceObserver((list) => {
    for (const one of list.getEntries())
      if (one.name === "first-contentful-paint") told(one.startTime);
  }).observe({ type: "paint", buffered: true });
})"""


async def ask(port: int, body: bytes) -> float | None:
    """Milliseconds that the gateway says it added to an answer; None where it failed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    try:
        told = _OVERHEAD.search(await reader.read())
    finally:
        writer.close()
    return None if told is None else float(told[1])


async def query(port: int, path: str) -> None:
    """Ask the console."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    if b" 200 " not in answer[:20]:
        raise RuntimeError(f"{path}: {answer[:200]!r}")


async def load(port: int, dice: random.Random, given: Any) -> list[float]:
    """Ask the gateway at random instants for a block; the overheads after it has settled."""
    body, tasks = body_of("api", stream=False), []
    start = at = now_s()
    while at - start < given.seconds + SETTLE_S:
        at += dice.expovariate(given.rate)
        await asyncio.sleep(max(0.0, at - now_s()))
        tasks.append((at - start, asyncio.create_task(ask(port, body))))
    found = [(when, await task) for when, task in tasks]
    if failed := sum(seen is None for _, seen in found):
        print(f"{failed} requests failed", file=sys.stderr)
    return [seen for when, seen in found if seen is not None and when >= SETTLE_S]


async def beside(port: int, console: int, dice: random.Random, given: Any) -> tuple[Any, int]:
    """The same while the console is asked in a loop; the overheads and the number of questions."""
    asked = 0

    async def loop() -> None:
        nonlocal asked
        for number in itertools.count(1):
            path = QUESTIONS[number % len(QUESTIONS)]
            await query(console, f"{path}&unlike={number}")
            asked += 1

    asking = asyncio.create_task(loop())
    found = await load(port, dice, given)
    if asking.done():
        await asking
    asking.cancel()
    return found, asked


async def compare(port: int, console: int, given: Any) -> dict[str, Any]:
    """Blocks without and with questions to the console, one after the other."""
    dice = random.Random(given.seed)  # noqa: S311 - a benchmark
    await load(port, dice, argparse.Namespace(seconds=2.0, rate=given.rate))
    late: list[float] = []
    watching = asyncio.create_task(watch(late))
    alone: list[float] = []
    asked: list[float] = []
    questions = 0
    for _ in range(given.blocks // 2):
        alone += await load(port, dice, given)
        more, count = await beside(port, console, dice, given)
        asked += more
        questions += count
    watching.cancel()
    figures: dict[str, Any] = {
        "n": [len(alone), len(asked)],
        "questions_per_s": questions / (given.blocks // 2 * (given.seconds + SETTLE_S)),
        "client_late_ms_p99": overhead.quantile(late, 0.99),
    }
    for share in (50, 95, 99):
        pair = [overhead.quantile(part, share / 100) for part in (alone, asked)]
        figures[f"overhead_ms_p{share}"] = [*pair, pair[1] / pair[0]]
    return figures


def paints(console: int) -> dict[str, float]:
    """The median first contentful paint of every page, in ms; nothing without a browser."""
    path = shutil.which("chromium")
    if path is None:
        return {}
    from playwright.sync_api import sync_playwright

    found = {}
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        for page in PAGES:
            seen = []
            for _ in range(LOADS):
                shown = browser.new_page()
                shown.goto(f"http://127.0.0.1:{console}{page.path}")
                seen.append(float(shown.evaluate(_PAINT)))
                shown.close()
            found[page.name] = statistics.median(seen)
        browser.close()
    return found


def measure(given: Any) -> dict[str, Any]:
    """Start everything, measure both."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        world, data = Path(folder) / "world.toml", Path(folder) / "data"
        world.write_text(WORLD, "utf-8")
        sim = stack.enter_context(SimProcess(SimOptions(world=str(world))))
        text = f'[providers.api]\nbase_url = "{sim.facts.providers["api"]}"\napi_key = "none"\n'
        put_snapshot(data, make_snapshot(parse_config(text), (), {}))
        traffic.fill(data, SYSTEM.wall_ns() // 10**9, KEPT)
        secret, where = new_secret(), ("--data", str(data))
        worker = child(secret, "lightgate.gateway.process.worker", *where)
        port = stack.enter_context(worker)["port"]
        console = child(secret, "lightgate.console", *where, "--port", "0")
        at = stack.enter_context(console)["port"]
        figures = asyncio.run(compare(port, at, given))
        figures["paint_ms"] = paints(at)
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=15.0, help="of one block")
    parser.add_argument("--rate", type=float, default=40.0, help="requests of clients a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    figures = measure(given)
    if given.json:
        print(json.dumps(figures))
    else:
        print(f"{figures['n'][0]} requests alone, {figures['n'][1]} beside"
              f" {figures['questions_per_s']:.1f} questions/s to the console; the client itself was"
              f" {figures['client_late_ms_p99']:.1f} ms late at p99")  # fmt: skip
        for name, row in figures.items():
            if name.startswith("overhead"):
                print(f"  {name:16} {row[0]:8.3f} alone {row[1]:8.3f} beside  x {row[2]:.3f}")
        for name, took in figures["paint_ms"].items():
            print(f"  first paint {name:12} {took:7.0f} ms")
    slow = [name for name, took in figures["paint_ms"].items() if took > PAINT_MS]
    for name in slow:
        print(f"missed: first paint of {name}", file=sys.stderr)
    moved = figures["overhead_ms_p99"][2] > MOST
    if moved:
        print("missed: p99 of the overhead", file=sys.stderr)
    if moved and not slow and figures["client_late_ms_p99"] > LATE_MS:
        print("The client itself was late: too busy a machine to judge by.", file=sys.stderr)
        return 7
    return 6 if moved or slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
