from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.bench.statistics.steady import (
    AttemptSpan,
    closed_window,
    counted_window,
    find,
    open_window,
    trend,
)
from lightgate.clock.load import Span, Window

S = 1_000_000_000
MS = 1_000_000


def closed(
    workers: int, each: int, ttfts: list[float] | None = None, time_s: float = 1.0
) -> list[AttemptSpan]:
    """A closed loop: every worker sends `each` requests, the workers start 10 ms apart."""
    flights = []
    for worker in range(workers):
        at = worker * 10 * MS
        for number in range(each):
            stop = at + round(time_s * S)
            ttft = 200.0 if ttfts is None else ttfts[number * workers + worker]
            flights.append(
                AttemptSpan(plan_ns=at, send_ns=at, last_ns=stop, free_ns=stop, ttft_ms=ttft)
            )
            at = stop
    return flights


def at_rate(times_s: list[float], gap_s: float = 0.05) -> list[AttemptSpan]:
    """An open loop: a request every 50 ms, which takes as long as it is told."""
    flights = []
    for number, time_s in enumerate(times_s):
        at = round(number * gap_s * S)
        stop = at + round(time_s * S)
        ttft = time_s * 500.0
        flights.append(
            AttemptSpan(plan_ns=at, send_ns=at, last_ns=stop, free_ns=stop, ttft_ms=ttft)
        )
    return flights


def test_a_closed_window_runs_while_in_flight_is_at_its_target() -> None:
    spans = [Span(0, 100), Span(10, 60), Span(60, 90), Span(90, 130)]
    assert closed_window(spans, 2) == Window(10, 100)


def test_a_dip_between_two_requests_of_a_worker_does_not_end_the_window() -> None:
    spans = [Span(0, 100), Span(0, 40), Span(45, 90)]
    assert closed_window(spans, 2) == Window(0, 90)


def test_there_is_no_window_where_in_flight_never_reached_its_target() -> None:
    assert closed_window([Span(0, 10), Span(10, 20)], 2) is None
    found = find([[AttemptSpan(plan_ns=0, send_ns=0, last_ns=S, free_ns=S)]], 3)
    assert not found.found
    assert found.steady is False
    assert found.note == "in flight never reached 3 (at most 1)"
    assert found.windows == (Window(0, S),)
    assert found.inflight == 1.0


def test_an_open_window_leaves_out_the_fill_and_ends_with_the_last_plan() -> None:
    flights = at_rate([1.0] * 101)
    assert open_window(flights) == Window(1 * S, 5 * S + 1)
    assert open_window(flights[:1]) is None


def test_the_fill_of_an_open_window_is_at_most_a_fifth_of_it() -> None:
    assert open_window(at_rate([30.0] * 101)) == Window(1 * S, 5 * S + 1)


def test_a_cell_that_holds_still_is_steady() -> None:
    rng = np.random.default_rng(1)
    ttfts = rng.lognormal(5.3, 0.3, size=8 * 30).tolist()
    found = find([closed(8, 30, ttfts)], 8)
    assert found.steady is True
    assert found.note == ""
    assert found.inflight == pytest.approx(8.0)
    assert found.little == pytest.approx(8.0, rel=0.05)
    assert found.busy == pytest.approx(8.0)


def test_ttft_that_climbs_is_not_steady() -> None:
    rng = np.random.default_rng(1)
    climb = np.exp(np.linspace(0.0, 0.7, 8 * 30))
    ttfts = (rng.lognormal(5.3, 0.2, size=8 * 30) * climb).tolist()
    found = find([closed(8, 30, ttfts)], 8)
    assert found.steady is False
    assert found.note.startswith("TTFT moved by +")
    assert found.ttft is not None
    assert found.ttft.low < np.expm1(0.7) < found.ttft.high


def test_a_queue_that_only_grows_is_not_steady() -> None:
    found = find([at_rate(np.linspace(0.5, 12.0, 400).tolist())], None)
    assert found.steady is False
    assert "TTFT moved" in found.note
    assert "in flight moved" in found.note


def test_littles_law_sees_a_backlog_that_no_line_sees() -> None:
    # Nothing drifts over the window, but what was sent at its end stays for a very long time.
    times = [0.1] * 380 + [5.0] * 20
    found = find([at_rate(times)], None)
    assert found.steady is False
    assert "Little's law" in found.note


def test_a_short_window_is_not_held_against_littles_law() -> None:
    found = find([closed(32, 4)], 32)
    assert found.little is not None
    assert found.little < 0.95 * 32
    assert found.steady is True


def stretch(workers: int, counted: int, times_s: list[float]) -> list[AttemptSpan]:
    """A closed loop with a ramp, so many counted requests, and fillers until they have ended."""
    free = [worker * round(times_s[0] * S) // workers for worker in range(workers)]
    flights: list[AttemptSpan] = []
    last = 0
    for number in itertools.count():
        worker = min(range(workers), key=free.__getitem__)
        at = free[worker]
        counts = workers - 1 <= number < workers - 1 + counted
        if number >= workers - 1 + counted and at >= last:
            return flights
        stop = free[worker] = at + round(times_s[number % len(times_s)] * S)
        last = max(last, stop) if counts else last
        flights.append(
            AttemptSpan(
                plan_ns=at, send_ns=at, last_ns=stop, free_ns=stop, ttft_ms=200.0, counted=counts
            )
        )
    raise AssertionError


def test_a_counted_window_holds_what_was_asked_for_at_the_full_load() -> None:
    flights = stretch(32, 128, [1.0])
    window = counted_window(flights)
    assert window is not None
    assert window.seconds == pytest.approx(4.0)  # 128 requests of a second, 32 at once
    inside = [f for f in flights if window.start_ns <= f.send_ns < window.stop_ns]
    assert [f.counted for f in inside] == [True] * 128
    found = find([flights], 32)
    assert found.inflight == pytest.approx(32.0)
    assert found.little == pytest.approx(32.0)
    assert found.steady is True


def test_long_answers_are_counted_as_often_as_they_start() -> None:
    # One answer in four takes nine times as long: those that ended first would be the short ones.
    times = np.random.default_rng(5).choice([0.2, 0.2, 0.2, 1.8], size=997).tolist()
    flights = stretch(16, 640, times)
    counted = [f for f in flights if f.counted]
    assert len(counted) == 640
    long = sum(f.last_ns - f.send_ns > S for f in counted) / 640
    assert long == pytest.approx(sum(time > 1 for time in times) / 997, abs=0.04)


def test_littles_law_is_checked_where_the_window_is_short_too() -> None:
    # The last counted requests stay for a very long time: nothing drifts, and the law fails.
    flights = stretch(8, 16, [1.0])
    late = [
        AttemptSpan(
            plan_ns=f.plan_ns, send_ns=f.send_ns, last_ns=f.last_ns + 9 * S,
            free_ns=f.free_ns + 9 * S, counted=f.counted,
        )
        if f.counted
        else f
        for f in flights
    ]  # fmt: skip
    found = find([late], 8)
    assert found.steady is False
    assert "Little's law" in found.note


def test_too_few_requests_say_nothing() -> None:
    found = find([closed(2, 4)], 2)
    assert found.found
    assert found.steady is None
    assert found.note == "too few requests to tell whether it was steady"


def test_each_block_has_its_own_window() -> None:
    one = closed(4, 8)
    blocks = [
        [
            AttemptSpan(
                plan_ns=f.plan_ns + shift,
                send_ns=f.send_ns + shift,
                last_ns=f.last_ns + shift,
                free_ns=f.free_ns + shift,
                ttft_ms=f.ttft_ms,
            )
            for f in one
        ]
        for shift in (0, 100 * S, 200 * S)
    ]
    found = find(blocks, 4)
    assert [w.start_ns for w in found.windows] == [30 * MS, 100 * S + 30 * MS, 200 * S + 30 * MS]
    assert found.inflight == pytest.approx(4.0)  # the pauses between the blocks do not count
    assert found.steady is True


def test_nothing_at_all() -> None:
    found = find([], 8)
    assert found.windows == ()
    assert found.inflight is None
    assert found.seconds == 0.0


def test_a_straight_line_is_found_exactly() -> None:
    at = [float(n) for n in range(80)]
    line = trend(at, [3.0 + 0.5 * x for x in at])
    assert line is not None
    assert line.change == pytest.approx(0.5 * 80)
    assert line.low == pytest.approx(line.high)


def test_a_line_needs_six_groups() -> None:
    assert trend([float(n) for n in range(23)], [1.0] * 23) is None
    assert trend([float(n) for n in range(24)], [1.0] * 24) is not None


def test_noise_is_called_a_drift_about_as_often_as_promised() -> None:
    rng = np.random.default_rng(7)
    at = [float(n) for n in range(200)]
    runs = 400
    wrong = 0
    for _ in range(runs):
        line = trend(at, rng.normal(0.0, 1.0, size=200).tolist())
        assert line is not None
        wrong += not line.low <= 0.0 <= line.high
    assert wrong <= 0.025 * runs  # 1 % is promised


def test_a_drift_below_ten_percent_does_not_matter() -> None:
    ttfts = np.exp(np.linspace(5.0, 5.08, 8 * 30)).tolist()
    found = find([closed(8, 30, ttfts)], 8)
    assert found.ttft is not None
    assert found.ttft.low > 0.0
    assert found.steady is True


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), min_size=1, max_size=30),
    st.integers(1, 6),
)
def test_in_flight_is_at_its_target_at_both_ends(pairs: list[tuple[int, int]], target: int) -> None:
    spans = [Span(start, start + length) for start, length in pairs]
    window = closed_window(spans, target)

    def level(at: int) -> int:
        return sum(span.start_ns <= at < span.stop_ns for span in spans)

    highest = max(level(at) for at in range(151))
    assert (window is not None) == (highest >= target)
    if window is not None:
        assert (
            level(window.start_ns)
            >= target
            > max((level(at) for at in range(window.start_ns)), default=0)
        )
        assert (
            level(window.stop_ns - 1)
            >= target
            > max((level(at) for at in range(window.stop_ns, 151)), default=0)
        )
