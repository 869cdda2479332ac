"""The brain live: the same weather, the same requests, one gateway for each policy.

The five providers of tables-2025 under weather stand behind one simulator for each seed. Every
policy has a worker process of its own there, which begins without a prior and learns by itself,
probes included; a paced client of ours asks all of them at the same instants. First tokens are as
the client sees them; second attempts and their price are from the journals.

    python benchmarks/live.py [--seconds 240] [--rate 2] [--seeds 3] [--world quick|T4|queue]

The world `queue` has four engines with eight slots and a queue each (queues-2026), at 80 % of what
they can serve unless a rate is given. There every policy has a simulator of its own: in a shared
one each would stand in the others' queues.

Exit code 6 if hedges are more than 15 % of the requests of a gateway, or what was lost with them
more than 10 % of what its answers cost; in `queue` also if a learned policy's TTFT p95 is over
1.5 s, or a request fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lightgate.bench.rehearse.conditions import service_s
from lightgate.clock.marks import Marks
from lightgate.config.load import parse_config
from lightgate.dialect.request import Message, Request
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot
from lightgate.ledger.journal.journal import journals, read_frames
from lightgate.ledger.journal.notes import Settled
from lightgate.provider.call import call
from lightgate.provider.catalogue import Provider
from lightgate.provider.target import Target
from lightgate.route.plan.hedge import SHARE, SPEND
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess
from lightgate.sim.weather import SpeedCurve
from lightgate.sim.world_file import load
from lightgate.wire.client.client import Client
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.link.stamper import best_source

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK: Final = """
extends = "weather-2026"
name = "quick-weather"
title = "weather-2026, ten times as changeable, and bad twice as often"
source = "this benchmark: episodes of 40 s every 3 minutes"
[weather]
good_mean_s = 180.0
bad_mean_s = 40.0
"""
WORLDS: Final = {
    "quick": QUICK,
    "T4": 'extends = "weather-2026"\nname = "t4"\n',
    "queue": 'extends = "queues-2026"\nname = "queue"\n',
}
QUEUED: Final = "queue"
SHARE_OF_CAPACITY: Final = 0.8
QUEUE_P95_S: Final = 1.5
POLICIES: Final = {
    "fixed best": 'policy = "ordered"\nhedge = "off"',
    "chat": 'policy = "chat"',
    "fastest": 'policy = "fastest"',
    "voice": 'policy = "voice"',
    "voice, no hedge": 'policy = "voice"\nhedge = "off"',
}
# What the brain must hold in T4, rehearsed: TTFT p95 and p99 in seconds, share over 1 s.
LIMITS: Final = {"p95": 0.55, "p99": 1.05, "over_1s": 0.012}
TOKENS: Final = 64
ORDER: Final = ("generalcompute", "groq", "fireworks", "together", "replicate")


class Gate(NamedTuple):
    """One gateway under one sky."""

    policy: str
    data: Path
    port: int
    found: list[float]  # seconds to the first token; infinite for a failure


def config(providers: dict[str, str], models: dict[str, str], settings: str) -> str:
    """A model `m` over all providers, the best of the tables first."""
    tables = "".join(
        f'[providers.{name}x]\nbase_url = "{url}"\napi_key = "none"\n'
        f'[prices."{name}x/{models[name]}"]\ninput = 1\noutput = 4\n'
        for name, url in providers.items()
    )
    targets = json.dumps([f"{name}x/{models[name]}" for name in providers])
    return f'{tables}[models.m]\ntargets = {targets}\ntimeout = "30s"\n{settings}\n'


@contextmanager
def worker(folder: Path) -> Iterator[int]:
    """A worker process; its port."""
    child = subprocess.Popen(
        [sys.executable, "-m", "lightgate.gateway.process.worker", "--data", str(folder)],
        stdout=subprocess.PIPE,
    )
    try:
        if child.stdout is None:
            raise SystemExit("The worker says nothing.")
        yield json.loads(child.stdout.readline())["port"]
    finally:
        child.terminate()
        child.wait(40)


def under_one_sky(stack: ExitStack, folder: Path, world: str, seed: int) -> list[Gate]:
    """One simulator, or with queues one for each policy, and a gateway for every policy."""
    folder.mkdir(parents=True)
    (folder / "world.toml").write_text(WORLDS[world])
    options = SimOptions(world=str(folder / "world.toml"), seed=seed)
    if world != QUEUED:
        return gateways(stack, folder, options, POLICIES)
    return [
        gate
        for policy, settings in POLICIES.items()
        if "ordered" not in settings  # would stand in its own queue until every request has failed
        for gate in gateways(stack, folder, options, {policy: settings})
    ]


def gateways(
    stack: ExitStack, folder: Path, options: SimOptions, policies: dict[str, str]
) -> list[Gate]:
    """A simulator and a gateway for each of these policies before it."""
    sim = stack.enter_context(SimProcess(options))
    makers = load(options.world).providers
    models = {maker: next(iter(makers[maker].models)) for maker in makers}
    ranked = sorted(sim.facts.providers, key=lambda n: ORDER.index(n) if n in ORDER else 9)
    providers = {maker: sim.facts.providers[maker] for maker in ranked}
    gates = []
    for policy, settings in policies.items():
        data = folder / policy.replace(" ", "-").replace(",", "")
        text = config(providers, models, settings)
        put_snapshot(data, make_snapshot(parse_config(text), (), {}))
        gates.append(Gate(policy, data, stack.enter_context(worker(data)), []))
    return gates


def usual_rate(world: str) -> float:
    """The requests a second for each gateway: 2, or a share of what all slots can serve."""
    if world != QUEUED:
        return 2.0
    served = 0.0
    for maker in load("queues-2026").providers.values():
        model = next(iter(maker.models.values()))
        served += (maker.slots or 0) / service_s(SpeedCurve(model.curve).at(1), TOKENS)
    return SHARE_OF_CAPACITY * served


async def visit(client: Client, gate: Gate) -> None:
    """One request."""
    base = f"http://127.0.0.1:{gate.port}/v1"
    provider = Provider(name="gate", title="The gateway", base_url=base, auth="none")
    target = Target(name="gate/m", provider=provider, model="m", base_url=base)
    said = (Message(role="user", content="Say something."),)
    request = Request(model="m", messages=said, max_tokens=TOKENS)
    marks = Marks()
    deadlines = Deadlines(first_byte_s=35.0, total_s=40.0)
    called = await call(target, request, marks, client=client, deadlines=deadlines)
    good = called.error is None and marks.first is not None and marks.send is not None
    gate.found.append((marks.first - marks.send) / 1e9 if good else float("inf"))  # type: ignore[operator]


async def drive(gates: list[Gate], seconds: float, rate: float) -> None:
    """Ask every gateway at the same instants."""
    client = Client(stamp=best_source())
    dice = random.Random(1)  # noqa: S311 - the same rhythm every time
    tasks: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    try:
        while loop.time() < end:
            for gate in gates:
                task = loop.create_task(visit(client, gate))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(dice.expovariate(rate))
        if tasks:
            await asyncio.wait(tasks, timeout=45)
    finally:
        await client.close()


class Book(NamedTuple):
    """What one gateway wrote down; nano-dollars."""

    requests: int
    hedged: int
    won: int
    lost: int  # whatever was paid beside the answers
    lost_hedged: int  # of it, where a hedge had started
    probes: int
    late: int  # first tokens that did not come in time
    held: int  # requests while a target was left alone

    def __add__(self, other: object) -> Book:
        """Both together."""
        if not isinstance(other, Book):
            return NotImplemented
        return Book(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def shares(self) -> dict[str, float]:
        """Of requests, and of what the answers cost."""
        requests, won = max(1, self.requests), max(1, self.won)
        return {
            "hedged": self.hedged / requests,
            "lost_hedged": self.lost_hedged / won,
            "lost": self.lost / won,
            "probes": self.probes / won,
            "late": self.late / requests,
            "held": self.held / requests,
        }


def book(folder: Path) -> Book:
    """Read the journals of one gateway."""
    notes = [note for path in journals(folder / "journal") for note, _ in read_frames(path)]
    settled = [note for note in notes if isinstance(note, Settled)]
    asked = [note for note in settled if note.exchange.policy != "probe"]
    hedged = [n for n in asked if any(a.facts.role == "hedge" for a in n.attempts)]
    return Book(
        requests=len(asked),
        hedged=len(hedged),
        won=sum(n.exchange.cost_nano or 0 for n in asked),
        lost=sum(n.exchange.loser_cost_nano or 0 for n in asked),
        lost_hedged=sum(n.exchange.loser_cost_nano or 0 for n in hedged),
        probes=sum(n.exchange.cost_nano or 0 for n in settled if n.exchange.policy == "probe"),
        late=sum(a.outcome == "timeout" and a.first is None for n in asked for a in n.attempts),
        held=sum(" held" in n.exchange.plan for n in asked),
    )


def quantile(values: list[float], q: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def mean(values: list[float]) -> float:
    """Of all seeds."""
    return sum(values) / len(values)


def row(policy: str, gates: list[Gate]) -> dict[str, Any]:
    """One policy under every sky: means over the seeds, and the worst of the shares with a cap."""
    mine = [gate for gate in gates if gate.policy == policy]
    books = [book(gate.data) for gate in mine]
    total = books[0]
    for other in books[1:]:
        total += other
    found = [gate.found for gate in mine]
    return {
        "policy": policy,
        "n": sum(len(values) for values in found),
        **{f"p{q}": mean([quantile(values, q / 100) for values in found]) for q in (50, 95, 99)},
        "over_1s": mean([sum(v > 1.0 for v in values) / len(values) for values in found]),
        "failed": sum(value == float("inf") for values in found for value in values),
        **total.shares,
        "most_hedged": max(each.shares["hedged"] for each in books),
        "most_lost_hedged": max(each.shares["lost_hedged"] for each in books),
    }


def show(rows: list[dict[str, Any]], world: str) -> None:
    """Print the table, then what has to hold."""
    print(
        "| policy | n | TTFT p50 / p95 / p99 s | over 1 s | failed | hedged | lost by hedges |"
        " lost in all | probes | late | held |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )
    for row in rows:
        print(
            f"| {row['policy']} | {row['n']} | {row['p50']:.2f} / {row['p95']:.2f} /"
            f" {row['p99']:.2f} | {row['over_1s']:.1%} | {row['failed']} | {row['hedged']:.1%} |"
            f" {row['lost_hedged']:.1%} | {row['lost']:.1%} | {row['probes']:.2%} |"
            f" {row['late']:.2%} | {row['held']:.1%} |"
        )
    if world == QUEUED:
        return
    print(f"\nT4's limits, rehearsed with a prior, beside {world} live without one:")
    for row in rows:
        words = [
            f"{name} {row[name]:.3g} {'<=' if row[name] <= limit else '>'} {limit:g}"
            for name, limit in LIMITS.items()
        ]
        print(f"  {row['policy']}: {', '.join(words)}")


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--rate", type=float, help="of each gateway  [default: 2; queue: 80 %%]")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=3, help="how many, all at once")
    parser.add_argument("--world", choices=sorted(WORLDS), default="quick")
    parser.add_argument("--keep", type=Path, help="leave the journals in this new folder")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with ExitStack() as stack:
        home = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with ExitStack() as running:
            gates = [
                gate
                for seed in range(given.seed, given.seed + given.seeds)
                for gate in under_one_sky(running, home / str(seed), given.world, seed)
            ]
            rate = given.rate or usual_rate(given.world)
            asyncio.run(drive(gates, given.seconds, rate))
        rows = [row(policy, gates) for policy in dict.fromkeys(gate.policy for gate in gates)]
    if given.json:
        print(json.dumps(rows))
    else:
        show(rows, given.world)
    over = [
        each["policy"]
        for each in rows
        if each["most_hedged"] > SHARE or each["most_lost_hedged"] > SPEND
    ]
    if over:
        print(f"Hedges went over their cap: {', '.join(over)}.", file=sys.stderr)
    slow = [each["policy"] for each in rows if each["p95"] > QUEUE_P95_S or each["failed"]]
    if given.world == QUEUED and slow:
        print(f"First tokens were late or failed in the queue: {', '.join(slow)}.", file=sys.stderr)
        return 6
    return 6 if over else 0


if __name__ == "__main__":
    sys.exit(main())
