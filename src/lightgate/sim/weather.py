"""The weather of providers: bad episodes, shared shocks, stalls, fast failures and hangs by chance.

Episodes alternate good and bad spells of exponential length, drawn from the seed alone; world time
starts with the server. Shocks are one such sequence for all providers of a world.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lightgate.sim.latency import NS, Dice, Parameters

if TYPE_CHECKING:
    from lightgate.sim.world import Weather


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
