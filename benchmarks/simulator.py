"""Is the simulator ever the bottleneck? Planned against actual write instants under load.

    python benchmarks/simulator.py [--streams 1000] [--rate 20] [--tokens 200]

Starts the simulator on one core and a bare reader of raw sockets on another, opens the streams over
two seconds, and reads the simulator's own log. The bound: |actual - planned| p99 <= 3 ms with 1,000
streams of 20 tokens a second. The exit code is 6 if it is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

BOUND_MS = 3.0
RAMP_S = 2.0
WORLD = """
name = "load"
title = "Streams at a fixed rate"
source = "benchmarks/simulator.py"
[providers.load.models.even]
exact = {{ ttft_ms = 500, gap_ms = {gap_ms} }}
shape = {{ role_ms = 0 }}
"""


def main() -> int:
    options = parse()
    if options.read_port:
        return read(options)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    first, last = (cores[0], cores[-1]) if len(cores) > 1 else (None, None)
    with tempfile.TemporaryDirectory() as folder:
        world = Path(folder) / "load.toml"
        world.write_text(WORLD.format(gap_ms=1000 / options.rate), encoding="utf-8")
        with SimProcess(SimOptions(world=str(world), cpu=first)) as sim:
            before, waited = cpu_seconds(sim.pid), queued_seconds(sim.pid)
            began = time.monotonic()
            command = [sys.executable, __file__, "--read-port", str(sim.facts.port)]
            for name in ("streams", "rate", "tokens"):
                command += [f"--{name}", str(getattr(options, name))]
            if last is not None:
                command += ["--cpu", str(last)]
            bytes_read = int(subprocess.run(command, check=True, capture_output=True).stdout)
            elapsed = time.monotonic() - began
            used = cpu_seconds(sim.pid) - before
            waited = queued_seconds(sim.pid) - waited
            return report(options, fetch_log(sim.url), (elapsed, used, waited, bytes_read))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Planned against actual write instants.")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=20.0, help="tokens a second and stream")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of a stream")
    parser.add_argument("--read-port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--cpu", type=int, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def read(options: argparse.Namespace) -> int:
    """The bare reader: sends every request at its time and throws away what comes back."""
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    body = json.dumps(
        {
            "model": "even",
            "stream": True,
            "max_tokens": options.tokens,
            "messages": [{"role": "user", "content": "go"}],
        }
    ).encode()
    head = "POST /load/v1/chat/completions HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    selector = selectors.DefaultSelector()
    began, started, open_streams, total = time.monotonic(), 0, 0, 0
    while started < options.streams or open_streams:
        due = int((time.monotonic() - began) / RAMP_S * options.streams) + 1
        while started < min(due, options.streams):
            sock = socket.create_connection(("127.0.0.1", options.read_port))
            sock.sendall(request)
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ)
            started += 1
            open_streams += 1
        for key, _ in selector.select(RAMP_S / options.streams):
            sock = key.fileobj  # type: ignore[assignment]  # only sockets were registered
            data = sock.recv(65536)
            total += len(data)
            if not data:
                selector.unregister(sock)
                sock.close()
                open_streams -= 1
    print(total)
    return 0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, from /proc; zero where there is none."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def queued_seconds(pid: int) -> float:
    """How long a process was ready to run and had no core: other programs' doing, not its own."""
    stat = Path(f"/proc/{pid}/schedstat")
    return int(stat.read_text(encoding="ascii").split()[1]) / 1e9 if stat.exists() else 0.0


def fetch_log(url: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    more, since = True, 0
    while more:
        with urllib.request.urlopen(f"{url}/sim/log?since={since}&limit=100") as answer:  # noqa: S310 - our own loopback server
            page = json.load(answer)
        entries += page["entries"]
        more, since = page["more"], page["next"]
    return entries


def report(
    options: argparse.Namespace,
    entries: list[dict[str, Any]],
    cost: tuple[float, float, float, int],
) -> int:
    elapsed, used, queued, bytes_read = cost
    beats = [beat for entry in entries for beat in entry["plan"]]
    bursts = sorted((beat[1] - beat[0]) / 1e6 for beat in beats if beat[2] and beat[1])
    unsent = sum(beat[1] is None for beat in beats)
    n = len(bursts)
    if n == 0:
        print("no token was written")
        return 1
    p50, p99 = bursts[n // 2], bursts[min(int(n * 0.99), n - 1)]
    print(f"streams {len(entries)} of {options.streams}, {options.rate:g} tokens/s each")
    print(f"bursts  {n}, unsent beats {unsent}, {bytes_read / 1e6:.1f} MB read")
    spread = f"min {bursts[0]:.3f}  p50 {p50:.3f}  p99 {p99:.3f}  max {bursts[-1]:.3f}"
    print(f"actual - planned (ms): {spread}")
    print(
        f"cpu share of the simulator {used / elapsed:.2f}, {1e6 * used / len(beats):.1f} us a write"
    )
    print(f"other programs held its core for {100 * queued / elapsed:.1f} % of the time")
    missed = p99 > BOUND_MS or unsent > 0 or len(entries) != options.streams
    print(f"bound: p99 <= {BOUND_MS:g} ms: {'MISSED' if missed else 'kept'}")
    return 6 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
