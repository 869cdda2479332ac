"""Shares: Wilson's interval, McNemar's exact test, Newcombe's intervals of differences."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.clock.share import Paired, unpaired, wilson

COUNTS = st.integers(0, 60)


def test_wilson_of_a_published_example() -> None:
    """81 of 263: Newcombe, Statistics in Medicine 17 (1998) 857, method 3."""
    found = wilson(81 / 263, 263)
    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)
    assert wilson(0.0, 20).low == 0.0
    assert wilson(1.0, 20).high == 1.0
    assert round(wilson(0.0, 20).high, 4) == 0.1611


def test_the_paired_difference_of_a_published_example() -> None:
    """36, 12, 2, 0: Newcombe, Statistics in Medicine 17 (1998) 2635, method 10."""
    found = Paired(36, 12, 2, 0)
    assert found.difference == pytest.approx(0.2)
    assert found.interval is not None
    assert (round(found.interval.low, 4), round(found.interval.high, 4)) == (0.0569, 0.3404)


def test_mcnemar_is_the_binomial_test_of_the_disagreements() -> None:
    assert Paired(50, 0, 0, 3).p_value == 1.0
    assert Paired(9, 5, 0, 9).p_value == pytest.approx(2 / 32)
    assert Paired(0, 0, 6, 0).p_value == pytest.approx(2 / 64)
    by_hand = 2 * sum(math.comb(12, k) for k in (0, 1, 2)) / 4096
    assert Paired(7, 2, 10, 1).p_value == pytest.approx(by_hand)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_sides_can_be_exchanged(both: int, a: int, b: int, neither: int) -> None:
    one, other = Paired(both, a, b, neither), Paired(both, b, a, neither)
    assert one.p_value == other.p_value
    if not one.n:
        assert one.interval is None
        assert one.difference is None
        return
    assert one.interval is not None
    assert other.interval is not None
    assert one.interval.low == pytest.approx(-other.interval.high, abs=1e-9)
    assert one.interval.low - 1e-9 <= (one.difference or 0.0) <= one.interval.high + 1e-9


def test_unpaired_of_a_published_example() -> None:
    """56 of 70 against 48 of 80: Newcombe, Statistics in Medicine 17 (1998) 873, method 10."""
    found = unpaired((48 / 80, 80), (56 / 70, 70))
    assert (round(found.low, 4), round(found.high, 4)) == (0.0524, 0.3339)


@pytest.mark.parametrize("n", [25, 27, 57])
def test_a_paired_difference_of_one_is_the_end_of_its_interval(n: int) -> None:
    """The sums of these tables pass one by a last bit, and no difference of shares is above it."""
    every, none = Paired(0, n, 0, 0).interval, Paired(0, 0, n, 0).interval
    assert every is not None
    assert none is not None
    assert (every.high, none.low) == (1.0, -1.0)
    least = 1 - math.sqrt(2) * wilson(0.0, n).high
    assert [every.low, none.high] == pytest.approx([least, -least])


@pytest.mark.parametrize(
    ("table", "cross"),
    [
        ((20, 5, 3, 22), 20 * 22 - 15 - 25),  # half of the 50 cases is taken off
        ((5, 20, 22, 3), 15 - 440),  # nothing where the sides disagree
        ((6, 5, 5, 5), 0),  # what is left is not turned round
        ((6, 5, 5, 6), 0),
        ((1, 0, 0, 1), 0),  # one is above nothing, and less than half of the cases
        ((7, 5, 5, 7), 49 - 25 - 12),
    ],
)
def test_the_correlation_of_pairs_with_newcombes_correction(
    table: tuple[int, int, int, int], cross: int
) -> None:
    both, a, b, neither = table
    under = math.sqrt((both + a) * (b + neither) * (both + b) * (a + neither))
    assert Paired(*table)._correlation() == pytest.approx(cross / under)
