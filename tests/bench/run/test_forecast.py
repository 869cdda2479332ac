"""How long a run will take, said once its targets have answered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bench.test_rules import worked
from lightgate.bench.load.shape import Poisson, parse_rate
from lightgate.bench.run.forecast import Forecast
from lightgate.bench.run.order import Loading, RunOrder
from lightgate.bench.workload.workload import WorkloadWish
from lightgate.clock.outcome import Outcome

ONE = Loading(label="c=1", concurrency=1, requests=96)
EIGHT = Loading(label="c=8", concurrency=8, requests=448)


def order(*loads: Loading, **more: Any) -> RunOrder:
    at = datetime(2026, 11, 18, tzinfo=UTC)
    return RunOrder(
        targets=(), loads=loads, wish=WorkloadWish(), seed=1, stamps="read", at=at, **more
    )


def foretold(made: RunOrder, *answers: tuple[str, float], names: str = "a") -> list[str]:
    """What is said after answers of so many seconds."""
    said: list[str] = []
    usual_ms = worked()[0].e2e_ms
    assert usual_ms is not None
    forecast = Forecast(made, said.append)
    for target, seconds in answers:
        attempt, _ = worked(target=target, scale=seconds * 1000 / usual_ms)
        forecast.take(attempt, names.split())
    return said


def test_a_long_run_is_said_once_with_its_loads() -> None:
    """96 answers of 2.6 s, then 56 and two around them by each of eight workers: 400 s."""
    said = foretold(order(ONE, EIGHT), ("a", 2.6), ("a", 9.0))
    assert len(said) == 1
    assert "7 minutes or more" in said[0]
    assert "96 requests at c=1, 448 requests at c=8" in said[0]
    assert "2.6 s alone" in said[0]
    assert "--quick" in said[0]


def test_every_target_has_to_have_answered() -> None:
    assert foretold(order(ONE), ("a", 2.6), names="a b") == []
    assert "8 minutes" in foretold(order(ONE), ("a", 2.6), ("b", 2.6), names="a b")[0]
    together = order(ONE, together=True)
    assert "4 minutes" in foretold(together, ("a", 2.6), ("b", 2.6), names="a b")[0]


def test_hours_are_hours() -> None:
    assert "7 hours or more" in foretold(order(EIGHT), ("a", 430.0))[0]


@pytest.mark.parametrize(
    "load",
    [
        Loading(label="c=1", concurrency=1, duration_ns=600_000_000_000),
        Loading(label="p", pacer=Poisson(parse_rate("1/s"), 1), requests=5000),
        Loading(label="c=8", concurrency=8, requests=80),
    ],
    ids=["by time", "by a plan", "short"],
)
def test_what_is_short_or_ends_by_time_is_not_announced(load: Loading) -> None:
    assert foretold(order(load), ("a", 5.0)) == []


def test_a_failure_says_nothing_of_the_time() -> None:
    said: list[str] = []
    failed, _ = worked(target="a", scale=60.0, outcome=Outcome.HTTP_ERROR)
    Forecast(order(ONE), said.append).take(failed, ["a"])
    assert said == []
