"""Does a frozen server show? 20 requests a second, five seconds of silence, `lightgate bench`.

    python benchmarks/omission.py [--requests 600] [--freeze 5]

A client that waits for its server sends nothing while the server is silent, and so leaves out the
requests that would have waited (coordinated omission). The simulator's process is stopped for the
silence, so the truth is plain: whoever was planned in it waits for its end. Beside what `bench`
prints stands what a closed loop with one worker would have made of the same silence. Exit code 6
if the printed ttft_plan p99 is off by more than 5 %.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lightgate.ledger.runs.folder import RunFolder
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

RATE, TTFT_MS = 20, 20.0
ALLOWED = 0.05
WORLD = f"""
name = "one"
title = "One provider"
source = "this benchmark"
[providers.lab.models.m]
exact = {{ ttft_ms = {TTFT_MS}, gap_ms = 1 }}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--freeze", type=float, default=5.0, help="seconds")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        truth, printed = _measure(Path(folder), args.requests, args.freeze)
    # One worker that waits: one request sits through the silence, the rest never see it.
    alone = [args.freeze * 1000] + [TTFT_MS] * (len(truth) - 1)
    print(f"{len(truth)} requests at {RATE}/s, {args.freeze:g} s of silence; ttft from plan, ms")
    print("| | p50 | p95 | p99 |\n|---|---|---|---|")
    for name, values in (("truth", truth), ("a loop that waits", alone)):
        row = " | ".join(f"{_quantile(values, q):,.0f}" for q in (0.5, 0.95, 0.99))
        print(f"| {name} | {row} |")
    print("| lightgate bench |", " | ".join(f"{printed[q]:,.0f}" for q in (0.5, 0.95, 0.99)), "|")
    off = printed[0.99] / _quantile(truth, 0.99) - 1
    print(f"p99 is off by {off:+.2%}; {ALLOWED:.0%} is allowed")
    return 0 if abs(off) <= ALLOWED else 6


def _measure(
    folder: Path, requests: int, freeze_s: float
) -> tuple[list[float], dict[float, float]]:
    """What every request waited in truth, and the quantiles that `bench` made of it."""
    world, out = folder / "one.toml", folder / "run"
    world.write_text(WORLD)
    with SimProcess(SimOptions(world=str(world))) as sim:
        target = f"lab={sim.facts.providers['lab']}#m"
        command = [sys.executable, "-m", "lightgate", "bench", target, "--shape", "constant"]
        load = ["--rate", f"{RATE}/s", "--requests", str(requests), "--out", str(out)]
        sizes = ["--prompt-tokens", "64", "--max-tokens", "2"]
        child = subprocess.Popen([*command, *load, *sizes], stdout=subprocess.DEVNULL)
        attempts = out / "attempts.jsonl"
        while not attempts.exists() or attempts.read_bytes().count(b"\n") < requests // 4:
            time.sleep(0.01)
        os.kill(sim.pid, signal.SIGSTOP)
        frozen_ns = time.monotonic_ns()
        time.sleep(freeze_s)
        thawed_ns = time.monotonic_ns()
        os.kill(sim.pid, signal.SIGCONT)
        child.wait()
    found = RunFolder(out)
    plans = [attempt.t_plan_ns for attempt in found.attempts() if attempt.t_plan_ns is not None]
    truth = [
        TTFT_MS + (max(0, thawed_ns - plan) / 1e6 if plan >= frozen_ns else 0.0) for plan in plans
    ]
    metric = next(m for m in found.run().cells[0].metrics if m.name == "ttft_plan_ms")
    return truth, {e.q: math.nan if e.value is None else e.value for e in metric.quantiles}


def _quantile(values: list[float], q: float) -> float:
    return sorted(values)[math.ceil(q * len(values)) - 1]


if __name__ == "__main__":
    sys.exit(main())
