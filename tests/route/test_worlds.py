"""The rules in small worlds: calm, weather, load, and worlds that nobody has tuned for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from route.arena import Arena, Service, World

QUICK = Service({8: (210, 310, 285, 255)})
SECOND = Service({8: (290, 820, 180, 145)})
THIRD = Service({8: (520, 960, 95, 78)})
POOL = (QUICK, SECOND, THIRD)
LOADED = (
    Service({1: (230, 290, 215, 200), 8: (290, 820, 180, 145), 32: (610, 2400, 140, 105)}),
    Service({1: (410, 580, 110, 95), 8: (520, 960, 95, 78), 32: (780, 1800, 72, 55)}),
    Service({1: (480, 720, 85, 75), 8: (610, 1350, 70, 55), 32: (950, 2900, 52, 38)}),
)


def p95(arena: Arena) -> float:
    return arena.quantiles(arena.ttft)[1]


@pytest.mark.parametrize("policy", ["fastest", "voice", "agent"])
def test_in_a_calm_world_it_does_no_harm(policy: str) -> None:
    world = World(services=POOL, requests=2000)
    fixed = Arena(world, "ordered", ttft_timeout_ns=10_000_000_000).run()
    learned = Arena(world, policy, hedge="auto").run()
    assert p95(learned) <= 1.05 * p95(fixed)
    assert learned.quantiles(learned.done)[1] <= 1.05 * fixed.quantiles(fixed.done)[1]
    assert learned.duplicate_share <= 0.15
    assert learned.failures == 0


def test_in_weather_it_is_far_better_than_any_fixed_choice() -> None:
    worlds = [World(services=POOL, requests=3000, weather=True, seed=seed) for seed in (1, 2, 3)]
    fixed = [Arena(w, "ordered", ttft_timeout_ns=10_000_000_000).run() for w in worlds]
    learned = [Arena(w, "voice", hedge="auto").run() for w in worlds]
    assert np.mean([a.slow for a in learned]) < 0.4 * np.mean([a.slow for a in fixed])
    assert np.mean([p95(a) for a in learned]) < 0.7 * np.mean([p95(a) for a in fixed])
    assert all(a.duplicate_share <= 0.15 for a in learned)
    assert all(a.loser_nano <= 0.10 * a.winner_nano for a in learned)
    assert all(a.probe_nano <= 0.01 * a.winner_nano for a in learned)


def test_own_load_is_spread_and_not_herded() -> None:
    world = World(services=LOADED, requests=3000, rate=6.0, crowd=None)
    fixed = Arena(world, "ordered", ttft_timeout_ns=10_000_000_000).run()
    learned = Arena(world, "voice", hedge="auto").run()
    assert p95(learned) < 0.75 * p95(fixed)
    shares = np.bincount(learned.first_place, minlength=3) / world.requests
    assert shares.max() < 0.9
    moves = np.mean(np.diff(learned.first_place) != 0)
    assert moves < 0.7, "all at once to one, then all to the other"


@pytest.mark.parametrize("rate", [0.2, 2.0, 10.0])
@pytest.mark.parametrize("hedge", ["off", "auto"])
def test_it_leaves_a_slow_one_and_comes_back(rate: float, hedge: str) -> None:
    since, until = 300.0, 600.0
    world = World(
        services=POOL,
        requests=int(rate * 900),
        rate=rate,
        episodes=((0, since, until),),
        stall=0.0,
        failure=0.0,
    )
    found = Arena(world, "voice", hedge=hedge).run()
    at, first = np.array(found.draws.at), np.array(found.first_place)
    during = (at >= since) & (at < until)
    there = first[during] == 0
    left = int(np.argmin(there))  # requests until the first one that went elsewhere
    assert left <= 5 or at[during][left] - since <= 15.0
    later = during & (at >= since + 15.0)
    assert np.mean(first[later] == 0) <= 0.05
    after = at[(at >= until) & (first == 0)]
    assert len(after)
    assert after[0] - until <= 60.0 + 1.0 / rate


@st.composite
def pools(draw: st.DrawFn) -> tuple[Service, ...]:
    services = []
    for _ in range(draw(st.integers(2, 6))):
        ttft = draw(st.floats(80.0, 3000.0))
        speed = draw(st.floats(15.0, 400.0))
        services.append(
            Service(
                {
                    8: (
                        ttft,
                        ttft * draw(st.floats(1.1, 5.0)),
                        speed,
                        speed / draw(st.floats(1.05, 2.0)),
                    )
                },
                draw(st.booleans()),
            )
        )
    return tuple(services)


def expected_s(service: Service, tokens: int) -> float:
    mu, _, speed, _ = service.at(8)
    return math.exp(mu) + tokens / math.exp(speed)


@settings(max_examples=25, phases=[Phase.generate])
@given(
    pools(),
    st.floats(0.05, 5.0),
    st.floats(0.0, 0.9),
    st.integers(0, 10_000),
    st.booleans(),
    st.integers(20, 1500),
)
def test_in_any_world_it_keeps_its_bounds(
    services: tuple[Service, ...],
    rate: float,
    correlation: float,
    seed: int,
    weather: bool,
    tokens: int,
) -> None:
    ranked = tuple(sorted(services, key=lambda service: expected_s(service, tokens)))
    world = World(
        services=ranked,
        requests=400,
        rate=rate,
        correlation=correlation,
        seed=seed,
        weather=weather,
        tokens=tokens,
    )
    fixed = Arena(world, "ordered", ttft_timeout_ns=10_000_000_000).run()
    learned = Arena(world, "fastest", hedge="auto").run()
    assert learned.duplicate_share <= 0.15
    assert learned.loser_nano <= 0.10 * learned.winner_nano + 1e-6
    # Not worse than the best fixed choice, which nobody knows beforehand, by more than noise.
    mine, its = learned.quantiles(learned.done), fixed.quantiles(fixed.done)
    assert mine[0] <= 1.10 * its[0] + 0.05
    assert mine[1] <= 1.25 * its[1] + 0.3


@settings(max_examples=8, phases=[Phase.generate])
@given(pools(), st.integers(0, 1000))
def test_racers_never_cost_more_than_they_may(services: tuple[Service, ...], seed: int) -> None:
    world = World(services=services, requests=300, seed=seed, weather=True)
    found = Arena(world, "voice", race=2).run()
    assert found.duplicates > 0
    assert found.loser_nano <= found.winner_nano
