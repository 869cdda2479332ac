"""The brain live: the same weather, the same requests, one gateway for each policy.

The five providers of tables-2025 under quick weather stand behind one simulator. Every policy has a
worker process of its own, which learns by itself; a paced client of ours asks all of them in the
same rhythm. First tokens are as the client sees them; second attempts and their price are from the
journals.

    python benchmarks/live.py [--seconds 240] [--rate 2]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from lightgate.clock.marks import Marks
from lightgate.config.load import parse_config
from lightgate.dialect.request import Message, Request
from lightgate.gateway.snapshot import make_snapshot, put_snapshot
from lightgate.ledger.journal import journals, read_frames
from lightgate.ledger.note import Settled
from lightgate.provider.call import call
from lightgate.provider.spec import Provider
from lightgate.provider.target import Target
from lightgate.sim.serve import Options
from lightgate.sim.spawn import SimProcess
from lightgate.wire.client import Client
from lightgate.wire.exchange import Deadlines
from lightgate.wire.stamper import best_source

WORLD: Final = """
extends = "weather-2026"
name = "quick-weather"
title = "weather-2026, ten times as changeable"
source = "this benchmark: episodes of 40 s every 3 minutes"
[weather]
good_mean_s = 180.0
bad_mean_s = 40.0
"""
POLICIES: Final = {
    "fixed best": 'policy = "ordered"\nhedge = "off"',
    "fastest": 'policy = "fastest"',
    "voice": 'policy = "voice"',
    "voice, no hedge": 'policy = "voice"\nhedge = "off"',
}
TOKENS: Final = 64
ORDER: Final = ("generalcompute", "groq", "fireworks", "together", "replicate")


def config(providers: dict[str, str], models: dict[str, str], settings: str) -> str:
    """A model `m` over all providers, the best of the tables first."""
    tables = "".join(
        f'[providers.{name}x]\nbase_url = "{url}"\napi_key = "none"\n'
        f'[prices."{name}x/{models[name]}"]\ninput = 1\noutput = 4\n'
        for name, url in providers.items()
    )
    targets = json.dumps([f"{name}x/{models[name]}" for name in providers])
    return f'{tables}[models.m]\ntargets = {targets}\ntimeout = "30s"\n{settings}\n'


def worker(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A worker process and its port."""
    child = subprocess.Popen(
        [sys.executable, "-m", "lightgate.gateway.worker", "--data", str(folder)],
        stdout=subprocess.PIPE,
    )
    if child.stdout is None:
        raise SystemExit("The worker says nothing.")
    return child, json.loads(child.stdout.readline())["port"]


async def visit(client: Client, port: int, found: list[float]) -> None:
    """One request; its time to first token in seconds, infinite for a failure."""
    base = f"http://127.0.0.1:{port}/v1"
    provider = Provider(name="gate", title="The gateway", base_url=base, auth="none")
    target = Target(name="gate/m", provider=provider, model="m", base_url=base)
    said = (Message(role="user", content="Say something."),)
    request = Request(model="m", messages=said, max_tokens=TOKENS)
    marks = Marks()
    deadlines = Deadlines(first_byte_s=35.0, total_s=40.0)
    called = await call(target, request, marks, client=client, deadlines=deadlines)
    good = called.error is None and marks.first is not None and marks.send is not None
    found.append((marks.first - marks.send) / 1e9 if good else float("inf"))  # type: ignore[operator]


async def drive(ports: dict[str, int], seconds: float, rate: float) -> dict[str, list[float]]:
    """Ask every gateway at the same instants."""
    client = Client(stamp=best_source())
    found: dict[str, list[float]] = {name: [] for name in ports}
    dice = random.Random(1)  # noqa: S311 - the same rhythm every time
    tasks: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    try:
        while loop.time() < end:
            for name, port in ports.items():
                task = loop.create_task(visit(client, port, found[name]))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(dice.expovariate(rate))
        if tasks:
            await asyncio.wait(tasks, timeout=45)
    finally:
        await client.close()
    return found


def books(folder: Path) -> dict[str, float]:
    """Second attempts and what they cost, by the journal."""
    notes = [note for path in journals(folder / "journal") for note, _ in read_frames(path)]
    settled = [n for n in notes if isinstance(n, Settled) and n.exchange.policy != "probe"]
    probes = [n for n in notes if isinstance(n, Settled) and n.exchange.policy == "probe"]
    beside = sum(a.facts.role in {"hedge", "racer"} for n in settled for a in n.attempts)
    won = sum(n.exchange.cost_nano or 0 for n in settled) or 1
    lost = sum(n.exchange.loser_cost_nano or 0 for n in settled)
    return {
        "duplicates": beside / max(1, len(settled)),
        "lost": lost / won,
        "probes": sum(n.exchange.cost_nano or 0 for n in probes) / won,
    }


def quantile(values: list[float], q: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--rate", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "world.toml").write_text(WORLD)
        options = Options(world=str(folder / "world.toml"), seed=given.seed)
        with SimProcess(options) as sim:
            from lightgate.sim.world import load

            makers = load(options.world).providers
            models = {maker: next(iter(makers[maker].models)) for maker in makers}
            ranked = sorted(sim.facts.providers, key=lambda n: ORDER.index(n) if n in ORDER else 9)
            providers = {maker: sim.facts.providers[maker] for maker in ranked}
            children, ports = [], {}
            try:
                for policy, settings in POLICIES.items():
                    data = folder / policy.replace(" ", "-").replace(",", "")
                    text = config(providers, models, settings)
                    put_snapshot(data, make_snapshot(parse_config(text), (), {}))
                    child, ports[policy] = worker(data)
                    children.append(child)
                found = asyncio.run(drive(ports, given.seconds, given.rate))
            finally:
                for child in children:
                    child.terminate()
                for child in children:
                    child.wait(40)
            for policy, values in found.items():
                data = folder / policy.replace(" ", "-").replace(",", "")
                over = sum(value > 1.0 for value in values) / max(1, len(values))
                failed = sum(value == float("inf") for value in values)
                rows.append(
                    {
                        "policy": policy,
                        "n": len(values),
                        "p50": quantile(values, 0.5),
                        "p95": quantile(values, 0.95),
                        "p99": quantile(values, 0.99),
                        "over_1s": over,
                        "failed": failed,
                        **books(data),
                    }
                )
    if given.json:
        print(json.dumps(rows))
        return
    print("| policy | n | TTFT p50 / p95 / p99 s | over 1 s | failed | second | lost | probes |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['policy']} | {row['n']} | {row['p50']:.2f} / {row['p95']:.2f} /"
            f" {row['p99']:.2f} | {row['over_1s']:.1%} | {row['failed']} |"
            f" {row['duplicates']:.1%} | {row['lost']:.1%} | {row['probes']:.2%} |"
        )


if __name__ == "__main__":
    main()
