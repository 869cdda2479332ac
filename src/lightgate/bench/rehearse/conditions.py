"""Conditions of a scene that a table of speeds does not have: queues, limits, cold starts, stalls.

Each is a rule by which a target treats what is sent to it. The simulator's own worlds have slots,
rates and weather; what stands here exists in a rehearsal only.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from lightgate.sim.weather import Parameters

LONGEST_S: Final = 10.0  # a stall that is longer ends with the attempt: its deadline is that
_NORMAL: Final = NormalDist()


class ConditionTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `scenes.toml`; an unknown key is an error."""


class Narrowed(ConditionTable, frozen=True):
    """Providers that have fewer slots in one part of a run; the part in shares of its length."""

    providers: tuple[str, ...]
    slots: float  # a share of those that they have else
    since: float
    until: float


class ColdStart(ConditionTable, frozen=True):
    """A provider without requests for `idle_s` takes `start_s` before its next first token.

    Requests that come while it starts wait for the same start, which no abort ends.
    """

    providers: tuple[str, ...]
    idle_s: float
    start_s: float


class ParetoStall(ConditionTable, frozen=True):
    """A share of first tokens comes later by `scale_s` times a Pareto variable of this index."""

    providers: tuple[str, ...]
    share: float
    scale_s: float
    alpha: float

    def extra_s(self, luck: float, size: float) -> float:
        """Return the seconds by which a request is late: `luck` uniform, `size` normal."""
        if luck >= self.share:
            return 0.0
        return self.scale_s * math.pow(max(1.0 - _NORMAL.cdf(size), 1e-12), -1.0 / self.alpha)

    def mean_s(self) -> float:
        """Return the mean seconds of a request, longer stalls counted as LONGEST_S."""
        scale, alpha = self.scale_s, self.alpha
        if scale >= LONGEST_S:
            return self.share * LONGEST_S
        over = math.pow(scale / LONGEST_S, alpha)
        within = alpha * scale / (alpha - 1.0) * (1.0 - over * LONGEST_S / scale)
        return self.share * (within + over * LONGEST_S)


class Flapping(ConditionTable, frozen=True):
    """A provider that is slower in every second stretch of `each_s`, beginning with a good one."""

    provider: str
    each_s: float
    ttft: float
    speed: float = 1.0
    offset_s: float = 0.0

    def slow_at(self, second: float) -> bool:
        """Return whether this second is in a slow stretch."""
        return int((second + self.offset_s) // self.each_s) % 2 == 1


class RequestKind(ConditionTable, frozen=True):
    """Requests of one key: a share of all, their prompts, answers, and the limit they name."""

    key: str
    share: float
    tokens_in: int
    tokens_out: int
    spread: float = 0.0
    max_tokens: int | None = None


class SceneConditions(ConditionTable, frozen=True):
    """Conditions of a scene; what is not named does not exist.

    strangers   load of other tenants on the same slots, as a share of their capacity
    told_s      the engines' own count of requests is read this often; None: never
    most        requests in flight at a provider above which it refuses (429)
    prefill     tokens of a prompt that a provider reads in a second, before its first token
    halved      streams of a provider share its speed: with so many more requests beside it one
                has half of what it has alone
    """

    narrowed: Narrowed | None = None
    strangers: float = 0.0
    told_s: float | None = None
    most: int | None = None
    cold: ColdStart | None = None
    pareto: ParetoStall | None = None
    flapping: tuple[Flapping, ...] = ()
    prefill: dict[str, float] = {}
    halved: dict[str, float] = {}

    def __post_init__(self) -> None:
        if self.halved and (self.strangers or self.narrowed is not None):
            raise ValueError("a shared speed goes with neither `strangers` nor `narrowed`")

    def reads_s(self, provider: str, tokens_in: float) -> float:
        """Return the seconds in which a provider reads a prompt, beyond its usual first token."""
        speed = self.prefill.get(provider)
        return 0.0 if speed is None else tokens_in / speed


def service_s(at: Parameters, tokens: float) -> float:
    """Return the mean seconds that a request holds a slot, its answer having so many tokens."""
    first = math.exp(at.ttft_mu + at.ttft_sigma**2 / 2.0)
    return first + tokens * token_s(at)


def token_s(at: Parameters) -> float:
    """Return the mean seconds of a token."""
    return math.exp(at.tps_sigma**2 / 2.0 - at.tps_mu)
