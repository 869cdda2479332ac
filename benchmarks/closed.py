"""A closed loop of `lightgate bench`: what was asked for is sent, counted, and kept in flight.

    python benchmarks/closed.py [--streams 1,8,32,128,256,1024] [--rounds 4] [--largest 10000]

The command runs as a user runs it against the simulator: the self test's plain model, and above 32
streams its slow one, so that the simulator and the client fit on two cores. Each load asks for so
many rounds of requests (48 at least); the largest one for `--largest`. CPU is that of the client
with its load processes, user and system, divided by the requests that were sent; RSS is the peak of
its largest process. Exit code 6 if fewer than 98 % of the asked requests were counted, if fewer
than 98 % of the asked streams were in flight on average, if more was sent than was announced, or if
the peak RSS is above 120 MB.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from lightgate.ledger.runs.folder import RunFolder
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

LEAST = 0.98  # of the asked requests, and of the asked streams
MOST_RSS_MB = 120
MISSED = 6  # exit code
FEWEST = 48  # requests of a load
PLAIN = 32  # streams up to which the plain model is used
MANY = 1024  # streams from which --largest requests are asked for: fewer would take minutes


class Row(NamedTuple):
    """One load: what was asked for and what came of it."""

    streams: int
    asked: int
    announced: int
    sent: int
    parts: Counter[str]
    inflight: float
    little: float
    rss_mb: float
    cpu_ms: float  # of one request

    @property
    def misses(self) -> list[str]:
        """What does not hold."""
        found = []
        if self.parts["counted"] < LEAST * self.asked:
            found.append("counted")
        if self.inflight < LEAST * self.streams:
            found.append("in flight")
        if self.sent > self.announced:
            found.append("announced")
        if self.rss_mb > MOST_RSS_MB:
            found.append("RSS")
        return found


def measure(url: str, streams: int, asked: int, out: Path) -> Row:
    """Run the command and read what it wrote."""
    model = "s1" if streams <= PLAIN else "slow"
    command = [
        sys.executable, "-m", "lightgate", "bench", f"sim={url}#{model}",
        "--concurrency", str(streams), "--requests", str(asked),
        "--prompt-tokens", "64", "--max-tokens", "50", "--seed", "1", "--out", str(out),
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        said = process.stderr.read().decode() if process.stderr is not None else ""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"bench ended with {process.returncode}: {said}")
    folder = RunFolder(out)
    cell, recordings, attempts = folder.run().cells[0], folder.recordings(), folder.attempts()
    marks = [recordings[attempt.id] for attempt in attempts]
    parts = Counter(m.part or ("warm-up" if m.warmup else "counted") for m in marks)
    found = re.search(r"At most ([\d,]+) requests", said)
    return Row(
        streams=streams,
        asked=asked,
        announced=int(found[1].replace(",", "")) if found else 0,
        sent=len(attempts),
        parts=parts,
        inflight=cell.inflight or 0.0,
        little=cell.little or 0.0,
        rss_mb=used.ru_maxrss / 1024,
        cpu_ms=(used.ru_utime + used.ru_stime) / len(attempts) * 1000,
    )


def main() -> int:
    """Measure every load and say what does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", default="1,8,32,128,256,1024")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--largest", type=int, default=10_000)
    options = parser.parse_args()
    loads = [int(text) for text in options.streams.split(",")]
    print("| streams | asked | announced | sent | ramp | fillers | counted | counted / asked |"
          " in flight / asked | Little | RSS MB | CPU ms per request | misses |")  # fmt: skip
    print("|" + "---|" * 13)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for streams in loads:
            asked = max(FEWEST, options.rounds * streams)
            if streams >= MANY:
                asked = max(asked, options.largest)
            with SimProcess(SimOptions(world="selftest")) as sim:
                row = measure(
                    sim.facts.providers["lab"], streams, asked, Path(folder) / str(streams)
                )
            missed += bool(row.misses)
            print(f"| {streams:,} | {asked:,} | {row.announced:,} | {row.sent:,} |"
                  f" {row.parts['ramp']:,} | {row.parts['filler']:,} | {row.parts['counted']:,} |"
                  f" {row.parts['counted'] / asked:.3f} | {row.inflight / streams:.3f} |"
                  f" {row.little / streams:.3f} | {row.rss_mb:.0f} | {row.cpu_ms:.2f} |"
                  f" {', '.join(row.misses) or 'none'} |", flush=True)  # fmt: skip
    return MISSED if missed else 0


if __name__ == "__main__":
    sys.exit(main())
