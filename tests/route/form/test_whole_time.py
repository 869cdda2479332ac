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


def test_targets_without_end_are_not_kept() -> None:
    times = WholeTimes()
    for n in range(3000):
        times.saw(str(n), S)
    assert len(times._longest) <= 1000
