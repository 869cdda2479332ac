from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from bench.test_rules import worked
from lightgate.bench.statistics.regress import FAILED, Change, Compared, Side, compare_runs
from lightgate.clock.compare import bootstrap_medians
from lightgate.clock.outcome import Outcome
from lightgate.ledger.runs.run import Board, CellSummary, Estimate, Metric, Run, TargetFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.clock.attempt import AttemptRecord

ATTEMPT, RECORDING = worked()


def side(
    ttfts: Sequence[float],
    *,
    failures: int = 0,
    load: str = "c=8",
    blocks: int | None = None,
    target: str = "lab/s1",
    **run: object,
) -> Side:
    """A run with these first tokens, in ms; speed falls and e2e rises with them."""
    attempts: list[AttemptRecord] = []
    recordings = {}
    for at in range(len(ttfts) + failures):
        ttft = ttfts[at] if at < len(ttfts) else None
        made = msgspec.structs.replace(
            ATTEMPT,
            id=f"a-{at}",
            target=target,
            t_send_ns=at * 1_000_000,
            outcome=Outcome.OK if ttft else Outcome.TIMEOUT,
            ttft_ms=ttft,
            ttft_plan_ms=ttft,
            e2e_ms=None if ttft is None else 3 * ttft,
            speed_tps=None if ttft is None else 1e5 / ttft,
        )
        attempts.append(made)
        block = None if blocks is None else at % blocks
        recordings[made.id] = msgspec.structs.replace(RECORDING, id=made.id, load=load, block=block)
    about = {"id": "r", "started": "2026-01-01T00:00:00Z", "finished": "2026-01-01T00:01:00Z"}
    return Side(Run(**(about | run)), attempts, recordings)  # type: ignore[arg-type] # of a test


def noisy(seed: int, n: int = 200, scale: float = 1.0, sigma: float = 0.2) -> list[float]:
    values = np.random.default_rng(seed).lognormal(np.log(300 * scale), sigma, n)
    return [float(value) for value in values]


def compared(old: Side, new: Side, **more: object) -> Compared:
    return compare_runs(old, new, rng=np.random.default_rng(1), **more)  # type: ignore[arg-type]


def of(found: Compared, metric: str) -> Change:
    return next(change for change in found.changes if change.metric == metric)


def test_the_same_again_is_a_tie() -> None:
    found = compared(side(noisy(1)), side(noisy(2)))
    assert {change.call for change in found.changes} == {"tie"}
    assert found.regressions == []
    assert found.warnings == ()


def test_a_third_slower_is_a_regression_in_every_direction() -> None:
    found = compared(side(noisy(1)), side(noisy(2, scale=1.33)))
    for metric in ("ttft_ms", "speed_tps", "e2e_ms"):
        change = of(found, metric)
        assert change.call == "regression", metric
        assert change.worse == pytest.approx(1.33, rel=0.08), metric
        assert change.interval is not None
        assert change.interval.low > 1.05
    assert of(found, FAILED).call == "tie"
    back = compared(side(noisy(2, scale=1.33)), side(noisy(1)))
    assert of(back, "ttft_ms").call == of(back, "speed_tps").call == "better"


def test_sure_but_within_the_tolerance_is_no_regression() -> None:
    old, new = side(noisy(1, 2000, sigma=0.05)), side(noisy(2, 2000, 1.03, sigma=0.05))
    assert of(compared(old, new), "ttft_ms").call == "worse"
    assert of(compared(old, new, tolerance=0.0), "ttft_ms").call == "regression"


def test_too_few_samples_have_no_verdict() -> None:
    few = compared(side([300.0] * 5), side([600.0] * 5))
    assert of(few, "ttft_ms").call == "n too small"
    assert (of(few, "ttft_ms").old, of(few, "ttft_ms").interval) == (None, None)
    blocks = compared(side(noisy(1, 40), blocks=3), side(noisy(2, 40, 2.0), blocks=3))
    assert of(blocks, "ttft_ms").call == "n too small"
    assert of(blocks, "ttft_ms").new is not None


def test_more_failures_are_a_regression_though_the_rest_is_fast() -> None:
    found = compared(side(noisy(1)), side(noisy(2), failures=100))
    change = of(found, FAILED)
    assert (change.old, change.call) == (0.0, "regression")
    assert change.new == pytest.approx(1 / 3)
    assert of(found, "ttft_ms").call == "tie"


def test_all_failed_is_a_regression() -> None:
    found = compared(side(noisy(1)), side([], failures=200))
    assert of(found, FAILED).call == "regression"
    assert of(found, "ttft_ms").call == "n too small"


def test_a_rate_is_judged_from_the_planned_instant() -> None:
    found = compared(side(noisy(1), load="20/s poisson"), side(noisy(2), load="20/s poisson"))
    assert {change.metric for change in found.changes} == {
        "ttft_plan_ms", "speed_tps", "e2e_ms", FAILED,
    }  # fmt: skip


def test_named_metrics_alone() -> None:
    found = compared(side(noisy(1)), side(noisy(2)), metrics=("stall_ms",))
    assert [change.metric for change in found.changes] == ["stall_ms", FAILED]


def test_warm_up_and_twins_are_left_out() -> None:
    old, new = side(noisy(1, 30)), side(noisy(2, 30))
    first = next(iter(new.recordings))
    warm = {first: msgspec.structs.replace(new.recordings[first], warmup=True)}
    found = compared(old, new._replace(recordings={**new.recordings, **warm}))
    assert of(found, "ttft_ms").n_new == 29
    twin = TargetFacts(
        name="lab/s1", provider="lab", model="s1", base_url="", dialect="", twin_of="lab/s0"
    )
    alone = compared(old, new._replace(run=msgspec.structs.replace(new.run, targets=(twin,))))
    assert alone.changes == ()


def test_what_weakens_a_comparison_is_said() -> None:
    doubtful = Estimate(q=0.95, n=99, value=519.0, low=209.4, high=519.0, doubtful=True)
    metric = Metric(name="ttft_ms", quantiles=(doubtful,))
    cell = CellSummary(target="lab/s1", load="c=8", metrics=(metric,))
    new = side(
        noisy(2),
        definitions="2099-01",
        workload={"prompt_tokens": "512"},
        finished=None,
        cells=(cell,),
        boards=(Board(load="c=8", metric="ttft_ms", standings=(), void=True),),
    )
    said = " ".join(compared(side(noisy(1), workload={"prompt_tokens": "64"}), new).warnings)
    for word in ("definitions", "workloads: prompt_tokens", "interrupted", "void", "doubtful"):
        assert word in said, word


def test_nothing_in_common_is_said() -> None:
    found = compared(side(noisy(1), target="a/b"), side(noisy(2), target="c/d"))
    assert found.changes == ()
    assert "nothing was compared" in found.warnings[0]
    partly = compared(side(noisy(1)), side(noisy(2), load="c=1"))
    assert "nothing was compared" in partly.warnings[0]


def test_blocks_of_bad_weather_widen_the_interval() -> None:
    """Thirty percent weather shared by ten neighbours is no evidence of a hundred samples."""
    rng = np.random.default_rng(5)
    weather = np.repeat(rng.lognormal(0.0, 0.3, 20), 10)
    values = (300 * weather * rng.lognormal(0.0, 0.02, 200)).tolist()
    alone = bootstrap_medians(values, range(200), rng=np.random.default_rng(1))
    shared = bootstrap_medians(
        values, [at // 10 for at in range(200)], rng=np.random.default_rng(1)
    )
    assert np.std(shared) > 1.5 * np.std(alone)


def test_bootstrap_medians_are_observed_values() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    drawn = bootstrap_medians(values, range(6), rng=np.random.default_rng(1), rounds=500)
    assert set(drawn.tolist()) <= set(values)
    assert 2.5 < float(np.mean(drawn)) < 4.0


def test_false_alarms_are_rare_and_true_ones_are_found() -> None:
    alarms = sum(
        bool(compared(side(noisy(seed, 60)), side(noisy(seed + 1000, 60))).regressions)
        for seed in range(40)
    )
    found = sum(
        bool(compared(side(noisy(seed, 60)), side(noisy(seed + 1000, 60, 1.4))).regressions)
        for seed in range(40)
    )
    assert alarms <= 2
    assert found >= 32
