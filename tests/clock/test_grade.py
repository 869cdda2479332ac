from __future__ import annotations

import pytest

from lightgate.clock.load import BANDS, band, grade


@pytest.mark.parametrize(
    ("speed", "expected"),
    [
        (250.0, 1),
        (100.0, 1),
        (99.99, 2),
        (70.0, 2),
        (69.9, 3),
        (65.0, 3),  # between two bands of the grades that we were given
        (50.0, 3),
        (30.0, 4),
        (29.9, 5),
        (25.0, 5),  # the other hole
        (0.0, 5),
    ],
)
def test_every_speed_has_one_band(speed: float, expected: int) -> None:
    assert band(speed) == expected


def test_the_bands_leave_no_gap() -> None:
    assert [number for number, _ in BANDS] == [1, 2, 3, 4, 5]
    assert BANDS[-1][1] == 0.0
    floors = [floor for _, floor in BANDS]
    assert floors == sorted(floors, reverse=True)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (101.0, 130.0, "1"),
        (95.0, 105.0, "1\N{EN DASH}2"),
        (40.0, 120.0, "1\N{EN DASH}4"),
        (70.0, 99.0, "2"),
        (1.0, 2.0, "5"),
    ],
)
def test_a_straddling_interval_gives_both_grades(low: float, high: float, text: str) -> None:
    assert str(grade(low, high)) == text


def test_what_is_no_speed_is_refused() -> None:
    with pytest.raises(ValueError, match="not negative"):
        band(-1.0)
    with pytest.raises(ValueError, match="not negative"):
        band(float("nan"))
    with pytest.raises(ValueError, match="in order"):
        grade(2.0, 1.0)
