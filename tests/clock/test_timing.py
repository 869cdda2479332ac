from __future__ import annotations

import pytest

from lightgate.clock import timing
from lightgate.clock.marks import Marks
from lightgate.clock.timing import Timing
from lightgate.clock.tokens import Tokens, Usage, count

MS = 1_000_000


def one_stream(*, counted: bool) -> Marks:
    """The worked example: 5 reasoning and 10 text chunks of 4 tokens, one every 40 ms."""
    marks = Marks(plan=0)
    marks.send = 0
    marks.headers = 90 * MS
    marks.event = 100 * MS  # a chunk that holds the role alone
    for chunk in range(15):
        stamp = (300 + 40 * chunk) * MS
        marks.burst(stamp, stamp, 1, 16, 4 if counted else -1)
    marks.answer = 500 * MS
    marks.end = 901 * MS  # finish at 862, usage at 900: no tokens
    return marks


def test_one_stream_with_counts_along() -> None:
    marks = one_stream(counted=True)
    tokens = count(marks, Usage(tokens_out=62), running=60)
    found = Timing.of(marks, tokens)
    assert (found.ttft_ms, found.ttfa_ms, found.tte_ms, found.tth_ms) == (300, 500, 100, 90)
    assert found.speed_tps == pytest.approx(100.0, abs=1e-9)
    assert found.tpot_ms == pytest.approx(10.0)
    assert found.e2e_ms == 860
    assert found.stall_ms == 40
    assert found.speed_total_tps == pytest.approx(62 / 0.860)


def test_one_stream_with_final_usage_only() -> None:
    marks = one_stream(counted=False)
    tokens = count(marks, Usage(tokens_out=62))
    found = Timing.of(marks, tokens)
    assert (found.ttft_ms, found.ttfa_ms) == (300, 500)
    assert found.speed_tps == pytest.approx((62 - 4) / 0.560)
    assert round(found.speed_tps or 0, 1) == 103.6
    assert found.tpot_ms == pytest.approx(9.66, abs=0.01)


def test_the_plan_counts_the_wait_in_our_own_queue() -> None:
    marks = one_stream(counted=True)
    marks.plan = -250 * MS
    found = Timing.of(marks, Tokens())
    assert (found.ttft_plan_ms, found.e2e_plan_ms, found.ttft_ms) == (550, 1110, 300)


def test_connect_is_apart_from_ttft_and_inside_the_total() -> None:
    marks = one_stream(counted=True)
    warm = Timing.of(marks, Tokens())
    assert (warm.connect_ms, warm.ttft_cold_ms) == (None, None)
    marks.dns_ns, marks.tcp_ns, marks.tls_ns, marks.pool_wait_ns = MS, 20 * MS, 18 * MS, MS
    cold = Timing.of(marks, Tokens(out=90))
    assert (cold.connect_ms, cold.ttft_ms, cold.ttft_cold_ms) == (40, 300, 340)
    assert cold.speed_total_tps == pytest.approx(100.0)


def test_a_stall_is_the_longest_time_between_bursts() -> None:
    marks = Marks()
    for stamp in (10, 30, 90):
        marks.burst(stamp * MS, stamp * MS, 1, 4)
    assert Timing.of(marks, Tokens()).stall_ms == 60


def test_one_burst_has_no_speed_and_no_gap() -> None:
    marks = Marks(plan=0)
    marks.send = 0
    marks.burst(200 * MS, 200 * MS, 30, 100)
    found = Timing.of(marks, count(marks, Usage(tokens_out=30)))
    assert (found.ttft_ms, found.e2e_ms) == (200, 200)
    assert found.speed_total_tps == pytest.approx(150.0)
    assert (found.speed_tps, found.tpot_ms, found.stall_ms) == (None, None, None)


def test_an_empty_answer_has_headers_and_nothing_else() -> None:
    marks = Marks(plan=0)
    marks.send, marks.headers, marks.event, marks.end = 0, 50 * MS, 60 * MS, 70 * MS
    found = Timing.of(marks, Tokens(out=0, streamed=0, source="usage"))
    assert found == Timing(tth_ms=50, tte_ms=60)


def test_an_attempt_that_was_never_sent_has_no_numbers() -> None:
    assert Timing.of(Marks(plan=0), Tokens()) == Timing()


def test_what_was_not_streamed_has_no_first_token() -> None:
    marks = one_stream(counted=False)
    found = Timing.of(marks, count(marks, Usage(tokens_out=62)), streamed=False)
    assert found == Timing(
        tth_ms=90, e2e_ms=860, e2e_plan_ms=860, speed_total_tps=found.speed_total_tps
    )
    assert found.speed_total_tps == pytest.approx(62 / 0.860)


def test_a_clock_step_voids_all_but_the_connect() -> None:
    marks = one_stream(counted=True)
    marks.void = True
    marks.tcp_ns = 5 * MS
    assert Timing.of(marks, count(marks, Usage(tokens_out=62))) == Timing(connect_ms=5)


def test_unknown_tokens_leave_the_speed_undefined() -> None:
    marks = one_stream(counted=False)
    assert Timing.of(marks, Tokens(out=62, streamed=62)).speed_tps is None
    assert Timing.of(marks, Tokens(first_burst=4.0)).speed_tps is None
    unknown = Timing.of(marks, Tokens())
    assert (unknown.speed_total_tps, unknown.tpot_ms) == (None, None)


def test_hidden_reasoning_is_not_in_the_decode_speed() -> None:
    marks = Marks()
    marks.send = 0
    for at in range(11):
        marks.burst((1000 + 10 * at) * MS, (1000 + 10 * at) * MS, 1, 4)
    usage = Usage(tokens_out=111, tokens_reasoning=100)
    tokens = count(marks, usage, reasoning_streamed=False)
    found = Timing.of(marks, tokens)
    assert found.speed_tps == pytest.approx(100.0)
    assert found.speed_total_tps == pytest.approx(111 / 1.1)


def test_overhead_is_both_ways() -> None:
    assert timing.overhead(received=10, sent_on=25, last_in=1000, last_out=1007) == 22


def test_words() -> None:
    assert timing.words(50.0) == pytest.approx(38.46, abs=0.01)


def test_a_bound_is_how_much_earlier_a_token_may_have_come() -> None:
    assert timing.bound_ms(200 * MS, 217 * MS) == 17.0
    assert timing.bound_ms(217 * MS, 217 * MS) == 0.0
    assert timing.bound_ms(None, None) is None


def test_a_stamp_that_nobody_watched_has_no_bound() -> None:
    assert timing.bound_ms(0, 217 * MS) is None
