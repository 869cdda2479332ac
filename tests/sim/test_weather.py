from __future__ import annotations

import math

import numpy as np
import pytest

from lightgate.sim.weather import Dice, Sky, SpeedCurve, Spells
from lightgate.sim.world import LoadPoint, Weather
from lightgate.sim.world_file import load

GROQ = load("tables-2025").providers["groq"].models["llama-3.1-70b"].curve


def test_the_table_is_met_at_its_own_loads() -> None:
    curve, z95 = SpeedCurve(GROQ), 1.6448536
    for point in GROQ:
        at = curve.at(point.load)
        assert math.exp(at.ttft_mu) * 1e3 == pytest.approx(point.ttft_ms[0])
        assert math.exp(at.ttft_mu + z95 * at.ttft_sigma) * 1e3 == pytest.approx(point.ttft_ms[1])
        assert math.exp(at.tps_mu) == pytest.approx(point.tps[0])
        assert math.exp(at.tps_mu - z95 * at.tps_sigma) == pytest.approx(point.tps[1])


def test_between_loads_it_is_linear_in_their_logarithm() -> None:
    curve = SpeedCurve(GROQ)
    low, middle, high = curve.at(8), curve.at(16), curve.at(32)
    assert middle.ttft_mu == pytest.approx((low.ttft_mu + high.ttft_mu) / 2)
    beyond = curve.at(64)
    assert beyond.tps_mu == pytest.approx(high.tps_mu + (high.tps_mu - middle.tps_mu))


def test_one_point_holds_at_every_load() -> None:
    curve = SpeedCurve((LoadPoint(load=1, ttft_ms=(100, 200), tps=(50, 40)),))
    assert curve.at(1) == curve.at(1000)


def test_no_load_makes_a_spread_negative() -> None:
    falling = (
        LoadPoint(load=1, ttft_ms=(100, 400), tps=(50, 20)),
        LoadPoint(load=8, ttft_ms=(100, 110), tps=(50, 49)),
    )
    far = SpeedCurve(falling).at(4096)
    assert far.ttft_sigma == 0
    assert far.tps_sigma == 0


def test_the_dice_depend_on_seed_provider_and_number_alone() -> None:
    def faces(dice: Dice) -> tuple[float, ...]:
        return dice.ttft, dice.tps, dice.fail, dice.fault, dice.mid_at

    assert faces(Dice(1, "groq", 5)) == faces(Dice(1, "groq", 5))
    others = {
        faces(Dice(*key)) for key in [(1, "groq", 5), (2, "groq", 5), (1, "lab", 5), (1, "groq", 6)]
    }
    assert len(others) == 4
    assert Dice(1, "a", 0).gaps_ns(1, 2, 50) == Dice(1, "a", 0).gaps_ns(1, 2, 50)
    assert all(1_000_000 <= gap <= 2_000_000 for gap in Dice(1, "a", 0).gaps_ns(1, 2, 50))


def test_many_requests_reproduce_p50_and_p95() -> None:
    sky, parameters = Sky(None, 1, "groq"), SpeedCurve(GROQ).at(8)
    drawn = [sky.luck(parameters, Dice(3, "groq", n), 0.0) for n in range(4000)]
    ttft = np.array([luck.ttft_ns for luck in drawn]) / 1e6
    tps = np.array([luck.tps for luck in drawn])
    assert np.quantile(ttft, 0.5) == pytest.approx(290, rel=0.05)
    assert np.quantile(ttft, 0.95) == pytest.approx(820, rel=0.08)
    assert np.quantile(tps, 0.5) == pytest.approx(180, rel=0.02)
    assert np.quantile(tps, 0.05) == pytest.approx(145, rel=0.03)


def test_spells_have_their_mean_lengths_and_do_not_depend_on_who_asks_first() -> None:
    one, other = Spells(1, "a", 1800, 180), Spells(1, "a", 1800, 180)
    backwards = [other.bad_at(float(second)) for second in range(2_000_000, -1, -50)][::-1]
    forwards = [one.bad_at(float(second)) for second in range(0, 2_000_001, 50)]
    assert forwards == backwards
    assert sum(forwards) / len(forwards) == pytest.approx(180 / 1980, rel=0.15)
    assert not Spells(1, "a", 1e12, 1.0).bad_at(1e6)


def test_a_bad_episode_slows_and_a_shock_is_shared() -> None:
    calm = Weather(good_mean_s=1e15, shock_every_s=1e15, stall=0, mid_stall=0, fail=0, hang=0)
    bad = Weather(good_mean_s=1e-9, bad_mean_s=1e15, shock_every_s=1e15, stall=0, mid_stall=0)
    shock = Weather(good_mean_s=1e15, shock_every_s=1e-9, shock_mean_s=1e15, stall=0, mid_stall=0)
    parameters, dice = SpeedCurve(GROQ).at(1), Dice(1, "groq", 0)
    plain = Sky(calm, 1, "groq").luck(parameters, dice, 10.0)
    worse = Sky(bad, 1, "groq").luck(parameters, dice, 10.0)
    shocked = Sky(shock, 1, "groq").luck(parameters, dice, 10.0)
    assert worse.ttft_ns == pytest.approx(5 * plain.ttft_ns)
    assert worse.tps == pytest.approx(0.6 * plain.tps)
    assert shocked.ttft_ns == pytest.approx(2 * plain.ttft_ns)
    assert (plain.bad, worse.bad, shocked.shock) == (False, True, True)
    assert Sky(shock, 1, "other").luck(parameters, dice, 10.0).shock


def test_the_weather_is_as_frequent_as_it_says() -> None:
    weather = Weather(good_mean_s=1e15, shock_every_s=1e15)
    sky, parameters = Sky(weather, 1, "groq"), SpeedCurve(GROQ).at(1)
    drawn = [sky.luck(parameters, Dice(9, "groq", n), 0.0) for n in range(20_000)]
    share = len(drawn)
    assert sum(luck.fails for luck in drawn) / share == pytest.approx(0.005, rel=0.3)
    assert sum(luck.stalls for luck in drawn) / share == pytest.approx(0.01, rel=0.25)
    assert sum(luck.hangs for luck in drawn) / share == pytest.approx(0.001, rel=0.6)
    mid = [luck.mid_stall_ns / 1e9 for luck in drawn if luck.mid_stall_ns]
    assert len(mid) / share == pytest.approx(0.005, rel=0.3)
    assert float(np.median(mid)) == pytest.approx(4.0, rel=0.25)
