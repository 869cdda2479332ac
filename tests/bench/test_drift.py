from __future__ import annotations

import math
import random

import pytest

from lightgate.bench.drift import FEWEST, LAST, LIMIT, cusum, drift, student

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
    found = drift([200.0] * 10 + [206.0])
    assert found.call == "steady"
    assert drift([200.0] * 10 + [206.0], tolerance=0.01).call == "slower"


def test_a_wild_target_must_move_further() -> None:
    wild = [100.0, 300.0, 150.0, 250.0, 120.0, 280.0, 200.0, 180.0]
    assert drift([*wild, 260.0]).call == "steady"


def test_too_few_runs_have_no_verdict() -> None:
    found = drift(STEADY[: FEWEST - 1] + [999.0])
    assert (found.call, found.ratio, found.interval, found.creep) == ("n too small",) + (None,) * 3
    assert not found.alarming
    assert drift([5.0]).call == "n too small"


def test_a_creep_that_no_single_run_shows_is_seen() -> None:
    creeping = [200.0 * 1.015**at for at in range(10)]
    values = STEADY + creeping
    found = drift(values)
    assert found.creep is not None
    assert found.creep > LIMIT
    assert found.call in {"creeping slower", "slower"}
    down = drift(STEADY + [200.0 / 1.015**at for at in range(10)])
    assert down.creep is not None
    assert down.creep < -LIMIT


def test_only_the_last_runs_count() -> None:
    found = drift([1.0] * 100 + STEADY * 2 + [200.0])
    assert (found.runs, found.call) == (LAST, "steady")


@pytest.mark.parametrize("bad", [[], [0.0], [1.0, -1.0], [math.inf], [math.nan]])
def test_what_is_no_median_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        drift(bad)


@pytest.mark.parametrize(
    ("freedom", "point"), [(5, 2.5706), (9, 2.2622), (19, 2.0930), (10**6, 1.96)]
)
def test_students_points_are_the_tables(freedom: int, point: float) -> None:
    assert student(freedom) == pytest.approx(point, abs=0.003)


def test_cusum_needs_a_run_after_the_reference() -> None:
    assert cusum([0.0] * FEWEST) is None
    assert cusum([0.0] * (FEWEST + 1)) == 0.0


def test_steady_targets_raise_few_alarms_and_changed_ones_do() -> None:
    dice = random.Random(7)  # noqa: S311 - a simulation

    def history(last: float) -> list[float]:
        return [300.0 * math.exp(dice.gauss(0.0, 0.08)) for _ in range(15)] + [
            last * 300.0 * math.exp(dice.gauss(0.0, 0.08))
        ]

    alarms = sum(drift(history(1.0)).alarming for _ in range(400))
    found = sum(drift(history(1.5)).alarming for _ in range(400))
    assert alarms <= 40  # two looks of five percent each, at most
    assert found >= 380
