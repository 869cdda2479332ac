from __future__ import annotations

import math
import random

import numpy as np
import pytest

from lightgate.bench.statistics import drift as looks
from lightgate.bench.statistics.drift import FEWEST, LAST, Drift, creep
from lightgate.clock.compare import student, within


def drift(medians: list[float], **more: float) -> Drift:
    return looks.drift(medians, rng=np.random.default_rng(1), **more)  # type: ignore[arg-type]


STEADY = [200.0, 206.0, 195.0, 202.0, 198.0, 204.0, 199.0, 203.0, 197.0, 201.0]


def test_a_run_like_the_others_is_steady() -> None:
    found = drift([*STEADY, 203.0])
    assert (found.call, found.runs, found.newest) == ("steady", 10, 203.0)
    assert found.typical == pytest.approx(200.5, rel=0.01)
    assert found.interval is not None
    assert found.interval.spans(1.0)
    assert not found.alarming


@pytest.mark.parametrize(("newest", "call"), [(260.0, "slower"), (150.0, "faster")])
def test_a_step_is_seen_with_its_interval(newest: float, call: str) -> None:
    found = drift([*STEADY, newest])
    assert (found.call, found.alarming) == (call, True)
    assert found.ratio == pytest.approx(newest / 200.5, rel=0.01)
    assert found.interval is not None
    assert found.interval.spans(found.ratio or 0)
    assert not found.interval.spans(1.0)


def test_a_small_step_of_a_very_steady_target_is_not_worth_an_alert() -> None:
    found = drift([200.0] * 10 + [209.0])
    assert found.call == "steady"
    assert drift([200.0] * 10 + [209.0], tolerance=0.01).call == "slower"


def test_a_wild_target_must_move_further() -> None:
    wild = [100.0, 300.0, 150.0, 250.0, 120.0, 280.0, 200.0, 180.0]
    assert drift([*wild, 260.0]).call == "steady"


def test_too_few_runs_have_no_verdict() -> None:
    found = drift([*STEADY[: FEWEST - 1], 999.0])
    assert (found.call, found.ratio, found.interval, found.creep) == (
        "n too small",
        None,
        None,
        None,
    )
    assert not found.alarming
    assert drift([5.0]).call == "n too small"


def test_a_creep_that_no_single_run_shows_is_seen() -> None:
    up = drift(STEADY + [200.0 * 1.015**at for at in range(10)])
    assert up.call == "creeping slower"
    assert up.creep is not None
    assert up.creep.ratio > 1.05
    assert 4 <= up.creep.since <= 9
    assert up.creep.p_value < 0.005
    down = drift(STEADY + [200.0 / 1.015**at for at in range(10)])
    assert down.call == "creeping faster"


def test_a_creep_needs_two_halves() -> None:
    rng = np.random.default_rng(1)
    assert creep([0.0, 1.0] * (FEWEST - 1) + [0.0], rng) is None
    steady = creep([0.0, 0.1] * FEWEST, rng)
    assert steady is not None
    assert steady.p_value > 0.5


def test_looking_at_more_series_asks_for_more() -> None:
    values = [*STEADY, 214.0]
    one, many = drift(values, tolerance=0.01), drift(values, tolerance=0.01, looks=50)
    assert (one.call, many.call) == ("slower", "steady")
    assert one.interval is not None
    assert many.interval is not None
    assert one.interval.confidence == pytest.approx(0.995)
    assert many.interval.high > one.interval.high


def test_only_the_last_runs_count() -> None:
    found = drift([1.0] * 100 + STEADY * 2 + [200.0])
    assert (found.runs, found.call) == (LAST, "steady")


@pytest.mark.parametrize("bad", [[], [0.0], [1.0, -1.0], [math.inf], [math.nan]])
def test_what_is_no_median_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        drift(bad)


@pytest.mark.parametrize(
    ("freedom", "confidence", "point"),
    [
        (1, 0.95, 12.7062),
        (2, 0.95, 4.3027),
        (3, 0.95, 3.1824),
        (5, 0.95, 2.5706),
        (6, 0.99, 3.7074),
        (19, 0.95, 2.0930),
        (20, 0.999, 3.8495),
    ],
)
def test_students_points_are_the_tables(freedom: int, confidence: float, point: float) -> None:
    assert student(freedom, confidence) == pytest.approx(point, abs=1e-4)
    assert within(student(freedom, confidence), freedom) == pytest.approx(confidence)


def test_steady_targets_raise_few_alarms_and_changed_ones_do() -> None:
    dice = random.Random(7)  # noqa: S311 - a simulation

    def history(last: float) -> list[float]:
        return [300.0 * math.exp(dice.gauss(0.0, 0.08)) for _ in range(15)] + [
            last * 300.0 * math.exp(dice.gauss(0.0, 0.08))
        ]

    alarms = sum(drift(history(1.0)).alarming for _ in range(150))
    found = sum(drift(history(1.6)).alarming for _ in range(60))
    assert alarms <= 5
    assert found >= 54
