from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest

from lightgate.bench.statistics.summary import (
    CellFacts,
    error_rate,
    estimates,
    lightest_first,
    relate,
    stream,
    summarise,
)
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.load import Slo
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import interval, quantile, smallest_n
from lightgate.clock.tokens import Usage, count
from lightgate.ledger.runs.recording import Recording
from lightgate.ledger.runs.run import CellSummary, Estimate, Metric, TargetFacts
from lightgate.report.tables.arrange import counted

MS = 1_000_000
LAB = TargetFacts(name="lab/m", provider="lab", model="m", base_url="http://h", dialect="openai")
Pair = tuple[AttemptRecord, Recording]


def request(
    number: int,
    *,
    send_ms: float = 0.0,
    ttft_ms: float = 200.0,
    gap_ms: float = 10.0,
    tokens: int = 11,
    outcome: Outcome = Outcome.OK,
    lag_ms: float = 0.0,
    cached: int | None = None,
    streamed: bool = True,
    **facts: Any,
) -> Pair:
    """A request of one token a burst, as it was measured, with its recording."""
    marks = Marks(plan=round((send_ms - lag_ms) * MS), stamp_source="kernel")
    marks.send = send = round(send_ms * MS)
    marks.dispatch_lag_ns = round(lag_ms * MS)
    marks.end = send + round(ttft_ms * MS)
    if outcome in {Outcome.OK, Outcome.CUT}:
        for burst in range(tokens):
            at = send + round((ttft_ms + burst * gap_ms) * MS)
            marks.burst(at, at, 1, 4)
        marks.answer, marks.end = marks.first, marks.last
    usage = Usage(tokens_in=100, tokens_out=tokens, tokens_cached=cached)
    key = f"{facts.pop('name', 'r')}{number}"
    attempt = AttemptFacts(
        id=key,
        exchange_id=key,
        source="bench",
        target=LAB.name,
        provider="lab",
        model="m",
        dialect="openai",
        seq=number,
        outcome=outcome,
        streamed=streamed,
        wall_ns=0,
    )
    recording = Recording.of(key, marks, load="c=1", **facts)
    return AttemptRecord.of(attempt, marks, count(marks, usage)), recording


def one_after_the_other(requests: int, **shape: Any) -> list[Pair]:
    """Concurrency 1: each request takes 300 ms."""
    return [request(n, send_ms=300.0 * n, **shape) for n in range(requests)]


def cell(pairs: list[Pair], concurrency: int | None = 1, **facts: Any) -> CellSummary:
    facts.setdefault("target", LAB)
    load = f"c={concurrency}" if concurrency else "20/s constant"
    attempts = [attempt for attempt, _ in pairs]
    recordings = {recording.id: recording for _, recording in pairs}
    return summarise(attempts, recordings, CellFacts(load=load, concurrency=concurrency, **facts))


def by_q(rows: tuple[Estimate, ...]) -> dict[float, Estimate]:
    return {row.q: row for row in rows}


def metric(summary: CellSummary, name: str) -> Metric:
    return next(one for one in summary.metrics if one.name == name)


def test_every_metric_is_there_with_its_quantiles() -> None:
    summary = cell(one_after_the_other(10))
    assert {one.name for one in summary.metrics} == {
        *("ttft_ms", "ttft_plan_ms", "ttfa_ms", "tth_ms", "e2e_ms", "e2e_plan_ms"),
        *("stall_ms", "gap_ms", "speed_tps", "speed_total_tps"),
    }
    assert [row.q for row in metric(summary, "ttft_ms").quantiles] == [0.5, 0.9, 0.95, 0.99]
    assert [row.q for row in metric(summary, "speed_tps").quantiles] == [0.5, 0.05]
    assert summary.value("ttft_ms", 0.5) == 200.0
    assert summary.value("ttfa_ms", 0.5) == 200.0
    assert summary.value("e2e_ms", 0.5) == 300.0
    assert summary.value("e2e_plan_ms", 0.5) == 300.0
    assert summary.value("stall_ms", 0.5) == 10.0
    assert summary.value("gap_ms", 0.5) == 10.0
    assert summary.value("speed_tps", 0.5) == pytest.approx(100.0)
    assert summary.words_per_s == pytest.approx(100.0 / 1.3)
    assert summary.outcomes == {"ok": 10}
    assert summary.tokens_source == {"usage": 10}
    assert (summary.tokens_in_p50, summary.tokens_out_p50) == (100, 11)


def test_a_quantile_without_an_interval_has_no_value() -> None:
    rng = np.random.default_rng(3)
    for n in (5, 6, 35, 36, 71, 72):
        values = rng.lognormal(5, 1, n).tolist()
        for row in estimates(values, (0.5, 0.9, 0.95, 0.99)):
            enough = n >= smallest_n(row.q)
            assert row.n == n
            assert row.value == (quantile(values, row.q) if enough else None)
            assert row.interval == interval(values, row.q)


def test_dependent_values_get_the_interval_of_the_independent_ones() -> None:
    values = [float(n) for n in range(1000)]
    (few,) = estimates(values, (0.5,), n_eff=(10,))
    (many,) = estimates(values, (0.5,))
    assert (few.n, few.n_eff) == (1000, 10)
    assert few.value == many.value
    assert few.interval is not None
    assert many.interval is not None
    assert few.interval.low < many.interval.low
    assert few.interval.high > many.interval.high
    assert estimates(values, (0.95,), n_eff=(71,))[0].value is None


def test_a_failure_is_infinite_only_where_failures_count() -> None:
    pairs = one_after_the_other(94)
    pairs += [
        request(94 + n, send_ms=300.0 * (94 + n), outcome=Outcome.TIMEOUT, ttft_ms=300.0)
        for n in range(6)
    ]
    summary = cell(pairs)
    plain = by_q(metric(summary, "ttft_ms").quantiles)
    hard = by_q(metric(summary, "ttft_ms").with_failures)
    assert plain[0.95].value == 200.0
    assert (plain[0.95].n, hard[0.95].n) == (94, 100)
    assert hard[0.5].value == 200.0
    assert hard[0.9].value == 200.0
    assert hard[0.9].interval is None  # its upper end is a failure
    assert hard[0.95].value is None  # it is itself a failure
    assert hard[0.95].infinite
    assert not hard[0.99].infinite  # 100 samples say nothing about p99
    assert not any(one.infinite for one in (*plain.values(), hard[0.5], hard[0.9]))
    assert summary.outcomes == {"ok": 94, "timeout": 6}
    assert error_rate(summary) == pytest.approx(0.06)


def test_a_summary_survives_json() -> None:
    pairs = [*one_after_the_other(40), request(40, send_ms=12_000, outcome=Outcome.RESET)]
    summary = cell(pairs)
    text = msgspec.json.Encoder(decimal_format="number").encode(summary)
    assert msgspec.json.decode(text, type=CellSummary) == summary


def closed_loop(workers: int, each: int, **shape: Any) -> list[Pair]:
    """Workers that start 1 ms apart; each request takes 300 ms."""
    return [
        request(n * workers + worker, send_ms=worker + 300.0 * n, **shape)
        for n in range(each)
        for worker in range(workers)
    ]


def test_the_ramp_is_warm_up() -> None:
    summary = cell(closed_loop(8, 10), concurrency=8)
    assert summary.requests == 73
    assert summary.warmup == 7
    assert summary.window_s == pytest.approx(3.0 - 0.007)
    assert summary.inflight == pytest.approx(8.0)
    assert summary.offered_share == pytest.approx(1.0)


def test_marked_warm_up_is_in_no_number() -> None:
    marked = [
        request(n, send_ms=-10_000 + 300.0 * n, ttft_ms=5_000.0, warmup=True, name="w")
        for n in range(20)
    ]
    summary = cell([*marked, *one_after_the_other(30)])
    assert (summary.requests, summary.warmup) == (30, 20)
    assert summary.value("ttft_ms", 0.5) == 200.0


def test_a_ramp_that_is_most_of_the_run_is_kept_and_said() -> None:
    summary = cell(closed_loop(8, 1), concurrency=8)
    assert summary.requests == 8
    assert "the ramp is most of each block" in summary.steady_note


def test_throughput_is_of_the_bursts_in_the_window() -> None:
    summary = cell(closed_loop(4, 25), concurrency=4)
    # 4 x 11 tokens every 300 ms.
    assert summary.throughput_tps == pytest.approx(4 * 11 / 0.3, rel=0.02)
    assert summary.little == pytest.approx(4.0, rel=0.05)


def test_the_bursts_of_cut_requests_count_for_throughput_alone() -> None:
    whole = one_after_the_other(30)
    cut = request(30, send_ms=9000.0, outcome=Outcome.CUT)
    summary = cell([*whole, cut])
    assert summary.throughput_tps == pytest.approx(11 / 0.3, rel=0.01)
    assert by_q(metric(summary, "e2e_ms").with_failures)[0.5].n == 30
    assert summary.outcomes == {"ok": 30, "cut": 1}
    assert error_rate(summary) == 0.0


def test_an_answer_that_was_not_streamed_came_in_one_piece() -> None:
    attempt, recording = request(0, streamed=False)
    whole = stream(attempt, recording)
    assert whole is not None
    assert list(whole.burst_tokens) == [11.0]
    assert stream(request(0)[0], None) is None


def test_blocks_have_their_own_windows() -> None:
    pairs = [
        request(100 * block + n, send_ms=60_000.0 * block + 300.0 * n, block=block)
        for block in range(3)
        for n in range(10)
    ]
    summary = cell(pairs)
    assert summary.window_s == pytest.approx(9.0)
    assert summary.throughput_tps == pytest.approx(11 / 0.3, rel=0.05)
    assert summary.offered_share == pytest.approx(1.0)


def test_a_load_that_was_not_offered_is_noted() -> None:
    pairs = [request(n, send_ms=600.0 * n) for n in range(30)]
    summary = cell(pairs)
    assert summary.offered_share == pytest.approx(0.5, rel=0.05)
    assert "of the asked load was offered" in summary.steady_note


def test_an_open_loop_is_counted_by_its_plan() -> None:
    pairs = [request(n, send_ms=50.0 * n) for n in range(200)]
    summary = cell(pairs, concurrency=None, rate=20.0, dropped=50)
    assert summary.inflight == pytest.approx(0.3 * 20.0, rel=0.02)
    assert summary.warmup == 6  # 300 ms to fill
    assert summary.offered_share == pytest.approx(194 / 244)
    assert summary.steady is True


def test_cold_and_cached_prompts_are_told_apart() -> None:
    pairs = [
        request(n, send_ms=600.0 * n, ttft_ms=400.0 if n % 2 else 100.0, cached=0 if n % 2 else 64)
        for n in range(40)
    ]
    summary = cell(pairs)
    assert summary.cold_ttft_p50_ms == 400.0
    assert summary.cached_ttft_p50_ms == 100.0
    silent = cell(one_after_the_other(20))  # nobody reported cached tokens: neither is known
    assert silent.cold_ttft_p50_ms is None
    assert silent.cached_ttft_p50_ms is None


def test_goodput_counts_failures_and_drops_as_bad() -> None:
    slow = [request(80 + n, send_ms=24_000 + 900.0 * n, ttft_ms=800.0) for n in range(10)]
    pairs = [*one_after_the_other(80), *slow]
    pairs += [request(90 + n, send_ms=33_000 + 300.0 * n, outcome=Outcome.RESET) for n in range(10)]
    slo = Slo(ttft_ms=500.0)
    assert cell(pairs, slo=slo).goodput == pytest.approx(0.8)
    assert cell(pairs, slo=slo, dropped=60).goodput == pytest.approx(0.5)
    assert cell(pairs).goodput is None


PRICED = msgspec.structs.replace(LAB, price_input=Decimal(1), price_output=Decimal(10))
HOSTED = msgspec.structs.replace(LAB, hourly_cost=Decimal("3.60"))


def test_list_prices_by_usage() -> None:
    pairs = one_after_the_other(8)
    pairs += [request(8 + n, send_ms=2400 + 300.0 * n, outcome=Outcome.RESET) for n in range(2)]
    cost = cell(pairs, target=PRICED, slo=Slo(ttft_ms=500.0)).cost
    each = (100 * 1 + 11 * 10) / 1e6
    paid = 10 * each  # the simulated failure reports its usage
    assert float(cost.out_per_mtok or 0) == pytest.approx(each / 11 * 1e6)  # prompts included
    assert float(cost.per_1k or 0) == pytest.approx(1000 * each)
    assert cost.tokens_per_dollar == pytest.approx(11 / each)
    assert cost.in_per_mtok == Decimal(1)
    assert cost.source == "list"
    assert float(cost.spent or 0) == pytest.approx(paid)
    assert float(cost.per_request or 0) == pytest.approx(paid / 10)
    assert float(cost.per_good_request or 0) == pytest.approx(paid / 8)


def test_what_the_attempts_cost_goes_before_the_list() -> None:
    pairs = [
        (msgspec.structs.replace(a, cost_usd=Decimal("0.5"), cost_source="override"), r)
        for a, r in one_after_the_other(6)
    ]
    cost = cell(pairs, target=PRICED).cost
    assert cost.spent == Decimal(3)
    assert cost.source == "override"


def test_without_a_price_nothing_is_said_about_dollars() -> None:
    cost = cell(one_after_the_other(6)).cost
    assert cost == type(cost)()


def test_dollars_per_hour_at_this_throughput() -> None:
    summary = cell(one_after_the_other(100), target=HOSTED)
    assert summary.throughput_tps == pytest.approx(11 / 0.3, rel=0.01)
    cost = summary.cost
    assert cost.source == "hourly"
    assert float(cost.out_per_mtok or 0) == pytest.approx(1e6 * 0.001 / (11 / 0.3), rel=0.01)
    assert float(cost.spent or 0) == pytest.approx(30 * 0.001)
    assert float(cost.per_request or 0) == pytest.approx(0.3 * 0.001)
    assert cost.per_good_request == cost.per_request
    assert float(cost.per_1k or 0) == pytest.approx(1000 * 0.3 * 0.001)
    # One stream has the whole machine: $3.60 an hour for the speed of that stream.
    assert cost.speed_per_dollar == pytest.approx(
        (summary.value("speed_tps", 0.5) or 0) / 3.6 * (summary.inflight or 0), rel=0.01
    )


def test_a_refused_request_costs_nothing_and_an_unknown_one_is_no_zero() -> None:
    free = [
        (msgspec.structs.replace(a, tokens_in=None, tokens_out=None), r)
        for a, r in (
            request(90 + n, send_ms=2400 + 300.0 * n, outcome=Outcome.RATE_LIMITED)
            for n in range(8)
        )
    ]
    each = (100 * 1 + 11 * 10) / 1e6
    cost = cell([*one_after_the_other(8), *free], target=PRICED).cost
    assert float(cost.per_1k or 0) == pytest.approx(1000 * each / 2)
    assert cell(free, target=PRICED).cost.per_1k is None


def test_the_second_pass_holds_cells_against_one_at_a_time() -> None:
    alone = cell(one_after_the_other(40))
    eight = cell(closed_loop(8, 20, gap_ms=10.0), concurrency=8)
    first, second = relate([alone, eight])
    assert (first.batch_eff, first.retain, first.parallel_gain) == (1.0, 1.0, 1.0)
    assert second.batch_eff == pytest.approx(1.0, rel=0.03)
    assert second.parallel_gain == pytest.approx(8.0, rel=0.03)
    assert second.retain == pytest.approx(1.0)
    (orphan,) = relate([eight])
    assert (orphan.batch_eff, orphan.retain, orphan.parallel_gain) == (None, None, None)


def test_tables_of_2025_imply_these_efficiencies() -> None:
    # Implied tok/s in all at c = 1 and 32 from the published TTFT and speed p50 (512 tokens).
    shares = []
    for ttft_1, speed_1, ttft_32, speed_32 in (
        (180, 310, 280, 245),
        (230, 215, 610, 140),
        (410, 110, 780, 72),
        (480, 85, 950, 52),
        (620, 65, 1400, 30),
    ):
        rates = [
            c * 512 / (ttft / 1000 + 512 / speed)
            for c, ttft, speed in ((1, ttft_1, speed_1), (32, ttft_32, speed_32))
        ]
        cells = [
            CellSummary(target="t", load=f"c={c}", concurrency=c, throughput_tps=rate)
            for c, rate in zip((1, 32), rates, strict=True)
        ]
        shares.append(round(relate(cells)[1].batch_eff or math.nan, 2))
    assert shares == [0.77, 0.61, 0.64, 0.60, 0.46]


def test_nothing_succeeded() -> None:
    pairs = [request(n, send_ms=300.0 * n, outcome=Outcome.HTTP_ERROR) for n in range(30)]
    summary = cell(pairs)
    assert summary.outcomes == {"http_error": 30}
    assert summary.value("ttft_ms", 0.5) is None
    assert summary.throughput_tps is None
    assert error_rate(summary) == 1.0


def test_nothing_was_sent() -> None:
    summary = summarise([], {}, CellFacts(target=LAB, load="c=8", concurrency=8))
    assert summary.requests == 0
    assert summary.window_s is None
    assert summary.goodput is None
    assert error_rate(summary) is None


def test_a_look_for_what_is_not_there() -> None:
    summary = cell(one_after_the_other(6))
    assert summary.estimate("nothing_ms", 0.5) is None
    assert summary.estimate("ttft_ms", 0.75) is None


def test_cells_in_the_order_of_their_load() -> None:
    cells = [CellSummary(target="t", load=f"c={c}", concurrency=c) for c in (32, 1, 8)] + [
        CellSummary(target="t", load="5/s", rate=5.0)
    ]
    assert [one.concurrency for one in lightest_first(cells)] == [1, 8, 32]
    assert [one.rate for one in lightest_first(cells[3:])] == [5.0]


def test_waves_that_share_one_speed_are_few_samples() -> None:
    """An engine that batches: three waves of 32 requests, at 9, 18 and 18 tokens a second."""
    gaps = (110.0, 55.0, 55.2)
    pairs = [
        request(32 * wave + n, send_ms=20_000.0 * wave + n, gap_ms=gap, tokens=129)
        for wave, gap in enumerate(gaps)
        for n in range(32)
    ]
    summary = cell(pairs, concurrency=32)
    median = by_q(metric(summary, "speed_tps").quantiles)[0.5]
    assert summary.waves is not None
    assert (median.n_eff or 0) <= summary.waves == 3
    assert median.value is None
    assert counted(summary, "speed_tps").endswith(f"in {summary.waves} waves")


def test_requests_one_after_the_other_are_all_samples() -> None:
    rng = np.random.default_rng(12)
    pairs = [
        request(n, send_ms=500.0 * n, ttft_ms=float(ttft))
        for n, ttft in enumerate(rng.lognormal(5.3, 0.1, 100))
    ]
    summary = cell(pairs)
    assert summary.waves is None
    assert {row.n_eff for row in metric(summary, "ttft_ms").quantiles} == {100}
    assert counted(summary, "ttft_ms") == "100"
