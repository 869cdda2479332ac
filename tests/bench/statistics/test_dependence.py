"""The effective n: 95 % intervals cover, and independent samples lose nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lightgate.bench.statistics.dependence import Moods, effective_n, inflation, moods
from lightgate.clock.quantile import quantile, ranks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Drawn = tuple[Floats, Moods]

# Decode speeds (tok/s) of whole waves, measured by us on one NVIDIA H200: `transformers serve` 5.17
# with a 7 B model, 8 requests at once, 128 tokens each. The requests of a wave share one speed.
H200 = (
    (12.83, 12.84, 12.84, 12.84, 12.84, 12.84, 12.84, 12.84),
    (11.27, 11.28, 11.28, 11.28, 11.28, 11.28, 11.28, 11.28),
    (10.47, 10.48, 10.48, 10.48, 10.48, 10.44, 10.48, 10.48),
    (24.91, 25.10, 24.90, 25.10, 25.10, 25.10, 25.10, 24.70),
    (9.63, 9.71, 9.70, 9.64, 9.64, 9.64, 9.64, 9.64),
    (19.71, 20.01, 20.01, 20.01, 20.01, 20.01, 20.01, 20.01),
)


def in_waves(count: int, size: int) -> Moods:
    return Moods(np.arange(count * size), np.repeat(np.arange(count), size))


def h200(rng: np.random.Generator, waves: int = 12) -> Drawn:
    rows = [H200[at] for at in rng.integers(len(H200), size=waves)]
    return np.concatenate(rows), in_waves(waves, 8)


def chain(rng: np.random.Generator, n: int = 200, share: float = 0.7) -> Drawn:
    values = rng.normal(size=n)
    for at in range(1, n):
        values[at] = share * values[at - 1] + math.sqrt(1 - share**2) * values[at]
    return values, Moods(np.arange(n))


def bimodal(rng: np.random.Generator, waves: int = 12, slow: float = 0.5) -> Drawn:
    levels = np.where(rng.random(waves) < slow, 10.0, 20.0)
    return np.repeat(levels, 16) * rng.lognormal(0.0, 0.02, waves * 16), in_waves(waves, 16)


def covered(draw: Callable[[np.random.Generator], Drawn], truth: float, runs: int = 200) -> float:
    """Share of the intervals that hold the true median, of those that there are."""
    rng = np.random.default_rng(3)
    held = made = 0
    for _ in range(runs):
        values, hang = draw(rng)
        n, count = len(values), effective_n(values.tolist(), 0.5, hang)
        pair = ranks(count, 0.5) if count else None
        if pair is None:
            continue
        made += 1
        ordered = np.sort(values)
        low = ordered[math.floor((pair[0] - 1) * n / count)]
        high = ordered[min(n, math.ceil(pair[1] * n / count)) - 1]
        held += bool(low <= truth <= high)
    assert made > runs / 2
    return held / made


def test_intervals_cover_where_a_real_engine_gave_its_waves_one_speed_each() -> None:
    truth = quantile([value for wave in H200 for value in wave], 0.5)
    assert truth is not None
    assert covered(h200, truth) >= 0.92


@pytest.mark.parametrize("n", [100, 400])
def test_intervals_cover_where_neighbours_are_alike(n: int) -> None:
    assert covered(lambda rng: chain(rng, n), 0.0) >= 0.92


@pytest.mark.parametrize(
    ("waves", "slow", "truth"), [(12, 0.3, 19.8), (24, 0.5, 12.0), (7, 0.7, 10.11)]
)
def test_intervals_cover_where_waves_are_fast_or_slow(
    waves: int, slow: float, truth: float
) -> None:
    assert covered(lambda rng: bimodal(rng, waves, slow), truth) >= 0.92


@pytest.mark.parametrize("n", [30, 100, 1000])
def test_independent_samples_count_fully(n: int) -> None:
    rng = np.random.default_rng(4)
    hang = Moods(np.arange(n))
    widths = []
    for _ in range(200):
        count = effective_n(rng.lognormal(size=n).tolist(), 0.5, hang)
        widths.append(math.sqrt(n / count))
    assert float(np.mean(widths)) <= 1.05


def test_a_run_of_three_waves_has_three_samples() -> None:
    speeds = [9.2] * 32 + [18.1] * 32 + [18.2] * 32
    starts = [float(14 * (at // 32)) + at % 32 / 100 for at in range(96)]
    hang = moods(starts, [at + 13.0 for at in starts])
    assert hang.waves == 3
    assert effective_n(speeds, 0.5, hang) == 3


def test_one_wave_is_one_sample() -> None:
    """The H200 at 32: 33 requests at 18.1 tok/s, in a window that held a single wave."""
    hang = moods([0.01 * at for at in range(33)], [7.6] * 33)
    assert hang.waves == 1
    assert effective_n([18.1] * 32 + [18.0], 0.5, hang) == 1


def test_waves_are_found_whatever_the_order_and_the_unit() -> None:
    rng = np.random.default_rng(5)
    starts = np.repeat(np.arange(20) * 5e9, 8) + rng.uniform(0, 1e8, 160)
    ends = starts + 4.8e9
    shuffled = rng.permutation(160)
    found = moods(starts[shuffled].tolist(), ends[shuffled].tolist())
    assert found.waves == 20
    assert np.array_equal(starts[shuffled][found.order], np.sort(starts))


@pytest.mark.parametrize("workers", [1, 2, 8, 32])
def test_a_loop_out_of_step_has_no_waves(workers: int) -> None:
    rng = np.random.default_rng(6)
    starts: list[float] = []
    ends: list[float] = []
    for _ in range(workers):
        at = float(rng.random())
        for lasted in rng.gamma(25.0, 1 / 25.0, 300 // workers):
            starts.append(at)
            at += float(lasted)
            ends.append(at)
    assert moods(starts, ends).waves is None


def test_some_of_the_requests_keep_their_waves() -> None:
    starts = [float(5 * (at // 4)) for at in range(24)]
    hang = moods(starts, [at + 4.9 for at in starts])
    kept = [at % 4 != 0 for at in range(24)]
    part = hang.of(kept)
    assert part.unit is not None
    assert part.order.tolist() == list(range(18))
    assert part.unit.tolist() == [at // 3 for at in range(18)]
    without = hang.of([at >= 4 for at in range(24)])
    assert without.waves == 5
    assert hang.of([False] * 24).waves is None


def test_slow_requests_in_clusters_count_as_few_for_the_tail() -> None:
    """Eight stalls that each hit five requests in a row."""
    rng = np.random.default_rng(7)
    values = rng.lognormal(0.0, 0.1, 1000)
    for at in range(50, 850, 100):
        values[at : at + 5] *= 5
    hang = Moods(np.arange(1000))
    assert effective_n(values.tolist(), 0.95, hang) < 600
    assert effective_n(rng.permutation(values).tolist(), 0.95, hang) > 900


def test_times_that_hardly_vary_are_not_called_alike() -> None:
    """A drift of 0.1 % is a matter of the client's clock, not of the engine's mood."""
    values = (100.0 + 0.1 * np.linspace(0, 1, 200)).tolist()
    assert effective_n(values, 0.95, Moods(np.arange(200))) == 200


def test_failures_are_infinite_and_count() -> None:
    values = np.random.default_rng(9).lognormal(size=60).tolist() + [math.inf] * 20
    assert 0 < effective_n(values, 0.5, Moods(np.arange(80))) < 40
    assert effective_n([math.inf] * 5, 0.5, Moods(np.arange(5))) == 5
    assert effective_n([], 0.5, Moods(np.arange(0))) == 0


def test_inflation_of_a_known_chain() -> None:
    """(1 + 0.7) / (1 - 0.7) is 5.7."""
    rng = np.random.default_rng(8)
    found = [inflation(chain(rng, 2000)[0]) for _ in range(20)]
    assert float(np.median(found)) == pytest.approx(5.7, rel=0.15)
