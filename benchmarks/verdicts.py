"""Is the verdict right? Worlds with one known trouble each, measured by `lightgate bench`.

    python benchmarks/verdicts.py

Four simulated providers: one with a queue before it, one with a rate limiter, one whose speed falls
with its batch, one without trouble; and the last one once more from a client that is starved of its
core (read stamps, a busy program beside it). The verdict has to name the trouble.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lightgate.ledger.runs.folder import RunFolder

WORLD = """
name = "troubles"
title = "One known trouble each"
source = "benchmarks/verdicts.py"

[providers.queue]
slots = 4
[providers.queue.models.m]
exact = { ttft_ms = 100, gap_ms = 8 }

[providers.limiter]
rate = { per_s = 12, burst = 12 }
[providers.limiter.models.m]
exact = { ttft_ms = 100, gap_ms = 8 }

[providers.batch.models.m]
curve = [
  { load = 1, ttft_ms = [100, 120], tps = [120, 110] },
  { load = 16, ttft_ms = [130, 160], tps = [45, 40] },
]

[providers.calm.models.m]
exact = { ttft_ms = 100, gap_ms = 8 }
"""
EXPECTED = {
    "queue": "admission queue",
    "limiter": "rate limiter",
    "batch": "batch contention",
    "calm": "healthy",
    "starved": "client-bound",
}


def bench(provider: str, folder: Path, *more: str) -> str:
    out = folder / f"{provider}{len(more)}"
    command = [
        sys.executable, "-m", "lightgate", "bench", f"{provider}/m",
        "--world", str(folder / "world.toml"), "--concurrency", "1,16", "--requests", "160",
        "--max-tokens", "24", "--prompt-tokens", "64", "--out", str(out), *more,
    ]  # fmt: skip
    subprocess.run(command, check=False, capture_output=True)
    verdicts = RunFolder(out).run().verdicts
    return verdicts[0].name if verdicts else "none"


def starved(folder: Path) -> str:
    """The calm provider, with three busy programs on every core beside the client."""
    spin = "while True: pass"
    hogs = [
        subprocess.Popen([sys.executable, "-c", spin]) for _ in range(3 * (os.cpu_count() or 1))
    ]
    try:
        return bench("calm", folder, "--stamps", "read")
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "world.toml").write_text(WORLD)
        found = {
            provider: bench(provider, folder) for provider in EXPECTED if provider != "starved"
        }
        found["starved"] = starved(folder)
    for trouble, expected in EXPECTED.items():
        print(
            f"{trouble:<10}{found[trouble]:<22}{'right' if found[trouble] == expected else 'WRONG'}"
        )
    return 0 if found == EXPECTED else 6


if __name__ == "__main__":
    sys.exit(main())
