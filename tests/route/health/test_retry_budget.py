from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lightgate.route.plan.course import FLOOR_PER_S, LIFE_S, SHARE_PERCENT, RetryBudget

S = 1_000_000_000


def taken(budget: RetryBudget, now_ns: int, tries: int = 1000) -> int:
    return sum(budget.may(now_ns) for _ in range(tries))


def test_without_traffic_there_is_the_floor() -> None:
    budget = RetryBudget()
    assert taken(budget, 0) == FLOOR_PER_S * LIFE_S
    assert taken(budget, (LIFE_S - 1) * S) == 0
    assert taken(budget, LIFE_S * S) == FLOOR_PER_S * LIFE_S


def test_traffic_adds_its_share() -> None:
    budget = RetryBudget()
    for _ in range(1000):
        budget.deposit(0)
    assert taken(budget, S) == FLOOR_PER_S * LIFE_S + 1000 * SHARE_PERCENT // 100


def test_a_deposit_dies() -> None:
    budget = RetryBudget()
    for _ in range(1000):
        budget.deposit(0)
    assert budget.left(LIFE_S * S) == FLOOR_PER_S * LIFE_S


def test_a_jump_of_the_clock_gives_no_more_than_the_floor() -> None:
    budget = RetryBudget()
    for _ in range(1000):
        budget.deposit(0)
    assert taken(budget, 10**18) == FLOOR_PER_S * LIFE_S


@given(st.lists(st.tuples(st.integers(0, 3 * S), st.booleans()), max_size=300))
def test_an_outage_is_amplified_by_the_share_at_most(steps: list[tuple[int, bool]]) -> None:
    budget, now = RetryBudget(), 0
    requests: list[int] = []
    retries: list[int] = []
    for forward, is_request in steps:
        now += forward
        if is_request:
            budget.deposit(now)
            requests.append(now)
        elif budget.may(now):
            retries.append(now)
    for end in retries:
        recent = sum(end - (LIFE_S - 1) * S <= at <= end for at in retries)
        paid = sum(end - LIFE_S * S <= at <= end for at in requests)
        assert recent <= FLOOR_PER_S * LIFE_S + paid * SHARE_PERCENT / 100
