"""A whole rehearsal: every policy on every seed, and the rows that come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec
import numpy as np

from lightgate.bench.rehearse.baselines import (
    Baseline,
    MeanOfLast,
    Shuffled,
    TwoChoices,
    fixed_best,
)
from lightgate.bench.rehearse.marks import FOLLOWERS, FixedFirst, LeastInFlight, Oracle
from lightgate.bench.rehearse.rehearsal import Rehearsal, RehearsalInput
from lightgate.bench.rehearse.tally import figures, policy_row
from lightgate.bench.rehearse.truth import WorldTruth, draw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lightgate.bench.rehearse.baselines import RehearsedPolicy, TargetOrder
    from lightgate.bench.rehearse.scene import Offer, Scene
    from lightgate.bench.rehearse.tally import PolicyRow, SeedFigures, Tally
    from lightgate.bench.rehearse.truth import Truth

NS: Final = 1_000_000_000
FIXED: Final = "fixed-best"
HINDSIGHT: Final = "fixed-hindsight"
ORACLE: Final = "oracle"
ORACLE_END: Final = "oracle-end"
ORACLE_ALL: Final = "oracle-all"
# Always shown: the first four before the policies, the others behind them.
EDGES: Final = (
    FIXED,
    HINDSIGHT,
    "mean-of-last-10",
    "least-in-flight",
    ORACLE,
    f"{ORACLE}, hedge p90",
    ORACLE_END,
    f"{ORACLE_END}, hedge p90",
    ORACLE_ALL,
)
BEFORE: Final = 4
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
        self.scene = scene

    @property
    def offers(self) -> Sequence[Offer]:
        """The targets of the scene."""
        return self.scene.offers

    @property
    def usual_tokens(self) -> int:
        """The mean tokens of an answer."""
        return round(self.scene.traffic.mean_tokens)

    def drawn(self, seed: int) -> Callable[[], RehearsalInput]:
        """Draw the traffic of one seed once, for all policies."""
        scene, shared = self.scene, draw(self.scene, seed)
        kinds, told_s = scene.traffic.kinds, scene.conditions.told_s
        asked = [(kinds[one].key, kinds[one].max_tokens) for one in shared.kinds] if kinds else ()

        def again() -> RehearsalInput:
            return RehearsalInput(
                scene.offers,
                shared.arrivals_ns,
                shared.tokens_in,
                shared.tokens_out,
                shared.draws,
                WorldTruth(scene, shared),
                asked,
                None if told_s is None else round(told_s * NS),
            )

        return again


class NamedPolicy(NamedTuple):
    """A policy under its name; `make` gets the truth, the seed and the source."""

    name: str
    make: Callable[[Truth, int, RehearsalSource], RehearsedPolicy]


def baseline(name: str) -> NamedPolicy:
    """Name one of the policies to compare with; NAME/2 of fixed-hindsight is the third target."""

    def make(truth: Truth, seed: int, source: RehearsalSource) -> RehearsedPolicy:
        del seed
        offers, count, tokens = source.offers, len(source.offers), source.usual_tokens
        base, _, hedge = name.partition(", ")
        base, _, first = base.partition("/")
        orders: dict[str, Callable[[], TargetOrder]] = {
            FIXED: lambda: fixed_best(offers, tokens),
            HINDSIGHT: lambda: FixedFirst(offers, tokens, int(first)),
            "mean-of-last-10": lambda: MeanOfLast(count),
            "least-in-flight": lambda: LeastInFlight(offers, tokens),
            "random": lambda: Shuffled(count),
            "p2c": lambda: TwoChoices(count),
            ORACLE: lambda: Oracle(truth, count),
            ORACLE_END: lambda: Oracle(truth, count, whole=True),
            ORACLE_ALL: lambda: Oracle(truth, count, whole=True, waits=FOLLOWERS),
        }
        return Baseline(offers, orders[base](), hedged=bool(hedge))

    return NamedPolicy(name, make)


def play(source: RehearsalSource, policy: NamedPolicy, given: RehearsalInput, seed: int) -> Tally:
    """Rehearse one policy on one seed."""
    return Rehearsal(given, policy.make(given.truth, seed, source)).run()


def each_fixed(targets: int) -> list[NamedPolicy]:
    """Name the fixed choices of which hindsight takes the best: every target as the first."""
    return [baseline(f"{HINDSIGHT}/{place}") for place in range(targets)]


def best_fixed(found: Sequence[Sequence[SeedFigures]]) -> Sequence[SeedFigures]:
    """Choose, of the fixed choices' figures, those of the smallest mean TTFT p95 of all seeds."""
    return min(found, key=lambda seeds: float(np.mean([one.ttft_s[1] for one in seeds])))


def rehearse(
    source: RehearsalSource,
    policies: Sequence[NamedPolicy],
    seeds: Sequence[int],
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[PolicyRow]:
    """Rehearse every policy on every seed; fixed-best in any case, as the measure of spend."""
    names = [policy.name for policy in policies]
    wanted = [policy for policy in policies if policy.name != HINDSIGHT]
    if FIXED not in names:
        wanted.insert(0, baseline(FIXED))
    choices = each_fixed(len(source.offers)) if HINDSIGHT in names else []
    wanted += [choice for choice in choices if choice.name not in names]
    found: dict[str, list[SeedFigures]] = {policy.name: [] for policy in wanted}
    done = 0
    for seed in seeds:
        again = source.drawn(seed)
        for policy in wanted:
            found[policy.name].append(figures(play(source, policy, again(), seed)))
            done += 1
            progress(done, len(wanted) * len(seeds))
    rows: dict[str, Sequence[SeedFigures]] = dict(found)
    if choices:
        rows[HINDSIGHT] = best_fixed([found[choice.name] for choice in choices])
    targets = [offer.target for offer in source.offers]
    made = {name: policy_row(name, rows[name], rows[FIXED], targets) for name in names}
    return [_beside_oracles(row, made) for row in made.values()]


def _beside_oracles(row: PolicyRow, made: Mapping[str, PolicyRow]) -> PolicyRow:
    """Set the p95 of a row beside that of the two oracles."""
    first, end = made.get(ORACLE), made.get(ORACLE_END)
    return msgspec.structs.replace(
        row,
        x_oracle=None if first is None else row.ttft_p95_s.mean / first.ttft_p95_s.mean,
        x_oracle_end=None if end is None else row.done_p95_s.mean / end.done_p95_s.mean,
    )
