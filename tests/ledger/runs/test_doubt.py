from __future__ import annotations

import pytest

from lightgate.ledger.runs.doubt import doubt, quantile_name
from lightgate.ledger.runs.run import Estimate


@pytest.mark.parametrize(
    ("q", "metric", "name"),
    [
        (0.95, "ttft_ms", "p95"),
        (0.999, "ttft_ms", "p99.9"),
        (0.05, "ttft_ms", "p5"),
        (0.05, "speed_tps", "slow 5 %"),
        (0.5, "speed_tps", "p50"),
        (0.95, "speed_tps", "p95"),
    ],
)
def test_the_name_of_a_quantile(q: float, metric: str, name: str) -> None:
    assert quantile_name(q, metric) == name


def estimate(low: float | None, high: float | None, q: float = 0.95) -> Estimate:
    return Estimate(q=q, value=1.0, low=low, high=high, n=10)


@pytest.mark.parametrize(
    ("metric", "low", "high", "said"),
    [
        ("ttft_ms", 209.4, 519.0, "TTFT p95 lies between 209 and 519 ms"),
        ("ttft_ms", 99.99, 100.0, "TTFT p95 lies between 100 and 100 ms"),
        ("ttft_ms", 1.2345, 1234.5, "TTFT p95 lies between 1.23 and 1,234 ms"),
        ("ttft_ms", 7.0, None, "TTFT p95 is at least 7 ms"),
        ("ttft_ms", None, None, "TTFT p95 is at least 0 ms"),
    ],
)
def test_where_a_figure_may_lie(
    metric: str, low: float | None, high: float | None, said: str
) -> None:
    assert doubt(metric, estimate(low, high)) == said


def test_a_rate_is_in_tokens_per_second() -> None:
    said = doubt("speed_tps", estimate(7.0, 8.0, 0.05))
    assert said.endswith(" slow 5 % lies between 7 and 8 tok/s")
