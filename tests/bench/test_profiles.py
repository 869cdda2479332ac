from __future__ import annotations

import typing
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lightgate.bench.judge.profiles import PRESETS, TURNS, pick, picks, turns_ms
from lightgate.bench.statistics.measured import Sampled
from lightgate.bench.statistics.summary import DURATION_QS, RATE_QS, estimates
from lightgate.clock.load import Slo
from lightgate.ledger.runs.run import CellSummary, CostFacts, Estimate, Metric, Profile

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "verdicts.md"
INF = float("inf")


def spread(middle: float, n: int) -> list[float]:
    """`n` values within 10 % of the middle."""
    return [middle * (0.9 + 0.2 * at / (n - 1)) for at in range(n)]


def cell(name: str, c: int = 1, **shape: Any) -> CellSummary:
    """A target with TTFT in ms and speed in tok/s; 512 tokens an answer."""
    n = shape.pop("n", 200)
    failed = shape.pop("failed", 0)
    ttft, speed = shape.pop("ttft", 200.0), shape.pop("speed", 200.0)
    stall, price = shape.pop("stall", 30.0), shape.pop("price", None)
    durations = {
        "ttft_ms": ttft,
        "ttfa_ms": ttft,
        "e2e_ms": ttft + 1000.0 * 512 / speed,
        "stall_ms": stall,
    }
    metrics = [
        Metric(
            name=metric,
            quantiles=estimates(spread(middle, n), DURATION_QS),
            with_failures=estimates(spread(middle, n) + [INF] * failed, DURATION_QS),
        )
        for metric, middle in durations.items()
    ]
    metrics.append(Metric(name="speed_tps", quantiles=estimates(spread(speed, n), RATE_QS)))
    outcomes = {"ok": n, "reset": failed} if failed else {"ok": n}
    return CellSummary(
        target=name,
        load=f"c={c}",
        concurrency=c,
        outcomes=outcomes,
        metrics=tuple(metrics),
        tokens_out_p50=512.0,
        cost=CostFacts(per_1k=None if price is None else Decimal(str(price))),
        **shape,
    )


def test_voice_takes_the_first_answer_under_load() -> None:
    cells = [
        cell("quick alone", 1, ttft=100.0),
        cell("quick alone", 32, ttft=440.0),
        cell("even", 1, ttft=300.0),
        cell("even", 32, ttft=310.0),
    ]
    chosen = pick("voice", cells)
    assert chosen.target == "even"
    assert chosen.because == (
        "At c=32: even ttfa p95 338 ms; quick alone is out: ttfa p95 is 480 ms, at most 450 ms"
        " wanted"
    )
    assert chosen.slo == {"ttfa_ms": 450.0, "speed_tps": 25.0}
    assert "MLPerf" in chosen.source


def test_voice_breaks_a_tie_by_stalls() -> None:
    cells = [cell("smooth", 8, ttft=300.0), cell("jerky", 8, ttft=302.0, stall=400.0)]
    chosen = pick("voice", cells)
    assert chosen.target == "smooth"
    assert chosen.because.startswith("At c=8: smooth ttfa p95 ")
    assert "; then smooth stall p95 33 ms, jerky stall p95 436 ms" in chosen.because


def test_none_fits_and_the_reason_of_each() -> None:
    chosen = pick("voice", [cell("slow", 32, ttft=900.0), cell("slower", 32, ttft=1400.0)])
    assert chosen.target is None
    assert "none fits; slow is out: ttfa p95 is 981 ms, at most 450 ms wanted" in chosen.because
    assert "slower is out: ttfa p95 is 1526 ms" in chosen.because


def test_coding_takes_the_speed_of_one_request_alone() -> None:
    cells = [cell("a", 1, speed=310.0), cell("b", 1, speed=215.0)]
    cells += [cell("a", 32, speed=30.0), cell("b", 32, speed=200.0)]
    chosen = pick("coding", cells)
    assert chosen.target == "a"
    assert chosen.because == "At c=1: a speed p50 310 tok/s, b speed p50 215 tok/s"


def test_an_agent_waits_ten_times() -> None:
    assert turns_ms(400.0, 100.0, 512.0) == TURNS * (400.0 + 5120.0)
    cells = [cell("late", speed=320.0, ttft=2000.0), cell("soon", speed=250.0, ttft=150.0)]
    chosen = pick("agent", cells)
    assert chosen.target == "soon"
    assert "soon 10 turns of 512 tokens in 22.0 s" in chosen.because
    assert "late 10 turns of 512 tokens in 36.0 s" in chosen.because


def test_nobody_wins_by_answering_less() -> None:
    short = msgspec.structs.replace(cell("short", speed=150.0), tokens_out_p50=10.0)
    assert pick("agent", [short, cell("whole", speed=250.0)]).target == "whole"


def test_batch_takes_the_price_then_the_throughput() -> None:
    cheap = cell("cheap", 32, price=0.2, throughput_tps=900.0)
    dear = cell("dear", 32, price=0.9, throughput_tps=9000.0)
    assert pick("batch", [cheap, dear]).target == "cheap"
    same = cell("same price", 32, price=0.2, throughput_tps=2000.0)
    chosen = pick("batch", [cheap, dear, same])
    assert chosen.target == "same price"
    assert "$0.20 per 1,000 requests" in chosen.because
    assert "; then same price 2,000 tok/s in all, cheap 900 tok/s in all" in chosen.because
    alike = cell("alike", 32, price=0.2, throughput_tps=1980.0)
    assert pick("batch", [alike, same]).target is None


def test_batch_without_any_price_goes_by_throughput() -> None:
    cells = [cell("a", 32, throughput_tps=900.0), cell("b", 32, throughput_tps=2000.0)]
    assert pick("batch", cells).target == "b"


def test_a_tie_is_called_a_tie() -> None:
    chosen = pick("coding", [cell("a", speed=200.0), cell("b", speed=201.0)])
    assert chosen.target is None
    assert chosen.because == "At c=1: a and b tie: b speed p50 201 tok/s, a speed p50 200 tok/s"


def test_too_few_samples_keep_no_demand() -> None:
    chosen = pick("voice", [cell("a", 8, n=40)])
    assert chosen.target is None
    assert "a is out: ttfa p95 needs 72 requests" in chosen.because


def test_one_reason_is_told_once() -> None:
    chosen = pick("voice", [cell(name, 8, n=40) for name in ("a", "b", "c")])
    assert chosen.because == "At c=8: none fits; a, b and c are out: ttfa p95 needs 72 requests"


def test_a_fast_target_that_fails_is_not_picked() -> None:
    broken = cell("broken", speed=900.0, n=150, failed=50)
    chosen = pick("coding", [broken, cell("sound", speed=100.0)])
    assert chosen.target == "sound"
    assert chosen.because.endswith("; broken is out: 25% of the requests failed")
    alone = pick("coding", [broken])
    assert alone.target is None
    assert "25% of the requests failed" in alone.because
    dead = msgspec.structs.replace(broken, outcomes={})
    assert "no request succeeded" in pick("coding", [dead]).because


def test_a_figure_that_a_late_client_left_open_keeps_no_demand() -> None:
    open_speed = estimates(
        Sampled([100.0] * 100, [2.0] * 100, [100.0] * 100, 100), RATE_QS, rate=True
    )
    plain = cell("a", speed=100.0)
    metrics = [
        msgspec.structs.replace(one, quantiles=open_speed) if one.name == "speed_tps" else one
        for one in plain.metrics
    ]
    late = msgspec.structs.replace(plain, metrics=tuple(metrics))
    assert pick("coding", [plain]).target == "a"
    chosen = pick("coding", [late])
    assert chosen.target is None
    assert "lies between 2 and 100 tok/s" in chosen.because


def test_all_uses_without_the_twins() -> None:
    cells = [cell("a", speed=300.0), cell("b"), cell("a (again)", speed=310.0)]
    chosen = picks(cells, twins=["a (again)"])
    assert [one.profile for one in chosen] == list(typing.get_args(Profile))
    assert {one.profile: one.target for one in chosen}["coding"] == "a"
    assert all("again" not in one.because for one in chosen)
    assert picks([]) == ()


def test_nothing_measured() -> None:
    assert pick("voice", []).because == "At no load: nothing was measured"


def test_the_demands_on_one_request() -> None:
    assert PRESETS["voice"].slo == Slo(ttfa_ms=450.0, speed_tps=25.0)
    assert PRESETS["batch"].slo == Slo()


@pytest.mark.parametrize("profile", typing.get_args(Profile))
def test_every_use_is_on_the_page(profile: Profile) -> None:
    row = next(x for x in PAGE.read_text("utf-8").splitlines() if x.startswith(f"| {profile} |"))
    preset = PRESETS[profile]
    assert f"{preset.load} load" in row
    for demand in preset.demands:
        assert f"{demand.limit:,.0f}" in row or f"{demand.limit:.3g}" in row


def test_requests_of_a_few_waves_are_not_called_failures() -> None:
    whole = cell("a", 32)
    waves = msgspec.structs.replace(
        whole,
        metrics=tuple(
            Metric(
                name=metric.name,
                quantiles=tuple(Estimate(q=one.q, n=128, n_eff=5) for one in metric.quantiles),
                with_failures=tuple(
                    Estimate(q=one.q, n=128, n_eff=5) for one in metric.with_failures
                ),
            )
            for metric in whole.metrics
        ),
    )
    chosen = pick("voice", [waves])
    assert chosen.because == (
        "At c=32: none fits; a is out: ttfa p95 needs 72 independent requests, and these are worth"
        " 5"
    )
