from __future__ import annotations

from lightgate.bench.judge.slo import Search, Sweep, parse
from lightgate.bench.run.explore import HighestRate, ToSaturation, Trial
from lightgate.ledger.runs.run import CellSummary, Estimate, Metric

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


def test_a_sweep_doubles_until_nothing_is_gained() -> None:
    sweep = ToSaturation(lambda workers: 10 * workers, Sweep())
    cells: list[CellSummary] = []
    while (load := sweep.next(cells)) is not None:
        workers = load.concurrency or 0
        assert load.requests == 10 * workers
        throughput = 100.0 * min(workers, 8)
        cells.append(cell(load.label, concurrency=workers, throughput_tps=throughput))
    assert [one.concurrency for one in cells] == [1, 2, 4, 8, 16]
    assert sweep.said.endswith("c=8.")
