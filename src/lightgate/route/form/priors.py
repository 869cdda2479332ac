"""What is known of every target beforehand, and by whom: from the best word to the last resort.

The order: your configuration, the target's own traffic, its benchmark runs, other targets of the
same model, other targets behind the same name, nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from lightgate.route.form.newcomer import guessed
from lightgate.route.form.prior import CERTAIN, DEFAULT, DOUBTFUL, Prior

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.ledger.store.seen import Seen

Source = Literal["config", "traffic", "runs", "same model", "same alias", "default"]
MANY: Final = 20  # answers that make a measured prior certain
HALF_LIFE_S: Final = 7 * 86_400.0  # after which a measured prior is half as certain


class Foreknown(msgspec.Struct, frozen=True, kw_only=True):
    """A prior and its source; `n` answers and `age_s` seconds where somebody measured it."""

    prior: Prior
    source: Source
    n: int | None = None
    age_s: float | None = None


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says of one target; None where it is silent."""

    ttft_ms: float | None = None
    ttft_p95_ms: float | None = None
    speed_tps: float | None = None


class Words(NamedTuple):
    """All that is said, by target."""

    told: Mapping[str, Told]
    traffic: Mapping[str, Seen]
    runs: Mapping[str, Seen]


def foreknow(groups: Sequence[Sequence[str]], words: Words) -> dict[str, Foreknown]:
    """What is known of every target of the groups; a group's targets can stand for each other.

    Words about targets outside the groups count as well: they may be of the same model.
    """
    known = {target: _measured(seen, "runs") for target, seen in words.runs.items()}
    known |= {target: _measured(seen, "traffic") for target, seen in words.traffic.items()}
    for target, told in words.told.items():
        if target in known or (told.ttft_ms is not None and told.speed_tps is not None):
            known[target] = _as_told(told, known.get(target, _NOTHING))
    found: dict[str, Foreknown] = {}
    for target in dict.fromkeys(target for group in groups for target in group):
        word = known.get(target) or _guess(target, groups, known)
        partly = words.told.get(target)
        if partly is not None and word.source != "config":
            word = _as_told(partly, word)
        found[target] = word
    return found


def model_of(target: str) -> str:
    """The model's name without provider, path and case: what two providers may agree on."""
    return target.rpartition("/")[2].lower()


def _measured(seen: Seen, source: Literal["traffic", "runs"]) -> Foreknown:
    sure = min(1.0, seen.n / MANY) * 0.5 ** (seen.age_s / HALF_LIFE_S)
    weight = DOUBTFUL + (CERTAIN - DOUBTFUL) * sure
    prior = Prior(seen.ttft_ms, seen.ttft_p95_ms, seen.speed_tps, seen.speed_slow_tps, weight)
    return Foreknown(prior=prior, source=source, n=seen.n, age_s=seen.age_s)


def _as_told(told: Told, other: Foreknown) -> Foreknown:
    """What the configuration says, and for the rest the next best word, scaled to it."""
    prior = other.prior
    ttft, late = told.ttft_ms or prior.ttft_ms, told.ttft_p95_ms
    if late is None:
        late = prior.ttft_p95_ms / prior.ttft_ms * ttft
    speed = prior.speed_tps if told.speed_tps is None else told.speed_tps
    slow = prior.speed_slow_tps / prior.speed_tps * speed
    # Only a told speed is certain: where it is guessed, few may be asked before it is known.
    weight = CERTAIN if told.speed_tps is not None else prior.weight
    return Foreknown(prior=Prior(ttft, late, speed, slow, weight), source="config")


def _guess(
    target: str, groups: Sequence[Sequence[str]], known: Mapping[str, Foreknown]
) -> Foreknown:
    """What its peers do: those of the same model; else those that stand behind the same name."""
    model = model_of(target)
    same = [word.prior for other, word in known.items() if model_of(other) == model]
    if same:
        return Foreknown(prior=guessed(same), source="same model")
    beside = {other for group in groups if target in group for other in group if other in known}
    if beside:
        peers = [known[other].prior for other in sorted(beside)]
        return Foreknown(prior=guessed(peers), source="same alias")
    return _NOTHING


_NOTHING: Final = Foreknown(prior=DEFAULT, source="default")
