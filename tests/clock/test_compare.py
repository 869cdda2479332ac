from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.clock.compare import (
    Comparison,
    adjusted,
    blocks_for,
    compare,
    compare_all,
    holm,
    p_less,
    smallest_p,
    standings,
)
from lightgate.clock.quantile import Interval


def verdicts(runs: int, factor: float, *, weather: float = 0.0) -> tuple[float, float, float]:
    """Shares of runs of 12 blocks x 5 pairs that p, interval and verdict call different."""
    rng = np.random.default_rng(11)
    blocks = np.repeat(np.arange(12), 5)
    seen = np.zeros(3)
    for _ in range(runs):
        logs = rng.normal(0.0, 0.3, (2, 60)) + weather * rng.normal(0.0, 1.0, (2, 12))[:, blocks]
        a, b = np.exp(logs)
        found = compare(a * factor, b, rng=rng, blocks=blocks.tolist())
        assert found.interval is not None
        seen += (found.p_value <= 0.05, not found.interval.spans(1.0), found.differs)
    by_p, by_interval, both = seen / runs
    return float(by_p), float(by_interval), float(both)


@pytest.mark.parametrize("weather", [0.0, 0.5])
def test_a_target_differs_from_itself_in_about_one_run_of_twenty(weather: float) -> None:
    by_p, by_interval, both = verdicts(400, 1.0, weather=weather)
    assert 0.02 <= by_p <= 0.08
    assert 0.015 <= by_interval <= 0.10
    assert both <= min(by_p, by_interval)


def test_a_quarter_faster_is_found() -> None:
    assert verdicts(60, 0.75)[2] > 0.8


def test_weather_ignored_would_raise_false_alarms() -> None:
    rng = np.random.default_rng(12)
    blocks = np.repeat(np.arange(12), 5)
    alarms = 0
    for _ in range(25):
        a, b = np.exp(rng.normal(0.0, 0.3, (2, 60)) + 0.5 * rng.normal(size=(2, 12))[:, blocks])
        alarms += compare(a, b, rng=rng).p_value <= 0.05
    assert alarms > 4  # which is why blocks are flipped whole


def test_the_verdict_names_the_direction() -> None:
    rng = np.random.default_rng(1)
    base = rng.lognormal(5.0, 0.2, 80)
    jitter = rng.lognormal(0.0, 0.05, 80)
    found = compare(base * 0.7 * jitter, base, rng=rng)
    assert found.verdict == "faster"
    assert found.differs
    assert found.ratio == pytest.approx(0.7, rel=0.1)
    assert found.interval is not None
    assert found.interval.low < 0.7 < found.interval.high or found.interval.spans(found.ratio)
    assert found.p_less > 0.8
    assert compare(base, base * 0.7 * jitter, rng=rng).verdict == "slower"


def test_identical_samples_tie() -> None:
    values = np.linspace(1.0, 2.0, 30)
    found = compare(values, values, rng=np.random.default_rng(1))
    assert (found.verdict, found.ratio, found.p_value, found.p_less) == ("tie", 1.0, 1.0, 0.5)
    assert found.interval == Interval(1.0, 1.0)


def test_weather_that_both_share_does_not_widen_the_interval() -> None:
    rng = np.random.default_rng(2)
    blocks = np.repeat(np.arange(12), 5)
    a, b = rng.lognormal(0.0, 0.1, (2, 60))
    storm = rng.lognormal(0.0, 1.0, 12)[blocks]
    calm, rough = (
        compare(a * air, b * air, rng=rng, blocks=blocks.tolist()).interval
        for air in (np.ones(60), storm)
    )
    assert calm is not None
    assert rough is not None
    assert (rough.low, rough.high) == pytest.approx((calm.low, calm.high))


def test_few_blocks_give_no_verdict() -> None:
    rng = np.random.default_rng(1)
    blocks = [0] * 20 + [1] * 20 + [2] * 20
    found = compare([1.0] * 60, [2.0] * 60, rng=rng, blocks=blocks)
    assert (found.blocks, found.n, found.interval) == (3, 60, None)
    assert found.verdict == "n too small"
    assert not found.differs


def test_few_blocks_are_exchanged_exhaustively() -> None:
    rng = np.random.default_rng(1)
    assert compare([1.0] * 6, [2.0] * 6, rng=rng).p_value == smallest_p(6) == 2 / 64
    assert compare([1.0] * 5, [2.0] * 5, rng=rng).p_value == smallest_p(5) == 2 / 32


def test_many_blocks_are_exchanged_at_random() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.lognormal(0.0, 0.3, (2, 40))
    assert compare(a, b * 2, rng=rng).p_value == pytest.approx(1 / 32769)


def test_pairs_without_one_of_their_samples_are_left_out() -> None:
    rng = np.random.default_rng(1)
    base = rng.lognormal(0.0, 0.3, 40)
    holes = np.where(np.arange(40) % 7 == 0, np.nan, base * 2)
    nothing = np.full(40, np.nan)
    found = compare_all({"a": base, "b": holes, "c": nothing}, rng=rng)
    assert found["a", "c"] is None
    assert found["b", "c"] is None
    pair = found["a", "b"]
    assert pair is not None
    assert pair.n == 34
    assert pair.ratio == pytest.approx(0.5)
    assert pair.interval is not None
    assert (pair.interval.low, pair.interval.high) == pytest.approx((0.5, 0.5))


def test_blocks_grow_with_the_pairs_so_that_any_difference_can_be_claimed() -> None:
    for targets in range(2, 18):
        pairs, blocks = targets * (targets - 1) // 2, blocks_for(targets)
        assert smallest_p(blocks - 8) * pairs <= 0.05
    assert [blocks_for(targets) for targets in (1, 2, 5, 12, 17)] == [14, 14, 17, 20, 21]


def test_the_same_seed_gives_the_same_numbers() -> None:
    a, b = np.random.default_rng(3).lognormal(size=(2, 50))
    one = compare(a, b, rng=np.random.default_rng(4))
    assert one == compare(a, b, rng=np.random.default_rng(4))


def test_p_less_counts_a_tie_as_half() -> None:
    assert p_less([1.0, 2.0], [2.0, 3.0]) == (1 + 1 + 0.5 + 1) / 4
    assert p_less([5.0], [1.0, 2.0]) == 0.0


@settings(derandomize=True, max_examples=100)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=20),
    st.lists(st.integers(1, 9), min_size=1, max_size=20),
)
def test_p_less_is_the_mean_over_all_pairs(a: list[int], b: list[int]) -> None:
    pairs = [(x < y) + 0.5 * (x == y) for x in a for y in b]
    assert p_less(a, b) == pytest.approx(sum(pairs) / len(pairs))


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def pair(p_value: float, low: float, high: float, blocks: int = 10) -> Comparison:
    return Comparison(
        n=50, blocks=blocks, ratio=0.9, interval=Interval(low, high), p_value=p_value, p_less=0.6
    )


def test_looking_often_makes_a_weak_finding_unsure_and_never_a_tie() -> None:
    weak = pair(0.03, 0.8, 0.95)
    assert weak.verdict == "faster"
    assert [one.verdict for one in adjusted([weak, pair(0.9, 0.8, 1.2)])] == ["unsure", "tie"]


def test_blocks_that_could_show_nothing_among_so_many_are_no_tie() -> None:
    """With 8 blocks and 30 comparisons no adjusted p can be below 0.05."""
    found = adjusted([pair(2 / 256, 0.39, 0.64, 8)] + [pair(0.5, 0.8, 1.2, 8)] * 29)
    assert {one.verdict for one in found} == {"too few blocks"}
    assert {one.verdict for one in adjusted([pair(2 / 256, 0.39, 0.64, 8)] * 2)} == {"faster"}


def test_a_difference_within_one_percent_is_a_tie() -> None:
    assert pair(0.0001, 0.992, 0.998).verdict == "tie"
    assert pair(0.0001, 0.985, 0.998).verdict == "faster"


def differing(aa_pairs: list[Comparison]) -> bool:
    return any(one.differs for one in adjusted(aa_pairs))


def test_an_aa_pair_that_differs_voids_the_run() -> None:
    assert differing([pair(0.001, 0.8, 0.95)])
    assert not differing([pair(0.3, 0.8, 1.1)])
    assert not differing([pair(0.03, 0.8, 0.95), pair(0.5, 0.9, 1.1)])
    assert not differing([])


def test_standings_say_which_ranks_cannot_be_excluded() -> None:
    rng = np.random.default_rng(9)
    one, other, third = rng.lognormal(0.0, 0.2, (3, 60))
    rows = standings({"slow": third * 3, "one": one, "other": other}, rng=rng, rounds=500)
    assert rows[2].name == "slow"
    assert (rows[2].rank, rows[2].best, rows[2].worst, rows[2].p_fastest) == (3, 3, 3, 0.0)
    assert {row.name for row in rows[:2]} == {"one", "other"}
    assert (rows[0].best, rows[0].worst) == (1, 2)
    assert sum(row.p_fastest or 0.0 for row in rows) == pytest.approx(1.0)
    assert rows[0].median <= rows[1].median


def test_twins_share_the_first_place() -> None:
    values = np.random.default_rng(2).lognormal(size=40)
    rows = standings({"a": values, "b": values}, rng=np.random.default_rng(3), rounds=100)
    assert [(row.rank, row.p_fastest) for row in rows] == [(1, 0.5), (1, 0.5)]


def test_few_blocks_exclude_no_rank() -> None:
    rows = standings({"a": [1.0] * 3, "b": [2.0] * 3}, rng=np.random.default_rng(3))
    assert [(row.best, row.worst, row.p_fastest) for row in rows] == [(1, 2, None)] * 2


@pytest.mark.parametrize(
    ("a", "b"),
    [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [float("inf")]), ([-1.0], [1.0])],
)
def test_samples_that_cannot_be_compared_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="a comparison needs"):
        compare(a, b, rng=np.random.default_rng(1))


def test_every_pair_needs_its_block() -> None:
    with pytest.raises(ValueError, match="one block"):
        compare([1.0, 2.0], [1.0, 2.0], rng=np.random.default_rng(1), blocks=[1])
