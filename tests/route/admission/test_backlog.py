"""All gates with a backlog behind them, told nothing: throughput, refusals, waits."""

from __future__ import annotations

import pytest

from route.admission.backlog import Backlog, Limited, queue, shared

IDLE_P95 = 1.18  # of the service time of these targets


@pytest.mark.parametrize(
    ("slots", "service_s"), [(3, 0.5), (8, 0.5), (8, 2.0), (12, 0.5), (50, 0.5)]
)
def test_the_knee_of_a_queue_is_found(slots: int, service_s: float) -> None:
    ran = Backlog(queue(slots, service_s)).run(150)
    assert ran.rate(60, 150) >= 0.93 * slots / service_s
    assert ran.p95(60) <= 1.3 * service_s * IDLE_P95


def test_a_target_that_serves_one_at_a_time_gets_one_or_two() -> None:
    ran = Backlog(queue(1, 0.2)).run(150)
    assert ran.gates.most <= 2
    assert ran.rate(60, 150) >= 0.95 * 5


def test_a_target_that_shares_itself_gets_more_while_that_pays() -> None:
    assert Backlog(shared(0.3, 0.33)).run(60).gates.most >= 256
    assert Backlog(shared(0.3, 0.9)).run(60).gates.most <= 8


@pytest.mark.parametrize(
    ("per_s", "service_s", "burst"), [(10, 2.0, 20), (10, 0.2, 10), (30, 1, 30)]
)
def test_a_stated_limit_is_used_and_hardly_ever_met(
    per_s: float, service_s: float, burst: float
) -> None:
    ran = Backlog(Limited(per_s, service_s, burst, states=True)).run(150)
    assert ran.rate(60, 150) >= 0.93 * per_s
    assert ran.refused() <= 0.01


@pytest.mark.parametrize(
    ("per_s", "service_s", "burst"), [(10, 2.0, 20), (10, 0.2, 10), (30, 1, 30)]
)
def test_a_limit_that_is_not_stated_is_learnt(per_s: float, service_s: float, burst: float) -> None:
    ran = Backlog(Limited(per_s, service_s, burst, states=False)).run(150)
    assert ran.rate(60, 150) >= 0.9 * per_s
    assert ran.refused() <= 0.03


def test_a_knee_that_moves_is_found_again() -> None:
    few, many = queue(8, 0.5), queue(24, 0.5)
    ran = Backlog(lambda now_s, flying: (few if now_s < 100 else many)(now_s, flying)).run(400)
    assert ran.rate(60, 100) == pytest.approx(16, rel=0.1)
    assert ran.rate(300, 400) >= 0.85 * 48
