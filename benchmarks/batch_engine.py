"""How well the gates of a batch job do, told nothing: against the best fixed concurrency.

    python benchmarks/batch_engine.py                  virtual time: limits-2026 and queues-2026
    python benchmarks/batch_engine.py --sequential     one after the other, 8, 32, gates
    python benchmarks/batch_engine.py --compare TARGET one after the other, and in parallel
    python benchmarks/batch_engine.py --kills 50 --lines 100000

The first two run the real engine and gates against the simulated providers without sockets: the
same figures on every machine. The third sends the same lines twice to any target of `lightgate
batch run`. The last kills `lightgate batch run` at random instants and checks the files.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from lightgate.batch.engine import BatchEngine, BatchOrder, Surroundings
from lightgate.batch.journal import Checkpoint
from lightgate.batch.lines import BatchLine
from lightgate.batch.share import BatchLane
from lightgate.batch.simulated import SimulatedSender
from lightgate.batch.virtual import LoopClock, VirtualLoop, run_virtual
from lightgate.route.admission.admission import Admission
from lightgate.sim.world_file import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.sim.world import World

FIXED: Final = (1, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
LENGTHS: Final = (50, 100, 150, 200, 300)  # tokens of an answer
FIRST_S: Final = 60.0
WHOLE_S: Final = 180.0
LIMITED: Final = ("openai", "anthropic", "google", "groq", "together", "cohere")
QUEUED: Final = ("amber", "birch", "cedar", "delta")
WORLD: Final = """
name = "quick"
title = "One quick engine"
source = "made for this program"
[providers.lab]
slots = 64
[providers.lab.models.m]
exact = { ttft_ms = 20, gap_ms = 0.5 }
price = { input = 1.0, output = 4.0 }
"""


def lines() -> Iterator[BatchLine]:
    for number in itertools.count(1):
        text = f"Question {number}: " + "how fast is this? " * 20
        body = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": LENGTHS[number % len(LENGTHS)],
        }
        yield BatchLine(number, f"q{number}", "openai-chat", json.dumps(body).encode())


class Seen(NamedTuple):
    """What came of one way to send: tokens a second, refusals, seconds of an answer."""

    first: float
    later: float
    refused: float
    p95: float
    in_flight: int

    @classmethod
    def of(cls, log: list[tuple[float, float, str, int]], in_flight: int) -> Seen:
        """Work the figures out from a sender's log."""

        def rate(begin: float, end: float) -> float:
            return sum(one[3] for one in log if one[2] == "ok" and begin <= one[1] < end) / (
                end - begin
            )

        times = sorted(one[1] - one[0] for one in log if one[2] == "ok" and one[0] >= FIRST_S)
        return cls(
            rate(0.0, FIRST_S),
            rate(FIRST_S, WHOLE_S),
            sum(one[2] == "refused" for one in log) / max(1, len(log)),
            times[int(0.95 * len(times))] if times else float("nan"),
            in_flight,
        )


def by_gates(world: World, provider: str, model: str, seed: int = 1) -> Seen:
    loop = VirtualLoop()
    clock = LoopClock(loop)
    sender = SimulatedSender(world, provider, model, clock, seed)
    lane = BatchLane(provider, sender, sender.cost_nano, Admission())

    async def work(folder: Path) -> None:
        with Checkpoint(folder / "out", folder / "errors", wall_ns=0) as files:
            order = BatchOrder(sync_s=0.0)
            engine = BatchEngine(lines(), 10**6, [lane], files, order, Surroundings(clock))
            loop.call_later(WHOLE_S, engine.cut)
            await engine.run()

    with tempfile.TemporaryDirectory() as folder:
        run_virtual(loop, work(Path(folder)))
    return Seen.of(sender.log, round(lane.gates.most))


def fixed(world: World, provider: str, model: str, workers: int, seed: int = 1) -> Seen:
    """A closed loop of so many workers; a refused one waits as long as it is told."""
    loop = VirtualLoop()
    sender = SimulatedSender(world, provider, model, LoopClock(loop), seed)
    source = lines()

    async def work_on() -> None:
        for line in source:
            answer = await sender(line, "", 0)
            while answer.end != "ok":
                await asyncio.sleep(answer.wait_s or 1.0)
                answer = await sender(line, "", 0)

    async def all_of_them() -> None:
        tasks = [loop.create_task(work_on()) for _ in range(workers)]
        await asyncio.sleep(WHOLE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(loop, all_of_them())
    return Seen.of(sender.log, workers)


def told_nothing(seed: int) -> bool:
    good = True
    print(f"tokens/s in the first {FIRST_S:.0f} s and from then to {WHOLE_S:.0f} s; virtual time")
    print(
        "| provider | best fixed | in flight | its tokens/s | gates: first | gates: then | share"
        " | refused | p95 s | idle p95 s | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, providers in (("limits-2026", LIMITED), ("queues-2026", QUEUED)):
        world = load(name)
        for provider in providers:
            model = next(iter(world.providers[provider].models))
            tried = [fixed(world, provider, model, workers, seed) for workers in FIXED]
            best = max(tried, key=lambda one: one.later)
            gates = by_gates(world, provider, model, seed)
            share, ratio = gates.later / best.later, gates.p95 / tried[0].p95
            queue = name == "queues-2026"
            good &= share >= 0.9 and gates.refused <= 0.02 and (not queue or ratio <= 1.3)
            print(
                f"| {provider} | {best.in_flight} | {gates.in_flight} | {best.later:,.0f} |"
                f" {gates.first:,.0f} | {gates.later:,.0f} | {share:.1%} | {gates.refused:.2%} |"
                f" {gates.p95:.2f} | {tried[0].p95:.2f} | {ratio:.2f} |"
            )
    print(
        "held" if good else "MISSED", "- share >= 90 %, refused <= 2 %, with a queue ratio <= 1.3"
    )
    return good


def sequential(count: int) -> bool:
    """Answer the same lines one after the other, by fixed numbers of workers, and by the gates."""
    world = load("providers-2026")
    print(f"{count} lines; seconds until the last answer, and times as fast; virtual time")
    print("| target | one after the other | 8 at once | 32 at once | gates | most in flight |")
    print("|---|---|---|---|---|---|")
    for provider in (*LIMITED, "runpod-h100", "home-4090"):
        model = next(iter(world.providers[provider].models))
        first = workers_for(world, provider, model, 1, count)
        ways = [workers_for(world, provider, model, workers, count) for workers in (8, 32)]
        seconds, most = gates_for(world, provider, model, count)
        said = " | ".join(f"{one:,.0f} s, {first / one:.1f} x" for one in (*ways, seconds))
        print(f"| {provider}/{model} | {first:,.0f} s | {said} | {most} |")
    return True


def workers_for(world: World, provider: str, model: str, workers: int, count: int) -> float:
    """Return the seconds that a fixed number of workers needs."""
    loop = VirtualLoop()
    sender = SimulatedSender(world, provider, model, LoopClock(loop))
    source = itertools.islice(lines(), count)

    async def work_on() -> None:
        for line in source:
            await sender(line, "", 0)

    async def all_of_them() -> float:
        await asyncio.gather(*(work_on() for _ in range(workers)))
        return loop.time()

    return run_virtual(loop, all_of_them())


def gates_for(world: World, provider: str, model: str, count: int) -> tuple[float, int]:
    """Return the seconds that the engine needs, and the most that it had in flight."""
    loop = VirtualLoop()
    clock = LoopClock(loop)
    sender = SimulatedSender(world, provider, model, clock)
    lane = BatchLane(provider, sender, sender.cost_nano, Admission())

    async def work(folder: Path) -> float:
        with Checkpoint(folder / "out", folder / "errors", wall_ns=0) as files:
            source = itertools.islice(lines(), count)
            order = BatchOrder(sync_s=0.0)
            await BatchEngine(source, count, [lane], files, order, Surroundings(clock)).run()
        return loop.time()

    with tempfile.TemporaryDirectory() as folder:
        return run_virtual(loop, work(Path(folder))), lane.most_in_flight


def write_file(path: Path, count: int) -> None:
    with path.open("w") as file:
        for line in itertools.islice(lines(), count):
            body = json.loads(line.body)
            whole = {"custom_id": line.custom_id, "method": "POST", "url": line.url, "body": body}
            file.write(json.dumps(whole) + "\n")


def batch_run(
    folder: Path, *options: str, out: IO[bytes] | int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "lightgate", "batch", "run", "in.jsonl", *options]
    return subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.DEVNULL)


def compare(targets: list[str], count: int) -> bool:
    """Send the same lines one after the other, then in parallel."""
    print("| way | lines | seconds | lines/s | tokens/s | times as fast |")
    print("|---|---|---|---|---|---|")
    first = 0.0
    for way, more in (("one after the other", ("--max-inflight", "1")), ("in parallel", ())):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_file(folder / "in.jsonl", count)
            child = batch_run(folder, *targets, "--json", "--no-ledger", *more)
            said: dict[str, Any] = json.loads(child.communicate()[0])
        seconds = said["seconds"]
        first = first or seconds
        print(
            f"| {way} | {said['answered']} | {seconds:.1f} | {said['answered'] / seconds:.2f} |"
            f" {said['tokens_per_s']:.0f} | {first / seconds:.1f} |"
        )
    return True


def peak_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except OSError:
        return 0.0
    found = [row for row in status.splitlines() if row.startswith("VmHWM")]
    return int(found[0].split()[1]) / 1024 if found else 0.0


def kills(count: int, total: int, seed: int) -> bool:
    """Kill a job at random instants; then every line is there once, and paid once."""
    from lightgate.sim.server.serve import SimOptions
    from lightgate.sim.server.spawn import SimProcess

    dice = random.Random(seed)  # noqa: S311 - instants of kills
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_file(folder / "in.jsonl", total)
        (folder / "world.toml").write_text(WORLD)
        (folder / "lightgate.toml").write_text(
            '[prices."lab/m"]\ninput = 1.0\noutput = 4.0\n[providers.lab]\napi_key = "none"\n'
            'base_url = "http://127.0.0.1:1/v1"\n'
        )
        with SimProcess(SimOptions(world=str(folder / "world.toml"))) as sim:
            base = f"http://{sim.facts.host}:{sim.facts.port}/lab/v1"
            toml = folder / "lightgate.toml"
            toml.write_text(toml.read_text().replace("http://127.0.0.1:1/v1", base))
            peak = _killed_often(folder, count, dice)
            began = time.monotonic()
            with (folder / "summary.json").open("wb") as out:
                child = batch_run(folder, "lab/m", "--json", out=out)
                peak = max(peak, _watched(child, float("inf")))
            said = json.loads((folder / "summary.json").read_bytes())
            print(f"the last start took {time.monotonic() - began:.0f} s")
        return _is_whole(folder, total, said, peak, count)


def _killed_often(folder: Path, count: int, dice: random.Random) -> float:
    peak = 0.0
    for _ in range(count):
        child = batch_run(folder, "lab/m")
        peak = max(peak, _watched(child, time.monotonic() + dice.uniform(0.3, 6.0)))
        child.kill()
        child.communicate()
    return peak


def _watched(child: subprocess.Popen[bytes], until: float) -> float:
    """Wait for an end or an instant; return the most memory that the process had, in MB."""
    peak = 0.0
    while time.monotonic() < until and child.poll() is None:
        peak = max(peak, peak_mb(child.pid))
        time.sleep(0.05)
    return peak


def _is_whole(folder: Path, total: int, said: dict[str, Any], peak: float, count: int) -> bool:
    results = folder / "in.results.jsonl"
    with results.open() as file:
        ids = Counter(json.loads(line)["custom_id"] for line in file)
    once = ids == Counter(f"q{number}" for number in range(1, total + 1))
    base = sqlite3.connect(folder / "lightgate-data" / "ledger.sqlite")
    (nano,) = base.execute("SELECT sum(cost_nano) FROM attempt_notes").fetchone()
    base.close()
    paid = round(said["cost_usd"] * 1e9)
    print(f"{count} kills, {total:,} lines, peak of {peak:.0f} MB")
    print(f"every line once: {once}; failed: {said['failed']}; sent again: {said['resent']}")
    print(f"ledger {nano / 1e9:.9f} dollars, lines {paid / 1e9:.9f} dollars")
    return once and nano == paid and peak <= 200.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--compare", nargs="+", metavar="TARGET")
    parser.add_argument("--sequential", action="store_true")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--lines", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.compare:
        good = compare(given.compare, given.lines)
    elif given.sequential:
        good = sequential(given.lines)
    elif given.kills is not None:
        good = kills(given.kills, given.lines, given.seed)
    else:
        good = told_nothing(given.seed)
    return 0 if good else 6


if __name__ == "__main__":
    raise SystemExit(main())
