from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from lightgate.bench.judge.slo import Search, Sweep, parse
from lightgate.bench.run.client_cpu import machine_ticks
from lightgate.bench.run.explore import HighestRate, ToSaturation, Trial
from lightgate.bench.run.order import RunOrder
from lightgate.bench.workload.workload import WorkloadWish
from lightgate.clock.quantile import Interval
from lightgate.ledger.runs.run import CellSummary, Estimate, Metric

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

AT = datetime(2026, 11, 16, tzinfo=UTC)
TRIAL = Trial(requests=50, duration_ns=None, seed=1)


def cell(load: str, *, errors: int = 0, doubtful: bool = False, **facts: float) -> CellSummary:
    outcomes = {"ok": 100 - errors, "timeout": errors}
    return CellSummary(
        target="x/m",
        load=load,
        requests=100,
        outcomes=outcomes,
        metrics=(Metric(name="ttft_ms", quantiles=(Estimate(q=0.5, n=9, doubtful=doubtful),)),),
        **facts,  # type: ignore[arg-type] # rate, concurrency, throughput_tps
    )


def order() -> RunOrder:
    return RunOrder(targets=(), loads=(), wish=WorkloadWish(), seed=1, stamps="read", at=AT)


def highest() -> HighestRate:
    return HighestRate([parse("error_rate>5%")], Search(start=8, precision=0.2), TRIAL)


def test_the_rate_doubles_while_the_limit_holds_and_then_closes_in() -> None:
    search = highest()
    cells: list[CellSummary] = []
    asked: list[float] = []
    while (load := search.next(cells)) is not None:
        rate = load.pacer.rate_per_s if load.pacer is not None else None
        assert rate is not None
        asked.append(rate)
        cells.append(cell(load.label, rate=rate, errors=50 if rate > 40 else 0))
    assert asked[:4] == [8, 16, 32, 64]
    assert search.said.startswith("Highest rate without error_rate>5%: 3")
    assert max(rate for rate in asked if rate <= 40) > 32


def test_a_late_client_ends_the_search_and_is_named() -> None:
    search = highest()
    first = search.next([])
    assert first is not None
    second = search.next([cell(first.label, rate=8)])
    assert second is not None
    late = cell(second.label, rate=16, doubtful=True)
    assert search.next([cell(first.label, rate=8), late]) is None
    assert "8/s (this client was late at 16/s poisson" in search.said


def test_a_rate_without_a_request_ends_the_search() -> None:
    search = highest()
    assert search.next([]) is not None
    assert search.next([]) is None
    assert "none was found (no request was counted at 8/s poisson)" in search.said


def swept(rate: Callable[[int], float], noise: float = 0.01, **facts: float) -> ToSaturation:
    """A sweep of a server with so much throughput; `noise` is half the width of the interval."""
    sweep = ToSaturation(lambda workers: 10 * workers, Sweep(most=256))
    cells: list[CellSummary] = []
    while (load := sweep.next(cells)) is not None:
        workers = load.concurrency or 0
        assert load.requests == 10 * workers
        seen = rate(workers)
        made = cell(load.label, concurrency=workers, throughput_tps=seen)
        spread = Interval(seen * (1 - noise), seen * (1 + noise))
        cells.append(msgspec.structs.replace(made, throughput_interval=spread, **facts))
    return sweep


def test_a_sweep_doubles_until_nothing_is_gained() -> None:
    sweep = swept(lambda workers: 100.0 * min(workers, 8))
    assert sweep.said.startswith("Sweep: c=16 changed the throughput by +0% (-1% to +1%)")
    assert sweep.said.endswith("c=8.")


def test_a_change_within_noise_is_no_knee() -> None:
    # c=128 came out 13 % lower, by chance: the server has no limit.
    sweep = swept(lambda workers: 100.0 * workers if workers != 128 else 5_568.0, noise=0.2)
    assert "not saturated at the highest allowed load of 256" in sweep.said


def test_a_full_core_of_the_client_is_no_knee_of_the_server() -> None:
    sweep = swept(lambda workers: 100.0 * workers, client_cpu=0.97)
    assert "this client's core was 97% busy at c=1: " in sweep.said
    assert "the client's own limit, not the server's" in sweep.said


def test_a_knee_on_a_full_machine_need_not_be_the_servers() -> None:
    sweep = swept(lambda workers: 100.0 * min(workers, 8), machine_cpu=0.93)
    assert sweep.said.startswith("Sweep: c=16 changed the throughput by +0%")
    assert "the cores of this client's machine were 93% busy" in sweep.said
    assert "client's own limit" in sweep.said
    sweep = swept(lambda workers: 100.0 * min(workers, 8), machine_cpu=0.6)
    assert "own limit" not in sweep.said


def test_ticks_of_the_machine(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 20 30 1000 40 5 6 7 8 9\ncpu0 1 2 3\n")
    assert machine_ticks(stat) == (10 + 20 + 30 + 5 + 6 + 7, 1118)
    assert machine_ticks(tmp_path / "none") == (0, 0)


def test_a_load_that_the_client_could_not_offer_is_its_own_limit() -> None:
    sweep = swept(lambda workers: 100.0 * min(workers, 64), offered_share=0.7)
    assert "only 70% of the load in flight at c=128" in sweep.said
    assert "client's own limit" in sweep.said


def test_a_sweep_announces_every_load_up_to_the_highest() -> None:
    sweep = ToSaturation(lambda workers: 10 * workers, Sweep(most=4))
    counted = 10 + 20 + 40
    assert sweep.most(order()) >= counted + 3 * 2 + 4 + 8  # warm-up, ramps and fillers
