"""The gates by their exact numbers: how much passes, how long the rest waits, what is learnt."""

from __future__ import annotations

import math

import pytest

from lightgate.route.admission.admission import NEVER_NS, Admission, AnswerFacts
from lightgate.route.admission.headers import RateFact, What, read_rates
from lightgate.route.admission.in_flight import HOLD_NS
from lightgate.route.admission.learnt import LearntRate
from lightgate.route.admission.peaks import PEAK_NS, ROOM_NS, ClientPeaks
from lightgate.route.admission.rate import RateGate
from lightgate.route.admission.reserve import Reserve
from lightgate.route.admission.stated import StatedLimits
from lightgate.route.admission.window import WindowGate

NS = 1_000_000_000
MS = 1_000_000


def fact(
    limit: float,
    remaining: float | None = None,
    reset_s: float | None = None,
    *,
    what: What = "requests",
    span_s: float | None = None,
) -> RateFact:
    return RateFact(what, limit, remaining, reset_s, span_s)


def minute_gate(limit: float = 600.0) -> RateGate:
    """A gate that was told a limit of a minute at instant 0; 600 are 9.5 a second."""
    gate = RateGate()
    gate.told(fact(limit, span_s=60.0), 0)
    return gate


# Stated rates


def test_a_bucket_lacks_what_it_does_not_hold_and_waits_for_just_that() -> None:
    gate = minute_gate()
    gate.take(9.0, 0)
    assert gate.wait_ns(0.5, 0) == 0
    assert gate.wait_ns(1.0, 0) == pytest.approx(0.5 / 9.5 * NS, abs=1)
    gate.take(2.0, 0)  # overdrawn by 1.5
    assert gate.wait_ns(1.0, 0) == pytest.approx(2.5 / 9.5 * NS, abs=1)


def test_a_slow_limit_holds_one_request_and_no_more() -> None:
    gate = minute_gate(60.0)
    assert gate.wait_ns(1.0, 0) == 0
    gate.take(1.0, 0)
    assert gate.wait_ns(1.0, 0) == pytest.approx(NS / 0.95, abs=1)
    assert gate.wait_ns(7.0, 100 * NS) == 0
    gate.take(1.0, 100 * NS)
    assert gate.wait_ns(1.0, 100 * NS) == pytest.approx(NS / 0.95, abs=1)


def test_a_bucket_fills_no_further_than_one_second() -> None:
    gate = minute_gate()
    gate.take(9.5, 0)
    gate.take(9.5, 10 * NS)
    assert gate.wait_ns(1.0, 10 * NS) == pytest.approx(NS / 9.5, abs=1)
    gate.give_back(100.0)
    gate.take(9.5, 10 * NS)
    assert gate.wait_ns(1.0, 10 * NS) == pytest.approx(NS / 9.5, abs=1)


def test_time_that_goes_back_fills_nothing_and_is_not_counted_twice() -> None:
    gate = minute_gate()
    gate.take(19.0, 10 * NS)  # overdrawn by 9.5
    gate.take(0.0, 5 * NS)
    assert gate.wait_ns(9.5, 11 * NS) == pytest.approx(NS, abs=1)


def test_another_limit_holds_from_when_it_is_told() -> None:
    gate = minute_gate()
    gate.take(9.5, 0)
    gate.told(fact(1200.0, span_s=60.0), NS // 2)
    assert gate.rate == 19.0
    # Half a second at 9.5 is there; the other half of 9.5 comes twice as fast.
    assert gate.wait_ns(9.5, NS // 2) == pytest.approx(NS // 4, abs=1)


def test_a_refusal_empties_the_bucket_and_keeps_what_was_overdrawn() -> None:
    gate = minute_gate()
    gate.refused(1.0, 0)
    assert gate.wait_ns(9.5, 0) == NS
    gate = minute_gate(60.0)
    gate.refused(1.0, 0)
    assert gate.wait_ns(1.0, NS - 1) == 1
    assert gate.wait_ns(1.0, NS) == pytest.approx(0.05 / 0.95 * NS, abs=1)
    gate = minute_gate()
    gate.take(20.0, 0)
    gate.refused(1.0, 0)
    assert gate.wait_ns(1.0, NS) == pytest.approx(2.0 / 9.5 * NS, abs=1)
    gate = minute_gate()
    gate.take(9.5, 0)
    gate.refused(0.0, NS)  # what had come back until then is gone too
    assert gate.wait_ns(1.0, NS) == pytest.approx(NS / 9.5, abs=1)


def test_a_shorter_wait_does_not_end_a_longer_one() -> None:
    gate = minute_gate()
    gate.refused(3.0, 0)
    gate.refused(1.0, 0)
    assert gate.wait_ns(1.0, 0) == 3 * NS


def test_a_refusal_before_any_limit_was_stated_holds_as_well() -> None:
    gate = RateGate()
    gate.refused(2.0, 5 * NS)
    assert gate.wait_ns(1.0, 5 * NS) == 2 * NS
    assert gate.wait_ns(1.0, 7 * NS) == 0


@pytest.mark.parametrize(
    ("stated", "span_s"),
    [
        ((fact(600.0),), 60.0),  # nothing but the limit
        ((fact(600.0, 597.0, 90.0),), 60.0),  # a minute and a half is still a minute
        ((fact(600.0, 300.0, 91.0),), 3600.0),  # longer than that: the nearest of the others
        ((fact(600.0, 590.0, 91.0),), 3600.0),
        ((fact(100.0, 0.0, 5400.0),), 3600.0),
        ((fact(100.0, 0.0, 5401.0),), 86400.0),
        ((fact(100.0, 0.0, 200_000.0),), 86400.0),
        ((fact(10.0, 0.0, 1.5),), 1.0),
        ((fact(10.0, 5.0, 0.75),), 1.0),
        ((fact(10.0, 5.0, 0.8),), 60.0),
        ((fact(10.0, 5.0, 2.0), fact(10.0, 0.0, 1.0)), 60.0),  # a reset was longer than a second
        ((fact(10.0, 5.0, 0.0),), 60.0),  # no reset to go by
        ((fact(14400.0, 14370.0, 180.0), fact(14400.0)), 86400.0),  # what was known stays
        ((fact(14400.0, 14370.0, 180.0), fact(14400.0, 14400.0, 9.0)), 86400.0),
        ((fact(14400.0, 14370.0, 180.0), fact(14400.0, None, 9.0)), 86400.0),
        ((fact(14400.0, 14370.0, 180.0), fact(14400.0, 9.0, None)), 86400.0),
        ((fact(10.0, 5.0, 0.5, span_s=3600.0),), 3600.0),
    ],
)
def test_the_span_of_a_limit(stated: tuple[RateFact, ...], span_s: float) -> None:
    gate = RateGate()
    for one in stated:
        gate.told(one, 0)
    assert gate.rate == pytest.approx(0.95 * stated[-1].limit / span_s)


# What is set aside


def test_the_tokens_of_a_byte_follow_the_answers_slowly() -> None:
    reserve = Reserve()
    reserve.counted(400, 200, None)
    assert reserve.need(400, None).tokens_in == pytest.approx(105.0)  # 0.25 + 0.05 * 0.25 a byte
    reserve.counted(0, 200, None)
    reserve.counted(400, 0, None)
    reserve.counted(400, None, None)
    assert reserve.need(400, None).tokens_in == pytest.approx(105.0)


def test_the_cap_of_a_request_counts_until_eight_answers_are_known() -> None:
    reserve = Reserve()
    for _ in range(7):
        reserve.counted(0, None, 10)
    assert reserve.need(0, None).tokens_out == 10.0
    assert reserve.need(0, 100).tokens_out == 100.0
    reserve.counted(0, None, 10)
    assert reserve.need(0, 100).tokens_out == 10.0


def test_the_tail_of_the_lengths_is_taken_anew_after_every_eighth_answer() -> None:
    reserve, tails = Reserve(), []
    for length in range(1, 25):
        reserve.counted(0, None, length)
        tails.append(reserve.need(0, None).tokens_out)
    # 95 % of 24 are 22: the 23rd by its length.
    assert tails == [*range(1, 9), *[8.0] * 7, *[16.0] * 8, 23.0]


# Learnt rates


def rate_of(sent: int, sent_ns: int, now_ns: int) -> LearntRate:
    """A rate that was learnt from the refusal of one of so many requests of one instant."""
    rate = LearntRate()
    for _ in range(sent):
        rate.sent(sent_ns)
    rate.refused(sent_ns, now_ns)
    return rate


def test_a_learnt_rate_by_what_was_taken_and_in_how_long() -> None:
    assert rate_of(10, 0, 5 * NS).rate == pytest.approx(0.95 * 9 / 5)
    assert rate_of(10, 0, NS // 2).rate == pytest.approx(0.95 * 9)  # in a second at least
    assert rate_of(10, 0, 10 * NS).rate == pytest.approx(0.95 * 9 / 10)
    assert rate_of(10, 0, 10 * NS + 1).rate == 0.05  # all that is known is too old
    assert rate_of(1, 0, 5 * NS).rate == 0.05
    alone = LearntRate()
    alone.refused(0, NS)
    assert alone.rate == 0.05


def test_after_a_refusal_requests_come_one_by_one_and_half_a_second_of_them_is_saved_up() -> None:
    rate = rate_of(10, 0, NS)
    assert rate.wait_ns(NS) == pytest.approx(NS / 8.55, abs=1)
    for _ in range(4):  # 4.275 of them
        assert rate.wait_ns(60 * NS) == 0
        rate.sent(60 * NS)
    assert rate.wait_ns(60 * NS) == pytest.approx(0.725 / 8.55 * NS, abs=1)


def test_a_slow_learnt_rate_saves_up_one_request() -> None:
    rate = rate_of(10, 0, 9 * NS)  # 0.95 a second
    assert rate.wait_ns(60 * NS) == 0
    rate.sent(60 * NS)
    assert rate.wait_ns(60 * NS) == pytest.approx(NS / 0.95, abs=1)


def test_a_faster_rate_is_tried_ten_seconds_after_the_last_change_if_somebody_waited() -> None:
    rate = rate_of(10, 0, NS)
    rate.answered(11 * NS)
    assert rate.rate == pytest.approx(8.55)  # nobody has waited
    assert rate.wait_ns(NS) > 0
    rate.answered(11 * NS - 1)
    assert rate.rate == pytest.approx(8.55)
    rate.answered(11 * NS)
    assert rate.rate == pytest.approx(17.1)
    rate.answered(21 * NS)
    assert rate.rate == pytest.approx(17.1)
    rate.refused(12 * NS, 12 * NS)
    assert rate.rate == 0.05
    assert rate.wait_ns(12 * NS) > 0
    rate.answered(22 * NS)
    assert rate.rate == pytest.approx(0.052)  # a second rate grows in small steps


def test_a_refusal_of_what_was_sent_before_the_last_change_changes_nothing() -> None:
    rate = rate_of(20, 0, NS)
    before = rate.rate
    rate.refused(NS - 1, NS)
    assert rate.rate == before
    rate.refused(NS, NS)
    assert rate.rate == pytest.approx(0.95 * 17)  # of twenty, three were refused
    for _ in range(100):
        rate.sent(2 * NS)
    rate.refused(2 * NS, 2 * NS)
    assert rate.rate == pytest.approx(0.95 * 0.95 * 17)  # no refusal makes it faster


# Windows


def test_a_cut_is_followed_by_a_round_trip_without_another() -> None:
    window = WindowGate()
    window.answered(10, 1_100 * MS, 0)  # a tenth of the second beyond: 200 ms
    window.refused(10, 0)
    window.refused(5, 200 * MS - 1)
    assert window.most == 4.0  # in flight before the one that was refused
    window = WindowGate()
    window.answered(10, 1_100 * MS, 0)
    window.refused(10, 0)
    window.refused(8, 200 * MS)
    assert window.most == pytest.approx(6.4)


def test_answers_before_a_cut_do_not_count_for_the_growth_after_it() -> None:
    window = WindowGate()
    window.refused(10, 0)
    for _ in range(7):
        window.answered(8, NS // 10, 0)
    window.refused(8, NS)
    for _ in range(6):
        window.answered(8, NS // 10, NS)
    assert window.most == pytest.approx(6.4)
    window.answered(8, NS // 10, NS)
    assert window.most == 7.0  # 7.4, and where the last one was refused


def test_a_number_that_was_refused_is_tried_again_after_its_hold() -> None:
    window = WindowGate()
    window.refused(10, 0)
    for _ in range(40):
        window.answered(9, NS // 10, HOLD_NS - 1)
    assert window.most == 9.0  # the window is wide open by now
    window.answered(8, NS // 10, HOLD_NS)  # of nine that may be, eight say nothing about ten
    assert window.most == 9.0
    window.answered(9, NS // 10, HOLD_NS)
    assert window.most == 10.0
    window.answered(10, NS // 10, 2 * HOLD_NS - 1)
    assert window.most == 10.0


def failing(flying: int, failures: int, answers: int = 0) -> WindowGate:
    window = WindowGate()
    for _ in range(answers):
        window.answered(flying, NS, 0)
    for _ in range(failures):
        window.failed(flying, 0)
    return window


def test_a_run_of_failures_halves_what_was_in_flight() -> None:
    assert failing(80, 3).most == math.inf  # three that fade are not quite three
    assert failing(80, 4).most == 40.0
    # Of the last forty that ended a fifth must have failed.
    assert failing(20, 6, answers=50).most == math.inf
    assert failing(20, 7, answers=50).most == 10.0


def test_a_window_grows_by_a_twentieth_while_it_is_four_fifths_full() -> None:
    window = failing(80, 4)
    for _ in range(80):
        window.answered(31, NS, NS)
    assert window.most == 40.0
    for _ in range(39):
        window.answered(32, NS, NS)
    assert window.most == 40.0
    window.answered(32, NS, NS)
    assert window.most == 42.0
    for _ in range(41):
        window.answered(42, NS, NS)
    assert window.most == 42.0
    window.answered(42, NS, NS)
    assert window.most == pytest.approx(44.1)


def test_a_window_that_has_grown_large_is_none() -> None:
    window = failing(2040, 4)
    assert window.most == 1020.0
    for _ in range(1020):
        window.answered(1020, NS, NS)
    assert window.most == math.inf


# All gates of a target


def stated(*facts: RateFact, start: float = 512) -> Admission:
    """A target that stated limits with an answer that took no time, at instant 0."""
    gates = Admission(start=start)
    gates.ended(gates.sent(0, None, 0), AnswerFacts(end="ok", rates=facts), 0)
    return gates


def passing(gates: Admission, now_ns: int = 0) -> int:
    """The largest answer that could be asked for now, in tokens."""
    return max(cap for cap in range(1200) if gates.wait_ns(0, cap, now_ns) == 0)


@pytest.mark.parametrize(
    ("what", "left", "after"), [("tokens", 338, 880), ("output", 438, 930), ("input", 1199, 1199)]
)
def test_tokens_are_set_aside_and_put_right(what: What, left: int, after: int) -> None:
    """Of 950 a second: 100 in and 512 out are set aside, 50 in and 20 out were used."""
    gates = stated(fact(60_000.0, what=what, span_s=60.0))
    let = gates.sent(400, None, 0)
    assert passing(gates) == left
    gates.ended(let, AnswerFacts(end="ok", tokens_in=50, tokens_out=20), 0)
    assert passing(gates) == after


def test_a_prompt_counts_for_the_input_limit_alone() -> None:
    gates = stated(fact(60_000.0, what="input", span_s=60.0))
    assert gates.wait_ns(3800, 5000, 0) == 0
    let = gates.sent(400, None, 0)
    assert gates.wait_ns(3400, None, 0) == 0
    assert gates.wait_ns(3404, None, 0) == pytest.approx(NS / 950, abs=1)
    gates.forget(let)
    assert gates.wait_ns(3800, None, 0) == 0


def test_what_is_not_known_to_be_used_stays_set_aside() -> None:
    gates = stated(fact(60_000.0, what="tokens", span_s=60.0))
    gates.ended(gates.sent(400, None, 0), AnswerFacts(end="ok"), 0)
    assert passing(gates) == 338
    gates = stated(fact(60_000.0, what="tokens", span_s=60.0))
    gates.ended(gates.sent(400, None, 0), AnswerFacts(end="failed", tokens_in=1), 0)
    assert passing(gates) == 338


def test_a_request_counts_for_one_of_a_limit_of_requests() -> None:
    gates = stated(fact(600.0, what="requests", span_s=60.0))
    assert gates.knee.promised == pytest.approx(9.5)
    lets = [gates.sent(4000, None, 0) for _ in range(9)]
    assert gates.wait_ns(4000, None, 0) == pytest.approx(0.5 / 9.5 * NS, abs=1)
    gates.ended(lets[0], AnswerFacts(end="ok", tokens_in=1, tokens_out=1), 0)
    assert gates.wait_ns(4000, None, 0) > 0  # an answer gives no request back
    gates.forget(lets[1])
    assert gates.wait_ns(4000, None, 0) == 0
    assert stated(fact(600.0, what="tokens")).knee.promised == 0.0


def test_a_refusal_holds_the_limit_of_which_the_least_is_left() -> None:
    requests, tokens = fact(600.0, 300.0, 9.0), fact(60_000.0, 20_000.0, 9.0, what="tokens")
    for wait_s, held_s in ((2.5, 2.5), (None, 1.0), (1000.0, 300.0)):
        gates = Admission()
        let = gates.sent(0, None, 0)
        gates.ended(let, AnswerFacts(end="refused", wait_s=wait_s, rates=(requests, tokens)), 0)
        assert gates.wait_ns(0, 0, 0) == round(held_s * NS)
        assert (gates.window.most, gates.learnt.rate, gates.held_ns) == (math.inf, math.inf, 0)
    gates = Admission()
    rates = (fact(600.0), fact(60_000.0, what="tokens"))  # nobody says what is left
    gates.ended(gates.sent(0, None, 0), AnswerFacts(end="refused", wait_s=4.0, rates=rates), 0)
    assert gates.wait_ns(0, 0, 0) == 4 * NS


def test_waits_without_a_limit_hold_the_target_five_minutes_at_most() -> None:
    gates = Admission()
    gates.ended(gates.sent(0, None, 0), AnswerFacts(end="refused", wait_s=1000.0), 0)
    assert gates.held_ns == 300 * NS
    gates.ended(gates.sent(0, None, 0), AnswerFacts(end="refused", wait_s=3.0), 0)
    assert gates.wait_ns(0, None, NS) == 299 * NS
    gates = Admission()
    gates.ended(gates.sent(0, None, 0), AnswerFacts(end="refused", wait_s=2.0), 0)
    assert (gates.held_ns, gates.learnt.rate) == (0, 0.05)  # two seconds are about a rate


def test_requests_are_spread_over_the_time_that_an_answer_takes() -> None:
    """Sixteen at once, of a second each, may begin four times as fast as they end."""
    gates = Admission(start=16)
    gates.ended(gates.sent(0, None, 0), AnswerFacts(end="ok"), NS)
    for _ in range(4):
        assert gates.wait_ns(0, None, NS) == 0
        let = gates.sent(0, None, NS)
    assert gates.wait_ns(0, None, NS) == 0
    gates.sent(0, None, NS)
    assert gates.wait_ns(0, None, NS) == 15_625_000
    assert gates.wait_ns(0, None, NS + 15_625_000) == 0
    gates.ended(let, AnswerFacts(end="ok"), 3 * NS)  # two seconds: a tenth of it counts
    for _ in range(5):
        gates.sent(0, None, 4 * NS)
    assert gates.wait_ns(0, None, 4 * NS) == pytest.approx(17_187_500, abs=1)


@pytest.mark.parametrize(("took_ms", "wait_ms"), [(64, 1), (63, 0)])
def test_a_gap_of_less_than_a_millisecond_is_none(took_ms: int, wait_ms: int) -> None:
    gates = Admission(start=16)
    gates.ended(gates.sent(0, None, 0), AnswerFacts(end="ok"), took_ms * MS)
    for _ in range(5):
        gates.sent(0, None, NS)
    assert gates.wait_ns(0, None, NS) == wait_ms * MS


def test_an_own_limit_holds_beside_what_is_learnt() -> None:
    assert Admission(start=4, most=2.0).most == 2.0
    assert Admission(start=4, most=9.0).most == 4.0
    gates = Admission(start=4, most=2.0)
    gates.sent(0, None, 0)
    assert gates.wait_ns(0, None, 0) == 0
    gates.sent(0, None, 0)
    assert gates.wait_ns(0, None, 0) == NEVER_NS


def test_only_failures_of_the_target_cut_its_window() -> None:
    for end, most in (("failed", 8.0), ("wrong", 512.0)):
        gates = Admission(start=512)
        lets = [gates.sent(0, None, 0) for _ in range(16)]
        for let in lets[-4:]:
            gates.ended(let, AnswerFacts(end=end), 0)  # type: ignore[arg-type]
        assert gates.most == most
        assert gates.in_flight == 12


# Limits that answers state


def test_a_refusal_closes_by_what_is_left_where_that_is_said() -> None:
    known = StatedLimits()
    unsaid, said = fact(100.0, None, 50.0, what="tokens"), fact(100.0, 99.0, 20.0)
    known.told((unsaid, said), 0, later=0, tokens=1, refused=True)
    assert known.closed_ns == 20 * NS
    known.told((fact(100.0, 0.0, 5.0),), 0, later=0, tokens=1, refused=False)
    assert known.closed_ns == 20 * NS  # a shorter one does not open it
    known = StatedLimits()
    known.told((fact(100.0),), 0, later=0, tokens=1, refused=True)
    assert known.closed_ns == NS


def test_the_last_but_one_request_that_is_left_closes_nothing() -> None:
    known = StatedLimits()
    known.sent(0)  # nothing is known
    known.told((fact(100.0, 2.0, 10.0),), 0, later=0, tokens=1, refused=False)
    known.sent(10 * NS - 1)
    assert known.closed_ns == 0
    known.sent(10 * NS - 1)
    assert known.closed_ns == 10 * NS


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"0", 0.0),
        (b"1000000000", 1e9),  # the largest number that is no date
        (b"1000000001", 1.0),
        (b"999999999", 999_999_999.0),
        (b"1e15", None),
        (b"1d2h", 93_600.0),
        (b"5us", 5e-6),
        (b"7ns", 7e-9),
        (b"1s2", None),
        (b"1970-01-01T00:00:00Z", 0.0),
        (b" 2s ", 2.0),
    ],
)
def test_words_for_the_time_of_a_reset(value: bytes, seconds: float | None) -> None:
    fields = [(b"x-ratelimit-limit-requests", b"5"), (b"x-ratelimit-reset-requests", value)]
    (found,) = read_rates(fields, 1e9)
    assert found.reset_s == (None if seconds is None else pytest.approx(seconds))


def test_a_date_that_is_past_is_a_reset_at_once() -> None:
    fields = [(b"x-ratelimit-limit-requests", b"5"), (b"x-ratelimit-reset-requests", b"1000000001")]
    assert read_rates(fields, 2e9)[0].reset_s == 0.0
    assert read_rates([(b"x-ratelimit-limit-requests", b"-1")], 0.0) == []
    assert read_rates([(b"x-ratelimit-remaining-requests", b"1")], 0.0) == []


# Clients beside lines of batches


def test_the_peak_of_clients_leaves_lines_out_and_lasts_a_minute_or_two() -> None:
    peaks = ClientPeaks()
    start = 10 * PEAK_NS
    peaks.came("a", 0, start)
    assert (peaks.peak("a"), peaks.client_ns) == (1, start)
    peaks.began("one", "a")
    peaks.began("two", "a")
    peaks.came("a", 6, start + 1)
    assert (peaks.peak("a"), peaks.lines("a"), peaks.peak("b")) == (5, 2, 0)
    peaks.ended("two")
    peaks.ended("two")
    assert peaks.lines("a") == 1
    peaks.came("a", 2, start + PEAK_NS)
    assert peaks.peak("a") == 5
    peaks.came("a", 1, start + PEAK_NS + 1)  # a new minute: the one before counts too
    assert peaks.peak("a") == 5
    peaks.came("a", 2, start + 2 * PEAK_NS + 2)
    assert peaks.peak("a") == 2
    peaks.came("a", 8, start + 3 * PEAK_NS)
    peaks.came("a", 0, start + 4 * PEAK_NS + 2)  # exactly two minutes after the last turn
    assert peaks.peak("a") == 8
    peaks.came("a", 6, start + 5 * PEAK_NS)
    peaks.came("a", 1, start + 6 * PEAK_NS + 3)  # more: what was before is too old
    assert peaks.peak("a") == 1


def test_no_client_has_come_before_the_first() -> None:
    assert ClientPeaks().client_ns is None


def test_a_room_is_remembered_for_ten_minutes() -> None:
    peaks = ClientPeaks()
    assert peaks.room("a", 0) is None
    peaks.saw_queue("a", 7.0, NS)
    assert peaks.room("a", NS + ROOM_NS) == 7.0
    assert peaks.room("a", NS + ROOM_NS + 1) is None


def test_a_request_needs_the_tokens_of_its_bytes_and_of_its_longest_answer() -> None:
    gates = Admission()
    assert gates.need(400, None) == (100.0, 512.0)
    assert gates.need(400, 50) == (100.0, 50.0)


def test_a_wait_for_a_learnt_rate_is_never_none_at_all() -> None:
    rate = LearntRate()
    rate.rate, rate._level, rate._seen_ns = 1e12, 1.0 - 1e-9, 7
    assert rate.wait_ns(7) == 1
    rate.rate, rate._level = 2.0, 0.5
    assert rate.wait_ns(7) == 250_000_000
