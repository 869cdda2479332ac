"""Groups of a production speed report, from seeded draws."""

from __future__ import annotations

from decimal import Decimal

import numpy as np

from lightgate.clock.quantile import Interval, interval, quantile
from lightgate.ledger.store.queries import SpeedRow
from lightgate.report.tables.speed_report import SpeedQuestion

ASKED = SpeedQuestion(by="target", since="2026-11-01T06:00:00Z", until="2026-11-15T06:00:00Z")
# Median tok/s of the whole time, TTFT p50 in ms, requests, failures.
GROUPS = {
    "generalcompute/llama-3.1-70b": (212.0, 190.0, 9_120, 4),
    "groq/llama-3.3-70b-versatile": (141.0, 260.0, 20_411, 310),
    "fireworks/llama-v3p1-70b-instruct": (71.0, 480.0, 600, 0),
    "together/Meta-Llama-3.1-70B-Instruct-Turbo": (55.0, 560.0, 3_300, 12),
    "openai/gpt-4o-mini": (48.0, 410.0, 1_205, 9),
    "replicate/meta-llama-3-70b": (23.0, 1_250.0, 512, 61),
    "lab/s1": (90.0, 100.0, 499, 0),
    "anthropic/claude": (66.0, 700.0, 12, 1),
}


def speed_rows(seed: int = 11) -> list[SpeedRow]:
    rng = np.random.default_rng(seed)
    made = []
    for name, (speed, ttft, requests, failed) in GROUPS.items():
        speeds = (speed * np.exp(rng.normal(0, 0.35, requests))).tolist()
        waits = (ttft * np.exp(rng.normal(0, 0.45, requests))).tolist()
        made.append(
            SpeedRow(
                name=name,
                attempts=requests + failed,
                successes=requests,
                speed_total_p50=quantile(speeds, 0.5),
                speed_total_interval=interval(speeds, 0.5),
                ttft_p50_ms=quantile(waits, 0.5),
                ttft_p95_ms=quantile(waits, 0.95),
                tokens_in=requests * 800,
                tokens_out=requests * 312,
                cost_usd=Decimal(0 if name == "lab/s1" else requests) * Decimal("0.00042"),
                exact=True,
            )
        )
    return made


def row(name: str, speed: float | None, requests: int = 1_000) -> SpeedRow:
    """One group with an interval of 5 % to either side."""
    between = None if speed is None else Interval(speed * 0.95, speed * 1.05)
    return SpeedRow(
        name=name,
        attempts=requests,
        successes=requests,
        speed_total_p50=speed,
        speed_total_interval=between,
        ttft_p50_ms=None,
        ttft_p95_ms=None,
        tokens_in=0,
        tokens_out=0,
        cost_usd=Decimal(0),
        exact=True,
    )
