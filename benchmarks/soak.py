"""Soak the gateway: kills, stops, a full disk, bad clients, reloads and restarts at once.

    python benchmarks/soak.py [--minutes 30] [--seed 1] [--clients 32] [--keep FOLDER]

`lightgate up` with two workers and the console, its data on a filesystem that gets full; simulated
providers with faults in another process; clients in four dialects, streamed and whole, raced and
hedged, with budgets, slow, half, leaving, and OpenAI's own SDK. Meanwhile workers and console are
killed and stopped, the disk is filled, the configuration changes or breaks, all processes are
replaced, and `up` itself is restarted and killed, at instants drawn from the seed. In the end the
clients' own books must agree with the ledger, every failure must have a fault that explains it, and
memory, descriptors, files and processes must be back where they were. Exit code 6 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import overhead
import uvloop
from soak_books import Books, Said
from soak_chaos import (
    BEHIND,
    BUDGET_USD,
    CONSOLE,
    DEATH,
    DRAIN_S,
    REMOVED,
    SERVING,
    TAKEN_OVER,
    WORKER,
    WORKERS,
    Chaos,
    Lags,
    SoakDisk,
    SoakGate,
    marked,
)
from soak_clients import TIMEOUT_S, Asked, Traffic, clients

from lightgate.clock.source import SYSTEM
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

WARM_S, REST_S, SAMPLE_S = 20.0, 15.0, 2.0
DISK_MB = 768
RSS_X, RSS_MB = 1.3, 16.0  # back at the start: at most so many times as much and so much more
FILES = 6
STOPPED = (0, 130)  # 130: told to stop before everything was up
SDK = Path(".venv-sdk-openai/bin/python")
APART = "LIGHTGATE_SOAK_APART"
MESSAGE = re.compile(r'"message":"([^"]*)"')
ECHO = """
[providers.{provider}.models.{model}]
exact = {{ ttft_ms = {ttft}, gap_ms = {gap} }}
shape = {{ chunk = 4 }}
turns = [{{ echo = true }}]
"""
WORLD = """
name = "soak"
title = "Providers that say their prompt back, one of them a bad one"
source = "this benchmark"
[providers.claude]
dialect = "anthropic"
[providers.gem]
dialect = "gemini"
[providers.shaky]
faults = [
  { name = "status", arg = "503", share = 0.03 },
  { name = "rate-limited", arg = "1", share = 0.01 },
  { name = "reset", arg = "8", share = 0.03 },
  { name = "truncated", arg = "8", share = 0.03 },
  { name = "stream-error", arg = "8", share = 0.02 },
  { name = "long-length", share = 0.01 },
  { name = "stall", arg = "8,1.5", share = 0.02 },
  { name = "hang", share = 0.005 },
  { name = "garbage", share = 0.01 },
  { name = "early-close", share = 0.01 },
]
""" + "".join(
    ECHO.format(provider=provider, model=model, ttft=ttft, gap=gap)
    for provider, model, ttft, gap in (
        ("good", "fast", 15, 2),
        ("good", "slow", 120, 4),
        ("claude", "fast", 15, 2),
        ("gem", "fast", 15, 2),
        ("shaky", "fast", 10, 2),
    )
)
TARGETS = ("good/fast", "good/slow", "claude/fast", "gem/fast", "shaky/fast")
MODEL_TERMS = {
    "plain": 'targets = ["good/fast"]\npolicy = "ordered"\nhedge = "off"',
    "claude": 'targets = ["claude/fast"]\npolicy = "ordered"\nhedge = "off"',
    "gem": 'targets = ["gem/fast"]\npolicy = "ordered"\nhedge = "off"',
    "pair": 'targets = ["shaky/fast", "good/fast"]\npolicy = "ordered"\nttft_timeout = "2s"',
    "raced": 'targets = ["shaky/fast", "good/fast", "good/slow"]\npolicy = "fastest"\nrace = 2',
    "hedged": 'targets = ["good/slow", "good/fast"]\npolicy = "ordered"\nhedge = "60ms"',
    "cached": 'targets = ["good/fast"]\ncache = { mode = "exact", ttl = "1h" }',
    "extra": 'targets = ["good/fast", "gem/fast"]\npolicy = "fastest"',
}


def config(urls: dict[str, str], data: Path) -> Any:
    """The configuration, with or without the model `extra`."""
    dialects = {"claude": "anthropic", "gem": "gemini"}

    def text(extra: bool) -> str:
        lines = [f'[gateway]\nworkers = {WORKERS}\ndata = "{data}"\ndrain = "{DRAIN_S:g}s"']
        for name, url in urls.items():
            lines.append(f'[providers.{name}]\nbase_url = "{url}"\napi_key = "none"')
            lines.append(f'dialect = "{dialects.get(name, "openai")}"')
        lines += [f'[prices."{target}"]\ninput = 1\noutput = 2' for target in TARGETS]
        for name, terms in MODEL_TERMS.items():
            if extra or name != "extra":
                lines.append(f"[models.{name}]\n{terms}\ntimeout = '{TIMEOUT_S:g}s'")
        return "\n".join(lines) + "\n"

    return text


class Sample(NamedTuple):
    """One process at one moment."""

    role: str
    pid: int
    rss_mb: float
    files: int


def sample(gate: SoakGate) -> list[Sample]:
    """Every process of the tree; helpers that live for a moment are left out."""
    found = []
    for pid in gate.pids():
        command = overhead.command_of(pid)
        role = next((r for r, w in (("worker", WORKER), ("console", CONSOLE)) if w in command), "")
        if gate.child is not None and pid == gate.child.pid:
            role = "supervisor"
        if role:
            found.append(Sample(role, pid, overhead.rss_mb(pid), overhead.open_files(pid)))
    return found


class Soak:
    """One run: its traffic, its chaos, and what was sampled meanwhile."""

    def __init__(self, gate: SoakGate, disk: SoakDisk, options: argparse.Namespace) -> None:
        self.gate, self.disk, self.options = gate, disk, options
        self.traffic = Traffic(gate.port, {}, options.seed)
        self.chaos = Chaos(gate, disk, self.traffic, options.seed)
        self.before: list[Sample] = []
        self.after: list[Sample] = []
        self.peaks: dict[str, Sample] = {}
        self.has_sdk = SDK.exists()
        self.sdk = 0  # requests of OpenAI's SDK
        self.misses: list[str] = []
        self.lags = Lags()

    async def run(self) -> None:
        """Warm up, rest, storm, rest, stop."""
        gate, seconds = self.gate, self.options.minutes * 60.0
        watching = asyncio.ensure_future(self.lags.run())
        for name, terms in (("main", ()), ("racer", ("--race",))):
            self.traffic.keys[name] = await gate.new_key(name, *terms)
        self.traffic.keys["budget-0"] = await gate.new_key("budget-0", "--budget", BUDGET_USD)
        await gate.start()
        await self._load(asyncio.sleep(WARM_S))
        await asyncio.sleep(REST_S)
        self.before = sample(gate)
        sampling = asyncio.ensure_future(self._sampling())
        await self._load(self.chaos.run(seconds))
        sampling.cancel()
        watching.cancel()
        await asyncio.sleep(self.options.quiet)
        self.after = sample(gate)
        self._compare()
        await gate.stop()
        if any(code not in STOPPED for code in gate.stop_codes):
            self.misses.append(f"`lightgate up` ended with {gate.stop_codes}")
        if gate.slow_stops:
            self.misses.append(f"{gate.slow_stops} stops took too long")
        self._judge_reloads()
        if left := [command for _, command in marked(gate.port)]:
            self.misses.append(f"processes left: {left}")

    def _judge_reloads(self) -> None:
        """A reload fails only where the disk, the configuration or a death explains it."""
        others = [
            one
            for one in self.chaos.windows
            if one.kind not in {"reload", "crowd", "new key", DEATH, REMOVED}
        ]
        for began, ended, code in self.chaos.reloads:
            if code and not any(one.began < ended and began < one.ended for one in others):
                self.misses.append(f"`lightgate reload` ended with {code}")

    async def _load(self, while_: Any) -> None:
        """All clients, for as long as something else takes."""
        self.traffic.over = False
        work = clients(self.traffic, self.options.clients)
        sdk = asyncio.ensure_future(self._sdk())
        await while_
        self.traffic.over = True
        await asyncio.gather(*work)
        await sdk

    async def _sdk(self) -> None:
        """OpenAI's SDK in its own process; its lines are records like those of our clients."""
        if not self.has_sdk:
            return
        child = await asyncio.create_subprocess_exec(
            str(SDK), str(overhead.HERE / "soak_sdk.py"), "--port", str(self.gate.port),
            "--seed", str(self.options.seed * 1000 + self.sdk),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "LIGHTGATE_SOAK_KEY": self.traffic.keys["main"]},
        )  # fmt: skip
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("The SDK's process has no pipes.")
        closing = asyncio.ensure_future(self._close_when_over(child.stdin))
        async for line in child.stdout:
            record = json.loads(line)
            usage = record.pop("usage", None)
            self.traffic.book.append(Asked(**record, usage=tuple(usage) if usage else None))
            self.sdk += 1
        await closing
        await child.wait()

    async def _close_when_over(self, stdin: asyncio.StreamWriter) -> None:
        while not self.traffic.over:  # noqa: ASYNC110 - a flag for loops that ask anyway
            await asyncio.sleep(0.2)
        stdin.close()

    async def _sampling(self) -> None:
        while True:
            for one in await asyncio.to_thread(sample, self.gate):
                peak = self.peaks.get(one.role)
                if peak is None or one.rss_mb > peak.rss_mb:
                    self.peaks[one.role] = one
            await asyncio.sleep(SAMPLE_S)

    def _compare(self) -> None:
        """Every kind of process is where it was, and there are as many of each."""
        roles = Counter(one.role for one in self.after)
        if roles != {"supervisor": 1, "console": 1, "worker": WORKERS}:
            self.misses.append(f"processes after the storm: {dict(roles)}")
        for role in roles:
            was, now = worst(self.before, role), worst(self.after, role)
            if now.rss_mb > was.rss_mb * RSS_X + RSS_MB:
                self.misses.append(f"{role}: {now.rss_mb:.0f} MB, at the start {was.rss_mb:.0f}")
            if now.files > was.files + FILES:
                self.misses.append(f"{role}: {now.files} open files, at the start {was.files}")


def worst(samples: list[Sample], role: str) -> Sample:
    """The most of everything among the processes of a role."""
    of_role = [one for one in samples if one.role == role] or [Sample(role, 0, 0.0, 0)]
    return Sample(role, 0, max(o.rss_mb for o in of_role), max(o.files for o in of_role))


def log_lines(path: Path) -> tuple[Counter[str], list[str]]:
    """How often each sentence of the log came, and the lines that are not JSON."""
    said: Counter[str] = Counter()
    other = []
    for line in path.read_text("utf-8", "replace").splitlines():
        try:
            fact = json.loads(line)
        except ValueError:
            other.append(line)
            continue
        words = " ".join("N" if any(map(str.isdigit, w)) else w for w in fact["message"].split())
        said[f"{fact['level']}: {words[:110]}" + (" (traceback)" if "trace" in fact else "")] += 1
    return said, other


def instants(path: Path, message: re.Pattern[str]) -> list[float]:
    """When the log said this, on the monotonic clock."""
    ahead = SYSTEM.wall_ns() / 1e9 - time.monotonic()
    lines = [
        json.loads(line)
        for line in path.read_text("utf-8", "replace").splitlines()
        if (found := MESSAGE.search(line)) and message.fullmatch(found[1])
    ]
    return [datetime.fromisoformat(line["time"]).timestamp() - ahead for line in lines]


def tell(soak: Soak, books: Books) -> None:
    """Print the tables."""
    kinds: dict[str, list[float]] = defaultdict(list)
    for window in soak.chaos.windows:
        kinds[window.kind].append(window.ended - window.began)
    print("\n| event | times | longest until all was well, s |\n|---|---|---|")
    for kind, took in sorted(kinds.items()):
        print(f"| {kind} | {len(took)} | {max(took):.1f} |")
    print("\n| figure | |\n|---|---|")
    for name, value in books.figures.items():
        print(f"| {name} | {value:,} |")
    print(f"| of the requests, by OpenAI's SDK | {soak.sdk:,} |")
    print("\n| how requests ended | times |\n|---|---|")
    for name, count in books.explained.most_common():
        print(f"| {name} | {count:,} |")
    print("\n| process | at the start | most | after the storm |\n|---|---|---|---|")
    for role in ("supervisor", "worker", "console"):
        was, now = worst(soak.before, role), worst(soak.after, role)
        peak = soak.peaks.get(role, now)
        print(
            f"| {role} | {was.rss_mb:.0f} MB, {was.files} files | {peak.rss_mb:.0f} MB,"
            f" {peak.files} files | {now.rss_mb:.0f} MB, {now.files} files |"
        )
    said, other = log_lines(soak.gate.log)
    print("\n| the log said | times |\n|---|---|")
    for name, count in said.most_common(40):
        print(f"| {name} | {count} |")
    for line in other[:40]:
        print(f"log: {line}")


async def soak_in(folder: Path, options: argparse.Namespace) -> list[str]:
    """One run in a folder; what was missed."""
    world = folder / "soak.toml"
    world.write_text(WORLD, "ascii")
    disk = SoakDisk(folder, DISK_MB)
    try:
        with SimProcess(SimOptions(world=str(world), seed=options.seed)) as sim:
            gate = SoakGate(folder, disk.data, config(sim.facts.providers, disk.data))
            soak = Soak(gate, disk, options)
            try:
                await soak.run()
            finally:
                disk.free(gate.pids())
                await gate.stop()
            said = Said(*(instants(gate.log, one) for one in (TAKEN_OVER, SERVING, BEHIND)))
            books = Books(disk.data, soak.traffic.book, soak.chaos.windows, soak.lags.seen, said)
            books.close(WORKERS)
            tell(soak, books)
            misses = [*soak.misses, *soak.chaos.failed, *books.misses]
            if options.keep is not None:
                shutil.copytree(folder, options.keep, dirs_exist_ok=True)
                (options.keep / "book.json").write_text(
                    json.dumps([vars(one) for one in soak.traffic.book])
                )
                (options.keep / "windows.json").write_text(json.dumps(soak.chaos.windows))
                (options.keep / "lags.json").write_text(json.dumps(soak.lags.seen))
            return misses
    finally:
        disk.close()


def apart() -> None:
    """Go into a mount namespace of our own, where we may: no mount is ever left over."""
    if os.environ.get(APART):
        return
    for flags in (["--mount"], ["--user", "--map-root-user", "--mount"]):
        if subprocess.run(["unshare", *flags, "true"], check=False).returncode == 0:
            os.environ[APART] = "1"
            os.execvp("unshare", ["unshare", *flags, sys.executable, *sys.argv])  # noqa: S606 - ourselves


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--quiet", type=float, default=75.0, help="seconds of rest at the end")
    parser.add_argument("--keep", type=Path, help="copy data, log and books there")
    options = parser.parse_args()
    apart()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        misses = uvloop.run(soak_in(Path(place), options))
    print(f"\n{options.minutes:g} minutes of chaos, seed {options.seed}, {options.clients} clients,"
          f" {time.monotonic() - began:.0f} s in all")  # fmt: skip
    for miss in misses:
        print(f"MISSED: {miss}")
    print("THE CLAIM DOES NOT HOLD" if misses else "nothing was lost, doubled, mixed up or leaked")
    return 6 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
