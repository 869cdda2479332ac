"""Tiers: where a request starts, who follows, and what a climb does with verdicts and failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.errors import ConfigError
from lightgate.route.cascade.course import NOTHING, CascadeCourse, Move
from lightgate.route.cascade.tiers import (
    Cascade,
    cascade_of,
    starting,
    tier_ask,
    tier_turns,
)
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide

if TYPE_CHECKING:
    from lightgate.route.cascade.tiers import TierTurn
    from lightgate.route.plan.plan import Level

SMALL, MIDDLE, LARGE = ("s/a", "s/b"), ("m/a", "s/b"), ("l/a",)
ALIAS = Alias(name="smart", targets=("s/a", "s/b", "m/a", "l/a"), policy="cascade", hedge="off")
VERIFY = ("not_refused",)


def three(verify: tuple[str, ...] = VERIFY, ahead_ns: int | None = None) -> Cascade:
    alias = msgspec.structs.replace(ALIAS, ahead_ns=ahead_ns)
    return cascade_of(alias, [("simple", SMALL), ("medium", MIDDLE), (None, LARGE)], verify)


def two(ahead_ns: int | None = None) -> Cascade:
    alias = msgspec.structs.replace(ALIAS, ahead_ns=ahead_ns)
    return cascade_of(alias, [("medium", SMALL), (None, LARGE)], VERIFY)


@pytest.mark.parametrize(("level", "place"), [("simple", 0), ("medium", 1), ("complex", 2)])
def test_a_level_starts_in_the_first_tier_that_takes_it(level: Level, place: int) -> None:
    assert starting(three(), level) == place


def test_two_tiers_take_three_levels() -> None:
    assert [starting(two(), level) for level in ("simple", "medium", "complex")] == [0, 0, 1]


def test_the_last_tier_takes_everything_whatever_it_says() -> None:
    assert cascade_of(ALIAS, [("simple", SMALL), ("medium", LARGE)]).tiers[-1].upto == "complex"


@pytest.mark.parametrize(
    "tiers",
    [
        [],
        [("medium", SMALL), ("simple", MIDDLE), (None, LARGE)],
        [("simple", SMALL), ("simple", MIDDLE), (None, LARGE)],
        [(None, SMALL), (None, LARGE)],
        [("complex", SMALL), (None, LARGE)],
    ],
)
def test_tiers_that_do_not_rise_are_an_error(tiers: list[Any]) -> None:
    with pytest.raises(ConfigError):
        cascade_of(ALIAS, tiers)


def test_the_plan_of_a_tier_is_decides_over_its_targets() -> None:
    cascade, breakers = three(), Breakers(Rules(), lambda: 0.5)
    ask = PlanAsk(alias=ALIAS, policy="cascade")

    plan = decide(tier_ask(cascade, 0, ask), breakers, 0, 0.5)

    assert tuple(step.target for step in plan.steps) == SMALL
    assert tier_ask(cascade, 0, ask).alias.policy == "chat"
    assert tier_ask(cascade, 0, ask).policy is None
    assert tier_ask(cascade, 0, PlanAsk(alias=ALIAS, policy="cheapest")).policy == "cheapest"


def test_a_tier_is_an_alias_without_tiers_checks_and_head_starts_of_its_own() -> None:
    whole = msgspec.structs.replace(
        ALIAS, ahead_ns=5, verify=VERIFY, learned_bounds=True, self_hedge=True
    )
    cascade = cascade_of(whole, [("simple", SMALL), (None, LARGE)], VERIFY)
    for tier in cascade.tiers:
        alias = tier.alias
        assert (alias.tiers, alias.verify, alias.weights, alias.ahead_ns) == ((), (), (), None)
        assert (alias.learned_bounds, alias.self_hedge) == (False, False)


def test_tiers_are_remembered_apart() -> None:
    assert len({tier.alias.name for tier in three().tiers}) == 3


def test_a_target_whose_answer_failed_is_not_asked_again() -> None:
    cascade, ask = three(), PlanAsk(alias=ALIAS)

    assert tier_ask(cascade, 1, ask, frozenset(("s/b",))).alias.targets == ("m/a",)
    assert tier_ask(cascade, 2, ask, frozenset(LARGE)).alias.targets == LARGE


def test_rungs_go_up_and_then_down() -> None:
    found = [(rung.tier, rung.role, rung.checked) for rung in tier_turns(three(), 1)]

    assert found == [(1, "start", True), (2, "next", False), (0, "below", False)]


def test_without_checks_nothing_is_held_back_or_started_ahead() -> None:
    found = tier_turns(three(verify=(), ahead_ns=5), 0)

    assert [rung.checked for rung in found] == [False, False, False]
    assert [rung.role for rung in found] == ["start", "next", "next"]


def test_only_the_tier_after_the_first_starts_ahead() -> None:
    found = [(rung.role, rung.start_ns) for rung in tier_turns(three(ahead_ns=5), 0)]

    assert found == [("start", 0), ("ahead", 5), ("next", None)]
    assert [rung.role for rung in tier_turns(three(ahead_ns=5), 2)] == ["start", "below", "below"]
    assert [tier.alias.ahead_ns for tier in three(ahead_ns=5).tiers] == [None] * 3


# The climb


def test_an_answer_that_passes_ends_it() -> None:
    climb = CascadeCourse(tier_turns(three(), 0))

    assert climb.begin() == Move(start=(0,))
    assert climb.answered(0, "passed") == Move(deliver=0, verified=True, over=True)
    assert climb.answered(0, "passed") == NOTHING


def test_an_answer_that_was_not_checked_does_not_escalate() -> None:
    climb = CascadeCourse(tier_turns(three(), 0))
    climb.begin()

    assert climb.answered(0, "unchecked") == Move(deliver=0, verified=None, over=True)


def test_each_failure_goes_one_up_and_the_last_tier_is_passed_on_as_it_comes() -> None:
    climb = CascadeCourse(tier_turns(three(), 0))
    climb.begin()

    assert climb.answered(0, "failed") == Move(start=(1,))
    assert climb.failed(1) == Move(start=(2,), release=2)
    assert climb.answered(2) == Move(deliver=2, over=True)


def test_the_best_answer_that_failed_its_checks_is_better_than_none() -> None:
    climb = CascadeCourse(tier_turns(three(), 0))
    climb.begin()
    climb.answered(0, "failed")
    climb.answered(1, "failed")

    assert climb.failed(2) == Move(deliver=1, verified=False, over=True)


def test_the_tiers_below_answer_only_where_nobody_above_did() -> None:
    climb = CascadeCourse(tier_turns(three(), 1))
    climb.begin()
    climb.failed(1 - 1)

    assert climb.failed(1) == Move(start=(2,), release=2)
    assert climb.answered(2) == Move(deliver=2, over=True)

    climb = CascadeCourse(tier_turns(three(), 1))
    climb.begin()
    climb.answered(0, "failed")
    assert climb.failed(1) == Move(deliver=0, verified=False, over=True)


def test_nobody_goes_on_with_anothers_words() -> None:
    climb = CascadeCourse(tier_turns(three(), 2))
    assert climb.begin() == Move(start=(0,), release=0)

    assert climb.failed(0, committed=True) == Move(over=True)


def test_a_released_rung_that_failed_before_its_first_token_is_followed() -> None:
    climb = CascadeCourse(tier_turns(three(), 2))
    climb.begin()

    assert climb.failed(0) == Move(start=(1,), release=1)


def test_ahead_starts_by_the_clock_and_is_closed_when_the_first_passes() -> None:
    climb = CascadeCourse(tier_turns(three(ahead_ns=300), 0))
    climb.begin()

    assert climb.due_ns() == 300
    assert climb.tick(299) == NOTHING
    assert climb.tick(300) == Move(start=(1,))
    assert climb.due_ns() is None
    assert climb.answered(0, "passed") == Move(cancel=(1,), deliver=0, verified=True, over=True)


def test_ahead_has_the_client_once_the_first_failed() -> None:
    climb = CascadeCourse(tier_turns(two(ahead_ns=0), 0))
    climb.begin()
    climb.tick(0)

    assert climb.answered(0, "failed") == Move(release=1)
    assert climb.answered(1) == Move(deliver=1, over=True)


def test_ahead_may_be_done_first() -> None:
    climb = CascadeCourse(tier_turns(two(ahead_ns=0), 0))
    climb.begin()
    climb.tick(0)

    assert climb.answered(1) == Move(cancel=(0,), deliver=1, over=True)


def test_a_first_that_fails_early_does_not_wait_for_the_clock() -> None:
    climb = CascadeCourse(tier_turns(three(ahead_ns=300), 0))
    climb.begin()

    assert climb.failed(0) == Move(start=(1,))
    assert climb.due_ns() is None


def test_an_answer_ahead_that_fails_its_checks_leaves_the_turn_where_it_is() -> None:
    climb = CascadeCourse(tier_turns(three(ahead_ns=0), 0))
    climb.begin()
    climb.tick(0)

    assert climb.answered(1, "failed") == NOTHING
    assert climb.at == 0
    assert climb.answered(0, "failed") == Move(start=(2,), release=2)
    assert climb.failed(2) == Move(deliver=1, verified=False, over=True)


class Seen:
    """Follows a climb as a gateway would, and says where it breaks a promise."""

    def __init__(self, ladder: tuple[TierTurn, ...]) -> None:
        self.ladder = ladder
        self.started: list[int] = []
        self.ended: list[int] = []  # answered, failed or cancelled: each once
        self.whole: dict[int, str] = {}  # answers, and what the checks said of them
        self.delivered: list[int] = []
        self.released: list[int] = []
        self.overs = 0

    @property
    def running(self) -> list[int]:
        return [place for place in self.started if place not in self.ended]

    def take(self, move: Move) -> None:
        assert set(move.start).isdisjoint(self.started), "started twice"
        self.started += move.start
        assert set(move.cancel) <= set(self.running), "cancelled what does not run"
        self.ended += move.cancel
        self.overs += move.over
        if move.release is not None:
            assert move.release in self.running
            assert not self.ladder[move.release].checked, "passed on before it was checked"
            self.released.append(move.release)
        if move.deliver is not None:
            assert move.over
            assert move.deliver in self.whole, "delivered what was never whole"
            verdict = self.whole[move.deliver]
            assert (move.verified is True) <= (verdict == "passed")
            assert (move.verified is False) <= (verdict == "failed")
            self.delivered.append(move.deliver)
        if move.over:
            assert not self.running, "over, and somebody runs"


@given(
    start=st.integers(0, 2),
    ahead=st.none() | st.integers(0, 5),
    checked=st.booleans(),
    events=st.lists(
        st.tuples(
            st.sampled_from(["passed", "failed", "unchecked", "down", "tick", "stranger"]),
            st.integers(0, 9),
        ),
        max_size=16,
    ),
)
def test_every_climb_keeps_its_promises(
    start: int, ahead: int | None, checked: bool, events: list[tuple[str, int]]
) -> None:
    ladder = tier_turns(three(VERIFY if checked else (), ahead), start)
    climb, seen = CascadeCourse(ladder), Seen(ladder)
    seen.take(climb.begin())
    for kind, number in events:
        running = seen.running
        if kind == "tick":
            due = climb.due_ns()
            move = climb.tick(number)
            assert bool(move.start) == (due is not None and due <= number)
            seen.take(move)
        elif kind == "stranger":
            assert climb.answered(len(ladder) + number, "passed") == NOTHING
        elif running:
            place = running[number % len(running)]
            seen.ended.append(place)
            if kind == "down":
                seen.take(climb.failed(place))
            else:
                seen.whole[place] = kind
                seen.take(climb.answered(place, kind))  # type: ignore[arg-type]
        assert seen.overs <= 1
        assert climb.over == bool(seen.overs)
        assert climb.over or climb.at in seen.running, "one that is not over waits for somebody"
    while not climb.over:  # nobody answers any more
        place = climb.at
        seen.ended.append(place)
        seen.take(climb.failed(place))
    assert len(seen.delivered) <= 1
    assert sorted(seen.ended) == sorted(seen.started), "each ends, and ends once"
    assert seen.started == sorted(seen.started)
    assert climb.tick(9) == NOTHING
    if any(seen.whole.values()):
        assert seen.delivered, "some answer is better than none"
    parallel = [rung for rung in ladder if rung.role == "ahead"]
    assert len(parallel) == (ahead is not None and checked and start < 2)


def test_a_turn_that_does_not_run_cannot_fail() -> None:
    climb = CascadeCourse(tier_turns(three(), 0))
    climb.begin()
    assert climb.failed(1) == NOTHING
    assert climb.answered(0, "failed") == Move(start=(1,))
