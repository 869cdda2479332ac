"""What is believed of a target before anything was seen of it."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from lightgate.errors import ConfigError

Z80: Final = 0.8416212335729143  # standard normal quantiles
Z90: Final = 1.2815515655446004
Z95: Final = 1.6448536269514722


class Prior(msgspec.Struct, frozen=True):
    """Time to first token (median, 95 %) and decode speed (median, slow 5 %) of one target.

    `weight` is the number of samples that it counts for.
    """

    ttft_ms: float
    ttft_p95_ms: float
    speed_tps: float
    speed_slow_tps: float
    weight: float = 5.0

    def __post_init__(self) -> None:
        numbers = (self.ttft_ms, self.ttft_p95_ms, self.speed_tps, self.speed_slow_tps, self.weight)
        if not all(math.isfinite(number) and number > 0.0 for number in numbers):
            raise ConfigError("A prior's times, speeds and weight are numbers above 0.")

    @property
    def ttft_log(self) -> float:
        """The logarithm of the median time to first token in seconds."""
        return math.log(self.ttft_ms / 1e3)

    @property
    def ttft_sigma(self) -> float:
        """The spread of that logarithm."""
        return max(math.log(self.ttft_p95_ms / self.ttft_ms), 0.0) / Z95

    @property
    def speed_log(self) -> float:
        """The logarithm of the median speed in tokens per second."""
        return math.log(self.speed_tps)

    @property
    def speed_sigma(self) -> float:
        """The spread of that logarithm."""
        return max(math.log(self.speed_tps / self.speed_slow_tps), 0.0) / Z95


DOUBTFUL: Final = 2.0  # the weight of a guess: two answers correct it
CERTAIN: Final = 5.0  # the weight of what was measured lately, or is written in the configuration

# An unknown target is an ordinary one that is soon known better: neither flooded nor starved.
DEFAULT: Final = Prior(600.0, 1800.0, 70.0, 45.0, weight=DOUBTFUL)
