"""The speed of a model at a load, and the weather: what goes wrong by chance.

TTFT and speed are lognormal, given by p50 and p95 (for the speed the slow side). Between the loads
of a curve the parameters are linear in log2(load); past the last load the last slope goes on.
All dice of a request are thrown in one fixed order from (seed, provider, request number): neither
the interleaving of requests nor a switched-off weather changes the dice of another request.

The weather has bad episodes, shocks that all providers of a world share, stalls, fast failures and
hangs. Episodes alternate good and bad spells of exponential length, drawn from the seed alone;
world time starts with the server.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from lightgate.sim.world import LoadPoint, Weather

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


class Spells:
    """Alternating good and bad spells, drawn as far as they are asked for."""

    def __init__(self, seed: int, name: str, good_mean_s: float, bad_mean_s: float) -> None:
        key = (seed & 0xFFFFFFFFFFFFFFFF, zlib.crc32(name.encode()), 1)
        self._rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
        self._means = (good_mean_s, bad_mean_s)
        self._edges = [0.0]  # good from edge 0, bad from edge 1, good from edge 2, ...

    def bad_at(self, second: float) -> bool:
        """Whether a bad spell covers this second of world time."""
        edges = self._edges
        while edges[-1] <= second:
            mean = self._means[(len(edges) - 1) % 2]
            edges.append(edges[-1] + float(self._rng.exponential(mean)))
        return bisect_right(edges, second) % 2 == 0


class Luck(NamedTuple):
    """The effect of the weather on one request; durations in nanoseconds."""

    ttft_ns: int
    tps: float
    fails: bool = False  # a fast failure
    hangs: bool = False  # no answer, ever
    stalls: bool = False  # `ttft_ns` holds a stall
    mid_stall_ns: int = 0
    mid_stall_at: float = 0.0  # after this share of the tokens
    bad: bool = False
    shock: bool = False


class Sky:
    """The weather over one provider."""

    def __init__(self, weather: Weather | None, seed: int, provider: str) -> None:
        self.weather = weather
        if weather is not None:
            self._bad = Spells(seed, provider, weather.good_mean_s, weather.bad_mean_s)
            self._shock = Spells(seed, "", weather.shock_every_s, weather.shock_mean_s)

    def luck(self, parameters: Parameters, dice: Dice, second: float) -> Luck:
        """The effect on a request that arrives at this second of world time."""
        ttft = math.exp(parameters.ttft_mu + parameters.ttft_sigma * dice.ttft)
        tps = math.exp(parameters.tps_mu + parameters.tps_sigma * dice.tps)
        sky = self.weather
        if sky is None:
            return Luck(round(ttft * NS), tps)
        bad, shock = self._bad.bad_at(second), self._shock.bad_at(second)
        ttft *= (sky.bad_ttft if bad else 1.0) * (sky.shock_ttft if shock else 1.0)
        tps *= sky.bad_tps if bad else 1.0
        stalls = dice.stall < sky.stall * (sky.bad_stall if bad else 1.0)
        if stalls:
            ttft += _stall_s(sky, dice.stall_size)
        mid = _stall_s(sky, dice.mid_size) if dice.mid < sky.mid_stall else 0.0
        return Luck(
            round(ttft * NS),
            tps,
            fails=dice.fail < (sky.bad_fail if bad else sky.fail),
            hangs=dice.fail > 1.0 - sky.hang,
            stalls=stalls,
            mid_stall_ns=round(mid * NS),
            mid_stall_at=dice.mid_at,
            bad=bad,
            shock=shock,
        )


def _stall_s(sky: Weather, size: float) -> float:
    return math.exp(math.log(sky.stall_median_s) + sky.stall_sigma * size)
