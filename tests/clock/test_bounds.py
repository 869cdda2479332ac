from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.clock.bounds import Bounds, SpeedFacts, doubtful, of_gaps, of_rate, of_speed

MS = 1_000_000


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (30.0, 29.0, 30.0, False),
        (30.0, 28.9, 30.0, True),
        (519.0, 209.0, 519.0, True),
        (519.0, 509.0, 519.0, False),  # 2 %
        (519.0, 508.0, 519.0, True),
        (10.0, 10.0, 11.5, True),
    ],
)
def test_a_time_is_doubtful_beyond_a_millisecond_and_two_per_cent(
    value: float, low: float, high: float, expected: bool
) -> None:
    assert doubtful(value, Bounds(low, high)) is expected


def test_a_rate_has_no_milliseconds() -> None:
    assert doubtful(10.0, Bounds(9.7, 10.0), rate=True)
    assert not doubtful(10.0, Bounds(9.9, 10.1), rate=True)
    assert doubtful(10.0, Bounds(10.0, math.inf), rate=True)


def test_a_failure_is_not_doubtful() -> None:
    assert not doubtful(math.inf, Bounds(100.0, math.inf))


def test_a_rate_over_a_span_that_may_be_nothing_has_no_upper_end() -> None:
    assert of_rate(Bounds(50, 50), 1e9, 2e9) == (25.0, 50.0)
    assert of_rate(Bounds(50, 50), 0, 1e9) == (50.0, math.inf)


def test_exact_bursts_have_exact_gaps() -> None:
    at = (0, 20 * MS, 45 * MS)
    gaps = of_gaps(at, at, (1, 1, 1), kernel=True)
    assert gaps.seen == gaps.low == gaps.high == [20.0, 25.0]
    assert gaps.stall == (25.0, 25.0)


def test_a_read_that_hid_three_pieces_hid_three_gaps() -> None:
    at, since = (0, 60 * MS), (0, 5 * MS)
    gaps = of_gaps(at, since, (1, 3), kernel=True)
    assert (gaps.seen, gaps.low, gaps.high) == ([60.0], [0.0] * 3, [60.0] * 3)
    assert gaps.stall == (20.0, 60.0)  # one of three gaps that fill 60 ms has at least 20


def test_pieces_that_came_within_a_millisecond_are_one_burst() -> None:
    gaps = of_gaps((0, 60 * MS), (0, 60 * MS - MS // 2), (1, 3), kernel=True)
    assert (gaps.low, gaps.high) == ([59.5], [60.0])


def test_a_read_stamp_may_be_late_at_both_ends_of_a_gap() -> None:
    gaps = of_gaps((10 * MS, 40 * MS), (4 * MS, 38 * MS), (1, 1), kernel=False)
    assert (gaps.seen, gaps.low, gaps.high) == ([30.0], [28.0], [36.0])
    assert gaps.stall == (28.0, 36.0)


@given(
    st.lists(st.integers(1, 50), min_size=2, max_size=40),
    st.lists(st.integers(0, 4), min_size=1, max_size=40),
)
def test_the_longest_true_gap_is_within_its_bounds(steps: list[int], merged: list[int]) -> None:
    """Tokens arrive at known instants; a client reads some of them together, late."""
    arrivals = [MS * sum(steps[: n + 1]) for n in range(len(steps))]
    at, since, pieces = [arrivals[0]], [arrivals[0]], [1]
    place, turn = 1, 0
    while place < len(arrivals):
        count = min(1 + merged[turn % len(merged)], len(arrivals) - place)
        read = arrivals[place : place + count]
        since.append(at[-1] if count > 1 else read[-1])
        at.append(read[-1])
        pieces.append(count)
        place, turn = place + count, turn + 1
    gaps = of_gaps(at, since, pieces, kernel=True)
    true = sorted((b - a) / MS for a, b in pairwise(arrivals))
    assert gaps.stall is not None
    assert gaps.stall.low - 1e-9 <= true[-1] <= gaps.stall.high + 1e-9
    assert all(low <= one for low, one in zip(sorted(gaps.low), true, strict=False))


@pytest.mark.parametrize(
    ("shortest", "longest", "expected"),
    [
        (1.0, 2.0, (25e9, 50e9)),
        (0.0, 0.0, (0.0, math.inf)),
        (-5.0, 0.0, (0.0, math.inf)),
        (-5.0, -1.0, (0.0, math.inf)),
        (0.5, 0.5, (100e9, 100e9)),
    ],
)
def test_a_rate_over_spans_of_any_length(
    shortest: float, longest: float, expected: tuple[float, float]
) -> None:
    assert of_rate(Bounds(50, 50), shortest, longest) == expected


@pytest.mark.parametrize(
    ("pieces", "first_ns", "most"),
    [
        (1, 5 * MS, 90),  # one piece is one burst, however late it was read
        (2, 0, 90),
        (2, MS, 90),  # a millisecond is one burst still
        (2, MS + 1, 99),  # all but one token may have come after the first
        (3, 5 * MS, 99),
    ],
)
def test_pieces_that_a_late_client_read_at_once_may_be_several_bursts(
    pieces: int, first_ns: int, most: int
) -> None:
    facts = SpeedFacts(90, 100, pieces, 100 * MS, 1100 * MS, first_ns, 200 * MS)
    found = of_speed(facts)
    assert found.low == pytest.approx(90e9 / (1000 * MS + first_ns))
    assert found.high == pytest.approx(most * 1e9 / (800 * MS))


def test_the_rest_of_a_speed_is_never_above_its_upper_end() -> None:
    facts = SpeedFacts(90, 80, 2, 0, 1000 * MS, 2 * MS, 0)
    assert of_speed(facts).high == pytest.approx(90.0)


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("pieces", [1, 2, 5])
@pytest.mark.parametrize("late", [0, MS - 1, MS, MS + 1, 30 * MS, 100 * MS])
def test_one_gap_by_its_definition(kernel: bool, pieces: int, late: int) -> None:
    """The gap is 60 ms, its first stamp 4 ms late, its last stamp `late`."""
    gaps = of_gaps((10 * MS, 70 * MS), (6 * MS, 70 * MS - late), (9, pieces), kernel=kernel)
    hidden = pieces if late > MS else 1
    longest = 60.0 if kernel else 64.0
    shortest = max(0.0, 60 - late / MS)
    assert gaps.seen == [60.0]
    assert gaps.high == [longest] * hidden
    assert gaps.low == ([0.0] * hidden if hidden > 1 else [pytest.approx(shortest)])
    least = max(shortest, 60 / hidden) if kernel and hidden > 1 else shortest
    assert gaps.stall is not None
    assert list(gaps.stall) == pytest.approx([least, longest])


def test_a_stall_is_the_longest_of_the_gaps_at_either_end() -> None:
    at = (0, 50 * MS, 60 * MS, 100 * MS)
    gaps = of_gaps(at, (0, 10 * MS, 60 * MS, 95 * MS), (1, 1, 1, 2), kernel=False)
    assert gaps.seen == [50.0, 10.0, 40.0]
    assert gaps.low == [10.0, 10.0, 0.0, 0.0]
    assert gaps.high == [50.0, 50.0, 40.0, 40.0]
    assert gaps.stall == (35.0, 50.0)
    assert of_gaps((0,), (0,), (1,), kernel=True) == ([], [], [], None)
