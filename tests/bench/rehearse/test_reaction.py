"""How soon a policy leaves a target that became slow, and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.rehearse.stages import policy, stage
from lightgate.bench.rehearse.ground import BORN_NS
from lightgate.bench.rehearse.rehearse import plain, play
from lightgate.bench.rehearse.scene import Turn

if TYPE_CHECKING:
    from lightgate.bench.rehearse.rehearse import Role

BEST = "generalcompute/llama-3.1-70b"
SLOW_S, WELL_S, END_S = 600.0, 900.0, 1200.0


def places(role: Role, seed: int, turn: Turn) -> list[tuple[float, int]]:
    """When each request came, in seconds, and where its first attempt went."""
    where = stage("T1", 600, (turn,))
    cast = where.cast(seed)()
    tally = play(where, role, cast, seed)
    seconds = [(at - BORN_NS) / 1e9 for at in cast.arrivals_ns]
    return list(zip(seconds, tally.first_target, strict=True))


# As in a bad episode of the weather. A whole answer gets only half as slow by it, and its decode is
# seen when it ends: who waits for whole answers leaves later.
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("name", "hedge", "requests", "seconds"),
    [("voice", "auto", 5, 15.0), ("voice", "off", 5, 15.0), ("fastest", "auto", 5, 60.0)],
)
def test_a_slow_target_is_left_and_found_again(
    name: str, hedge: str, requests: int, seconds: float, seed: int
) -> None:
    turn = Turn(target=BEST, from_s=SLOW_S, until_s=WELL_S, ttft=5.0, speed=0.6)
    seen = places(policy(name, hedge), seed, turn)
    before = [place for at, place in seen if SLOW_S - 120 < at < SLOW_S]
    assert before.count(0) > 0.8 * len(before)
    sick = [(at, place) for at, place in seen if SLOW_S <= at < WELL_S]
    left = next(number for number, (_, place) in enumerate(sick) if place)
    assert left <= requests or sick[left][0] - SLOW_S <= seconds
    late = [place for at, place in sick if at > SLOW_S + 60]
    assert late.count(0) <= 0.15 * len(late)
    back = next(at for at, place in seen if at >= WELL_S and place == 0)
    assert back - WELL_S <= 60.0
    after = [place for at, place in seen if WELL_S + 60 <= at < END_S]
    assert after.count(0) > 0.8 * len(after)


def test_who_never_learns_stays() -> None:
    turn = Turn(target=BEST, from_s=SLOW_S, until_s=WELL_S, ttft=5.0)
    seen = places(plain("fixed-best"), 1, turn)
    assert all(place == 0 for _, place in seen)
