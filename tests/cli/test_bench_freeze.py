"""Coordinated omission: a server that freezes holds back requests, never the plan of them."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from lightgate.clock.quantile import smallest_n
from lightgate.ledger.runs.folder import RunFolder
from lightgate.sim.server.serve import SimOptions
from lightgate.sim.server.spawn import SimProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from lightgate.ledger.runs.run import CellSummary

    Start = Callable[..., Awaitable[asyncio.subprocess.Process]]

WORLD = """
name = "one"
title = "One provider"
source = "this test"
[providers.lab.models.m]
exact = { ttft_ms = 20, gap_ms = 1 }
"""
TTFT_MS, EVERY_MS, REQUESTS, FREEZE_S = 20, 50, 160, 5.0


async def lines(path: Path, count: int) -> None:
    """Until that many requests have ended."""

    def written() -> int:
        return path.read_bytes().count(b"\n") if path.exists() else 0

    while written() < count:
        await asyncio.sleep(0.01)


def quantile(values: list[float], q: float) -> float:
    return sorted(values)[math.ceil(q * len(values)) - 1]


def printed(cell: CellSummary, name: str, q: float) -> float | None:
    metric = next(metric for metric in cell.metrics if metric.name == name)
    return next(estimate.value for estimate in metric.quantiles if estimate.q == q)


async def test_five_seconds_of_silence_are_seen(start: Start, tmp_path: Path) -> None:
    world, out = tmp_path / "one.toml", tmp_path / "run"
    world.write_text(WORLD)
    load = ("--shape", "constant", "--rate", "20/s", "--requests", str(REQUESTS))
    sizes = ("--prompt-tokens", "64", "--max-tokens", "2", "--out", str(out))
    with SimProcess(SimOptions(world=str(world))) as sim:
        url = sim.facts.providers["lab"]
        process = await start("bench", f"lab={url}#m", *load, *sizes)
        await lines(out / "attempts.jsonl", 20)
        os.kill(sim.pid, signal.SIGSTOP)
        frozen_ns = time.monotonic_ns()
        await asyncio.sleep(FREEZE_S)
        thawed_ns = time.monotonic_ns()
        os.kill(sim.pid, signal.SIGCONT)
        _, err = await process.communicate()
    assert process.returncode == 0, err
    attempts = RunFolder(out).attempts()
    plans = sorted(attempt.t_plan_ns for attempt in attempts if attempt.t_plan_ns is not None)
    assert len(plans) == len(attempts) == REQUESTS
    assert {b - a for a, b in itertools.pairwise(plans)} == {EVERY_MS * 1_000_000}
    # Who was planned in the silence waits for its end, wherever the client may have waited.
    truth = [
        TTFT_MS + (max(0, thawed_ns - plan) / 1e6 if plan >= frozen_ns else 0) for plan in plans
    ]
    assert quantile(truth, 0.99) > 0.95 * FREEZE_S * 1000
    seen = [attempt.ttft_plan_ms for attempt in attempts if attempt.ttft_plan_ms is not None]
    assert quantile(seen, 0.99) == pytest.approx(quantile(truth, 0.99), rel=0.05)
    # The printed p99 needs 368 requests: benchmarks/omission.py. What is printed of fewer is of
    # those that count, which are the last ones.
    cell = RunFolder(out).run().cells[0]
    counted = truth[-cell.requests :]
    assert printed(cell, "ttft_plan_ms", 0.99) is None
    # Requests that waited for one silence are worth few independent ones: then there is no p95.
    tail = cell.estimate("ttft_plan_ms", 0.95)
    assert tail is not None
    if tail.worth >= smallest_n(0.95):
        assert tail.value == pytest.approx(quantile(counted, 0.95), rel=0.05)
    else:
        assert tail.value is None
