from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.config.notation import check_base_url, duration_text, parse_duration, parse_hourly

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


@pytest.mark.parametrize(
    "text",
    [
        "https://api.groq.com/openai/v1",
        "http://127.0.0.1:9001",
        "http://[::1]:8000/v1",
        "https://h:65535/a_b/c-d",
        "HTTP://host/v1",
    ],
)
def test_a_good_base_url(text: str) -> None:
    assert check_base_url(text + "/") == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begin with http"),
        ("api.groq.com/v1", "begin with http"),
        ("file:///etc/passwd", "begin with http"),
        ("https://", "no host"),
        ("https://:80/", "no host"),
        ("https://u@h/", "credentials"),
        ("https://u:p@h/", "credentials"),
        ("https://h:0/", "port 0"),
        ("https://h:65536/", "port is not"),
        ("https://h:x/", "port is not"),
        ("https://h/?q", "query"),
        ("https://h/#f", "fragment"),
        ("https://h /", "white space"),
        ("https://h/\x00", "white space"),
        ("https://h/{X}", "braces"),
        ("https://h/a/../b", "path"),
        ("https://h\\@evil/", "credentials"),
        ("https://h\\evil/", "host"),
        ("https://h/a\\b", "path"),
        ("https://[::1/", "host"),
        ("https://[::1]evil.example/", "host"),
        ("https://a%zz/", "host"),
        ("https://hö/", "host"),
    ],
)
def test_a_bad_base_url(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_base_url(text)


@given(st.text(max_size=40))
@settings(max_examples=500, derandomize=True)
def test_any_text_is_good_or_one_sentence(text: str) -> None:
    for url in (text, f"https://{text}", f"http://h{text}/v1"):
        said = ""
        try:
            assert check_base_url(url) == url.rstrip("/")
        except ValueError as reason:
            said = str(reason)
        assert "\n" not in said


def test_an_hourly_price_is_a_number_or_a_machine_that_was_bought() -> None:
    assert parse_hourly("2.69") == Decimal("2.69")
    # 30,000 / 26,280 hours + 0.7 kW x $0.30
    assert parse_hourly("30000/3y + 700W*0.30") == Decimal("1.351553")
    assert parse_hourly("30000/3y+700W*0.30") == Decimal("1.351553")
    assert parse_hourly("8760 / 1 y") == 1


@pytest.mark.parametrize(
    "text", ["", "-1", "0", "nan", "1e3", "30000/0y", "30000/3", "3y", "30000/3y + 700W", "2,69"]
)
def test_no_hourly_price(text: str) -> None:
    with pytest.raises(ValueError, match="dollars per hour"):
        parse_hourly(text)
