"""The gates alone: stated limits, learnt rates, windows, what is set aside."""

from __future__ import annotations

import math

import pytest

from lightgate.route.admission.admission import NEVER_NS, Admission, AnswerFacts
from lightgate.route.admission.headers import RateFact, read_rates
from lightgate.route.admission.learnt import LearntRate
from lightgate.route.admission.rate import RateGate
from lightgate.route.admission.reserve import Reserve
from lightgate.route.admission.window import WindowGate

NS = 1_000_000_000


def test_limits_as_openai_states_them() -> None:
    fields = [
        (b"x-ratelimit-limit-requests", b"500"),
        (b"x-ratelimit-remaining-requests", b"499"),
        (b"x-ratelimit-reset-requests", b"120ms"),
        (b"x-ratelimit-limit-tokens", b"30000"),
        (b"x-ratelimit-reset-tokens", b"6m0s"),
        (b"x-request-id", b"1"),
    ]
    assert read_rates(fields, 0.0) == [
        RateFact("requests", 500.0, 499.0, 0.12, None),
        RateFact("tokens", 30000.0, None, 360.0, None),
    ]


def test_limits_as_anthropic_states_them() -> None:
    fields = [
        (b"anthropic-ratelimit-input-tokens-limit", b"40000"),
        (b"anthropic-ratelimit-input-tokens-remaining", b"39000"),
        (b"anthropic-ratelimit-input-tokens-reset", b"1970-01-01T00:01:30Z"),
        (b"anthropic-ratelimit-output-tokens-limit", b"8000"),
    ]
    assert read_rates(fields, 60.0) == [
        RateFact("input", 40000.0, 39000.0, 30.0, None),
        RateFact("output", 8000.0, None, None, None),
    ]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"1h2m3.5s", 3723.5),
        (b"12", 12.0),
        (b"1700000060", 60.0),
        (b"soon", None),
        (b"-4", None),
        (b"2 apples", None),
        (b"2026-01-01T00:00:00", None),
    ],
)
def test_forms_of_a_reset(value: bytes, seconds: float | None) -> None:
    fields = [(b"x-ratelimit-limit-requests", b"5"), (b"x-ratelimit-reset-requests", value)]
    assert read_rates(fields, 1_700_000_000.0)[0].reset_s == seconds


def test_a_span_that_the_field_names() -> None:
    fields = [
        (b"x-ratelimit-limit-requests-day", b"14400"),
        (b"x-ratelimit-limit-tokens-minute", b"60000"),
        (b"x-ratelimit-limit-requests", b"no number"),
        (b"x-ratelimit-limit-tokens", b"0"),
    ]
    assert [(one.what, one.span_s) for one in read_rates(fields, 0.0)] == [
        ("requests", 86400.0),
        ("tokens", 60.0),
    ]


@pytest.mark.parametrize(
    ("limit", "remaining", "reset_s", "per_s"),
    [
        (600.0, 599.0, 0.1, 10.0),  # refilled steadily over a minute
        (600.0, 599.0, 60.0, 10.0),  # counted by the clock's minute
        (600.0, 300.0, 1.0, 10.0),  # same, near its end
        (14400.0, 14370.0, 180.0, 14400 / 86400),  # a day's limit, refilled steadily
        (10.0, 9.0, 0.1, 10.0),  # a second's limit
        (600.0, 600.0, 0.0, 10.0),  # nothing used: a minute
    ],
)
def test_the_span_of_a_limit_is_inferred(
    limit: float, remaining: float, reset_s: float, per_s: float
) -> None:
    gate = RateGate()
    gate.told(RateFact("requests", limit, remaining, reset_s, None), 0)
    assert gate.rate == pytest.approx(0.95 * per_s)


def test_a_bucket_holds_one_second_and_refills() -> None:
    gate = RateGate()
    assert gate.wait_ns(1.0, 0) == 0
    gate.told(RateFact("requests", 600.0, 590.0, 1.0, None), 0)
    passed = 0
    while gate.wait_ns(1.0, 0) == 0:
        gate.take(1.0, 0)
        passed += 1
    assert passed == 9
    wait_ns = gate.wait_ns(1.0, 0)
    assert 0 < wait_ns < NS
    assert gate.wait_ns(1.0, wait_ns) == 0


def test_a_request_larger_than_the_bucket_passes_when_it_is_full() -> None:
    gate = RateGate()
    gate.told(RateFact("tokens", 60.0, 60.0, 0.0, None), 0)
    assert gate.wait_ns(1000.0, 0) == 0
    gate.take(1000.0, 0)
    assert gate.wait_ns(1000.0, NS) > 900 * NS


def test_what_was_set_aside_is_put_right() -> None:
    gate = RateGate()
    gate.told(RateFact("tokens", 60_000.0, 60_000.0, 0.0, None), 0)
    gate.take(950.0, 0)
    assert gate.wait_ns(500.0, 0) > 0
    gate.give_back(850.0)
    assert gate.wait_ns(500.0, 0) == 0


def test_the_level_is_corrected_down_to_what_remains_and_not_up() -> None:
    gate = RateGate()
    gate.told(RateFact("requests", 600.0, 2.0, 59.0, None), 0)
    gate.take(2.0, 0)
    assert gate.wait_ns(1.0, 0) > 0
    gate.told(RateFact("requests", 600.0, 400.0, 20.0, None), 0)
    assert gate.wait_ns(1.0, 0) > 0


def test_a_refusal_empties_the_bucket_for_the_wait_that_it_names() -> None:
    gate = RateGate()
    gate.told(RateFact("requests", 600.0, 500.0, 10.0, None), 0)
    gate.refused(3.0, 0)
    assert gate.wait_ns(1.0, 0) == 3 * NS
    assert gate.wait_ns(1.0, 4 * NS) == 0


def test_a_learnt_rate_is_what_was_taken() -> None:
    rate = LearntRate()
    for step in range(100):
        assert rate.wait_ns(step * NS // 10) == 0
        rate.sent(step * NS // 10)
    rate.refused(99 * NS // 10, 10 * NS)
    assert rate.rate == pytest.approx(0.95 * 9.9)
    rate.refused(98 * NS // 10, 10 * NS)  # of the same burst
    assert rate.rate == pytest.approx(0.95 * 9.9)
    now = 10 * NS
    for _ in range(300):
        now += rate.wait_ns(now)
        rate.sent(now)
        rate.answered(now)
    assert rate.rate > 15  # the first one is tried twice as fast
    rate.refused(now, now)
    slower = rate.rate
    for _ in range(200):
        now += rate.wait_ns(now)
        rate.sent(now)
        rate.answered(now)
    assert slower < rate.rate < 1.1 * slower


def test_a_rate_without_a_queue_behind_it_does_not_grow() -> None:
    rate = LearntRate()
    rate.sent(0)
    rate.refused(0, NS)
    before = rate.rate
    for second in range(60, 600, 60):
        assert rate.wait_ns(second * NS) == 0
        rate.sent(second * NS)
        rate.answered(second * NS)
    assert rate.rate == before


def test_a_window_begins_with_a_refusal_and_is_cut_once_per_round_trip() -> None:
    window = WindowGate()
    assert window.most == math.inf
    for _ in range(20):
        window.answered(10, NS, 0)
    window.refused(10, NS)
    assert window.most == 8.0
    window.refused(9, NS + 1)
    assert window.most == 8.0
    window.refused(8, 3 * NS)
    assert window.most == pytest.approx(6.4)


def test_a_window_grows_with_answers_while_it_is_full() -> None:
    window = WindowGate()
    window.refused(10, 0)
    for _ in range(100):
        window.answered(2, NS, NS)
    assert window.most == 8.0
    for _ in range(8):
        window.answered(8, NS, NS)
    assert window.most == 9.0
    for _ in range(100):
        window.answered(9, NS, NS)
    assert window.most == 9.0  # where it was refused, until the hold is over


def test_failures_cut_harder_but_one_alone_does_nothing() -> None:
    window = WindowGate()
    window.failed(20, 0)
    for _ in range(50):
        window.answered(20, NS, NS)
    window.failed(20, NS)
    assert window.most == math.inf
    window.failed(20, NS)
    window.failed(20, NS)
    window.failed(20, NS)
    window.failed(20, NS)
    window.failed(20, NS)
    window.failed(20, NS)
    window.failed(20, NS)
    window.failed(20, NS)
    assert window.most == 10.0


def test_what_an_answer_needs_is_learnt() -> None:
    reserve = Reserve()
    assert reserve.need(400, None) == (100.0, 512.0)
    assert reserve.need(400, 64) == (100.0, 64.0)
    for length in range(100):
        reserve.counted(400, 200, length)
    need = reserve.need(400, None)
    assert need.tokens_in == pytest.approx(200, rel=0.05)
    assert 85 <= need.tokens_out <= 95
    assert reserve.need(400, 20).tokens_out == 20


def test_all_gates_must_let_a_request_pass() -> None:
    gates = Admission(start=2)
    first = gates.sent(400, None, 0)
    gates.sent(400, None, 0)
    assert gates.wait_ns(400, None, 0) == NEVER_NS
    stated = RateFact("requests", 60.0, 0.0, 60.0, None)
    gates.ended(first, AnswerFacts(end="ok", tokens_in=100, tokens_out=5, rates=(stated,)), NS)
    assert 0 < gates.wait_ns(400, None, NS) < 3 * NS
    assert gates.limited


def test_a_stated_limit_explains_a_refusal_and_leaves_the_window() -> None:
    gates = Admission()
    stated = (
        RateFact("requests", 600.0, 500.0, 10.0, None),
        RateFact("tokens", 60000.0, 0.0, 60.0, None),
    )
    let = gates.sent(400, None, 0)
    gates.ended(let, AnswerFacts(end="refused", wait_s=2.0, rates=stated), 0)
    assert gates.window.most == math.inf
    assert gates.learnt.rate == math.inf
    assert gates.wait_ns(400, None, 0) >= 2 * NS


def test_a_long_wait_holds_the_target_a_short_one_is_a_rate_and_none_a_number() -> None:
    gates = Admission()
    gates.ended(gates.sent(4, None, 0), AnswerFacts(end="refused", wait_s=30.0), 0)
    assert gates.wait_ns(4, None, 0) == 30 * NS
    gates = Admission()
    gates.ended(gates.sent(4, None, 0), AnswerFacts(end="refused", wait_s=1.0), 0)
    assert gates.learnt.rate < math.inf
    assert gates.window.most == math.inf
    gates = Admission()
    gates.ended(gates.sent(4, None, 0), AnswerFacts(end="refused"), 0)
    assert gates.learnt.rate == math.inf
    assert gates.window.most == 1.0


def test_a_request_that_was_cut_leaves_no_trace() -> None:
    gates = Admission(start=1)
    stated = RateFact("tokens", 60000.0, 60000.0, 0.0, None)
    gates.ended(gates.sent(4, None, 0), AnswerFacts(end="ok", tokens_out=5, rates=(stated,)), NS)
    let = gates.sent(4000, None, NS)
    assert gates.wait_ns(4, None, NS) == NEVER_NS
    gates.forget(let)
    assert gates.in_flight == 0
    assert gates.wait_ns(4, None, NS) == 0
