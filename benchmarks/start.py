"""How soon and how small: start-up times, installed size, memory of a thousand streams.

    python benchmarks/start.py [--rounds 15] [--streams 1024]

Every time is wall time from just before the process is started, in rounds that take turns, beside a
bare `python -c pass` of the same round: the ratio says what is ours. "first request" ends when the
simulator has the request of a small client that makes one provider.call; its log gives the instant
on the same monotonic clock. Memory is the peak of one process with that many slow streams open.
Exit code 6 if a median or a size is above its limit.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import time
import urllib.request
from importlib import metadata
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements" / "run.txt"
PYTHON = sys.executable
BARE = "python -c pass"
FIRST = "first request"
COMMANDS = {
    BARE: [PYTHON, "-c", "pass"],
    "import lightgate": [PYTHON, "-c", "import lightgate"],
    "lightgate version": [PYTHON, "-m", "lightgate", "version"],
    "lightgate bench --help": [PYTHON, "-m", "lightgate", "bench", "--help"],
}
LIMITS_MS = {
    "import lightgate": 80, "lightgate version": 250, "lightgate bench --help": 400, FIRST: 400,
}  # fmt: skip
MISSED = 6  # exit code
SIZE_LIMIT_MB, RSS_LIMIT_MB = 150, 120


def main() -> int:
    options = parse()
    if options.call:
        return one_call(options.call)
    if options.open:
        return many_streams(options.streams)

    from lightgate.sim.server.serve import SimOptions
    from lightgate.sim.server.spawn import SimProcess

    with SimProcess(SimOptions(world="selftest")) as sim:
        base = sim.facts.providers["lab"]
        times = measure(sim.url, base, options.rounds)
    over = show(times, options.rounds)
    size_mb, count = installed_mb()
    print(f"runtime set: {size_mb:.0f} MB in {count} distributions, limit {SIZE_LIMIT_MB} MB")
    peak = run([PYTHON, __file__, "--open", "--streams", str(options.streams)])
    streams, peak_mb = json.loads(peak)
    print(f"{streams} slow streams at once: peak RSS {peak_mb:.0f} MB, limit {RSS_LIMIT_MB} MB")
    over += [name for name, seen, most in (
        ("runtime set", size_mb, SIZE_LIMIT_MB), ("peak RSS", peak_mb, RSS_LIMIT_MB)
    ) if seen > most]  # fmt: skip
    for name in over:
        print(f"above its limit: {name}")
    return MISSED if over else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Start-up times, size and memory.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--streams", type=int, default=1024)
    parser.add_argument("--call", default="", metavar="BASE_URL", help=argparse.SUPPRESS)
    parser.add_argument("--open", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def measure(url: str, base: str, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every command, in turns."""
    times: dict[str, list[float]] = {name: [] for name in (*COMMANDS, FIRST)}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            began = time.monotonic_ns()
            run(command)
            times[name].append((time.monotonic_ns() - began) / 1e6)
        began = time.monotonic_ns()
        run([PYTHON, __file__, "--call", base])
        times[FIRST].append((last_received_ns(url) - began) / 1e6)
    return times


def last_received_ns(url: str) -> int:
    """When the simulator had the last request in full; its log is emptied."""
    with urllib.request.urlopen(f"{url}/sim/log") as answer:  # noqa: S310 - our own simulator
        received: int = json.load(answer)["entries"][-1]["received_ns"]
    clear = urllib.request.Request(f"{url}/sim/log", method="DELETE")  # noqa: S310 - the same
    urllib.request.urlopen(clear).close()  # noqa: S310 - the same
    return received


def show(times: dict[str, list[float]], rounds: int) -> list[str]:
    """Print the times; the names of those whose median is above its limit."""
    bare = statistics.median(times[BARE])
    print(f"{rounds} rounds, milliseconds from the start of the process")
    print(f"{'':<24}{'median':>8}{'min':>8}{'max':>8}{'x bare':>8}{'- bare':>8}{'limit':>8}")
    for name, seen in times.items():
        middle = statistics.median(seen)
        row = f"{name:<24}{middle:>8.0f}{min(seen):>8.0f}{max(seen):>8.0f}"
        print(f"{row}{middle / bare:>8.1f}{middle - bare:>8.0f}{LIMITS_MS.get(name, '-'):>8}")
    return [name for name, most in LIMITS_MS.items() if statistics.median(times[name]) > most]


def installed_mb() -> tuple[float, int]:
    """Size of all files of the locked runtime set, byte code included, and its distributions."""
    names = re.findall(r"^([a-z0-9._-]+)==", LOCK.read_text("utf-8"), re.MULTILINE)
    total = 0
    for name in names:
        for file in metadata.files(name) or ():
            path = Path(str(file.locate()))
            total += path.stat().st_size if path.is_file() else 0
    return total / 1e6, len(names)


def one_call(base: str) -> int:
    """The small client: one answer of two tokens, as a program of a user would ask for it."""
    import uvloop

    from lightgate.clock.marks import Marks
    from lightgate.dialect.request import Message, Request
    from lightgate.provider.call import call
    from lightgate.provider.target import resolve
    from lightgate.wire.client.client import Client

    async def ask() -> bool:
        client = Client()
        target = resolve(f"lab={base}#s1", env={})
        messages = (Message(role="user", content="Say something."),)
        request = Request(model="s1", messages=messages, max_tokens=2)
        called = await call(target, request, Marks(), client=client)
        await client.close()
        return called.error is None

    return 0 if uvloop.run(ask()) else 1


def many_streams(streams: int) -> int:
    """Open so many slow streams in this process; print how many were good, and the peak in MB."""
    import uvloop

    from lightgate.bench.load.drive import Finished, drive
    from lightgate.bench.selftest.plan import SLOW, SelftestCell
    from lightgate.bench.selftest.run import WORLD, Lab, driving
    from lightgate.sim.server.serve import SimOptions
    from lightgate.sim.server.spawn import SimProcess
    from lightgate.wire.client.client import Client
    from lightgate.wire.link.stamper import best_source

    done: list[Finished] = []

    async def load(lab: Lab) -> None:
        client = Client(stamp=best_source())
        cell = SelftestCell(SLOW, streams, streams, 60, best_source())
        await client.warm(lab.origin, streams)
        await drive(client, lab.jobs(cell), driving(streams, 1.0), done.append)
        await client.close()

    with SimProcess(SimOptions(world=WORLD)) as sim:
        uvloop.run(load(Lab(sim.facts)))
    good = sum(item.called.error is None for item in done)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([good, peak]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
