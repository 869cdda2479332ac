"""Service levels and changes: the numbers at their edges."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.route.form.change import FAR, ChangeDetector, Slowdown
from lightgate.route.form.slo import LevelsAsked, Promise, ServiceLevels, excess

NS = 1_000_000_000


def form(**more: Any) -> Any:
    """A form that believes: first tokens of a second, 100 tokens/s, both with sigma 0.1."""
    facts = {
        "p_error": 0.03, "prior": SimpleNamespace(weight=2.0), "variance": 0.01,
        "speed_variance": 0.01, "sizes": [SimpleNamespace(seen=7.0)],
        "fresh": lambda now: 0.5 if now == 5 else 1.0,
        "ttfts_s": [1.0, math.exp(0.1), math.exp(0.2)], "log_speed": lambda now: math.log(100.0),
        "wait_s": lambda now: 0.0, "longer": lambda now: 0.0,
        "curve": SimpleNamespace(holding_s=3.0),
    } | more  # fmt: skip
    return SimpleNamespace(**facts)


def above(limit: float, mean: float, sigma: float) -> float:
    return 0.5 * math.erfc((limit - mean) / (sigma * math.sqrt(2.0)))


def test_without_levels_a_fifth_of_failures_is_too_many() -> None:
    asked = LevelsAsked(0, 100, 0)
    assert excess(None, form(p_error=0.25), asked) == pytest.approx(0.05)
    assert excess(None, form(p_error=0.15), asked) == pytest.approx(-0.05)


def test_a_wait_counts_against_a_target() -> None:
    asked = LevelsAsked(0, 100, 0)
    patient = form(wait_s=lambda now: 5.0)
    assert excess(None, patient, asked) == pytest.approx(0.03 - 0.2)  # 2 s and what a request takes
    assert excess(None, form(wait_s=lambda now: 5.5), asked) == pytest.approx(0.03 - 0.2 + 0.5)
    levels = ServiceLevels(ttft_p95=int(1.6 * NS))
    late = above(math.log(1.6), math.log(1.5) + UNSURE * 0.1, 0.1) + 0.03
    found = excess(levels, form(wait_s=lambda now: 0.5), asked)
    assert found == pytest.approx(late - 0.05)


UNSURE = 1.28 / math.sqrt(2.0 + 7.0)


@pytest.mark.parametrize(
    ("field", "share"),
    [
        ("ttft_p50", 0.5),
        ("ttft_p95", 0.05),
        ("ttft_p99", 0.01),
        ("ttfa_p50", 0.5),
        ("ttfa_p95", 0.05),
    ],
)
def test_the_chance_of_a_late_first_token(field: str, share: float) -> None:
    levels = ServiceLevels(**{field: int(1.1 * NS)})
    late = above(math.log(1.1), UNSURE * 0.1, 0.1) + 0.03
    assert excess(levels, form(), LevelsAsked(0, 100, 0)) == pytest.approx(late - share)
    strict = LevelsAsked(0, 100, 0, (0.25,))
    assert excess(levels, form(), strict) == pytest.approx(late - 0.75 * share)


@pytest.mark.parametrize(("field", "share"), [("speed_p5", 0.05), ("speed_p50", 0.5)])
def test_the_chance_of_a_slow_answer(field: str, share: float) -> None:
    levels = ServiceLevels(**{field: 95.0})  # type: ignore[arg-type] # fields of speeds
    slow = above(-math.log(95.0), UNSURE * 0.1 - math.log(100.0), 0.1)
    assert excess(levels, form(), LevelsAsked(0, 100, 0)) == pytest.approx(slow - share)
    strict = LevelsAsked(0, 100, 0, (0.25,))
    assert excess(levels, form(), strict) == pytest.approx(slow - 0.75 * share)


@pytest.mark.parametrize(
    ("levels", "limit", "share"),
    [
        (ServiceLevels(e2e_p50=int(2.2 * NS)), 2.2, 0.5),
        (ServiceLevels(e2e_p95=int(2.2 * NS)), 2.2, 0.05),
        (ServiceLevels(speed_total_p50=100 / 2.2), 2.2, 0.5),
    ],
)
def test_the_chance_of_a_late_end(levels: ServiceLevels, limit: float, share: float) -> None:
    decode = 100 / math.exp(math.log(100.0) - UNSURE * 0.1)
    late = above(math.log(limit - decode), UNSURE * 0.1, 0.1) + 0.03
    assert excess(levels, form(), LevelsAsked(0, 100, 0)) == pytest.approx(late - share)
    strict = LevelsAsked(0, 100, 0, (0.25,))
    assert excess(levels, form(), strict) == pytest.approx(late - 0.75 * share)
    hopeless = LevelsAsked(0, 10_000, 0)
    if levels.speed_total_p50 is None:
        assert excess(levels, form(), hopeless) == pytest.approx(1.03 - share)


def test_the_worst_level_counts_and_each_has_its_margin() -> None:
    levels = ServiceLevels(ttft_p50=100 * NS, speed_p50=1.0, e2e_p95=int(2.2 * NS))
    worst = excess(levels, form(), LevelsAsked(0, 100, 0))
    alone = ServiceLevels(e2e_p95=int(2.2 * NS))
    assert worst == pytest.approx(excess(alone, form(), LevelsAsked(0, 100, 0)))
    margins = excess(levels, form(), LevelsAsked(0, 100, 0, (0.0, 0.0, 0.5)))
    assert margins == pytest.approx(worst + 0.025)
    assert excess(ServiceLevels(), form(), LevelsAsked(0, 100, 0)) == -1.0


def test_a_belief_is_sharper_the_more_was_seen_and_the_fresher_it_is() -> None:
    levels = ServiceLevels(ttft_p50=int(1.1 * NS))
    old = excess(levels, form(), LevelsAsked(0, 100, 5))
    unsure = 1.28 / math.sqrt(2.0 + 3.5)
    assert old == pytest.approx(above(math.log(1.1), unsure * 0.1, 0.1) + 0.03 - 0.5)
    many = form(sizes=[SimpleNamespace(seen=1000.0)])
    unsure = 1.28 / math.sqrt(2.0 + 2.0 / 0.12)
    sharp = above(math.log(1.1), unsure * 0.1, 0.1) + 0.03 - 0.5
    assert excess(levels, many, LevelsAsked(0, 100, 0)) == pytest.approx(sharp)
    steady = form(variance=0.0, speed_variance=0.0)
    least = above(math.log(1.1), UNSURE * 0.05, 0.05) + 0.03 - 0.5
    assert excess(levels, steady, LevelsAsked(0, 100, 0)) == pytest.approx(least)
    speeds = ServiceLevels(speed_p50=95.0)
    least = above(-math.log(95.0), UNSURE * 0.05 - math.log(100.0), 0.05) - 0.5
    assert excess(speeds, steady, LevelsAsked(0, 100, 0)) == pytest.approx(least)


# Promises


def test_margins_move_by_a_tenth_of_what_was_missed() -> None:
    promise = Promise(ServiceLevels(ttft_p50=NS, speed_p50=50.0, e2e_p50=3 * NS))
    assert promise.margins == (0.0, 0.0, 0.0)
    assert not promise.saw(1.0, 100, 2.0)  # all exactly kept
    assert promise.margins == (0.0, 0.0, 0.0)
    for _ in range(4):
        promise.saw(1.01, 100, 1.99)
    assert promise._exact == pytest.approx([0.2, 0.0, 0.0])
    assert promise.margins == (0.1875, 0.0, 0.0)  # sixteenths
    for _ in range(4):
        promise.saw(0.5, 100, 2.01)
    assert promise._exact == pytest.approx([0.0, 0.2, 0.0])
    for _ in range(40):
        assert promise.missed() in {True, False}
    assert promise._exact == [0.9, 0.9, 0.9]
    assert promise.margins == (0.875, 0.875, 0.875)
    assert not promise.missed()


def test_an_answer_of_one_token_has_no_speed() -> None:
    promise = Promise(ServiceLevels(speed_p50=50.0))
    promise.missed()
    before = promise._exact[0]
    promise.saw(1.0, 1, 5.0)
    promise.saw(1.0, 100, 0.0)
    assert promise._exact[0] == before
    promise.saw(1.0, 2, 1.0)
    assert promise._exact[0] > before


def test_levels_have_a_hash_of_their_own() -> None:
    assert ServiceLevels(ttft_p50=1).mark == ServiceLevels(ttft_p50=1).mark
    assert ServiceLevels(ttft_p50=1).mark != ServiceLevels(ttft_p95=1).mark


# Changes


def test_a_change_needs_more_than_one_sample() -> None:
    detector = ChangeDetector()
    assert detector.seen(100.0, 1.0) is None  # counts as 3.4: 2.7 above the slack
    assert detector.seen(2.0, 2.0) is None  # 4.0 in sum: not above it
    assert detector.seen(0.71, 3.0) == 2.0  # the median of three
    assert detector.seen(3.4, 4.0) is None  # it began anew
    assert detector.seen(3.4, 9.0) == 4.0


def test_a_fall_is_a_change_too() -> None:
    detector = ChangeDetector()
    assert detector.seen(-100.0, -1.0) is None
    assert detector.seen(-2.1, -2.0) == -1.0  # of two, the larger
    detector = ChangeDetector()
    assert [detector.seen(-0.7, 0.0) for _ in range(20)] == [None] * 20
    assert [detector.seen(0.7, 0.0) for _ in range(20)] == [None] * 20
    assert detector.seen(4.7, 1.0) is None


def test_the_slope_of_slowness_is_learned_from_late_answers() -> None:
    slowdown = Slowdown()
    assert slowdown.slope == pytest.approx(0.4)
    slowdown.saw(FAR - 0.01, 5.0)
    assert slowdown.slope == pytest.approx(0.4)
    slowdown.saw(0.35, 0.7)
    assert (slowdown.moved, slowdown.squares) == pytest.approx((0.245, 0.1225))
    slowdown = Slowdown()
    slowdown.saw(2.0, 1.6)
    assert slowdown.slope == pytest.approx((0.4 * 8.0 + 3.2) / 12.0)
    for _ in range(40):
        slowdown.saw(2.0, 9.0)
    assert slowdown.slope == 1.0
    assert slowdown.squares <= 68.0
    for _ in range(40):
        slowdown.saw(2.0, -9.0)
    assert slowdown.slope == 0.0


def test_the_memory_of_the_slope_is_halved_when_it_is_full() -> None:
    slowdown = Slowdown()
    slowdown.saw(8.0, 1.0)
    assert slowdown.squares == 64.0
    slowdown.saw(1.0, 1.0)  # not yet
    assert (slowdown.moved, slowdown.squares) == (9.0, 65.0)
    slowdown.saw(1.0, 1.0)
    assert (slowdown.moved, slowdown.squares) == (5.5, 33.5)


def test_the_speed_is_guessed_from_the_first_tokens() -> None:
    slowdown = Slowdown()
    assert slowdown.guess(0.0, 1.0, 0.5) == pytest.approx(-0.4)  # it got late
    assert slowdown.guess(-0.9, 1.0, 0.5) == -0.9  # slower already
    assert slowdown.guess(-0.8, 0.5, -0.5) == pytest.approx(-0.4)  # half of the way back
    assert slowdown.guess(-0.8, 0.0, -1.0) == pytest.approx(0.0)  # all of it
    assert slowdown.guess(-0.8, -0.5, -1.0) == pytest.approx(0.0)  # not more
    assert slowdown.guess(0.2, 0.5, -0.5) == 0.2
    assert slowdown.guess(0.0, 0.5, -0.5) == 0.0
    assert slowdown.guess(-0.8, -1.0, -0.5) == -0.8  # it was never late
    assert slowdown.guess(-0.8, -1.0, 0.0) == -0.8
    for _ in range(9):
        slowdown.saw(1.0, -0.5)
    assert slowdown.slope == 0.0
    assert slowdown.guess(-0.8, 0.0, -1.0) == -0.8
