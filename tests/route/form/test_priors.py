from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.ledger.store.seen import ObservedSpeed
from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import (
    CERTAIN,
    DEFAULT,
    DOUBTFUL,
    HALF_LIFE_S,
    HOPE,
    ConfiguredPrior,
    Prior,
    PriorSources,
    guessed,
    known_priors,
    model_of,
)
from lightgate.route.form.target import NEVER, Form

NS = 1_000_000_000
GROUPS = [("a/m", "b/m", "c/other")]


def seen(
    ttft_ms: float = 200.0, speed: float = 100.0, n: int = 50, age_s: float = 0.0
) -> ObservedSpeed:
    return ObservedSpeed(
        ttft_ms=ttft_ms, ttft_p95_ms=3 * ttft_ms, speed_tps=speed, speed_slow_tps=0.5 * speed,
        n=n, age_s=age_s,
    )  # fmt: skip


def test_the_best_word_counts() -> None:
    told = {"a/m": ConfiguredPrior(ttft_ms=10.0, speed_tps=1.0)}
    traffic, runs = {"a/m": seen(20.0), "b/m": seen(30.0)}, {"b/m": seen(40.0), "x/m": seen(50.0)}
    found = known_priors([("a/m", "b/m", "x/m")], PriorSources(told, traffic, runs))
    assert [(word.source, word.prior.ttft_ms) for word in found.values()] == [
        ("config", 10.0), ("traffic", 30.0), ("runs", 50.0),
    ]  # fmt: skip
    assert (found["b/m"].n, found["b/m"].age_s) == (50, 0.0)


def test_what_the_configuration_leaves_out_is_scaled_to_the_next_best_word() -> None:
    traffic = {"a/m": seen(200.0, 100.0)}
    by_ttft = known_priors(
        GROUPS, PriorSources({"a/m": ConfiguredPrior(ttft_ms=400.0)}, traffic, {})
    )["a/m"]
    assert (by_ttft.source, by_ttft.prior.ttft_ms) == ("config", 400.0)
    assert by_ttft.prior.ttft_p95_ms == pytest.approx(1200.0)
    assert by_ttft.prior.speed_tps == 100.0
    by_speed = known_priors(
        GROUPS, PriorSources({"a/m": ConfiguredPrior(speed_tps=50.0)}, traffic, {})
    )["a/m"].prior
    assert by_speed.ttft_ms == 200.0
    assert by_speed.speed_slow_tps == pytest.approx(25.0)
    alone = known_priors(GROUPS, PriorSources({"a/m": ConfiguredPrior(ttft_ms=60.0)}, {}, {}))[
        "a/m"
    ].prior
    assert (alone.speed_tps, alone.weight) == (DEFAULT.speed_tps, DOUBTFUL)


def test_a_newcomer_is_judged_by_its_model_then_by_its_alias_then_not_at_all() -> None:
    traffic = {"b/m": seen(300.0, 100.0), "far/org/M": seen(100.0, 200.0), "d/x": seen(900.0, 9.0)}
    found = known_priors([*GROUPS, ("e/lonely",), ("d/x", "f/y")], PriorSources({}, traffic, {}))
    assert found["a/m"].source == "same model"
    assert found["a/m"].prior == guessed([found["b/m"].prior, _prior(100.0, 200.0)])
    assert (found["a/m"].prior.ttft_ms, found["a/m"].prior.speed_tps) == (200.0, HOPE * 200.0)
    assert found["c/other"].source == "same alias"
    assert found["c/other"].prior.ttft_ms == 300.0
    assert found["f/y"].prior.ttft_ms == 900.0
    assert (found["e/lonely"].source, found["e/lonely"].prior) == ("default", DEFAULT)


def _prior(ttft_ms: float, speed: float) -> Prior:
    return Prior(ttft_ms, 3 * ttft_ms, speed, 0.5 * speed)


def test_models_are_compared_without_provider_path_and_case() -> None:
    assert model_of("together/meta-llama/Llama-3.3-70B") == model_of("groq/llama-3.3-70b")


def test_what_was_measured_long_ago_or_seldom_is_less_certain() -> None:
    def weight(n: int, age_s: float) -> float:
        words = PriorSources({}, {"a/m": seen(n=n, age_s=age_s)}, {})
        return known_priors(GROUPS, words)["a/m"].prior.weight

    assert weight(50, 0.0) == CERTAIN
    assert weight(50, HALF_LIFE_S) == (CERTAIN + DOUBTFUL) / 2
    assert weight(10, 0.0) == (CERTAIN + DOUBTFUL) / 2
    assert weight(3, 1e9) == pytest.approx(DOUBTFUL)


@given(
    st.dictionaries(
        st.sampled_from(["a/m", "b/m", "c/n", "d/n", "z/m"]),
        st.builds(seen, st.floats(0.1, 1e5), st.floats(0.1, 1e5), st.integers(3, 999),
                  st.floats(0, 1e7)),
    ),
    st.dictionaries(
        st.sampled_from(["a/m", "b/m", "d/n"]),
        st.builds(ConfiguredPrior, ttft_ms=st.none() | st.floats(0.1, 1e5),
                  speed_tps=st.none() | st.floats(0.1, 1e5)),
    ),
)  # fmt: skip
def test_every_target_has_a_prior_whatever_is_known(
    traffic: dict[str, ObservedSpeed], told: dict[str, ConfiguredPrior]
) -> None:
    found = known_priors([("a/m", "b/m"), ("c/n", "d/n", "a/m")], PriorSources(told, traffic, {}))
    assert list(found) == ["a/m", "b/m", "c/n", "d/n"]
    for target, word in found.items():
        assert DOUBTFUL <= word.prior.weight <= CERTAIN
        if target in told:
            assert word.source == "config"
        elif target in traffic:
            assert word.source == "traffic"
        if (said := told.get(target)) and said.ttft_ms is not None:
            assert word.prior.ttft_ms == said.ttft_ms


def test_another_prior_moves_only_what_was_never_seen() -> None:
    first, second = Prior(600.0, 1800.0, 70.0, 45.0), Prior(200.0, 600.0, 300.0, 200.0, weight=2.0)
    forms = Forms({"a/m": first, "b/m": first, "c/m": first})
    forms.first("b/m", 0, NS, NS // 2)
    forms.first("c/m", 0, NS, NS // 2)
    forms.finished("c/m", NS, 500, 5 * NS)
    before = {name: forms.predict(name, 0, NS) for name in forms.by_target}
    forms.use(dict.fromkeys(forms.by_target, second))
    after = {name: forms.predict(name, 0, NS) for name in forms.by_target}
    fresh = Form(second)
    assert forms.by_target["a/m"].last_ns == NEVER
    assert after["a/m"].ttft_ns == int(fresh.prior.ttft_ms * 1e6)
    assert forms.by_target["a/m"].variance == fresh.variance
    assert after["b/m"].ttft_ns == before["b/m"].ttft_ns
    assert after["b/m"].speed_tps == pytest.approx(300.0)
    assert (after["c/m"].ttft_ns, after["c/m"].speed_tps) == (
        before["c/m"].ttft_ns, before["c/m"].speed_tps,
    )  # fmt: skip
