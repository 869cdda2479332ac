"""Priors: what is believed of a target before its own answers say more.

The sources of a prior, from the best to the last resort: the configuration, the target's own
traffic, its benchmark runs, other targets of the same model, other targets of the same alias, the
default. A guess from other targets has two aims. The newcomer must be asked now and then, or its
speed would never be known: probes see its first tokens, but only whole answers show how fast it
decodes. And few requests may go there before its first answers: see `Form.load`.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from lightgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.ledger.store.seen import ObservedSpeed

Source = Literal["config", "traffic", "runs", "same model", "same alias", "default"]

Z80: Final = 0.8416212335729143  # standard normal quantiles
Z95: Final = 1.6448536269514722
DOUBTFUL: Final = 2.0  # the weight of a guess: two answers correct it
CERTAIN: Final = 5.0  # the weight of what was measured lately, or is written in the configuration
HOPE: Final = 2.0  # times the fastest peer: the speed that a newcomer is believed to have at first
MANY: Final = 20  # answers that make a measured prior certain
HALF_LIFE_S: Final = 7 * 86_400.0  # after which a measured prior is half as certain


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


# An unknown target is an ordinary one that is soon known better: neither flooded nor starved.
DEFAULT: Final = Prior(600.0, 1800.0, 70.0, 45.0, weight=DOUBTFUL)


def guessed(peers: Sequence[Prior]) -> Prior:
    """Guess the prior of a newcomer from those of its peers.

    Its first token comes as soon as theirs (median); its speed is `HOPE` times the fastest's.
    """
    fastest = max(peers, key=lambda prior: prior.speed_tps)
    return Prior(
        median([prior.ttft_ms for prior in peers]),
        median([prior.ttft_p95_ms for prior in peers]),
        HOPE * fastest.speed_tps,
        HOPE * fastest.speed_slow_tps,
        weight=DOUBTFUL,
    )


class SourcedPrior(msgspec.Struct, frozen=True, kw_only=True):
    """A prior and its source; `n` answers, `age_s` seconds old, where it was measured."""

    prior: Prior
    source: Source
    n: int | None = None
    age_s: float | None = None


class ConfiguredPrior(msgspec.Struct, frozen=True, kw_only=True):
    """The prior of one target in the configuration; None: not written there."""

    ttft_ms: float | None = None
    ttft_p95_ms: float | None = None
    speed_tps: float | None = None


class PriorSources(NamedTuple):
    """What each source says, by target."""

    configured: Mapping[str, ConfiguredPrior]
    traffic: Mapping[str, ObservedSpeed]
    runs: Mapping[str, ObservedSpeed]


def known_priors(groups: Sequence[Sequence[str]], sources: PriorSources) -> dict[str, SourcedPrior]:
    """What is known of every target of the groups; a group's targets can stand for each other.

    PriorSources about targets outside the groups count as well: they may be of the same model.
    """
    known = {target: _measured(seen, "runs") for target, seen in sources.runs.items()}
    known |= {target: _measured(seen, "traffic") for target, seen in sources.traffic.items()}
    for target, configured in sources.configured.items():
        whole = configured.ttft_ms is not None and configured.speed_tps is not None
        if target in known or whole:
            known[target] = _as_configured(configured, known.get(target, _NOTHING))
    found: dict[str, SourcedPrior] = {}
    for target in dict.fromkeys(target for group in groups for target in group):
        prior = known.get(target) or _guess(target, groups, known)
        partly = sources.configured.get(target)
        if partly is not None and prior.source != "config":
            prior = _as_configured(partly, prior)
        found[target] = prior
    return found


def model_of(target: str) -> str:
    """Return the model's name without provider, path and case, as two providers may agree on it."""
    return target.rpartition("/")[2].lower()


def _measured(seen: ObservedSpeed, source: Literal["traffic", "runs"]) -> SourcedPrior:
    sure = min(1.0, seen.n / MANY) * 0.5 ** (seen.age_s / HALF_LIFE_S)
    weight = DOUBTFUL + (CERTAIN - DOUBTFUL) * sure
    prior = Prior(seen.ttft_ms, seen.ttft_p95_ms, seen.speed_tps, seen.speed_slow_tps, weight)
    return SourcedPrior(prior=prior, source=source, n=seen.n, age_s=seen.age_s)


def _as_configured(configured: ConfiguredPrior, other: SourcedPrior) -> SourcedPrior:
    """Take what the configuration says, and scale the rest of the next best prior to it."""
    prior = other.prior
    ttft, late = configured.ttft_ms or prior.ttft_ms, configured.ttft_p95_ms
    if late is None:
        late = prior.ttft_p95_ms / prior.ttft_ms * ttft
    speed = prior.speed_tps if configured.speed_tps is None else configured.speed_tps
    slow = prior.speed_slow_tps / prior.speed_tps * speed
    # Only a configured speed is certain: where it is guessed, few requests may go there at first.
    weight = CERTAIN if configured.speed_tps is not None else prior.weight
    return SourcedPrior(prior=Prior(ttft, late, speed, slow, weight), source="config")


def _guess(
    target: str, groups: Sequence[Sequence[str]], known: Mapping[str, SourcedPrior]
) -> SourcedPrior:
    """Guess from peers: targets of the same model, else targets of the same alias."""
    model = model_of(target)
    same = [it.prior for other, it in known.items() if model_of(other) == model]
    if same:
        return SourcedPrior(prior=guessed(same), source="same model")
    beside = {other for group in groups if target in group for other in group if other in known}
    if beside:
        peers = [known[other].prior for other in sorted(beside)]
        return SourcedPrior(prior=guessed(peers), source="same alias")
    return _NOTHING


_NOTHING: Final = SourcedPrior(prior=DEFAULT, source="default")
