from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.report.charts.ticks import linear_ticks, log_ticks, spread

POSITIVE = st.floats(1e-3, 1e6)


@given(POSITIVE, st.floats(1.0, 1e6), st.integers(2, 9))
def test_log_ticks_are_inside_in_order_and_few(low: float, factor: float, most: int) -> None:
    ticks = log_ticks(low, low * factor, most)
    assert len(ticks) <= most
    assert ticks == sorted(set(ticks))
    assert all(low * (1 - 1e-9) <= tick <= low * factor * (1 + 1e-9) for tick in ticks)


def test_log_ticks_are_round() -> None:
    assert log_ticks(90, 5200, 7) == [100, 200, 500, 1000, 2000, 5000]
    assert log_ticks(610, 640, 5) == [610, 620, 630, 640]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 9))
def test_linear_ticks_are_inside_in_order_and_few(low: float, width: float, most: int) -> None:
    ticks = linear_ticks(low, low + width, most)
    assert len(ticks) <= most
    assert ticks == sorted(ticks)
    air = width * 1e-6
    assert all(low - air <= tick <= low + width + air for tick in ticks)


def test_linear_ticks_have_even_steps() -> None:
    assert linear_ticks(0, 100, 6) == [0, 20, 40, 60, 80, 100]
    assert linear_ticks(3, 3) == [3]


def test_an_axis_upside_down_is_refused() -> None:
    with pytest.raises(ValueError, match="0 < low"):
        log_ticks(0, 10)
    with pytest.raises(ValueError, match="in order"):
        linear_ticks(2, 1)


@given(st.lists(st.floats(0, 200), max_size=12), st.floats(1, 20))
def test_labels_keep_their_distance_and_stay_inside(wanted: list[float], gap: float) -> None:
    places = spread(wanted, gap, 0.0, 240.0)
    assert all(-1e-6 <= place <= 240 + 1e-6 for place in places)
    for upper, lower in pairwise(sorted(places)):
        assert lower - upper >= min(gap, 240 / max(1, len(wanted) - 1)) - 1e-6
    ranked = sorted(range(len(wanted)), key=wanted.__getitem__)
    assert [places[at] for at in ranked] == sorted(places)


def test_labels_that_are_apart_stay_where_they_are() -> None:
    assert spread([50.0, 10.0, 90.0], 14, 0, 100) == [50, 10, 90]
    assert spread([50.0, 50.0], 14, 0, 100) == [43, 57]
