"""What a form believes after each single thing that it sees, worked out by hand."""

from __future__ import annotations

from math import e, exp, log, pi, sqrt
from statistics import NormalDist

import pytest

from lightgate.route.form.prior import Z95, Prior
from lightgate.route.form.target import Form, beyond, without

S = 1_000_000_000
NORMAL = NormalDist()
FORGET = 180 * S


def form(ttft_s: float = 1.0, sigma: float = 0.5, weight: float = 5.0) -> Form:
    """First tokens of a second with sigma 0.5, and 100 tokens/s with sigma 0.2."""
    late, slow = exp(sigma * Z95), exp(-0.2 * Z95)
    found = Form(Prior(1e3 * ttft_s, 1e3 * ttft_s * late, 100.0, 100.0 * slow, weight))
    found.look(0)
    return found


def ttft_s(of: Form, now_ns: int, size: int = 0) -> float:
    of.look(now_ns)
    return of.ttfts_s[size]


# Before anything was seen


def test_a_prior_is_all_that_is_believed_at_first() -> None:
    new = form()
    assert new.ttfts_s == pytest.approx([1.0, exp(0.25), exp(0.9)] * 6)
    assert new.tail == pytest.approx(exp(0.8416212335729143 * 0.5))
    assert new.mean == pytest.approx(exp(0.125))
    assert new.slowness == pytest.approx(exp(0.02) / 100)
    assert new.far == pytest.approx(4.0 * exp(2.3263478740408408 * 0.5))
    assert new.p_error == pytest.approx(0.005)
    assert (new.due_ns(0), new.fresh(0), new.load) == (None, 0.0, 1.0)
    assert new.until_ns == S


def test_a_wide_spread_counts_to_a_limit() -> None:
    assert form(sigma=2.0).mean == pytest.approx(exp(0.5 * 1.5**2))
    wild = Form(Prior(1e3, 2e3, 100.0, 100.0 * exp(-Z95)))
    wild.look(0)
    assert wild.slowness == pytest.approx(exp(0.25) / 100)
    assert form(sigma=0.01).noise == 0.05
    assert Prior(1e3, 900.0, 100.0, 200.0).ttft_sigma == 0.0
    assert Prior(1e3, 900.0, 100.0, 200.0).speed_sigma == 0.0


def test_another_prior_is_all_that_is_believed_where_nothing_was_seen() -> None:
    new = form()
    late, slow = exp(0.3 * Z95), exp(-0.1 * Z95)
    new.use_prior(Prior(2e3, 2e3 * late, 50.0, 50.0 * slow, 5.0))
    new.look(0)
    assert new.ttfts_s == pytest.approx([2.0, 2.0 * exp(0.25), 2.0 * exp(0.9)] * 6)
    assert new.tail == pytest.approx(exp(0.8416212335729143 * 0.3))
    assert new.noise == pytest.approx(0.3)
    assert new.slowness == pytest.approx(exp(0.005) / 50)
    new.first(0, 10 * S, 2.0)
    before = ttft_s(new, 10 * S)
    new.use_prior(Prior(9e3, 9e4, 10.0, 9.0, 5.0))
    assert ttft_s(new, 10 * S) == before  # what was seen stays
    assert new.slowness == pytest.approx(exp(0.5 * new.speed_variance) / 10)  # no speed was


# First tokens


def test_attempts_that_wait_together_are_one_witness() -> None:
    """Forty that stand in one queue are late together: that is not forty signs of bad weather."""
    few, many = form(), form()
    for seen, waiting in ((few, 4), (many, 40)):
        for second in range(60):
            seen.first(0, second * S, 1.0)
        seen.waiting = dict.fromkeys(range(1000, 1000 + waiting), 1)
        seen.first(0, 60 * S, 2.0)
    assert log(ttft_s(few, 60 * S)) == pytest.approx(0.12 * log(2))
    assert log(ttft_s(many, 60 * S)) == pytest.approx(0.12 * log(2) / 10)
    late = [any(seen.first(0, 60 * S + n, 8.0) for n in range(1, 5)) for seen in (few, many)]
    assert late == [True, False]  # a change for good


def test_a_first_token_counts_as_one_beside_the_weight_of_the_prior() -> None:
    """The logarithm of twice the time is a sixth of the way, then two sevenths."""
    seen = form()
    assert not seen.first(0, 10 * S, 2.0)
    assert ttft_s(seen, 10 * S) == pytest.approx(2 ** (1 / 6))
    assert ttft_s(seen, 10 * S, 2) == pytest.approx(2 ** (1 / 6) * exp(0.9))
    assert seen.sizes[0].long == pytest.approx(log(2) / 6)
    assert seen.p_error == pytest.approx(0.1 / 21)
    assert not seen.first(0, 10 * S, 2.0)
    assert ttft_s(seen, 10 * S) == pytest.approx(2 ** (2 / 7))
    assert seen.sizes[1].long == pytest.approx(log(2) / 6 + 0.25)  # followed the first one alone
    assert seen.p_error == pytest.approx(0.1 / 21.97)
    assert (seen.sizes[0].seen, seen.sizes[1].seen, seen.last_ns) == (2, 0, 10 * S)


def test_the_spread_follows_slowly() -> None:
    seen = form()
    seen.first(0, 10 * S, 2.0)
    assert seen.variance == pytest.approx(0.25 + 0.03 * (log(2) ** 2 - 0.25))
    assert seen.noise == pytest.approx(0.5 + 0.03 * (sqrt(pi / 2) * log(2) - 0.5))
    assert seen.sizes[0].variance == pytest.approx(seen.variance)
    stalled = form()
    stalled.first(0, 10 * S, exp(5.0))
    assert stalled.variance == pytest.approx(0.25 + 0.03 * (4.0 - 0.25))
    assert stalled.noise == pytest.approx(0.5 + 0.03 * (sqrt(pi / 2) * 1.0 - 0.5))
    quick = form()
    quick.first(0, 10 * S, 0.5)
    assert quick.noise == pytest.approx(seen.noise)


@pytest.mark.parametrize(("first_s", "moved"), [(2.0, log(2)), (10.0, 1.0), (0.1, -1.0)])
def test_a_known_target_moves_by_an_eighth_and_its_long_run_by_its_weight(
    first_s: float, moved: float
) -> None:
    seen = form(weight=50.0)
    seen.first(0, 10 * S, first_s)
    assert ttft_s(seen, 10 * S) == pytest.approx(exp(0.12 * moved))
    assert seen.sizes[0].long == pytest.approx(moved / 51)
    # What is beyond the long run is forgotten in three minutes.
    faded = moved / 51 + (0.12 - 1 / 51) * moved / e
    assert ttft_s(seen, 10 * S + FORGET) == pytest.approx(exp(faded))
    assert seen.fresh(10 * S + FORGET) == pytest.approx(1 / e)
    assert seen.fresh(10 * S) == seen.fresh(0) == 1.0


@pytest.mark.parametrize(("pause_s", "step"), [(108, 1 / 200), (3600, 1 / 100), (100, 1 / 202)])
def test_a_long_run_of_many_samples_forgets_in_hours(pause_s: int, step: float) -> None:
    seen = form(weight=200.0)
    seen.first(0, 10 * S, 2.0)
    before = log(2) / 201
    assert seen.sizes[0].long == pytest.approx(before)
    seen.first(0, (10 + pause_s) * S, 2.0)
    assert seen.sizes[0].long == pytest.approx(before + step * (log(2) - before))


def test_a_deadline_is_four_times_the_slowest_hundredth_and_two_seconds_at_least() -> None:
    seen = form(sigma=0.1)
    for second in range(19):
        seen.first(0, (10 + second) * S, 1.0)
    seen.look(30 * S)
    assert seen.due_ns(0) is None
    seen.first(0, 30 * S, 1.0)
    seen.look(30 * S)
    assert seen.due_ns(0) == int(seen.far * seen.ttfts_s[0] * 1e9)
    assert seen.due_ns(0) == pytest.approx(4 * S * exp(2.3263 * sqrt(seen.variance)), rel=1e-3)
    quick = form(0.1, sigma=0.1)
    for second in range(20):
        quick.first(0, (10 + second) * S, 0.1)
    quick.look(30 * S)
    assert quick.due_ns(0) == 2 * S


# Attempts that were closed


def test_a_closed_attempt_counts_as_what_is_expected_beyond_it() -> None:
    seen = form()
    seen.waited(0, 10 * S, 1.0)
    assert (ttft_s(seen, 10 * S), seen.sizes[0].seen) == (1.0, 0)  # no later than expected
    seen.waited(0, 10 * S, 2.0)
    z = log(2) / 0.5
    mean = NORMAL.pdf(z) / (1.0 - NORMAL.cdf(z))
    assert ttft_s(seen, 10 * S) == pytest.approx(exp(0.5 * mean / 6))
    wide = form(sigma=2.0)
    wide.waited(0, 10 * S, 1.2)  # beyond it 1.4 were expected: 0.4 are taken
    assert ttft_s(wide, 10 * S) == pytest.approx(exp((log(1.2) + 0.4) / 6))


def test_a_second_closed_attempt_is_a_change_to_as_long_again() -> None:
    """Silent for 20 s where one is usual: beyond so far a tail nothing more is expected."""
    seen = form()
    seen.waited(0, 10 * S, 20.0)
    assert seen.deviation == pytest.approx(0.0)  # the long run has followed
    seen.waited(0, 10 * S, 20.0)
    long_run = 1 / 6 + 1 / 7
    assert seen.sizes[0].long == pytest.approx(long_run)
    # Of both the one that was further from its long run, and as long again: 0.7.
    assert seen.deviation == pytest.approx(log(20.0) + 0.7 - 1 / 6)
    assert ttft_s(seen, 10 * S) == pytest.approx(20.0 * exp(0.7 - 1 / 6 + long_run))


def test_the_mean_of_a_tail() -> None:
    assert beyond(0.0) == pytest.approx(sqrt(2 / pi))
    assert beyond(2.0) == pytest.approx(NORMAL.pdf(2.0) / (1 - NORMAL.cdf(2.0)))
    assert beyond(4.9) == pytest.approx(NORMAL.pdf(4.9) / NORMAL.cdf(-4.9))
    assert beyond(5.0) == 5.0
    assert beyond(60.0) == 60.0


# Failures


def test_a_failure_counts_as_a_first_token_of_five_seconds() -> None:
    seen = form()
    seen.failed(0, 0, 0.0)
    assert (seen.deviation, seen.penalty) == pytest.approx((0.2, 0.2))  # a fifth of the most
    assert ttft_s(seen, 0) == pytest.approx(exp(0.2))
    assert seen.answered_s(0, 0) == pytest.approx(1.0)
    assert seen.sizes[0].long == 0.0
    assert seen.p_error == pytest.approx(1.1 / 21)
    assert (seen.trouble.first, seen.trouble.second) == (1, 1)
    later = ttft_s(seen, FORGET)
    assert later == pytest.approx(exp(0.2 / e))
    assert seen.answered_s(0, FORGET) == pytest.approx(1.0)
    assert seen.p_error == pytest.approx((1 / e + 0.1) / (1 / e + 20))


def test_a_second_failure_at_once_is_a_change() -> None:
    seen = form()
    seen.failed(0, 0, 0.0)
    seen.failed(0, 0, 0.0)
    assert ttft_s(seen, 0) == pytest.approx(5.0)
    assert seen.penalty == pytest.approx(log(5))
    assert seen.answered_s(0, 0) == pytest.approx(1.0)
    assert seen.p_error == pytest.approx((1.97 + 0.1) / (1.97 + 20))


@pytest.mark.parametrize(("wait_s", "moved"), [(0.0, 0.0), (20.0, log(2)), (900.0, 1.0)])
def test_a_slow_target_that_fails_is_as_slow_as_the_wait_that_it_asks_for(
    wait_s: float, moved: float
) -> None:
    seen = form(10.0)
    seen.failed(0, 0, wait_s)
    assert seen.deviation == pytest.approx(0.2 * moved)


def test_an_answer_takes_an_eighth_of_the_failures_part_away() -> None:
    seen = form()
    seen.failed(0, 0, 0.0)
    seen.first(0, 0, 1.0)
    assert seen.penalty == pytest.approx(0.2 * 0.88)
    assert seen.p_error == pytest.approx(0.005)  # as of the last look
    seen.look(0)
    assert seen.p_error == pytest.approx((0.97 + 0.1) / (1.97 + 20))
    assert without(0.5, 0) == without(0.5, -S) == pytest.approx(exp(-0.5))
    assert without(0.5, FORGET) == pytest.approx(exp(-0.5 / e))


# Speeds


def test_a_speed_counts_as_one_beside_the_weight_of_the_prior() -> None:
    seen = form()
    assert not seen.finished(10 * S, 200, 1.0)
    assert exp(seen.log_speed(10 * S)) == pytest.approx(100 * 2 ** (1 / 6))
    assert seen.speed_long == pytest.approx(log(100) + log(2) / 6)
    assert seen.speed_variance == pytest.approx(0.04 + 0.03 * (log(2) ** 2 - 0.04))
    assert (seen.speed_seen, seen.speed_last_ns) == (1, 10 * S)
    known = form(weight=50.0)
    known.finished(10 * S, 1000, 1.0)
    assert known.log_speed(10 * S) == pytest.approx(log(100) + 0.12)
    assert known.speed_long == pytest.approx(log(100) + 1 / 51)
    faded = 1 / 51 + (0.12 - 1 / 51) / e
    assert known.log_speed(10 * S + FORGET) == pytest.approx(log(100) + faded)


def test_a_short_answer_has_no_speed() -> None:
    seen = form()
    seen.finished(10 * S, 7, 1.0)
    seen.finished(10 * S, 100, 0.0)
    assert seen.speed_seen == 0
    seen.finished(10 * S, 8, 1.0)
    assert seen.speed_seen == 1


def test_a_guessed_speed_ends_with_the_first_answer_and_a_newcomer_after_three() -> None:
    new = form(weight=2.0)
    new.started(S)
    new.started(S + 1)
    assert new.load == 3.0
    assert new.finished(10 * S, 200, 1.0)
    assert exp(new.log_speed(10 * S)) == pytest.approx(200.0)
    assert new.finished(11 * S, 200, 1.0)
    assert new.finished(12 * S, 200, 1.0)
    assert not new.finished(13 * S, 200, 1.0)
    new.ended(S)
    assert (new.load, new.in_flight) == (1.0, 1)
    assert form(weight=2.01).finished(10 * S, 200, 1.0) is False


# Waits


def test_who_is_silent_for_three_times_the_usual_time_is_as_late_as_that() -> None:
    seen = form()
    seen.started(10 * S)
    assert seen.wait_s(20 * S) == 0.0  # one alone has stalled, as far as anybody knows
    seen.started(12 * S)
    assert seen.wait_s(13 * S) == 0.0
    assert seen.wait_s(13 * S + S // 10) == pytest.approx(2.1)
    seen.first(0, 13 * S, 1.0)  # the younger one had its turn: there is no queue
    assert seen.wait_s(14 * S) == 0.0


def test_who_else_is_there_counts_while_it_is_known() -> None:
    seen = form()
    seen.started(10 * S)
    seen.told(5, 10 * S)
    assert seen.flying(13 * S - 1) == 5
    assert seen.flying(13 * S) == 1
    seen.beside(6, 2, 20 * S)
    assert seen.flying(21 * S) == pytest.approx(1 + 6 / e + (1 - 1 / e) * 2)


@pytest.mark.parametrize(("beside", "full"), [(6, True), (5, False)])
def test_others_requests_fill_a_target_too(beside: int, full: bool) -> None:
    seen = form()
    seen.started(10 * S)
    seen.beside(beside, 2, 20 * S)
    seen.limit.refused(8, 0)  # seven were taken, and no more
    assert seen.full is full
    assert not form().full


def test_a_first_token_is_judged_without_the_wait_that_was_expected() -> None:
    """Six in flight where four are tried: the curve expects a wait of half a second."""
    seen = form()
    for place in range(6):
        seen.started(10 * S + place)
    assert seen.curve.seconds(6) == pytest.approx(0.5)
    seen.first(0, 10 * S + 5 + 15 * S // 10, 1.5)
    # As late as expected: what it says of the target alone is nothing new.
    assert ttft_s(seen, 12 * S) == pytest.approx(1.0)
    assert seen.recent.last[-1] == pytest.approx(1.0)


def test_an_answer_at_the_limit_has_one_more_tried_once_the_hold_is_over() -> None:
    """Ours and those of other workers fill it together."""
    full = form()
    full.limit.refused(4, 0)
    full.started(S)
    full.beside(1, 1, S)
    full.finished(29 * S, 100, 1.0)
    assert full.limit.most == 3.0
    full.finished(31 * S, 100, 1.0)
    assert full.limit.most == 4.0
