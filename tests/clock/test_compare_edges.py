"""Comparisons at their boundaries, and against formulas that are worked out here by hand."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest

from lightgate.clock import compare as module
from lightgate.clock.compare import (
    LEVEL,
    SMALLEST,
    Comparison,
    compare,
    compare_all,
    holm,
    smallest_p,
    standings,
    student,
    within,
)
from lightgate.clock.quantile import Interval

T_POINTS = {1: 12.7062, 2: 4.302653, 3: 3.182446, 5: 2.570582, 6: 2.446912, 10: 2.228139,
            11: 2.200985, 30: 2.042272, 59: 2.000995}  # fmt: skip


@pytest.mark.parametrize(("freedom", "expected"), T_POINTS.items())
def test_students_points_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert student(freedom, 0.95) == pytest.approx(expected, rel=1e-6)
    assert within(student(freedom, 0.95), freedom) == pytest.approx(0.95, abs=1e-8)
    assert student(freedom, 0.2) < 1.0 < student(freedom, 0.99)
    assert within(student(freedom, 0.2), freedom) == pytest.approx(0.2, abs=1e-8)


@pytest.mark.parametrize(
    ("t", "freedom", "expected"),
    [
        (0.0, 1, 0.0),
        (1.0, 1, 0.5),
        (1.0, 2, math.sqrt(1 / 3)),
        (math.sqrt(3), 3, 0.5 + 1 / math.pi),
        (2.0, 4, 2 / math.sqrt(8) * (1 + 0.25)),
    ],
)
def test_the_probability_within_t(t: float, freedom: int, expected: float) -> None:
    assert within(t, freedom) == pytest.approx(expected)


def found(**changes: object) -> Comparison:
    plain = {"n": 50, "blocks": 10, "ratio": 0.9, "p_value": 0.01, "p_less": 0.6}
    return Comparison(**{"interval": Interval(0.8, 0.95), **plain, **changes})  # type: ignore[arg-type]


def test_a_comparison_is_read_alone_unless_somebody_says_otherwise() -> None:
    assert found().among == 1
    assert found(blocks=6).verdict == "faster"  # 1 of 32 is below 5 %


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"interval": None}, "n too small"),
        ({"interval": Interval(1 / (1 + SMALLEST), 1 + SMALLEST)}, "tie"),
        ({"interval": Interval(1 / (1 + SMALLEST), 1 + SMALLEST), "blocks": 1}, "tie"),
        ({"interval": Interval(0.9900, 1 + SMALLEST), "blocks": 1}, "too few blocks"),
        ({"interval": Interval(0.995, 1.0101), "blocks": 1}, "too few blocks"),
        ({"interval": Interval(0.5, 1.0)}, "tie"),
        ({"interval": Interval(1.0, 2.0), "ratio": 1.4}, "tie"),
        ({"p_value": LEVEL}, "faster"),
        ({"p_value": LEVEL * 1.01}, "unsure"),
        ({"interval": Interval(1.2, 2.0), "ratio": 1.4}, "slower"),
        ({"among": 20}, "faster"),
        ({"among": 21}, "too few blocks"),
    ],
)
def test_verdicts_at_their_limits(changes: dict[str, object], verdict: str) -> None:
    one = found(**changes)
    assert one.verdict == verdict
    assert one.differs is (verdict in {"faster", "slower"})


@pytest.mark.parametrize("count", [1, 5, 6, 7, 12])
def test_the_interval_is_students_over_the_means_of_blocks(count: int) -> None:
    rng = np.random.default_rng(count)
    a, b = rng.lognormal(0.0, 0.4, (2, 3 * count))
    blocks = [10 * (at // 3) for at in range(3 * count)]
    one = compare(a, b, rng=rng, blocks=blocks)
    gaps = [
        statistics.fmean(math.log(a[at]) - math.log(b[at]) for at in range(first, first + 3))
        for first in range(0, 3 * count, 3)
    ]
    assert (one.n, one.blocks) == (3 * count, count)
    assert one.ratio == pytest.approx(math.exp(statistics.fmean(gaps)))
    assert one.p_less == pytest.approx(np.mean(a[:, None] < b[None, :]))
    if count < 6:
        assert one.interval is None
        return
    reach = student(count - 1, 0.95) * statistics.stdev(gaps) / math.sqrt(count)
    middle = statistics.fmean(gaps)
    assert one.interval is not None
    assert one.interval.low == pytest.approx(math.exp(middle - reach))
    assert one.interval.high == pytest.approx(math.exp(middle + reach))
    # every exchange of blocks is tried: the share of those at least as far from 0
    sums = [abs(sum(s * g for s, g in zip(signs, gaps, strict=True)))
            for signs in itertools.product((1, -1), repeat=count)]  # fmt: skip
    extreme = sum(one_sum >= abs(sum(gaps)) * (1 - 1e-9) for one_sum in sums)
    assert one.p_value == extreme / 2**count


def test_blocks_without_a_pair_do_not_count() -> None:
    nan = math.nan
    a = [1.0, 2.0, nan, nan, 1.0, 3.0]
    b = [2.0, nan, 1.0, nan, 4.0, 3.0]
    one = compare(a, b, rng=np.random.default_rng(1), blocks=[0, 0, 1, 2, 3, 3])
    assert (one.n, one.blocks) == (3, 2)
    assert one.ratio == pytest.approx(math.exp((math.log(0.5) + math.log(0.25) / 2) / 2))
    assert one.p_value == 1 / 2  # of four exchanges of the two blocks that count


def test_the_last_blocks_may_have_no_pair() -> None:
    a = [1.0, 1.0, math.nan, math.nan]
    one = compare(a, [2.0] * 4, rng=np.random.default_rng(1), blocks=[0, 1, 2, 3])
    assert (one.n, one.blocks, one.ratio) == (2, 2, 0.5)


def test_two_targets_that_share_no_place_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="needs a pair of samples"):
        compare([1.0, math.nan], [math.nan, 1.0], rng=np.random.default_rng(1))


def test_many_exchanges_are_drawn_in_parts_and_counted_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.lognormal(0.0, 0.5, (2, 16))
    whole = compare(a, b * 1.15, rng=np.random.default_rng(3)).p_value
    assert whole == pytest.approx(permuted(a, b * 1.15), abs=0.01)
    assert (whole * 32769) == pytest.approx(round(whole * 32769))
    monkeypatch.setattr(module, "_CELLS", 1000)
    parts = compare(a, b * 1.15, rng=np.random.default_rng(3)).p_value
    assert parts == pytest.approx(whole, abs=0.01)
    fifteen = compare(a[:15], b[:15], rng=np.random.default_rng(3)).p_value
    assert fifteen == permuted(a[:15], b[:15])  # all of 2**15, in parts too


def permuted(a: np.ndarray, b: np.ndarray) -> float:
    """The share of all exchanges whose sum is as far from 0, all of them tried."""
    gaps = np.log(a) - np.log(b)
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=len(gaps))))
    return float(np.mean(np.abs(signs @ gaps) >= abs(gaps.sum()) * (1 - 1e-9)))


def test_the_parts_of_many_rounds() -> None:
    assert list(module._sizes(10, module._CELLS)) == [1] * 10
    assert list(module._sizes(10, 2 * module._CELLS)) == [1] * 10
    assert list(module._sizes(10, module._CELLS // 4)) == [4, 4, 2]
    assert list(module._sizes(8, module._CELLS // 4)) == [4, 4]
    assert list(module._sizes(0, 1)) == []


def test_every_pair_of_three_targets_is_compared_with_its_own_samples() -> None:
    rng = np.random.default_rng(2)
    values = {"x": rng.lognormal(size=9), "y": rng.lognormal(size=9), "z": rng.lognormal(size=9)}
    together = compare_all(values, rng=rng)
    assert list(together) == [("x", "y"), ("x", "z"), ("y", "z")]
    for (one, other), pair in together.items():
        assert pair == compare(values[one], values[other], rng=rng)


@pytest.mark.parametrize("blocks", range(1, 8))
def test_the_smallest_p_of_so_many_blocks(blocks: int) -> None:
    assert smallest_p(blocks) == 2 / 2**blocks


def test_holm_takes_the_smallest_first_and_never_goes_down() -> None:
    assert holm([0.02, 0.01, 0.011]) == pytest.approx([0.03, 0.03, 0.03])
    assert holm([0.2, 0.6, 0.01]) == pytest.approx([0.4, 0.6, 0.03])
    assert holm([0.4]) == [0.4]


def test_ranks_of_few_blocks_and_of_holes() -> None:
    nan, rng = math.nan, np.random.default_rng(4)
    six = [5.0, 1.0, 3.0, 2.0, 4.0, 6.0]
    slow = [value * 10 for value in six]
    rows = standings({"slow": slow, "fast": six}, rng=rng, rounds=50)
    told = [(row.name, row.median, row.rank, row.best, row.worst, row.p_fastest) for row in rows]
    assert told == [
        ("fast", 3.0, 1, 1, 1, 1.0),
        ("slow", 30.0, 2, 2, 2, 0.0),
    ]  # fmt: skip
    holes = standings({"slow": slow, "fast": [*six[:5], nan]}, rng=rng, rounds=50)
    assert [(row.median, row.best, row.worst, row.p_fastest) for row in holes] == [
        (3.0, 1, 2, None),
        (30.0, 1, 2, None),
    ]
    assert standings({"a": [1.0, nan], "b": [nan, 2.0]}, rng=rng) == []
    twins = standings({"b": six, "a": six, "c": slow}, rng=rng, rounds=50)
    assert [(row.name, row.rank) for row in twins] == [("a", 1), ("b", 1), ("c", 3)]


def test_a_bootstrap_draws_whole_blocks_for_all_targets_at_once() -> None:
    """Both targets have the weather of their blocks: the one that is faster in each always wins."""
    air = np.repeat(np.arange(1.0, 9.0), 4)
    blocks = np.repeat(np.arange(8), 4).tolist()
    rows = standings(
        {"a": air, "b": air * 1.01}, rng=np.random.default_rng(1), blocks=blocks, rounds=200
    )
    assert [(row.name, row.p_fastest) for row in rows] == [("a", 1.0), ("b", 0.0)]


def test_weighted_medians_are_medians_of_repeated_samples() -> None:
    rng = np.random.default_rng(8)
    row = rng.permutation(np.arange(1.0, 10.0))
    weights = rng.integers(0, 4, size=(50, 9))
    weights[:, 0] += 1  # never all zero
    found = module._weighted_medians(row, weights)
    for one, median in zip(weights, found, strict=True):
        assert median == statistics.median_low(np.repeat(row, one).tolist())
    for size in range(1, 8):
        values = rng.random(size)
        assert module._median(values) == statistics.median_low(values.tolist())


def test_a_shared_first_place_counts_in_part() -> None:
    drawn = np.array([[1.0, 1.0, 2.0], [3.0, 1.0, 1.0], [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]])
    shares = [module._share_fastest(drawn, at) for at in range(3)]
    assert shares == pytest.approx(
        [(0.5 + 1 + 1 / 3) / 4, (0.5 + 0.5 + 1 / 3) / 4, (0.5 + 1 / 3) / 4]
    )
    assert module._places(drawn).tolist() == [[1, 1, 3], [3, 1, 1], [1, 2, 3], [1, 1, 1]]


def test_the_ends_of_what_was_drawn_leave_a_fortieth_on_each_side() -> None:
    assert module._ends(np.arange(1, 41)) == (1, 39)
    assert module._ends(np.arange(1, 401)) == (10, 390)
    with pytest.raises(ValueError, match="at least one round"):
        module._ends(np.array([]))
