"""Small stages for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lightgate.bench.rehearse.brain import Settings, real
from lightgate.bench.rehearse.rehearse import WorldStage, play
from lightgate.bench.rehearse.scene import Turn, Wish, scene

if TYPE_CHECKING:
    from lightgate.bench.rehearse.rehearse import Role
    from lightgate.bench.rehearse.tally import Tally


def stage(name: str = "T4", requests: int = 600, turns: tuple[Turn, ...] = ()) -> WorldStage:
    made = scene(name, Wish(requests=requests))
    return WorldStage(msgspec.structs.replace(made, turns=turns))


def played(where: WorldStage, role: Role, seed: int = 1) -> Tally:
    return play(where, role, where.cast(seed)(), seed)


def policy(name: str, hedge: str = "off", race: int = 1) -> Role:
    return real(Settings(policy=name, hedge=hedge, race=race))
