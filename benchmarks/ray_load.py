"""Load from two nodes of a Ray cluster: begun together, clocks compared, every sample merged.

Starts a cluster of two nodes on this machine, in regions of their own. `lightgate bench --ray` then
asks a simulated provider, and the record is held against its own samples. Hosts whose clocks differ
are in tests/bench/load/test_hosts.py. Run it with the interpreter of .venv-ray, which
`make .venv-ray/stamp` makes. Exit code 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lightgate.clock.quantile import quantile

WAIT_S = 240
MEMORY = 80_000_000  # the least that Ray takes for its objects; none are made


def main() -> int:
    """Run it, print what was found, and exit with 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=8)
    given = parser.parse_args()
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # A node ends itself where its agents, which import much, have not registered by then.
    os.environ["RAY_agent_register_timeout_ms"] = str(WAIT_S * 1000)  # noqa: SIM112 - its name
    cluster = Cluster()
    try:
        start(cluster)
        with tempfile.TemporaryDirectory(prefix="lg-") as folder:
            return report(*bench(Path(folder) / "run", cluster.address, given))
    finally:
        cluster.shutdown()


def start(cluster: Any) -> None:
    """Start two nodes; again where one is not up in the 30 s that Ray's own code gives it."""
    node = {"num_cpus": 1, "object_store_memory": MEMORY, "include_dashboard": False}
    for tries_left in (2, 1, 0):
        try:
            for region in ("east", "west"):
                cluster.add_node(**node, labels={"ray.io/region": region})
        except Exception as error:  # Ray raises nothing more special
            if not tries_left:
                raise
            print(f"Ray did not start: {error} Once more.")
            cluster.shutdown()
        else:
            return


def bench(
    out: Path, address: str, given: argparse.Namespace
) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Run the benchmark against one simulated provider, and read its record."""
    sim = [
        sys.executable,
        "-m",
        "lightgate",
        "sim",
        "--world",
        "providers-2026",
        "--port",
        "0",
        "--json",
    ]
    with subprocess.Popen(sim, stdout=subprocess.PIPE, text=True) as provider:
        try:
            assert provider.stdout is not None  # noqa: S101 - a pipe was asked for
            url = json.loads(provider.stdout.readline())["providers"]["groq"]
            subprocess.run(
                [sys.executable, "-m", "lightgate", "bench", f"groq={url}#mixtral", "--ray",
                 address, "--concurrency", str(given.concurrency), "--requests",
                 str(given.requests), "--prompt-tokens", "64", "--max-tokens", "16", "--no-aa",
                 "--yes", "--out", str(out)],
                check=True, timeout=WAIT_S,
            )  # fmt: skip
        finally:
            provider.terminate()
    attempts, recordings = (
        [json.loads(line) for line in (out / name).read_text().splitlines()]
        for name in ("attempts.jsonl", "bursts.jsonl")
    )
    return json.loads((out / "run.json").read_text()), attempts, recordings


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
