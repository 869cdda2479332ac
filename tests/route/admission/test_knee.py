"""The knee gate alone, before a target with a number of slots; time is counted, not waited for."""

from __future__ import annotations

import pytest

from lightgate.route.admission.knee import FINE_ROUND, MORE, MOST, PROBE_NS, Knee

NS = 1_000_000_000


class Slots:
    """A target that works on so many requests at once; others wait, so each takes longer."""

    def __init__(self, slots: float) -> None:
        self.slots = slots
        self.now_ns = 0

    def round(self, knee: Knee, *, seconds: float = 1.0) -> None:
        """Answer one round of requests that all began with the level full."""
        epoch, level = knee.epoch, round(knee.most)
        took = seconds * max(1.0, level / self.slots)
        for _ in range(max(FINE_ROUND, level)):
            self.now_ns += int(took / level * NS)
            knee.ended(epoch, level, 100.0, took, self.now_ns)

    def settle(self, knee: Knee, rounds: int = 60) -> None:
        """Answer rounds until the level is found."""
        for _ in range(rounds):
            self.round(knee)


@pytest.mark.parametrize("slots", [1, 2, 3, 8, 40])
def test_the_level_comes_near_the_slots(slots: int) -> None:
    knee, target = Knee(), Slots(slots)
    target.settle(knee)
    assert knee.settled
    assert 0.75 * slots <= knee.most <= max(slots + 2.0, MORE * 1.13 * slots)


def test_one_slot_is_held_at_one_and_never_less() -> None:
    knee, target, seen = Knee(), Slots(1), set()
    for _ in range(200):
        target.round(knee)
        seen.add(knee.most)
    assert min(seen) == 1.0
    assert knee.most <= 2.0  # one more is tried from time to time


def test_at_one_there_is_nothing_less_to_try() -> None:
    knee, target = Knee(), Slots(1)
    target.settle(knee)
    while knee.most > 1.0:
        target.round(knee)
    before = knee.epoch
    target.now_ns = 0  # before the next try of more
    target.round(knee, seconds=50.0)  # and slow
    assert (knee.most, knee.epoch) == (1.0, before + 1)


def test_a_slow_spell_tries_fewer_and_comes_back() -> None:
    knee, target = Knee(), Slots(8)
    target.settle(knee)
    held = knee.most
    target.now_ns += PROBE_NS
    seen = []
    for _ in range(6):
        target.round(knee, seconds=3.0)
        seen.append(knee.most)
    assert min(seen) < held
    assert min(seen) >= 1.0


def test_a_target_that_takes_all_is_given_no_more_than_the_most() -> None:
    knee, target = Knee(), Slots(100_000)
    for _ in range(12):
        target.round(knee)
    assert knee.most == MOST
