"""Load from two hosts of a Ray cluster: begun together, clocks compared, every sample merged.

Starts a cluster of two nodes on loopback, in regions of their own; the second one in a time
namespace, so that its monotonic clock really is another one (where the system lets us). `lightgate
bench --ray` then asks a simulated provider, and the record is held against its own samples.
Run it with the interpreter of .venv-ray: make .venv-ray/stamp.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lightgate.clock.quantile import quantile

SHIFT_S = 50_000
WAIT_S = 180
NODE = ("--num-cpus", "1", "--object-store-memory", "80000000", "--disable-usage-stats", "--block")
PARTS = ("--include-dashboard", "false", "--num-gpus", "0")


def main() -> int:
    """Run it, print what was found, and exit with 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=8)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lg-") as folder:
        nodes: list[subprocess.Popen[bytes]] = []
        try:
            run, attempts, recordings = bench(Path(folder), nodes, given)
        finally:
            for node in nodes:
                os.killpg(node.pid, signal.SIGTERM)
            for node in nodes:
                try:
                    node.wait(30)
                except subprocess.TimeoutExpired:
                    os.killpg(node.pid, signal.SIGKILL)
    return report(run, attempts, recordings)


def bench(
    folder: Path, nodes: list[subprocess.Popen[bytes]], given: argparse.Namespace
) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Start the cluster, run the benchmark, and read its record."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray = str(Path(sys.executable).parent / "ray")
    env = {**os.environ, "RAY_TMPDIR": str(folder), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    address = f"127.0.0.1:{port}"
    head = ("--head", "--node-ip-address", "127.0.0.1", "--port", str(port), *PARTS)
    shift = ("unshare", "--time", "--monotonic", str(SHIFT_S))
    may = subprocess.run([*shift, "true"], capture_output=True, check=False).returncode == 0
    print(f"the second node's clock is {SHIFT_S if may else 0} s ahead")
    started = [
        ("east", (ray, "start", *head)),
        ("west", (*(shift if may else ()), ray, "start", "--address", address)),
    ]
    for region, words in started:
        more = ("--labels", f"ray.io/region={region}")
        nodes.append(
            subprocess.Popen(
                [*words, *NODE, *more], env=env, start_new_session=True,
                stdout=(folder / f"{region}.log").open("wb"), stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
        alive(folder, address, len(nodes), env)
    out = folder / "run"
    subprocess.run(
        [sys.executable, "-m", "lightgate", "bench", "groq/mixtral", "--world", "providers-2026",
         "--ray", address, "--concurrency", str(given.concurrency), "--requests",
         str(given.requests), "--prompt-tokens", "64", "--max-tokens", "16", "--no-aa", "--yes",
         "--out", str(out)],
        env=env, check=True, timeout=WAIT_S,
    )  # fmt: skip
    lines = [
        [json.loads(line) for line in (out / name).read_text().splitlines()]
        for name in ("attempts.jsonl", "bursts.jsonl")
    ]
    return json.loads((out / "run.json").read_text()), lines[0], lines[1]


def alive(folder: Path, address: str, count: int, env: dict[str, str]) -> None:
    """Wait until so many nodes have joined."""
    asked = (
        "import ray, sys, time\n"
        f"ray.init('{address}', log_to_driver=False, configure_logging=False)\n"
        f"while sum(n['Alive'] for n in ray.nodes()) < {count}: time.sleep(0.2)\n"
    )
    for _ in range(10):
        done = subprocess.run(
            [sys.executable, "-c", asked], env=env, check=False, capture_output=True, timeout=WAIT_S
        )
        if done.returncode == 0:
            return
    said = "".join(path.read_text()[-1500:] for path in folder.glob("*.log"))
    raise SystemExit(f"The cluster did not start: {done.stderr.decode()[-500:]}\n{said}")


def report(
    run: dict[str, Any], attempts: list[dict[str, Any]], recordings: list[dict[str, Any]]
) -> int:
    """Hold the record against its samples."""
    wrong = []
    for host in run["hosts"]:
        ahead, bound = host["offset_ms"] / 1e3, host["bound_ms"]
        print(f"{host['host']} ({host['region']}): clock {ahead:+.3f} s from ours, known to"
              f" {bound:.2f} ms, drift {host['drift_ppm']} ppm")  # fmt: skip
    (cell,) = run["cells"]
    counted = {one["id"] for one in recordings if not one.get("warmup")}
    regions = {one["id"]: one.get("region", "") for one in recordings}
    kept = [one for one in attempts if one["id"] in counted]
    first = {name: min(one["t_send_ns"] for one in kept if regions[one["id"]] == name)
             for name in sorted(set(regions.values()) - {""})}  # fmt: skip
    apart_ms = (max(first.values()) - min(first.values())) / 1e6
    print(f"first counted requests of {', '.join(first)}: {apart_ms:.1f} ms apart on one clock")
    parts = [(part["region"], part["cells"][0]) for part in run["regions"]]
    for name, part in parts:
        print(f"{name}: {part['requests']} requests, first token p50 {p50(part):.1f} ms")
    if sum(part["requests"] for _, part in parts) != cell["requests"]:
        wrong.append("the regions do not add up to the cell")
    own = [one["ttft_ms"] for one in kept if one["ttft_ms"] is not None]
    print(f"together: {cell['requests']} requests, first token p50 {p50(cell):.3f} ms;"
          f" of the {len(own)} samples themselves {quantile(sorted(own), 0.5):.3f} ms")  # fmt: skip
    if len(parts) != 2 or len(run["hosts"]) < 2:
        wrong.append("the load did not come from two regions")
    if abs(p50(cell) - (quantile(sorted(own), 0.5) or 0)) > 1e-6:
        wrong.append("the merged median is not that of the samples")
    if apart_ms > 2000:
        wrong.append("the hosts did not begin together")
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


def p50(cell: dict[str, Any]) -> float:
    """The median first token of a cell."""
    (metric,) = [one for one in cell["metrics"] if one["name"] == "ttft_ms"]
    return float(next(row["value"] for row in metric["quantiles"] if row["q"] == 0.5))


if __name__ == "__main__":
    sys.exit(main())
