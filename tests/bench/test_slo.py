from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.bench.judge.slo import (
    DURATIONS,
    PLAIN,
    SHARES,
    SPEEDS,
    Search,
    SearchStep,
    Sweep,
    Tried,
    missed,
    next_concurrency,
    next_rate,
    parse,
    parse_slo,
)
from lightgate.bench.statistics.measured import Sampled
from lightgate.bench.statistics.summary import DURATION_QS, RATE_QS, estimates
from lightgate.clock.load import Slo
from lightgate.clock.quantile import Interval
from lightgate.errors import UsageError
from lightgate.ledger.runs.run import CellSummary, CostFacts, Metric


def cell(n: int = 100, ttft: float = 400.0, c: int = 8, **facts: Any) -> CellSummary:
    facts.setdefault("outcomes", {"ok": n})
    return CellSummary(
        target="lab",
        load=f"c={c}",
        concurrency=c,
        metrics=(
            Metric(name="ttft_ms", quantiles=estimates([ttft] * n, DURATION_QS)),
            Metric(name="speed_tps", quantiles=estimates([90.0] * n, RATE_QS)),
        ),
        **facts,
    )


def reasons(text: str, *cells: CellSummary) -> list[str]:
    return [one.reason for one in missed([parse(text)], cells)]


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("ttft_p95>500ms", 500.0),
        ("ttft_p95 > 0.5s", 500.0),
        ("e2e_plan_p99>=2m", 120_000.0),
        ("gap_p50>250us", 0.25),
        ("speed_p50<80", 80.0),
        ("speed_total_slow5<80tok/s", 80.0),
        ("error_rate>1%", 0.01),
        ("error_rate>0.01", 0.01),
        ("goodput<99.5%", 0.995),
        ("cost_per_mtok>2", 2.0),
        ("cost_1k>2", 2.0),
        ("throughput<1000 tok/s", 1000.0),
        ("retain<=0.5", 0.5),
    ],
)
def test_limits_are_read(text: str, limit: float) -> None:
    assert parse(text).limit == pytest.approx(limit)


def test_the_parts_of_a_limit() -> None:
    check = parse(" ttft_p95 @ c=32 > 500ms ")
    assert (check.metric, check.q, check.sign, check.load) == ("ttft_ms", 0.95, ">", "c=32")
    assert parse("speed_slow5<10").q == 0.05
    assert parse("ttft_p95@20/s poisson>1s").load == "20/s poisson"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no limit"),
        ("ttft_p95", "is no limit"),
        ("ttft_p95=500ms", "is no limit"),
        ("ttft_p95>-5ms", "is no limit"),
        ("ttft_p95>500", "needs a time"),
        ("ttft_p95>5%", "needs a time"),
        ("ttft_p75>5s", "ttft_p75 is not measured"),
        ("speed_p95<80", "speed_p95 is not measured"),
        ("ttft>5s", 'no number "ttft"'),
        ("latency_p95>5s", 'no number "latency_p95"'),
        ("error_rate>1", ""),
        ("error_rate>5", "needs a share"),
        ("error_rate>5ms", "needs a share"),
        ("cost_per_mtok>2$", "is no limit"),
        ("cost_per_mtok>2ms", 'has no unit "ms"'),
        ("speed_p50<80ms", 'has no unit "ms"'),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    if not said:
        assert parse(text).limit == 1.0
        return
    with pytest.raises(UsageError, match=said) as caught:
        parse(text)
    assert caught.value.hint


def test_a_limit_that_is_kept_and_one_that_is_not() -> None:
    assert reasons("ttft_p95>500ms", cell()) == []
    assert reasons("ttft_p95>300ms", cell()) == ["it is 400.0 ms"]
    assert reasons("ttft_p95>400ms", cell()) == []
    assert reasons("ttft_p95>=400ms", cell()) == ["it is 400.0 ms"]
    assert reasons("speed_p50<80", cell()) == []
    assert reasons("speed_p50<100", cell()) == ["it is 90.0 tok/s"]


def test_a_number_with_too_few_samples_keeps_no_limit() -> None:
    assert reasons("ttft_p95>500ms", cell(n=71)) == [
        "n too small: 71 independent samples, 72 needed"
    ]
    assert not missed([parse("ttft_p95>500ms")], [cell(n=71)])[0].judged
    assert reasons("ttfa_p50>500ms", cell()) == ["n too small: 0 independent samples, 6 needed"]


def test_an_unknown_number_keeps_no_limit() -> None:
    assert reasons("cost_per_mtok>2", cell()) == ["unknown"]
    assert not missed([parse("cost_per_mtok>2")], [cell()])[0].judged
    priced = cell(cost=CostFacts(out_per_mtok=Decimal("2.5"), per_request=Decimal("0.001")))
    assert reasons("cost_per_mtok>2", priced) == ["it is 2.5"]
    assert reasons("cost_per_request>0.01", priced) == []


def test_failures() -> None:
    failing = cell(outcomes={"ok": 95, "reset": 5, "cut": 3})
    assert reasons("error_rate>1%", failing) == ["it is 5.0%"]
    assert reasons("error_rate>5%", failing) == []
    assert reasons("error_rate>1%", cell(outcomes={})) == ["unknown"]


def test_a_figure_that_a_late_client_left_open_keeps_no_limit() -> None:
    samples = Sampled([600.0] * 99, [300.0] * 99, [600.0] * 99, 99)
    metric = Metric(name="ttft_ms", quantiles=estimates(samples, DURATION_QS))
    late = msgspec.structs.replace(cell(), metrics=(metric,))
    assert reasons("ttft_p95>500ms", late) == [
        "could not be judged: TTFT p95 lies between 300 and 600 ms"
    ]
    assert [one.judged for one in missed([parse("ttft_p95>500ms")], [late])] == [False]
    assert reasons("ttft_p95>700ms", late) == []
    assert reasons("ttft_p95>200ms", late) == ["it is 600.0 ms"]
    assert [one.judged for one in missed([parse("ttft_p95>200ms")], [late])] == [True]


def test_a_limit_for_one_load() -> None:
    cells = [cell(c=1, ttft=200.0), cell(c=32, ttft=900.0)]
    assert len(reasons("ttft_p95>500ms", *cells)) == 1
    assert reasons("ttft_p95@c=1>500ms", *cells) == []
    (one,) = missed([parse("ttft_p95@c=32>500ms")], cells)
    assert str(one) == "lab at c=32: ttft_p95@c=32>500ms: it is 900.0 ms"
    assert one.judged
    (absent,) = missed([parse("ttft_p95@c=64>500ms")], cells)
    assert not absent.judged
    assert str(absent) == "every target at c=64: ttft_p95@c=64>500ms: nothing was measured there"


def test_every_number_is_in_the_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "read-a-report.md").read_text("utf-8")
    table = guide.split("| number | limit is | example |")[1].split("\n\n")[0]
    named = set(re.findall(r"`([a-z][a-z0-9_]+)`", "".join(r.split("|")[1] for r in rows(table))))
    assert named == {*DURATIONS, *SPEEDS, *SHARES, *PLAIN}
    for row in rows(table):
        parse(row.split("|")[3].strip(" `"))


def rows(table: str) -> list[str]:
    return [line for line in table.splitlines() if line.startswith("| `")]


def searched(truth: float, search: Search) -> tuple[SearchStep, list[Tried]]:
    """Search where every rate up to the truth holds."""
    tried: list[Tried] = []
    while (step := next_rate(tried, search)).next is not None:
        tried.append(Tried(step.next, step.next <= truth))
        assert len(tried) <= search.tries
    return step, tried


@given(st.floats(0.06, 900.0), st.floats(0.1, 500.0))
def test_the_highest_rate_is_found_to_the_precision(truth: float, start: float) -> None:
    step, tried = searched(truth, Search(start=start, tries=40))
    assert step.best is not None
    assert step.best <= truth <= step.best * 1.05 * (1 + 1e-9)
    assert len(tried) <= 22


def test_a_rate_that_never_fails_and_one_that_never_holds() -> None:
    step, _ = searched(5000.0, Search(start=10.0, most=300.0, tries=40))
    assert (step.best, step.reason) == (300.0, "the highest allowed rate of 300/s still holds")
    step, _ = searched(0.0, Search(start=10.0, least=1.0, tries=40))
    assert (step.best, step.reason) == (None, "even 1/s does not hold")


def test_a_search_ends_with_its_tries() -> None:
    step, tried = searched(777.0, Search(tries=4))
    assert len(tried) == 4
    assert (step.best, step.reason) == (8.0, "stopped after 4 tries")


def test_a_lucky_try_above_a_failed_one_is_not_believed() -> None:
    tried = [Tried(8.0, True), Tried(16.0, False), Tried(32.0, True), Tried(12.0, True)]
    step = next_rate(tried, Search())
    assert step.best == 12.0
    assert step.next == pytest.approx((12.0 * 16.0) ** 0.5)


def swept(limit_tps: float, sweep: Sweep) -> tuple[SearchStep, list[CellSummary]]:
    """A system that scales perfectly up to a throughput."""
    cells: list[CellSummary] = []
    while (step := next_concurrency(cells, sweep)).next is not None:
        c = int(step.next)
        seen = min(limit_tps, 50.0 * c)
        made = cell(c=c, throughput_tps=seen)
        spread = Interval(seen * 0.99, seen * 1.01)
        cells.append(msgspec.structs.replace(made, throughput_interval=spread))
    return step, cells


def test_a_sweep_ends_at_saturation() -> None:
    step, cells = swept(400.0, Sweep())
    assert [one.concurrency for one in cells] == [1, 2, 4, 8, 16]
    assert step.best == 8
    assert step.reason == "c=16 changed the throughput by +0% (-1% to +1%)"


def test_a_sweep_ends_at_its_bound() -> None:
    step, cells = swept(1e9, Sweep(start=3, most=20))
    assert [one.concurrency for one in cells] == [3, 6, 12, 20]
    assert (step.best, step.reason) == (20, "not saturated at the highest allowed load of 20")


def test_a_sweep_ends_where_requests_fail_or_nothing_is_measured() -> None:
    failing = [
        cell(c=1, throughput_tps=50.0),
        cell(c=2, throughput_tps=90.0, outcomes={"ok": 80, "timeout": 20}),
    ]
    step = next_concurrency(failing, Sweep())
    assert (step.next, step.best) == (None, 2)
    assert step.reason == "20% of the requests failed at c=2"
    step = next_concurrency([cell(c=1)], Sweep())
    assert (step.next, step.best, step.reason) == (None, None, "c=1 has no throughput")


def test_own_demands_on_a_request() -> None:
    assert parse_slo("ttft<500ms, tpot<=40ms,e2e<5s") == Slo(
        ttft_ms=500.0, speed_tps=25.0, e2e_ms=5000.0
    )
    assert parse_slo("speed>25tok/s") == Slo(speed_tps=25.0)


@pytest.mark.parametrize(
    "text", ["", "ttft>500ms", "speed<25", "ttft<500", "ttfb<1s", "ttft<0ms", "speed>25ms", "x"]
)
def test_no_demand_on_a_request(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_slo(text)
    assert "tpot<40ms" in (caught.value.hint or "")
