"""A whole rehearsal: every policy on every seed, and the rows that come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from lightgate.bench.rehearse.chooser import (
    MeanOfLast,
    Oracle,
    Plain,
    Shuffled,
    TwoChoices,
    fixed_best,
)
from lightgate.bench.rehearse.ground import WorldGround, take
from lightgate.bench.rehearse.play import Cast, Play
from lightgate.bench.rehearse.standing import standing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightgate.bench.rehearse.chooser import Chooser, Order
    from lightgate.bench.rehearse.ground import Ground
    from lightgate.bench.rehearse.scene import Offer, Scene
    from lightgate.bench.rehearse.standing import Standing
    from lightgate.bench.rehearse.tally import Tally

FIXED: Final = "fixed-best"
EDGES: Final = (FIXED, "mean-of-last-10", "oracle", "oracle, hedge p90")  # always shown
OTHERS: Final = ("random", "p2c")


class Stage(Protocol):
    """Where a rehearsal plays: a scene of a world, or the ledger's past."""

    @property
    def offers(self) -> Sequence[Offer]:
        """The targets."""
        ...

    @property
    def usual_tokens(self) -> int:
        """Tokens of a usual answer."""
        ...

    def cast(self, seed: int) -> Callable[[], Cast]:
        """The traffic and draws of one seed; every call gives the truth anew, with equal dice."""
        ...


class WorldStage:
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

    def cast(self, seed: int) -> Callable[[], Cast]:
        """Draw once, play often."""
        scene, shared = self._scene, take(self._scene, seed)

        def again() -> Cast:
            return Cast(
                scene.offers,
                shared.arrivals_ns,
                shared.tokens_in,
                shared.tokens_out,
                shared.draws,
                WorldGround(scene, shared),
            )

        return again


class Role(NamedTuple):
    """A policy under its name; `make` gets the truth, the seed and the stage."""

    name: str
    make: Callable[[Ground, int, Stage], Chooser]


def plain(name: str) -> Role:
    """One of the policies to compare with."""

    def make(ground: Ground, seed: int, stage: Stage) -> Chooser:
        del seed
        offers, count = stage.offers, len(stage.offers)
        orders: dict[str, Callable[[], Order]] = {
            FIXED: lambda: fixed_best(offers, stage.usual_tokens),
            "mean-of-last-10": lambda: MeanOfLast(count),
            "random": lambda: Shuffled(count),
            "p2c": lambda: TwoChoices(count),
            "oracle": lambda: Oracle(ground, count),
        }
        base, _, hedge = name.partition(", ")
        return Plain(offers, orders[base](), hedged=bool(hedge))

    return Role(name, make)


def play(stage: Stage, role: Role, cast: Cast, seed: int) -> Tally:
    """One policy, one seed."""
    return Play(cast, role.make(cast.ground, seed, stage)).run()


def rehearse(
    stage: Stage,
    roles: Sequence[Role],
    seeds: Sequence[int],
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[Standing]:
    """Every role on every seed; fixed-best is played in any case, as the measure of spend."""
    names = [role.name for role in roles]
    wanted = list(roles) if FIXED in names else [plain(FIXED), *roles]
    tallies: dict[str, list[Tally]] = {role.name: [] for role in wanted}
    done = 0
    for seed in seeds:
        cast = stage.cast(seed)
        for role in wanted:
            tallies[role.name].append(play(stage, role, cast(), seed))
            done += 1
            progress(done, len(wanted) * len(seeds))
    targets = [offer.target for offer in stage.offers]
    return [standing(name, tallies[name], tallies[FIXED], targets) for name in names]
