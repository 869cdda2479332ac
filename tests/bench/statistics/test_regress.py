from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from bench.test_rules import worked
from lightgate.bench.statistics.regress import (
    COST,
    FAILED,
    Change,
    Compared,
    Limits,
    Side,
    compare_runs,
    more_failures,
    needed,
)
from lightgate.clock.outcome import Outcome
from lightgate.ledger.runs.run import (
    Board,
    CellSummary,
    CostFacts,
    Estimate,
    Metric,
    Run,
    TargetFacts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.clock.attempt import AttemptRecord

ATTEMPT, RECORDING = worked()


def side(
    ttfts: Sequence[float],
    *,
    failures: int = 0,
    load: str = "c=8",
    wave: int = 1,
    target: str = "lab/s1",
    dollars: float | None = None,
    **run: object,
) -> Side:
    """A run with these first tokens, in ms; speed falls and e2e rises with them.

    Failures are spread over the run. A `wave` of requests starts at once, one second after the one
    before, and lasts as long; without waves a request starts when the one before has ended.
    """
    attempts: list[AttemptRecord] = []
    recordings = {}
    n = len(ttfts) + failures
    left = iter(ttfts)
    for at in range(n):
        bad = at * failures // n != (at + 1) * failures // n
        ttft = None if bad else next(left)
        sent = at // wave * 1_000_000_000
        made = msgspec.structs.replace(
            ATTEMPT,
            id=f"a-{at}",
            target=target,
            t_send_ns=sent,
            t_end_ns=sent + 990_000_000,
            outcome=Outcome.TIMEOUT if bad else Outcome.OK,
            ttft_ms=ttft,
            ttft_plan_ms=ttft,
            e2e_ms=None if ttft is None else 3 * ttft,
            speed_tps=None if ttft is None else 1e5 / ttft,
            cost_usd=None,
        )
        attempts.append(made)
        recordings[made.id] = msgspec.structs.replace(RECORDING, id=made.id, load=load, block=None)
    about = {"id": "r", "started": "2026-01-01T00:00:00Z", "finished": "2026-01-01T00:01:00Z"}
    if dollars is not None:
        each = CostFacts(per_1k=Decimal(str(dollars)))
        about["cells"] = (CellSummary(target=target, load=load, cost=each, windows_ns=()),)  # type: ignore[assignment] # of a test
    return Side(Run(**(about | run)), attempts, recordings)  # type: ignore[arg-type] # of a test


def noisy(seed: int, n: int = 200, scale: float = 1.0, sigma: float = 0.2) -> list[float]:
    values = np.random.default_rng(seed).lognormal(np.log(300 * scale), sigma, n)
    return [float(value) for value in values]


def compared(old: Side, new: Side, **more: object) -> Compared:
    return compare_runs(old, new, rng=np.random.default_rng(1), **more)  # type: ignore[arg-type]


def of(found: Compared, metric: str, q: float | None = 0.5) -> Change:
    wanted = None if metric in {FAILED, COST} else q
    return next(c for c in found.changes if (c.metric, c.q) == (metric, wanted))


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
    assert of(compared(old, new, limits=Limits(share=0.0)), "ttft_ms").call == "regression"


def test_too_few_samples_have_no_verdict() -> None:
    few = compared(side([300.0] * 5), side([600.0] * 5))
    assert of(few, "ttft_ms").call == "n too small"
    assert (of(few, "ttft_ms").old, of(few, "ttft_ms").interval) == (None, None)
    assert few.unjudged == list(few.changes)
    tail = compared(side(noisy(1, 60)), side(noisy(2, 60)))
    assert [of(tail, "ttft_ms", q).call for q in (0.5, 0.95)] == ["tie", "n too small"]
    assert (needed(of(tail, "ttft_ms", 0.95)) or 0) >= 72


def test_waves_count_as_they_are_worth() -> None:
    """Three waves that each had one speed are three samples, however many requests they had."""
    old = [value for level in (300.0, 160.0, 290.0) for value in [level] * 32]
    new = [value for level in (600.0, 320.0, 580.0) for value in [level] * 32]
    found = of(compared(side(old, wave=32), side(new, wave=32)), "ttft_ms")
    assert (found.n_old, found.n_eff_old, found.waves_old) == (96, 3, 3)
    assert found.call == "n too small"


def test_a_slow_tail_alone_is_a_regression() -> None:
    """The median is as before; one request of ten takes six times as long."""
    old = noisy(1, 400)
    new = [value * 6 if at % 10 == 0 else value for at, value in enumerate(noisy(2, 400))]
    found = compared(side(old), side(new))
    assert of(found, "ttft_ms").call in {"tie", "worse"}
    assert of(found, "ttft_ms", 0.95).call == "regression"
    assert of(found, "speed_tps", 0.05).call == "regression"


def test_a_difference_of_nothing_is_the_same() -> None:
    """50.059 against 50.065 ms is sure, and nothing that anybody would act on."""
    rng = np.random.default_rng(1)
    old, new = (50.059 + 0.001 * rng.normal(size=400), 50.065 + 0.001 * rng.normal(size=400))
    change = of(compared(side(old.tolist()), side(new.tolist())), "ttft_ms")
    assert change.interval is not None
    assert change.interval.low > 1.0
    assert change.call == "same"


def test_a_tie_that_could_hide_anything_is_unclear() -> None:
    found = compared(side(noisy(1, 12, sigma=0.9)), side(noisy(2, 12, sigma=0.9)))
    change = of(found, "ttft_ms")
    assert change.call == "unclear"
    assert change in found.unjudged
    assert (needed(change) or 0) > 12


def test_more_failures_are_a_regression_though_the_rest_is_fast() -> None:
    found = compared(side(noisy(1)), side(noisy(2), failures=100))
    change = of(found, FAILED)
    assert (change.old, change.call) == (0.0, "regression")
    assert change.new == pytest.approx(1 / 3)
    assert of(found, "ttft_ms").call == "tie"


def test_two_points_more_failures_are_a_regression_whatever_the_tolerance_of_times() -> None:
    old, new = side(noisy(1, 1000)), side(noisy(2, 980), failures=20)
    found = compared(old, new, limits=Limits(share=0.1))
    assert of(found, FAILED).call == "regression"
    assert of(compared(old, new, limits=Limits(points=0.03)), FAILED).call == "worse"


def test_more_failures_by_chance() -> None:
    assert more_failures((0, 10), (0, 10)) == 0.5
    # 1 of 10 against 1 of 10: half of what was seen (20/38 ways of 1 in each) and 9/38 of both.
    assert more_failures((1, 10), (1, 10)) == pytest.approx(10 / 38 + 9 / 38)
    assert more_failures((0, 1000), (20, 1000)) < 1e-5


def test_a_dearer_target_is_a_regression() -> None:
    old, new = side(noisy(1), dollars=2.0), side(noisy(2), dollars=2.5)
    found = of(compared(old, new), COST)
    assert (found.old, found.new, found.call) == (2.0, 2.5, "regression")
    assert of(compared(old, side(noisy(2), dollars=2.01)), COST).call == "same"
    assert COST not in {change.metric for change in compared(side(noisy(1)), new).changes}


def test_a_load_that_is_gone_is_named() -> None:
    both = side(noisy(1))
    more = side(noisy(3), load="c=32")
    attempts = [*both.attempts, *(msgspec.structs.replace(a, id=f"b{a.id}") for a in more.attempts)]
    recordings = {**both.recordings, **{f"b{key}": row for key, row in more.recordings.items()}}
    found = compared(Side(both.run, attempts, recordings), side(noisy(2)))
    assert found.gone == (("lab/s1", "c=32"),)


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
    assert [change.metric for change in found.changes] == ["stall_ms", "stall_ms", FAILED]


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


def test_bad_weather_widens_the_interval() -> None:
    """Thirty percent weather shared by ten neighbours is no evidence of two hundred samples."""
    rng = np.random.default_rng(5)
    weather = np.repeat(rng.lognormal(0.0, 0.3, 20), 10)
    values = 300 * weather * rng.lognormal(0.0, 0.02, 200)
    mixed = rng.permutation(values)
    wide, narrow = (
        of(compared(side(row.tolist()), side(row.tolist())), "ttft_ms") for row in (values, mixed)
    )
    assert wide.interval is not None
    assert narrow.interval is not None
    assert wide.n_eff_old < 60 < narrow.n_eff_old
    assert np.log(wide.interval.high) > 1.5 * np.log(narrow.interval.high)


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
