"""What a late client leaves open of the figures of a cell: neither hidden nor made too much of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from bench.statistics.test_summary import MS, Pair, cell, one_after_the_other, request
from lightgate.bench.statistics.measured import sampled, stamp_bounds

if TYPE_CHECKING:
    from lightgate.ledger.runs.run import CellSummary, Estimate


def held_up(pair: Pair, late_ms: float, pieces: int) -> Pair:
    """The same request, whose first read held so many pieces and a stamp that is so much later."""
    attempt, recording = pair
    first, send = attempt.t_first_ns or 0, attempt.t_send_ns or 0
    moved = first + round(late_ms * MS)
    at = (moved - send, *recording.at_ns[pieces:])
    return (
        msgspec.structs.replace(
            attempt,
            t_first_ns=moved,
            t_answer_ns=moved,
            ttft_ms=(moved - send) / MS,
            first_bound_ms=late_ms,
            bursts=len(at),
        ),
        msgspec.structs.replace(
            recording,
            at_ns=at,
            since_ns=(first - send, *at[1:]),
            pieces=(pieces, *recording.pieces[pieces:]),
        ),
    )


def found(summary: CellSummary, metric: str, q: float) -> Estimate:
    estimate = summary.estimate(metric, q)
    assert estimate is not None
    return estimate


def test_several_segments_in_one_read_leave_a_quantile_open() -> None:
    pairs = one_after_the_other(200)
    pairs[::2] = [held_up(pair, 50.0, 6) for pair in pairs[::2]]
    p95 = found(cell(pairs), "ttft_ms", 0.95)
    assert (p95.value, p95.low, p95.high) == (250.0, 200.0, 250.0)  # the truth is 200
    assert p95.doubtful
    assert p95.interval is not None
    assert p95.interval.low == 200.0


def test_a_few_late_samples_of_many_leave_no_figure_in_doubt() -> None:
    pairs = one_after_the_other(198)
    pairs[100:102] = [held_up(pair, 50.0, 6) for pair in pairs[100:102]]
    summary = cell(pairs)
    assert not found(summary, "ttft_ms", 0.5).doubtful
    assert not found(summary, "ttft_ms", 0.95).doubtful
    assert found(summary, "ttft_ms", 0.5).low == 200.0


def test_a_late_send_widens_what_counts_from_the_plan_alone() -> None:
    summary = cell([request(n, send_ms=300.0 * n, lag_ms=30.0) for n in range(10)])
    plan, send = found(summary, "ttft_plan_ms", 0.5), found(summary, "ttft_ms", 0.5)
    assert (plan.value, plan.low, plan.doubtful) == (230.0, 200.0, True)
    assert (send.value, send.low, send.doubtful) == (200.0, 200.0, False)


def test_the_bounds_of_a_speed_come_from_both_ends() -> None:
    attempt, recording = request(1)  # 11 tokens, 10 ms apart: 100 tok/s
    loose = msgspec.structs.replace(attempt, last_bound_ms=20.0)
    speeds = sampled("speed_tps", [loose], {recording.id: recording})
    assert (speeds.values, speeds.low, speeds.high) == ([100.0], [100.0], [125.0])
    pair = held_up((attempt, recording), 50.0, 6)
    merged = sampled("speed_tps", [pair[0]], {recording.id: pair[1]})
    assert merged.low is not None
    assert merged.high is not None
    assert merged.low[0] <= 100.0 <= merged.high[0]


def test_an_answer_that_came_in_one_late_read_may_have_any_speed() -> None:
    attempt, recording = held_up(request(1), 100.0, 11)
    alone = msgspec.structs.replace(attempt, speed_tps=None)
    speeds = sampled("speed_tps", [alone], {recording.id: recording})
    assert (speeds.values, speeds.low, speeds.high) == ([], [0.0], [math.inf])


def test_what_nobody_watched_has_no_bounds() -> None:
    attempt, recording = request(1)
    bare = msgspec.structs.replace(attempt, first_bound_ms=None, last_bound_ms=None)
    times = sampled("ttft_ms", [bare], {recording.id: recording})
    assert (times.values, times.low, times.high) == ([200.0], None, None)
    assert stamp_bounds([bare]) == (None, None)
    assert stamp_bounds([attempt]) == (0.0, 0.0)


def test_gaps_are_kept_once_where_every_stamp_is_exact() -> None:
    pairs = one_after_the_other(20)
    recordings = {attempt.id: recording for attempt, recording in pairs}
    exact = sampled("gap_ms", [attempt for attempt, _ in pairs], recordings)
    assert exact.low is exact.values is exact.high
    late = [held_up(pairs[0], 50.0, 6), *pairs[1:]]
    recordings = {attempt.id: recording for attempt, recording in late}
    open_ended = sampled("gap_ms", [attempt for attempt, _ in late], recordings)
    assert open_ended.low is not None
    assert open_ended.high is not None
    rest = len(exact.values) - len(pairs[0][1].at_ns) + 1
    ends = zip(
        open_ended.low[-rest:], open_ended.values[-rest:], open_ended.high[-rest:], strict=True
    )
    for low, value, high in ends:  # in fewer digits, and rounded outwards
        assert low <= value <= high
        assert math.isclose(low, high, rel_tol=1e-6)
