from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lightgate.route.health.window import CountWindow

events = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60
)


@given(events)
def test_it_counts_what_a_list_of_all_events_counts(steps: list[tuple[int, int, int]]) -> None:
    window, now, seen = CountWindow(10, 30), 0, list[tuple[int, int, int]]()
    for forward, first, second in steps:
        now += forward
        window.add(now, first, second)
        seen.append((now // 30, first, second))
        recent = [item for item in seen if item[0] > now // 30 - 10]
        assert window.first == sum(item[1] for item in recent)
        assert window.second == sum(item[2] for item in recent)


def test_a_jump_ahead_empties_it() -> None:
    window = CountWindow(10, 30)
    window.add(5, 3, 4)
    window.turn(10**18)
    assert (window.first, window.second) == (0, 0)


def test_time_that_goes_back_is_counted_into_the_newest_bucket() -> None:
    window = CountWindow(10, 30)
    window.add(1000, 1, 1)
    window.add(10, 1, 1)
    assert window.first == 2
    window.turn(1000 + 270)
    assert window.first == 2
    window.turn(1000 + 300)
    assert window.first == 0
