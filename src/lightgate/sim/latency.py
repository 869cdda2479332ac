"""The speed of a model at a load, and the dice of one request.

TTFT and speed are lognormal, given by p50 and p95 (for the speed the slow side). Between the loads
of a curve the parameters are linear in log2(load); past the last load the last slope goes on.
All dice of a request are thrown in one fixed order from (seed, provider, request number): neither
the interleaving of requests nor a switched-off weather changes the dice of another request.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from lightgate.sim.world import LoadPoint

Z95: Final = 1.6448536269514722  # the standard normal quantile of 0.95
NS: Final = 1_000_000_000


class Parameters(NamedTuple):
    """Mean and spread of the logarithms of TTFT (seconds) and speed (tokens per second)."""

    ttft_mu: float
    ttft_sigma: float
    tps_mu: float
    tps_sigma: float


class SpeedCurve:
    """The speed of a model by load."""

    def __init__(self, points: tuple[LoadPoint, ...]) -> None:
        self._loads = [math.log2(point.load) for point in points]
        self._rows = [_parameters(point) for point in points]

    def at(self, load: int) -> Parameters:
        """The parameters with so many requests in flight."""
        loads, rows = self._loads, self._rows
        if len(rows) == 1:
            return rows[0]
        x = math.log2(max(load, 1))
        right = next((i for i in range(1, len(loads)) if x <= loads[i]), len(loads) - 1)
        low, high = rows[right - 1], rows[right]
        share = (x - loads[right - 1]) / (loads[right] - loads[right - 1])
        mixed = (a + share * (b - a) for a, b in zip(low, high, strict=True))
        ttft_mu, ttft_sigma, tps_mu, tps_sigma = mixed
        # Extrapolation below the first load or far past the last may turn a spread negative.
        return Parameters(ttft_mu, max(ttft_sigma, 0.0), tps_mu, max(tps_sigma, 0.0))


def _parameters(point: LoadPoint) -> Parameters:
    ttft50, ttft95 = point.ttft_ms
    tps50, tps_slow = point.tps
    return Parameters(
        math.log(ttft50 / 1e3),
        math.log(ttft95 / ttft50) / Z95,
        math.log(tps50),
        math.log(tps50 / tps_slow) / Z95,
    )


class Dice:
    """The random numbers of one request, all drawn at once."""

    def __init__(self, seed: int, provider: str, number: int) -> None:
        key = (seed & 0xFFFFFFFFFFFFFFFF, zlib.crc32(provider.encode()), number)
        self._rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
        normals: list[float] = self._rng.standard_normal(4).tolist()
        self.ttft, self.tps, self.stall_size, self.mid_size = normals
        uniforms: list[float] = self._rng.random(5).tolist()
        self.fail, self.stall, self.mid, self.mid_at, self.fault = uniforms

    def gaps_ns(self, low_ms: float, high_ms: float, count: int) -> list[int]:
        """`count` uniform gaps, in nanoseconds."""
        drawn = self._rng.uniform(low_ms * 1e6, high_ms * 1e6, count)
        return [int(gap) for gap in drawn.tolist()]
