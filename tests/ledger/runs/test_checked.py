"""Pass rates of a user's own cases: what counts, what a bar needs, two targets side by side."""

from __future__ import annotations

from typing import Any

import pytest

from lightgate.clock.quantile import Interval
from lightgate.clock.share import Paired, wilson
from lightgate.ledger.runs.checked import STATES, PassRate, paired, pass_rate

SEEN: dict[str, Any] = {
    "a": "passed", "b": "passed", "c": "failed", "d": "truncated", "e": "refused",
    "f": "unanswered", "g": "passed", "h": "unanswered",
}  # fmt: skip
TAGS = {"a": ("easy", "short"), "c": ("easy",), "f": ("easy", "late"), "g": ("short",)}


def test_a_rate_is_that_of_the_answered_cases() -> None:
    rate = pass_rate(SEEN, TAGS)
    assert (rate.cases, rate.passed, rate.answered, rate.rate) == (8, 3, 6, 0.5)
    assert rate.interval == wilson(0.5, 6)
    assert rate.rest == {case: state for case, state in SEEN.items() if state != "passed"}
    assert rate.tags == {"easy": (1, 2), "late": (0, 0), "short": (2, 2)}
    assert list(rate.tags) == ["easy", "late", "short"]
    assert {state: rate.count(state) for state in STATES} == {
        "passed": 3, "failed": 1, "truncated": 1, "refused": 1, "unanswered": 2,
    }  # fmt: skip


def test_cases_without_an_answer_might_have_gone_either_way() -> None:
    rate = pass_rate(SEEN, {})
    assert (rate.lowest, rate.highest) == (3 / 8, 5 / 8)
    nothing = PassRate(cases=0, passed=0)
    assert (nothing.lowest, nothing.highest, nothing.rate) == (0.0, 1.0, None)


def test_without_an_answer_there_is_no_rate() -> None:
    rate = pass_rate({"a": "unanswered", "b": "unanswered"}, {})
    assert (rate.rate, rate.interval, rate.answered, rate.tags) == (None, None, 0, {})
    assert rate.says() == "none of 2 cases: no answer came"
    assert pass_rate({"a": "unanswered"}, {}).says() == "none of 1 case: no answer came"
    assert PassRate(cases=2, passed=1).says() == "none of 2 cases: no answer came"


def test_a_rate_in_words() -> None:
    rate = PassRate(
        cases=51, passed=46, rest={"x": "unanswered"}, interval=Interval(0.8116, 0.9684)
    )
    assert rate.says() == "92.0 % (81.2 to 96.8 %) of 50 cases"
    one = PassRate(cases=1, passed=1, interval=Interval(0.2, 1.0))
    assert one.says() == "100.0 % (20.0 to 100.0 %) of 1 case"


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.9, 0.99, "met"), (0.95, 1.0, "met"), (0.89, 0.99, "unsure"), (0.1, 0.9, "unsure"),
        (0.1, 0.89, "missed"),
    ],
)  # fmt: skip
def test_a_bar_is_met_or_missed_only_by_the_whole_interval(
    low: float, high: float, said: str
) -> None:
    assert PassRate(cases=9, passed=5, interval=Interval(low, high)).bar(0.9) == said


def test_a_bar_is_open_where_no_answer_came() -> None:
    assert PassRate(cases=9, passed=9).bar(0.0) == "unsure"


def test_two_targets_are_held_against_each_other_over_the_cases_that_both_answered() -> None:
    a = pass_rate({**SEEN, "i": "passed", "j": "failed"}, {})
    b = pass_rate({
        "a": "passed", "b": "failed", "c": "passed", "d": "failed", "e": "truncated", "f": "passed",
        "g": "unanswered", "h": "unanswered", "i": "refused", "j": "passed",
    }, {})  # fmt: skip
    assert paired(a, b, "abcdefghij") == Paired(1, 2, 2, 2)
    assert paired(a, b, "ac") == Paired(1, 0, 1, 0)
    assert paired(b, a, "bcj") == Paired(0, 2, 1, 0)
    assert paired(a, a, "ag") == Paired(2, 0, 0, 0)
