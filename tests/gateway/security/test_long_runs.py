"""Texts that a search could begin anew from each of their characters: they hold nobody up."""

from __future__ import annotations

import pytest

from cpu_guard import within_cpu_s
from lightgate.dialect.errors import clean, fault
from lightgate.route.admission.headers import read_rates
from lightgate.route.cascade.asked import READ, asked_of

HEADERS = 60_000  # bytes; a head may have 65,536


@pytest.mark.parametrize("sign", ["e", "/", "_", "-", "e/-", "sk-", "eyJ", "api_key "])
def test_a_long_word_of_a_provider_is_cleaned_at_once(sign: str) -> None:
    with within_cpu_s(2):
        for _ in range(100):
            clean(sign * 6000)


def test_a_page_of_titles_is_read_at_once() -> None:
    with within_cpu_s(1):
        found = fault(500, b"<html>" + b"<title>" * 9000)
    assert found.message == "an HTML page without a title"


def test_a_time_of_endless_digits_is_none() -> None:
    reset = [(b"x-ratelimit-limit-requests", b"9"),
             (b"x-ratelimit-reset-requests", b"1" * HEADERS + b"x")]  # fmt: skip
    with within_cpu_s(2):
        (fact,) = read_rates(reset, 0.0)
    assert (fact.limit, fact.reset_s) == (9.0, None)


@pytest.mark.parametrize("mark", "“„«「")
def test_quotations_that_do_not_end_are_looked_through_once(mark: str) -> None:
    with within_cpu_s(2):
        for _ in range(50):
            asked_of(mark * READ)


@pytest.mark.parametrize("marks", ["“”", "„“", "„”", "«»", "「」", '""'])
def test_a_long_quotation_is_no_question(marks: str) -> None:
    quoted = f"{marks[0]}{'Prove it. ' * 20}{marks[1]}"
    assert asked_of(f"Is this true? {quoted}").families == asked_of("Is this true?").families
