"""The harness's own error, end to end: `lightgate bench` against the simulator's log.

    python benchmarks/accuracy.py [--streams 1,8,32,256,1024]

The command runs as a user runs it, in a pseudo-terminal so that the live view draws, against the
self test's plain model (slow streams above 256). Every attempt it recorded is then joined with the
simulator's log by its request id: the error is our stamp of the first (last) token minus the
instant at which the simulator wrote it, on the machine's one monotonic clock.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from lightgate.clock.quantile import quantiles
from lightgate.ledger.runs.folder import RunFolder
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

MS = 1e6


def bench(url: str, streams: int, out: Path) -> None:
    """Run the command with its live view on a pseudo-terminal that nobody reads for long."""
    model = "s1" if streams <= 256 else "slow"
    requests = max(2 * streams, 48)
    command = [
        sys.executable, "-m", "lightgate", "bench", f"sim={url}#{model}",
        "--concurrency", str(streams), "--requests", str(requests),
        "--prompt-tokens", "64", "--max-tokens", "50", "--processes", "1", "--out", str(out),
    ]  # fmt: skip
    master, slave = pty.openpty()
    with subprocess.Popen(command, stderr=slave, stdout=subprocess.DEVNULL) as process:
        os.close(slave)
        while True:
            try:
                if not os.read(master, 65536):
                    break
            except OSError:
                break
        os.close(master)
    if process.returncode:
        raise SystemExit(f"bench ended with {process.returncode}")


def log(root: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    since, more = 0, True
    while more:
        with urllib.request.urlopen(f"{root}/sim/log?since={since}") as answer:  # noqa: S310 - loopback
            page = json.load(answer)
        found |= {entry["request_id"]: entry for entry in page["entries"]}
        since, more = page["next"], page["more"]
    return found


def errors(out: Path, entries: dict[str, dict[str, Any]]) -> tuple[list[float], list[float]]:
    first, last = [], []
    for attempt in RunFolder(out).attempts():
        entry = entries.get(attempt.id)
        if entry is None or attempt.t_first_ns is None or attempt.t_last_ns is None:
            continue
        writes = [at for _, at, tokens, _ in entry["plan"] if tokens and at is not None]
        first.append(abs(attempt.t_first_ns - writes[0]) / MS)
        last.append(abs(attempt.t_last_ns - writes[-1]) / MS)
    return first, last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", default="1,8,32,256,1024")
    options = parser.parse_args()
    times = f"{'p50':>10}{'p99':>8}{'max':>8}"
    print(f"{'':>31}{'ttft error, ms':>26}{'e2e error, ms':>26}")
    print(f"{'streams':>8}{'n':>7}{'offered':>9}{'doubts':>7}{times}{times}")
    with tempfile.TemporaryDirectory() as folder:
        for streams in map(int, options.streams.split(",")):
            out = Path(folder) / str(streams)
            with SimProcess(SimOptions(world="selftest")) as sim:
                bench(sim.facts.providers["lab"], streams, out)
                first, last = errors(out, log(sim.url))
            cell = RunFolder(out).run().cells[0]
            shown = [*quantiles(first, (0.5, 0.99, 1.0)), *quantiles(last, (0.5, 0.99, 1.0))]
            text = "".join(
                f"{value:>{10 if at % 3 == 0 else 8}.3f}" for at, value in enumerate(shown)
            )
            print(f"{streams:>8}{len(first):>7}{cell.offered_share or 0:>9.1%}"
                  f"{len(cell.doubts()):>7}{text}")  # fmt: skip


if __name__ == "__main__":
    main()
