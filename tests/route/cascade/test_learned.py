"""Learned bounds: they settle where the wanted share of answers fails, and stay within limits."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.route.cascade.complexity import COMPLEX_FROM, MEDIUM_FROM
from lightgate.route.cascade.learned import FAILS, FURTHEST, NEAR, LearnedBounds

THREE = ("simple", "medium", "complex")


def simulate(bounds: LearnedBounds, hard_from: float, requests: int = 6000) -> float:
    """The share of first answers of the middle tier that failed, in the second half.

    An answer fails with odds that rise by a factor of e for each point above `hard_from`.
    """
    luck, failures, checks = random.Random(7), 0, 0  # noqa: S311 - no secret
    for number in range(requests):
        points = luck.uniform(MEDIUM_FROM, COMPLEX_FROM + 4)
        if 1 + (points >= COMPLEX_FROM) + bounds.higher(points) != 1:
            continue
        failed = luck.random() < 1 / (1 + math.exp(hard_from - points))
        bounds.answered(1, points, failed=failed)
        if number >= requests // 2:
            checks += 1
            failures += failed
    return failures / checks


class Fixed(LearnedBounds):
    """Bounds that learn nothing."""

    __slots__ = ()

    def answered(self, tier: int, points: float, *, failed: bool) -> None:
        return


def test_a_bound_settles_where_the_share_fails() -> None:
    bounds = LearnedBounds(THREE)
    hard_from = COMPLEX_FROM - 1.5
    simulate(bounds, hard_from)

    # Within NEAR below the bound 30 % fail on average, so at the bound itself a little more.
    middle = bounds.bounds[1] - NEAR / 2
    assert 1 / (1 + math.exp(hard_from - middle)) == pytest.approx(FAILS, abs=0.06)
    assert bounds.bounds[0] == MEDIUM_FROM  # of which nothing was heard


def test_fewer_first_answers_fail_than_without_learning() -> None:
    before = simulate(Fixed(THREE), COMPLEX_FROM - 3)
    after = simulate(LearnedBounds(THREE), COMPLEX_FROM - 3)

    assert (round(before, 2), round(after, 2)) == (0.55, 0.28)  # as the guide says


def test_a_tier_that_never_fails_takes_more_and_the_limit_holds() -> None:
    bounds = LearnedBounds(THREE)
    assert simulate(bounds, 60.0) == 0.0

    assert bounds.bounds[1] == pytest.approx(COMPLEX_FROM + FURTHEST)
    assert bounds.higher(COMPLEX_FROM + 1) == -1


def test_a_request_far_below_its_bound_says_nothing() -> None:
    bounds = LearnedBounds(THREE)
    bounds.answered(1, COMPLEX_FROM - NEAR - 0.01, failed=True)
    bounds.answered(2, COMPLEX_FROM, failed=True)

    assert (bounds.bounds, bounds.checked) == ([MEDIUM_FROM, COMPLEX_FROM], 0)


@given(
    heard=st.lists(
        st.tuples(st.integers(0, 2), st.floats(-5, 12, allow_nan=False), st.booleans()),
        max_size=200,
    )
)
def test_bounds_stay_in_order_and_near(heard: list[tuple[int, float, bool]]) -> None:
    bounds = LearnedBounds(THREE)
    for tier, points, failed in heard:
        bounds.answered(tier, points, failed=failed)

    assert bounds.bounds == sorted(bounds.bounds)
    assert abs(bounds.bounds[0] - MEDIUM_FROM) <= FURTHEST
    assert abs(bounds.bounds[1] - COMPLEX_FROM) <= FURTHEST
