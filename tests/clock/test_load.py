from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from lightgate.clock import load
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.load import Slo, Span, Stream, Window
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import quantile
from lightgate.clock.tokens import Tokens

S = 1_000_000_000
WINDOW = Window(10 * S, 20 * S)


def attempt(**changes: Any) -> AttemptRecord:
    facts = AttemptFacts(
        id="a",
        exchange_id="x",
        source="bench",
        target="lab/s1",
        provider="lab",
        model="s1",
        dialect="openai",
        outcome=Outcome.OK,
        wall_ns=0,
    )
    plain = AttemptRecord.of(facts, Marks(), Tokens())
    return msgspec.structs.replace(plain, **{"ttft_ms": 100.0, "speed_tps": 50.0, **changes})


def test_throughput_counts_the_bursts_in_the_window_alone() -> None:
    streams = [
        Stream([9 * S, 10 * S, 15 * S], [7.0, 4.0, 6.0]),  # its first burst came too early
        Stream([19 * S, 20 * S], [10.0, 99.0]),  # the stop does not belong to the window
        Stream([], []),
        Stream([1 * S, 30 * S], [5.0, 5.0]),  # there all the time, but no burst inside
    ]
    assert load.throughput(streams, WINDOW) == pytest.approx(20.0 / 10.0)


def test_an_empty_window_has_no_rates() -> None:
    nothing = Window(5, 5)
    assert load.throughput([], nothing) is None
    assert load.inflight([], nothing) is None
    assert load.little([], nothing) is None


def test_a_window_may_be_shorter_than_a_second() -> None:
    short = Window(10 * S, 10 * S + S // 4)
    assert load.throughput([Stream([10 * S], [3.0])], short) == 12.0
    assert load.throughput([Stream([10 * S], [3.0])], Window(10 * S, 11 * S)) == 3.0


def test_nothing_in_a_real_window_is_a_true_zero() -> None:
    assert load.throughput([], WINDOW) == 0.0
    assert load.inflight([], WINDOW) == 0.0


def test_answers_and_prompts_per_second() -> None:
    assert load.requests_per_s(30, 10.0) == 3.0
    assert load.requests_per_s(0, 10.0) is None
    assert load.requests_per_s(3, 0.0) is None
    known = [attempt(tokens_in=64), attempt(tokens_in=36)]
    assert load.tokens_in_per_s(known, 10.0) == 10.0
    assert load.tokens_in_per_s([*known, attempt(tokens_in=None)], 10.0) is None
    assert load.tokens_in_per_s([], 10.0) is None
    assert load.tokens_in_per_s(known, 0.0) is None


def test_inflight_is_weighted_by_time() -> None:
    spans = [Span(0, 30 * S), Span(5 * S, 15 * S), Span(19 * S, 40 * S), Span(20 * S, 25 * S)]
    assert load.inflight(spans, WINDOW) == pytest.approx((10 + 5 + 1 + 0) / 10)


def test_littles_law_holds_in_a_steady_closed_loop() -> None:
    spans = [Span(k * S // 4, k * S // 4 + 2 * S) for k in range(200)]  # 4 a second, 2 s each
    assert load.inflight(spans, WINDOW) == pytest.approx(8.0)
    assert load.little(spans, WINDOW) == pytest.approx(8.0)


def test_littles_law_is_broken_by_a_burst_that_the_window_cuts() -> None:
    spans = [Span(19 * S, 29 * S)] * 10
    assert load.inflight(spans, WINDOW) == pytest.approx(1.0)
    assert load.little(spans, WINDOW) == pytest.approx(10.0)
    assert load.little([Span(0, 5 * S)], WINDOW) is None


def test_batching_and_retention() -> None:
    assert load.batch_eff(6926.0, 32, 280.0) == pytest.approx(0.773, abs=1e-3)
    assert load.batch_eff(1.0, 0, 1.0) is None
    assert load.batch_eff(1.0, 8, 0.0) is None
    assert load.batch_eff(1.0, 1, 0.5) == 2.0
    assert load.retain(40.0, 50.0) == pytest.approx(0.8)
    assert load.retain(40.0, 0.0) is None
    assert load.retain(1.0, 0.5) == 2.0


@pytest.mark.parametrize(
    ("system", "single", "expected"),
    [(6926, 280, 0.77), (3846, 196, 0.61), (2080, 101, 0.64), (1520, 79, 0.60), (889, 60, 0.46)],
)
def test_batch_eff_of_the_tables_that_we_were_given(
    system: float, single: float, expected: float
) -> None:
    assert load.batch_eff(system, 32, single) == pytest.approx(expected, abs=0.005)


def test_goodput_counts_failures_and_drops_as_bad() -> None:
    slo = Slo(ttft_ms=200.0, speed_tps=40.0)
    attempts = [
        attempt(),
        attempt(ttft_ms=200.0, speed_tps=40.0),  # exactly on both limits
        attempt(ttft_ms=201.0),
        attempt(speed_tps=39.0),
        attempt(outcome=Outcome.TIMEOUT),
        attempt(outcome=Outcome.EMPTY),
        attempt(outcome=Outcome.CUT),  # we ended the run: neither good nor bad
        attempt(outcome=Outcome.CANCELLED),
    ]
    assert load.goodput(attempts, slo) == pytest.approx(2 / 6)
    assert load.goodput(attempts, slo, dropped=4) == pytest.approx(2 / 10)
    assert load.goodput([], slo) is None
    assert load.goodput([], slo, dropped=1) == 0.0


def test_an_undefined_number_meets_no_demand() -> None:
    assert not load.meets(attempt(speed_tps=None), Slo(speed_tps=1.0))
    assert load.meets(attempt(speed_tps=None), Slo(ttft_ms=200.0))
    assert load.meets(attempt(), Slo())


def test_one_cost_and_what_is_derived_from_it() -> None:
    assert load.cost_1k(Decimal("0.25"), 500) == Decimal("0.5")
    assert load.cost_1k(Decimal("0.25"), 0) is None
    assert round(load.cost_out(Decimal("2.69"), 92.0 * 3600) or 0, 4) == Decimal("8.1220")
    assert load.cost_out(Decimal("2.69"), 0.0) is None
    assert load.speed_per_dollar(100.0, Decimal("0.5")) == 200.0
    assert load.speed_per_dollar(100.0, Decimal(0)) is None


def test_failures_enter_the_second_series_as_infinity() -> None:
    attempts = [attempt(ttft_ms=float(n)) for n in range(1, 97)]
    attempts += [attempt(outcome=Outcome.RATE_LIMITED, ttft_ms=None)] * 4
    attempts += [attempt(outcome=Outcome.CUT, ttft_ms=1.0)] * 50
    answered = load.successes(attempts, lambda one: one.ttft_ms)
    everything = load.with_failures(attempts, lambda one: one.ttft_ms)
    assert (len(answered), len(everything)) == (96, 100)
    assert quantile(answered, 0.99) == 96.0
    assert quantile(everything, 0.96) == 96.0
    assert quantile(everything, 0.99) == math.inf


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"won": True}, True),
        ({"won": False}, False),
        ({"void": True}, False),
        ({"resent": True}, True),  # its instants are of the second time
        ({"first_bound_ms": 400.0}, True),  # never dropped
        ({"outcome": Outcome.TRUNCATED}, False),
        ({"outcome": Outcome.CUT}, False),
    ],
)
def test_only_complete_answers_that_were_waited_for_are_statistics(
    changes: dict[str, Any], expected: bool
) -> None:
    assert load.in_statistics(attempt(**changes)) is expected
