from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.config.values import Policy
from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Prior
from lightgate.route.form.size import size_of
from lightgate.route.form.slo import ServiceLevels
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import RATE_LIMITED, SERVER
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide
from lightgate.route.plan.hedge import HedgeBudgets, TargetPrice
from lightgate.route.plan.policy import ASKABLE, BY_FORM, POLICIES, policy_of

if TYPE_CHECKING:
    from lightgate.route.plan.plan import Plan

S = 1_000_000_000
# Soon but slow; late but fast; in between. Dear in that order.
PRIORS = {
    "soon/m": Prior(150.0, 300.0, 40.0, 30.0),
    "fast/m": Prior(600.0, 1200.0, 300.0, 200.0),
    "mid/m": Prior(300.0, 600.0, 100.0, 80.0),
}
NAMES = tuple(PRIORS)
PRICES = {
    "soon/m": TargetPrice(100.0, 400.0),
    "fast/m": TargetPrice(1000.0, 4000.0),
    "mid/m": TargetPrice(10.0, 40.0, cached_in=1.0),
}


def plan(
    policy: str, *, of: Forms | None = None, held: Breakers | None = None, **asked: Any
) -> Plan:
    now_ns, budgets = asked.pop("now", 0), asked.pop("budgets", None)
    return decide(
        PlanAsk(
            alias=Alias(name="m", targets=NAMES, policy=policy, **asked.pop("alias", {})),
            **{"tokens_in": 500, "expected_tokens": 500, **asked},
        ),
        held or Breakers(Rules(), lambda: 0.5),
        now_ns,
        0.5,
        of or Forms(PRIORS),
        budgets,
    )


def order(found: Plan) -> list[str]:
    return [step.target.partition("/")[0] for step in found.steps]


def test_fastest_is_the_end_of_this_answer() -> None:
    assert order(plan("fastest", expected_tokens=2)) == ["soon", "mid", "fast"]
    assert order(plan("fastest", expected_tokens=500)) == ["fast", "mid", "soon"]


def test_without_history_the_limit_says_how_long_an_answer_is() -> None:
    assert order(plan("fastest", expected_tokens=None, max_tokens=2))[0] == "soon"
    assert order(plan("fastest", expected_tokens=None, max_tokens=100_000))[0] == "fast"


def test_voice_is_the_first_sentence() -> None:
    assert order(plan("voice")) == ["mid", "soon", "fast"]


def test_coding_is_speed() -> None:
    assert order(plan("coding", expected_tokens=100))[0] == "fast"


def test_cheapest_and_batch_are_dollars() -> None:
    assert order(plan("cheapest", prices=PRICES)) == ["mid", "soon", "fast"]
    assert order(plan("batch", prices=PRICES)) == ["mid", "soon", "fast"]


def test_cheapest_keeps_its_service_levels() -> None:
    levels = {"slo": ServiceLevels(ttft_p95=450_000_000)}
    assert order(plan("cheapest", prices=PRICES, alias=levels))[0] == "soon"
    assert order(plan("cheapest", prices=PRICES, slo=ServiceLevels(speed_p50=150.0)))[0] == "fast"
    assert order(plan("batch", prices=PRICES, alias=levels))[0] == "mid"


def test_where_nobody_meets_the_levels_who_misses_least_is_first() -> None:
    assert (
        order(plan("cheapest", prices=PRICES, slo=ServiceLevels(ttft_p99=160_000_000)))[0] == "soon"
    )


def test_an_unknown_price_is_the_dearest() -> None:
    some = {"soon/m": PRICES["soon/m"], "fast/m": PRICES["fast/m"]}
    assert order(plan("cheapest", prices=some))[0] == "soon"
    assert order(plan("balanced", prices=some, expected_tokens=20))[0] == "soon"
    # Without any price it is seconds that are left.
    assert order(plan("cheapest")) == order(plan("fastest"))


def test_balanced_weighs_both() -> None:
    assert order(plan("balanced", prices=PRICES))[0] == "mid"
    even = dict.fromkeys(NAMES, TargetPrice(10.0, 40.0))
    assert order(plan("balanced", prices=even)) == order(plan("fastest"))


def test_a_conversation_stays_where_its_prompt_is_warm() -> None:
    twins = dict.fromkeys(("a/m", "b/m"), Prior(300.0, 600.0, 100.0, 80.0))
    twins["a/m"] = Prior(280.0, 600.0, 105.0, 80.0)
    forms = Forms(twins)
    forms.stick("talk", "b/m", 0)
    alias = Alias(name="m", targets=("a/m", "b/m"), policy="agent")
    quiet = Breakers(Rules(), lambda: 0.5)
    ask = PlanAsk(alias=alias, tokens_in=9000, expected_tokens=50, session="talk")
    assert decide(ask, quiet, 0, 0.5, forms).steps[0].target == "b/m"
    assert decide(ask, quiet, 700 * S, 0.5, Forms(twins)).steps[0].target == "a/m"
    for _ in range(3):
        quiet.failed("b/m", 0, SERVER, None, 0)
    assert decide(ask, quiet, 1, 0.5, forms).steps[0].target == "a/m", "soft: not when it is open"


@pytest.mark.parametrize("policy", ASKABLE)
def test_the_breaker_applies_to_all(policy: str) -> None:
    held = Breakers(Rules(), lambda: 0.5)
    for name in NAMES[:2]:
        held.failed(name, 0, RATE_LIMITED, 30.0, 0)
    found = plan(policy, held=held, prices=PRICES, alias={"hedge": "100ms", "race": 2})
    assert order(found)[0] == "mid"
    assert [step.start_ns for step in found.steps] == [0, None, None]
    assert found.reason.endswith("2 held")


def test_the_incumbent_is_left_for_more_than_7_percent_only() -> None:
    forms = Forms(
        {"a/m": Prior(300.0, 500.0, 100.0, 80.0), "b/m": Prior(310.0, 500.0, 100.0, 80.0)}
    )
    alias = Alias(name="m", targets=("a/m", "b/m"), policy="voice")
    quiet = Breakers(Rules(), lambda: 0.5)

    def first(now_ns: int) -> str:
        return decide(PlanAsk(alias=alias), quiet, now_ns, 0.5, forms).steps[0].target

    assert first(0) == "a/m"
    forms.form("a/m").sizes[0].long += 0.06
    assert first(S) == "a/m"
    forms.form("a/m").sizes[0].long += 0.1
    assert first(2 * S) == "b/m"


def test_under_load_equals_share() -> None:
    forms = Forms({name: Prior(300.0, 500.0, 100.0, 80.0) for name in NAMES})
    alias = Alias(name="m", targets=NAMES, policy="fastest")
    quiet = Breakers(Rules(), lambda: 0.5)
    firsts = []
    for number in range(30):
        firsts.append(decide(PlanAsk(alias=alias), quiet, 0, 0.5, forms).steps[0].target)
        forms.started(firsts[-1], number + 1)
    counts = [firsts.count(name) for name in NAMES]
    assert max(counts) - min(counts) <= 2


def test_deadlines_are_learned_and_the_last_has_none() -> None:
    forms = Forms(PRIORS)
    assert [step.ttft_ns for step in plan("ordered", of=forms).steps] == [None] * 3
    for number in range(40):
        forms.first("soon/m", size_of(500), number, int((1.0 + number % 3) * S))
        forms.first("mid/m", size_of(500), number, S // 5)
    steps = plan("ordered", of=forms, now=40).steps
    first_ns = steps[0].ttft_ns
    assert first_ns is not None
    assert 8 * S < first_ns < 60 * S
    assert [step.ttft_ns for step in steps[1:]] == [None, None], "unknown, last"
    assert plan("ordered", of=forms, ttft_timeout_ns=7).steps[0].ttft_ns == 7


def paid() -> HedgeBudgets:
    budgets = HedgeBudgets()
    for _ in range(20):
        budgets.deposit("")
        budgets.paid("", 1e6)
    return budgets


def test_a_hedge_has_its_learned_time_and_the_next_best() -> None:
    found = plan("fastest", alias={"hedge": "auto"}, budgets=paid())
    assert [step.role for step in found.steps] == ["primary", "hedge", "fallback"]
    assert found.hedge_ns == found.steps[1].start_ns
    assert found.hedge_ns == pytest.approx(0.6 * 1.6407 * S, rel=0.01)  # p88 of the prior
    assert (found.runner_up, found.finish) == ("mid/m", "whole")
    assert found.predicted_ttft_ns == pytest.approx(0.6 * S)


def test_no_budget_no_hedge_and_batch_never_hedges() -> None:
    assert plan("fastest", alias={"hedge": "auto"}, budgets=HedgeBudgets()).hedge_ns is None
    assert plan("batch", alias={"hedge": "auto"}, budgets=paid()).hedge_ns is None
    assert plan("fastest", alias={"hedge": "off"}, budgets=paid()).hedge_ns is None


def test_a_second_of_another_provider_is_preferred() -> None:
    forms = Forms(
        {
            "a/x": Prior(200.0, 400.0, 100.0, 80.0),
            "a/y": Prior(250.0, 400.0, 100.0, 80.0),
            "b/x": Prior(270.0, 400.0, 100.0, 80.0),
        }
    )
    alias = Alias(name="m", targets=("a/x", "a/y", "b/x"), policy="voice", hedge="auto")
    found = decide(PlanAsk(alias=alias), Breakers(Rules(), lambda: 0.5), 0, 0.5, forms, paid())
    assert [step.target for step in found.steps] == ["a/x", "b/x", "a/y"]


def test_a_race_is_as_wide_as_the_key_may_and_has_a_budget() -> None:
    race = {"race": 3}
    assert [s.role for s in plan("fastest", alias=race).steps] == ["racer"] * 3
    assert plan("fastest", alias=race, race=1).steps[1].start_ns is None
    assert [s.role for s in plan("fastest", alias=race, race=2).steps][2] == "fallback"
    dear = {**PRICES, "soon/m": TargetPrice(1e6, 1e6)}
    refused = plan("fastest", alias=race, prices=dear, budgets=HedgeBudgets())
    assert refused.steps[0].role == "primary"


@given(
    st.sampled_from(ASKABLE),
    st.floats(0.0, 1.0, exclude_max=True),
    st.lists(st.tuples(st.sampled_from(NAMES), st.floats(0.001, 60.0)), max_size=30),
    st.sampled_from(["off", "auto", "p75", "p99", "300ms"]),
    st.integers(1, 8),
    st.integers(0, 2),
    st.none() | st.just(PRICES),
)
def test_every_learned_plan_keeps_its_promises(
    policy: str,
    draw: float,
    samples: list[tuple[str, float]],
    hedge: str,
    race: int,
    retries: int,
    prices: dict[str, TargetPrice] | None,
) -> None:
    forms = Forms(PRIORS)
    for number, (name, ttft_s) in enumerate(samples):
        forms.started(name)
        forms.first(name, 0, number * S, int(ttft_s * S))
    alias = Alias(name="m", targets=NAMES, policy=policy, hedge=hedge, race=race, retries=retries)
    ask = PlanAsk(alias=alias, prices=prices)
    quiet = Breakers(Rules(), lambda: 0.5)
    found = decide(ask, quiet, 40 * S, draw, forms, paid())
    assert sorted(step.target for step in found.steps) == sorted(NAMES * (retries + 1))
    assert found.steps[0].start_ns == 0
    assert found.steps[-1].ttft_ns is None
    starts = [step.start_ns for step in found.steps if step.start_ns is not None]
    assert starts == sorted(starts)
    assert all(step.start_ns is None for step in found.steps[len(starts) :])
    early = [step.target for step in found.steps[: len(starts)]]
    assert len(set(early)) == len(early)
    assert found.predicted_ttft_ns is not None
    assert found.predicted_ttft_ns > 0
    if found.hedge_ns is not None:
        assert found.hedge_ns >= 50_000_000
    assert decide(ask, quiet, 40 * S, draw, forms, paid()) == found


def test_every_name_of_the_configuration_has_its_row() -> None:
    assert set(POLICIES) == set(get_args(Policy))
    assert set(ASKABLE) == set(POLICIES) - {"cascade"}
    assert set(BY_FORM) == set(ASKABLE) - {"ordered", "weighted"}
    assert policy_of("cascade") is policy_of("unheard of") is POLICIES["ordered"]
