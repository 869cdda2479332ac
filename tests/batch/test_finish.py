"""How long batch jobs take, and which way lines go: pure functions of facts."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from lightgate.batch.finish import FinishTimes, ViaFacts, choose, fallback_s, in_words, parallel_s

DAY_S = 86_400.0
CHEAP = ViaFacts(batch_nano=50, parallel_nano=100, finish_s=3600, parallel_s=600)


def test_without_jobs_the_prior_is_believed() -> None:
    times = FinishTimes(DAY_S)
    assert times.quantile_s(0.5) == pytest.approx(420)
    assert times.quantile_s(0.9) == pytest.approx(3600)
    assert times.quantile_s(0.999999) == DAY_S


def test_jobs_that_were_seen_outweigh_the_prior() -> None:
    quick = FinishTimes(DAY_S, [60.0] * 50)
    slow = FinishTimes(DAY_S, [20_000.0] * 50)
    assert quick.quantile_s(0.5) < 90
    assert quick.quantile_s(0.95) < 400
    assert slow.quantile_s(0.5) > 10_000
    one = FinishTimes(DAY_S, [20_000.0])
    assert 420 < one.quantile_s(0.5) < 2000  # a single job does not turn the belief over
    assert one.seen == 1


def test_the_last_of_many_jobs_takes_longer_than_one() -> None:
    times = FinishTimes(DAY_S)
    assert times.all_done_s(1) == pytest.approx(times.quantile_s(0.95))
    assert times.all_done_s(1) < times.all_done_s(10) < times.all_done_s(100) <= DAY_S


@pytest.mark.parametrize(
    ("wish", "facts", "via", "why"),
    [
        ("parallel", CHEAP, "parallel", "asked for"),
        ("batch", ViaFacts(), "batch", "asked for"),
        ("batch", ViaFacts(missing="there is none"), "parallel", "there is none"),
        ("auto", ViaFacts(missing="there is none"), "parallel", "there is none"),
        ("auto", CHEAP, "batch", "no deadline"),
        ("auto", ViaFacts(parallel_nano=100), "parallel", "not known"),
        ("auto", ViaFacts(batch_nano=100, parallel_nano=100), "parallel", "not cheaper"),
    ],
)
def test_the_way_of_lines(wish: str, facts: ViaFacts, via: str, why: str) -> None:
    way = choose(wish, facts)  # type: ignore[arg-type]  # the words of the type
    assert way.via == via
    assert why in way.reason


def test_a_deadline_must_leave_time_for_the_way_back() -> None:
    needed = CHEAP.finish_s + fallback_s(CHEAP.parallel_s)
    late = msgspec.structs.replace(CHEAP, left_s=needed)
    early = msgspec.structs.replace(CHEAP, left_s=needed + 1)
    assert choose("auto", late).via == "parallel"
    assert choose("auto", early).via == "batch"


def test_times_in_words() -> None:
    assert [in_words(s) for s in (5, 90, 600, 9000)] == ["5 s", "90 s", "10 min", "2.5 h"]
    assert parallel_s(100, None) == 100
    assert parallel_s(100, 4.0) == 25


@pytest.mark.parametrize("jobs", [1, 10, 50])
@pytest.mark.parametrize("median_s", [420.0, 60.0, 3000.0])
def test_of_runs_that_just_fit_nineteen_in_twenty_need_no_way_back(
    jobs: int, median_s: float
) -> None:
    """Jobs of a provider that is as quick as the prior, quicker, or slower, after 100 were seen."""
    dice = random.Random(7)  # noqa: S311 - a simulation
    sigma = 1.0

    def job_s() -> float:
        return median_s * math.exp(sigma * dice.gauss(0, 1))

    times = FinishTimes(DAY_S, [job_s() for _ in range(100)])
    planned_s = times.all_done_s(jobs)
    done = sum(max(job_s() for _ in range(jobs)) <= planned_s for _ in range(2000)) / 2000
    assert done > 0.93
