"""Attempts beside another: which of them count, for how much, and when they are none."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.route.form.forms import Forms
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import SERVER
from lightgate.route.observe import Observer
from lightgate.route.plan.alias import Layout, lay_out
from lightgate.route.plan.course import Course, RetryBudget
from lightgate.route.plan.hedge import RACE_SPEND, HedgeBudgets
from lightgate.route.plan.plan import Plan, Step

S = 1_000_000_000
MS = 1_000_000


def plan(*, race: int = 1, hedge_ms: int | None = None, targets: int = 4) -> Plan:
    order = [f"p{place}/m" for place in range(targets)]
    shape = Layout(0, 2 * S, race, None if hedge_ms is None else hedge_ms * MS)
    steps = lay_out(order, targets, shape)
    return Plan(steps, "ordered", "a test", reserve_nano=1000.0, own_nano=1000.0)


def observer() -> Observer:
    return Observer(Breakers(Rules(), lambda: 0.5), Forms({}), HedgeBudgets())


def test_a_hedge_that_follows_a_failure_is_a_fallback() -> None:
    hedged = plan(hedge_ms=100)
    course = Course(hedged, 0, 30 * S)
    first = course.due(0)
    assert first is not None
    second = course.failed(first, SERVER, 10 * MS, RetryBudget())
    assert second is not None
    assert (second.target, second.role, second.start_ns) == ("p1/m", "fallback", None)
    # Who comes after a failure leaves time for those behind it.
    assert course.ttft_ns(second, 29 * S) <= S // 3


def test_a_hedge_in_its_own_time_stays_one() -> None:
    course = Course(plan(hedge_ms=100), 0, 30 * S)
    course.due(0)
    second = course.due(100 * MS)
    assert second is not None
    assert second.role == "hedge"


@pytest.mark.parametrize("race", [2, 3, 4])
def test_a_race_of_any_width_starts_with_the_first_request(race: int) -> None:
    """Each racer may cost what the answer does, however many there are."""
    seen, raced = observer(), plan(race=race)
    seen.arrived("k")
    assert all(seen.may_start("k", step, raced) for step in raced.steps[1:race])
    dear = msgspec.structs.replace(raced, reserve_nano=1001.0)
    assert not observer().may_start("k", dear.steps[1], dear)
    seen.settled("k", raced, raced.steps[1:race], 1000.0, 1000.0 * (race - 1))
    paid, _, racers = seen.budgets.spent("k")
    assert paid == 1000.0
    assert racers == pytest.approx(1000.0)


@given(
    st.lists(
        st.tuples(st.integers(2, 4), st.floats(0.1, 1), st.floats(0, 1), st.booleans()),
        max_size=80,
    )
)
def test_no_sequence_of_races_costs_more_than_its_share(
    events: list[tuple[int, float, float, bool]],
) -> None:
    """Several under way at once, answers as dear as expected, losers at most as dear."""
    seen = observer()
    under_way: list[tuple[Plan, list[Step], float]] = []
    paid = lost = 0.0
    for race, size, part, ends in events:
        base = plan(race=race)
        raced = Plan(base.steps, "o", "t", reserve_nano=3000.0, own_nano=2000.0 * size)
        seen.arrived("k")
        let = [step for step in raced.steps[1:race] if seen.may_start("k", step, raced)]
        under_way.append((raced, let, 3000.0 * part * len(let)))
        if ends:
            for done, steps, cost in under_way:
                seen.settled("k", done, steps, done.own_nano, cost)
                paid += done.own_nano
                lost += cost
            under_way.clear()
            assert lost <= 3 * RACE_SPEND * paid + 1e-6
