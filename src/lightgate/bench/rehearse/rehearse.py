"""A whole rehearsal: every policy on every seed, and the rows that come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from lightgate.bench.rehearse.baselines import (
    Baseline,
    MeanOfLast,
    Oracle,
    Shuffled,
    TwoChoices,
    fixed_best,
)
from lightgate.bench.rehearse.rehearsal import Rehearsal, RehearsalInput
from lightgate.bench.rehearse.tally import policy_row
from lightgate.bench.rehearse.truth import WorldTruth, draw

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightgate.bench.rehearse.baselines import RehearsedPolicy, TargetOrder
    from lightgate.bench.rehearse.scene import Offer, Scene
    from lightgate.bench.rehearse.tally import PolicyRow, Tally
    from lightgate.bench.rehearse.truth import Truth

FIXED: Final = "fixed-best"
EDGES: Final = (FIXED, "mean-of-last-10", "oracle", "oracle, hedge p90")  # always shown
OTHERS: Final = ("random", "p2c")


class RehearsalSource(Protocol):
    """The source of a rehearsal's traffic: a scene of a world, or the ledger's past."""

    @property
    def offers(self) -> Sequence[Offer]:
        """The targets."""
        ...

    @property
    def usual_tokens(self) -> int:
        """Tokens of a usual answer."""
        ...

    def drawn(self, seed: int) -> Callable[[], RehearsalInput]:
        """Draw the traffic of one seed; every call of the result has the truth anew, equal dice."""
        ...


class WorldSource:
    """A scene of a world."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    @property
    def offers(self) -> Sequence[Offer]:
        """The targets of the scene."""
        return self._scene.offers

    @property
    def usual_tokens(self) -> int:
        """Tokens of an answer."""
        return self._scene.traffic.tokens_out

    def drawn(self, seed: int) -> Callable[[], RehearsalInput]:
        """Draw the traffic of one seed once, for all policies."""
        scene, shared = self._scene, draw(self._scene, seed)

        def again() -> RehearsalInput:
            return RehearsalInput(
                scene.offers,
                shared.arrivals_ns,
                shared.tokens_in,
                shared.tokens_out,
                shared.draws,
                WorldTruth(scene, shared),
            )

        return again


class NamedPolicy(NamedTuple):
    """A policy under its name; `make` gets the truth, the seed and the source."""

    name: str
    make: Callable[[Truth, int, RehearsalSource], RehearsedPolicy]


def baseline(name: str) -> NamedPolicy:
    """Name one of the policies to compare with."""

    def make(truth: Truth, seed: int, source: RehearsalSource) -> RehearsedPolicy:
        del seed
        offers, count = source.offers, len(source.offers)
        orders: dict[str, Callable[[], TargetOrder]] = {
            FIXED: lambda: fixed_best(offers, source.usual_tokens),
            "mean-of-last-10": lambda: MeanOfLast(count),
            "random": lambda: Shuffled(count),
            "p2c": lambda: TwoChoices(count),
            "oracle": lambda: Oracle(truth, count),
        }
        base, _, hedge = name.partition(", ")
        return Baseline(offers, orders[base](), hedged=bool(hedge))

    return NamedPolicy(name, make)


def play(source: RehearsalSource, policy: NamedPolicy, given: RehearsalInput, seed: int) -> Tally:
    """Rehearse one policy on one seed."""
    return Rehearsal(given, policy.make(given.truth, seed, source)).run()


def rehearse(
    source: RehearsalSource,
    policies: Sequence[NamedPolicy],
    seeds: Sequence[int],
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[PolicyRow]:
    """Rehearse every policy on every seed; fixed-best in any case, as the measure of spend."""
    names = [policy.name for policy in policies]
    wanted = list(policies) if FIXED in names else [baseline(FIXED), *policies]
    tallies: dict[str, list[Tally]] = {policy.name: [] for policy in wanted}
    done = 0
    for seed in seeds:
        again = source.drawn(seed)
        for policy in wanted:
            tallies[policy.name].append(play(source, policy, again(), seed))
            done += 1
            progress(done, len(wanted) * len(seeds))
    targets = [offer.target for offer in source.offers]
    return [policy_row(name, tallies[name], tallies[FIXED], targets) for name in names]
