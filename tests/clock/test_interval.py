from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.clock.quantile import Interval, interval, ranks, smallest_n

THRESHOLDS = [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3688)]


@pytest.mark.parametrize(("q", "n"), THRESHOLDS)
def test_an_interval_exists_from_exactly_this_many_samples(q: float, n: int) -> None:
    assert ranks(n - 1, q) is None
    assert ranks(n, q) is not None
    assert smallest_n(q) == n


@pytest.mark.parametrize(("q", "n"), THRESHOLDS)
def test_the_low_tail_needs_as_many_as_the_high_one(q: float, n: int) -> None:
    assert smallest_n(1 - q) == n


def test_the_p99_of_a_thousand_lies_between_ranks_983_and_997() -> None:
    assert ranks(1000, 0.99) == (983, 997)


def test_the_median_of_six_lies_between_the_extremes() -> None:
    assert interval([6.0, 1.0, 5.0, 2.0, 4.0, 3.0], 0.5) == Interval(1.0, 6.0, 0.95)
    assert interval([1.0] * 5, 0.5) is None
    assert interval([], 0.5) is None


def test_failures_make_an_open_end() -> None:
    found = interval([1.0] * 70 + [math.inf] * 2, 0.95)
    assert found is not None
    assert found.high == math.inf


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.integers(1, 150), st.sampled_from(["0.05", "0.5", "0.9", "0.95"]))
def test_the_ranks_are_the_tightest_by_exact_arithmetic(n: int, share: str) -> None:
    q, tail = Fraction(share), Fraction(1, 40)
    below = [Fraction(0)]  # below[k]: the probability of fewer than k
    for k in range(n):
        below.append(below[-1] + math.comb(n, k) * q**k * (1 - q) ** (n - k))
    low = max(k for k in range(n + 1) if below[k] <= tail)
    high = min((k for k in range(1, n + 1) if 1 - below[k] <= tail), default=n + 1)
    assert ranks(n, float(share)) == ((low, high) if low >= 1 and high <= n else None)


def test_it_covers_the_true_quantile_at_least_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    pair = ranks(200, 0.9)
    assert pair is not None
    draws = np.sort(rng.random((4000, 200)), axis=1)
    held = np.mean((draws[:, pair[0] - 1] <= 0.9) & (draws[:, pair[1] - 1] >= 0.9))
    assert 0.945 < held < 0.985


def test_a_million_samples_take_no_time_and_stay_symmetric() -> None:
    pair = ranks(1_000_000, 0.5)
    assert pair is not None
    assert pair[0] + pair[1] == 1_000_001
    assert pair[1] - pair[0] == pytest.approx(2 * 1.96 * 500, rel=0.01)


@pytest.mark.parametrize(("q", "confidence"), [(0.0, 0.95), (1.0, 0.95), (0.5, 1.0), (0.5, 0.0)])
def test_the_impossible_is_refused(q: float, confidence: float) -> None:
    with pytest.raises(ValueError, match="strictly between"):
        ranks(100, q, confidence)
