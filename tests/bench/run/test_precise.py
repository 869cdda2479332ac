from __future__ import annotations

import pytest

from lightgate.bench.run.explore import MARGIN, half_width, requests_for, widest
from lightgate.bench.run.order import MOST, Loading, cut, usual_size
from lightgate.clock.quantile import Interval
from lightgate.ledger.runs.run import CellSummary, Estimate, Metric


def estimate(value: float | None, low: float, high: float, q: float = 0.5) -> Estimate:
    return Estimate(q=q, n=100, value=value, interval=Interval(low, high))


def cell(*metrics: tuple[str, Estimate]) -> CellSummary:
    made = tuple(Metric(name=name, quantiles=(found,)) for name, found in metrics)
    return CellSummary(target="a", load="c=1", metrics=made)


def test_the_half_width_is_a_share_of_the_median() -> None:
    assert half_width(estimate(200, 180, 240)) == pytest.approx(0.15)
    assert half_width(estimate(None, 0, 0)) is None
    assert half_width(Estimate(q=0.5, n=3, value=200.0)) is None


def test_the_widest_headline_decides() -> None:
    narrow, wide = estimate(100, 99, 101), estimate(100, 90, 110)
    assert widest([cell(("ttft_ms", narrow)), cell(("speed_tps", wide))]) == pytest.approx(0.1)
    # Other metrics and other quantiles were not wished for.
    assert widest([cell(("e2e_ms", wide), ("ttft_ms", narrow))]) == pytest.approx(0.01)
    tail = estimate(100, 10, 400, q=0.95)
    assert widest([cell(("ttft_ms", tail))]) is None


def test_half_the_width_takes_four_times_the_requests() -> None:
    wide = [cell(("ttft_ms", estimate(100, 92, 108)))]
    assert requests_for(0.04, wide, 96) == pytest.approx(96 * 4 * MARGIN, abs=1)
    assert requests_for(0.08, wide, 96) == 96
    assert requests_for(0.001, wide, 96) == MOST * 96
    assert requests_for(0.04, [], 96) == 96


def test_more_of_a_load_has_blocks_of_the_same_size() -> None:
    small = Loading(label="c=1", concurrency=1, requests=12, precision=0.04)
    size = usual_size(small, 2)
    more = Loading(label="c=1", concurrency=1, requests=100, block=size)
    assert usual_size(more, 2) == size == 1
    assert cut(more, 88, 2) == (1,) * 88
    assert small.most == MOST * 12
    assert more.most == 100
