from __future__ import annotations

from lightgate.route.form.whole_time import ENOUGH, LEAST_NS, WholeTimes

S = 1_000_000_000


def test_nothing_is_concluded_from_a_few_answers() -> None:
    times = WholeTimes()
    for _ in range(ENOUGH - 1):
        times.saw("a", S)
    assert times.limit_ns("a") is None
    times.saw("a", 2 * S)
    assert times.limit_ns("a") == 6 * S
    assert times.limit_ns("b") is None


def test_a_long_answer_is_forgotten_slowly_and_short_ones_have_a_least() -> None:
    times = WholeTimes()
    times.saw("a", 100 * S)
    for _ in range(50):
        times.saw("a", S)
    limit = times.limit_ns("a")
    assert limit is not None
    assert 150 * S < limit < 200 * S
    for _ in range(1000):
        times.saw("a", S // 10)
    assert times.limit_ns("a") == LEAST_NS


def test_a_longer_answer_has_more_time_as_far_as_the_request_allows_one() -> None:
    times = WholeTimes()
    for _ in range(ENOUGH):
        times.saw("a", 2 * S, 100)
    assert times.limit_ns("a", 100) == 6 * S
    assert times.limit_ns("a", 5) == 6 * S
    assert times.limit_ns("a", 150) == 9 * S
    # Few answers are four times as long as the longest of late; a limit of thousands is a habit.
    assert times.limit_ns("a", 4096) == times.limit_ns("a") == 24 * S


def test_the_time_of_a_token_is_that_of_the_answers_with_most_tokens() -> None:
    times = WholeTimes()
    for _ in range(ENOUGH):
        times.saw("a", S // 2, 1)  # half a second is no time of a token
    times.saw("a", 2 * S, 100)
    assert times.limit_ns("a", 200) == 12 * S


def test_what_was_given_up_has_three_times_as_long_the_next_time() -> None:
    times = WholeTimes()
    times.cut("a", S)
    assert times.limit_ns("a") is None
    for _ in range(ENOUGH):
        times.saw("a", S, 10)
    limit = times.limit_ns("a", 10)
    assert limit == 3 * S
    times.cut("a", limit)
    assert times.limit_ns("a", 10) == 9 * S
    times.cut("a", S)  # less than was known says nothing
    assert times.limit_ns("a", 10) == 9 * S


def test_targets_without_end_are_not_kept() -> None:
    times = WholeTimes()
    for n in range(3000):
        times.saw(str(n), S)
    assert len(times._longest) <= 1000
