from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.config.notation import duration_text, parse_duration

UNITS = {
    "us": 1_000,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("800ms", 800_000_000), ("5s", 5 * 10**9), ("1.5s", 1_500_000_000), ("1h", 3600 * 10**9)],
)
def test_written_durations(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "5 s",
        "-5s",
        "s",
        "5S",
        "1e3s",
        "0s",
        "0.0ms",
        "5s\n",
        "\u0665s",
        "1.s",
        None,
        5,
        True,
    ],
)
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@given(st.integers(min_value=1, max_value=999_999_999), st.sampled_from(sorted(UNITS)))
@settings(max_examples=100, derandomize=True)
def test_number_times_unit(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == number * UNITS[unit]


@pytest.mark.parametrize("text", ["1us", "800ms", "5s", "90s", "2m", "1h", "30d", "1.5s"])
def test_a_duration_is_written_as_it_is_read(text: str) -> None:
    assert parse_duration(duration_text(parse_duration(text))) == parse_duration(text)
    assert duration_text(parse_duration("30d")) == "30d"
    assert duration_text(1) == "0.000000001s"
