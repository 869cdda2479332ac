from __future__ import annotations

import math

import numpy as np
import pytest

from bench.rehearse.stages import played, stage
from lightgate.bench.rehearse.rehearse import FIXED, WorldSource, baseline, rehearse
from lightgate.bench.rehearse.scene import SceneChanges, built_in, scene
from lightgate.errors import UsageError


def test_the_built_in_scenes() -> None:
    assert list(built_in())[:5] == ["T1", "T2", "T3", "T4", "T5"]
    calm, storm, own = scene("T1"), scene("T4"), scene("T5")
    assert [offer.provider for offer in storm.offers] == [
        "generalcompute",
        "groq",
        "fireworks",
        "together",
        "replicate",
    ]
    assert calm.world.weather is not None
    assert math.isinf(calm.world.weather.good_mean_s)
    assert calm.world.weather.stall == 0.01
    assert storm.world.weather is not None
    assert storm.world.weather.good_mean_s == 1800.0
    assert (storm.load, own.load) == (8, None)
    assert own.traffic.rate == 6.0
    assert "generalcompute" not in {offer.provider for offer in own.offers}
    billed = {offer.provider for offer in storm.offers if offer.bills_aborts}
    assert billed == {"groq", "replicate"}


def test_beliefs_are_the_table() -> None:
    groq = scene("T2").offers[0]
    assert (groq.ttft_ms, groq.speed_tps) == pytest.approx((610.0, 140.0))
    assert (groq.ttft_p95_ms, groq.speed_slow_tps) == pytest.approx((2400.0, 105.0))


def test_other_pools_loads_and_sizes() -> None:
    wish = SceneChanges(
        targets=("groq", "fireworks"), load=32, rate=3.0, tokens_in=9000, tokens_out=50
    )
    made = scene("T4", wish)
    assert [offer.provider for offer in made.offers] == ["groq", "fireworks"]
    assert made.traffic.tokens_in == 9000
    assert made.offers[0].ttft_ms == pytest.approx(610.0)


def test_worlds_bring_their_prices() -> None:
    both = scene("providers-2026", SceneChanges(targets=("groq/mixtral", "together/mixtral")))
    assert both.priced
    assert [offer.price_out for offer in both.offers] == [0.5, 0.2]
    some = scene("providers-2026")
    assert not some.priced
    assert {offer.price_out for offer in some.offers} == {4.0}


@pytest.mark.parametrize(
    ("name", "wish"), [("T9", SceneChanges()), ("T1", SceneChanges(targets=("acme",)))]
)
def test_unknown_names_are_answered_with_the_known(name: str, wish: SceneChanges) -> None:
    with pytest.raises(UsageError) as caught:
        scene(name, wish)
    assert caught.value.hint is not None
    assert "T4" in caught.value.hint or "groq/" in caught.value.hint


def test_calm_world_has_the_tables_quantiles() -> None:
    ttft = np.concatenate(
        [played(stage("T1", 3000), baseline(FIXED), seed).ttft_s for seed in (1, 2)]
    )
    assert float(np.nanquantile(ttft, 0.5)) == pytest.approx(0.21, abs=0.01)
    assert float(np.nanquantile(ttft, 0.95)) == pytest.approx(0.32, abs=0.02)


def test_correlated_targets_are_slow_together() -> None:
    found = []
    for correlation in (0.0, 0.9):
        made = scene("T2", SceneChanges(requests=800, correlation=correlation))
        cast = WorldSource(made).drawn(1)()
        first = np.array(
            [[cast.truth.fate(i, j, 10**12, 512).first_ns for j in (0, 1)] for i in range(800)]
        )
        kept = first[(first < 5e9).all(axis=1)]
        found.append(float(np.corrcoef(np.log(kept + 1.0).T)[0, 1]))
    assert found[0] < 0.3 < found[1]


def test_rows_are_beside_fixed_best() -> None:
    rows = rehearse(stage("T1", 300), [baseline("random"), baseline(FIXED)], (1, 2))
    assert [row.policy for row in rows] == ["random", FIXED]
    fixed = rows[1]
    assert fixed.spend_honoured is not None
    assert (fixed.spend_honoured.mean, fixed.seeds, fixed.requests) == (0.0, 2, 300)
    assert rows[0].ttft_p95_s.mean > fixed.ttft_p95_s.mean
    assert sum(rows[0].wins.values()) == pytest.approx(1.0, abs=0.02)
    assert list(fixed.waiting) == sorted(fixed.waiting, reverse=True)
