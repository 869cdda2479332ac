"""Small stages for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lightgate.bench.rehearse.gateway_policy import PolicySettings, gateway_policy
from lightgate.bench.rehearse.rehearse import WorldSource, play
from lightgate.bench.rehearse.scene import SceneChanges, SlowSpell, scene

if TYPE_CHECKING:
    from lightgate.bench.rehearse.rehearse import NamedPolicy
    from lightgate.bench.rehearse.tally import Tally


def stage(name: str = "T4", requests: int = 600, turns: tuple[SlowSpell, ...] = ()) -> WorldSource:
    made = scene(name, SceneChanges(requests=requests))
    return WorldSource(msgspec.structs.replace(made, turns=turns))


def played(where: WorldSource, role: NamedPolicy, seed: int = 1) -> Tally:
    return play(where, role, where.drawn(seed)(), seed)


def policy(name: str, hedge: str = "off", race: int = 1) -> NamedPolicy:
    return gateway_policy(PolicySettings(policy=name, hedge=hedge, race=race))
