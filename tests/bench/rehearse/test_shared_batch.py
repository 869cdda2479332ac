"""An engine whose streams share its speed: ends that move, slots, and what the oracles know."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.rehearse.stages import played, policy
from lightgate.bench.rehearse.conditions import Narrowed, SceneConditions
from lightgate.bench.rehearse.rehearse import WorldSource, baseline
from lightgate.bench.rehearse.scene import SceneChanges, capacity, scene
from lightgate.bench.rehearse.shared_batch import BatchWork, SharedBatch
from lightgate.bench.rehearse.tally import figures
from lightgate.bench.rehearse.truth import BORN_NS

NS = 1_000_000_000
S = 1_000_000


def told(batch: SharedBatch) -> dict[int, int]:
    """When each answer ends, if nobody comes or goes any more."""
    found: dict[int, int] = {}
    while (at := batch.next_ns()) is not None:
        for ticket in batch.ended(at):
            found[ticket] = at
    return found


def by_hand(half: float, came: list[tuple[int, int, int]]) -> list[int]:
    """The ends of (instant, until the first token, work), in steps of a thousandth."""
    left = [float(work) for _, _, work in came]
    ends = [0] * len(came)
    now, step = 0, S // 1000
    while not all(ends):
        here = [n for n, (at, _, _) in enumerate(came) if at <= now and not ends[n]]
        pace = 1.0 + max(0, len(here) - 1) / half
        now += step
        for n in here:
            at, first, _ = came[n]
            left[n] -= max(0, min(step, now - at - first)) / pace
            if left[n] <= 0.0:
                ends[n] = now
    return ends


def test_a_request_alone_takes_what_was_drawn_for_it() -> None:
    batch = SharedBatch(4.0)
    assert batch.enter(1, 10, BatchWork(5, 100)) == 0
    assert batch.slower(10) == 1.25
    assert told(batch) == {1: 115}
    assert batch.busy(115) == 0


def test_two_share_the_speed_and_the_one_left_has_it_alone_again() -> None:
    batch = SharedBatch(1.0)  # one more halves it
    batch.enter(1, 0, BatchWork(0, 100))
    batch.enter(2, 50, BatchWork(0, 100))
    # Half of the first one's work takes 100; then the second has half of its own left.
    assert told(batch) == {1: 150, 2: 200}


def test_one_that_leaves_gives_the_others_their_speed_back() -> None:
    batch = SharedBatch(1.0)
    batch.enter(1, 0, BatchWork(0, 100))
    batch.enter(2, 0, BatchWork(0, 300))
    assert batch.made(1, 100) == pytest.approx(0.5)
    assert batch.made(2, 100) == pytest.approx(50 / 300)
    assert batch.leave(2, 100) == []
    assert (batch.made(2, 100), batch.made(7, 100)) == (0.0, 0.0)
    assert told(batch) == {1: 150}
    assert batch.leave(1, 151) == []


came = st.lists(
    st.tuples(st.integers(0, 3 * S), st.integers(0, S), st.integers(S // 2, 3 * S)),
    min_size=1,
    max_size=6,
)


@given(came, st.floats(1.0, 8.0))
def test_any_traffic_ends_as_by_hand(gaps: list[tuple[int, int, int]], half: float) -> None:
    rows = sorted(gaps)
    batch, ends = SharedBatch(half), {}
    for ticket, (at, first, work) in enumerate(rows):
        for over in batch.ended(at):
            ends[over] = 0
        batch.enter(ticket, at, BatchWork(first, work))
    ends |= told(batch)
    wanted = by_hand(half, rows)
    assert set(ends) == set(range(len(rows)))
    for ticket, end in ends.items():
        assert end == 0 or abs(end - wanted[ticket]) <= S // 50


@given(st.integers(1, 4), st.integers(0, 10_000))
def test_with_slots_the_wait_that_was_foreseen_comes_true(slots: int, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - the same every time
    batch, starts, firsts = SharedBatch(2.0, slots), {}, {}
    now = 0
    for ticket in range(12):
        now += dice.randrange(3 * S)
        work = BatchWork(dice.randrange(S), dice.randrange(1, 5 * S))
        foreseen = batch.wait_ns(now)
        wait = batch.enter(ticket, now, work)
        assert wait == foreseen >= 0
        starts[ticket], firsts[ticket] = now + wait, work.first_ns
        if dice.random() < 0.3:
            gone = dice.randrange(ticket + 1)
            for moved, sooner in batch.leave(gone, now):
                assert sooner > 0
                starts[moved] -= sooner
            starts.pop(gone, None)
        assert min(len(batch._served), slots) == len(batch._served)
    for ticket, member in batch._served.items():
        assert abs(member.at_ns - starts[ticket] - firsts[ticket]) <= 12  # roundings


def world(name: str, requests: int = 400, **changes: float) -> WorldSource:
    return WorldSource(scene(name, SceneChanges(requests=requests, **changes)))  # type: ignore[arg-type]  # by name


def test_the_capacity_is_all_that_the_streams_have_together() -> None:
    made = scene("shared", SceneChanges(targets=("amber",)))
    endless = capacity(made)
    assert made.traffic.rate == pytest.approx(0.6 * endless)
    several = [
        capacity(scene("shared-slots", SceneChanges(targets=("amber",), slots=slots)))
        for slots in (1, 16, 10_000)
    ]
    assert several[0] < several[1] < several[2] == pytest.approx(endless, rel=0.01)


def test_the_oracle_of_ends_knows_the_speed_in_the_batch_that_it_meets() -> None:
    truth = world("shared").drawn(3)().truth
    alone = truth.outlook(0, BORN_NS, 512)
    assert alone.shared_s == 0.0
    for number in range(8):  # half of the speed at amber
        truth.fate(number, 0, BORN_NS, 200)
    seen = truth.outlook(0, BORN_NS, 512)
    assert seen.tps == pytest.approx(alone.tps / 2.0)
    assert seen.shared_s == pytest.approx(1.0 / alone.tps)
    assert seen.wait_s == 0.0
    assert truth.outlook(1, BORN_NS, 512).shared_s == 0.0
    assert truth.busy(0, BORN_NS) == 8


def test_an_answer_in_a_batch_takes_as_long_as_the_batch_makes_it() -> None:
    where = world("shared", 300, share=0.02)
    calm = figures(played(where, baseline("oracle-end")))
    full = figures(played(world("shared", 300, share=0.8), baseline("oracle-end")))
    assert full.done_s[0] > 2.0 * calm.done_s[0]
    assert full.ttft_s[0] < 1.5 * calm.ttft_s[0]  # nobody waits for a first token
    assert full.failures == 0


def test_the_default_policy_learns_what_a_batch_costs() -> None:
    """Without it, the p95 of whole answers was 2.4 times that of the oracle."""
    where = world("shared", 1500)
    mark = figures(played(where, baseline("oracle-end")))
    mine = figures(played(where, policy("chat", "auto")))
    assert mine.done_s[1] < 1.25 * mark.done_s[1]
    assert mine.done_s[0] < 1.15 * mark.done_s[0]


def test_other_tenants_do_not_stand_in_a_batch() -> None:
    with pytest.raises(ValueError, match="neither"):
        SceneConditions(halved={"amber": 4.0}, strangers=0.4)
    narrowed = Narrowed(providers=("amber",), slots=0.5, since=0.3, until=0.6)
    with pytest.raises(ValueError, match="neither"):
        SceneConditions(halved={"amber": 4.0}, narrowed=narrowed)
