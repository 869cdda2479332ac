"""Candidates of a plan: what was believed when it was made, and why the others were not taken."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.route.form.forms import Forms
from lightgate.route.form.lateness import Lateness
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import OVERLOADED
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide
from lightgate.route.plan.hedge import TargetPrice

if TYPE_CHECKING:
    from lightgate.route.plan.plan import Plan

S = 1_000_000_000
NOW = 1000 * S
TARGETS = ("a/m", "b/m", "c/m")
PRICES = {"a/m": TargetPrice(100.0, 400.0), "b/m": TargetPrice(300.0, 1200.0)}


def forms_of(**ttfts_s: float) -> Forms:
    """Forms in which each target has answered thirty times, at a steady time."""
    forms = Forms({})
    for name, ttft_s in ttfts_s.items():
        form = forms.form(f"{name}/m")
        for number in range(30):
            form.first(0, NOW - (31 - number) * S // 10, ttft_s)
            form.finished(NOW - (31 - number) * S // 10, 100, 1.0)
    return forms


def planned(forms: Forms, breakers: Breakers | None = None, **asked: Any) -> Plan:
    alias = Alias(name="m", targets=TARGETS, policy=asked.pop("policy", "fastest"))
    ask = PlanAsk(alias=alias, tokens_in=500, expected_tokens=200, **asked)
    return decide(ask, breakers or Breakers(Rules(), lambda: 0.5), NOW, 0.5, forms)


def test_every_target_is_a_candidate_with_its_figures() -> None:
    plan = planned(forms_of(a=0.2, b=0.5, c=0.3), prices=PRICES)

    assert [one.target for one in plan.candidates] == ["a/m", "c/m", "b/m"]
    first, third, second = plan.candidates
    assert first.ttft_s == pytest.approx(0.2, rel=0.1)
    assert first.end_s == pytest.approx(0.2 + 200 / 100, rel=0.2)
    assert (first.samples, first.in_flight) == (30, 0)
    assert first.age_s == pytest.approx(0.2)
    assert first.nano == PRICES["a/m"].nano(500, 200)
    assert third.nano is None  # a price that nobody knows
    assert first.value is not None
    assert second.value is not None
    assert first.value < second.value


def test_the_reasons_are_sentences_about_the_first() -> None:
    plan = planned(forms_of(a=0.2, b=0.5, c=0.3))

    said = {one.target: one.why for one in plan.candidates}
    assert said["a/m"] == "taken: the best value for the policy"
    assert said["b/m"].startswith("its answer is expected to end ")
    assert said["b/m"].endswith(" ms later")


def test_a_target_that_is_left_alone_says_so() -> None:
    breakers = Breakers(Rules(), lambda: 0.5)
    for _ in range(3):
        breakers.failed("a/m", NOW, OVERLOADED, None, NOW)
    plan = planned(forms_of(a=0.2, b=0.5, c=0.3), breakers)

    assert plan.steps[0].target == "c/m"
    [alone] = [one for one in plan.candidates if one.target == "a/m"]
    assert alone.why == "is left alone for a while: it failed"
    assert alone.value is None


def test_the_dearer_one_says_how_much() -> None:
    plan = planned(forms_of(a=0.3, b=0.3, c=0.3), prices=PRICES, policy="cheapest")

    [dear] = [one for one in plan.candidates if one.target == "b/m"]
    assert dear.why.endswith("costs 3 times as much")


def test_what_is_learned_later_changes_no_candidate() -> None:
    forms = forms_of(a=0.2, b=0.5, c=0.3)
    plan = planned(forms)
    before = plan.candidates
    for number in range(50):
        forms.form("a/m").first(0, NOW + number * S, 5.0)
        forms.form("a/m").look(NOW + number * S)

    assert plan.candidates == before


def test_a_failure_is_not_in_the_predicted_first_token() -> None:
    forms = forms_of(a=0.2, b=0.5, c=0.3)
    before = {one.target: one for one in planned(forms).candidates}
    form = forms.form("a/m")
    for number in range(3):
        form.failed(0, NOW + number, 30.0)
    form.look(NOW)
    plan = planned(forms)
    after = {one.target: one for one in plan.candidates}

    assert plan.steps[0].target != "a/m"  # for decisions a failure is slow
    assert form.ttfts_s[0] > 0.4
    assert after["a/m"].p_error > before["a/m"].p_error
    assert after["a/m"].ttft_s == pytest.approx(before["a/m"].ttft_s, rel=0.02)


def test_first_tokens_after_a_failure_are_predicted_as_they_come() -> None:
    forms = forms_of(a=0.2)
    form = forms.form("a/m")
    form.failed(0, NOW, 30.0)
    for number in range(1, 30):
        form.first(0, NOW + number * S // 10, 0.3)
    form.look(NOW + 3 * S)

    assert form.answered_s(0, NOW + 3 * S) == pytest.approx(0.3, rel=0.15)
    assert form.penalty < 0.05


def test_the_band_holds_most_of_the_last_first_tokens() -> None:
    forms = Forms({})
    form = forms.form("a/m")
    dice = random.Random(5)  # noqa: S311 - the same every time
    for number in range(400):
        form.first(0, NOW - (400 - number) * S, 0.3 * dice.lognormvariate(0.0, 0.5))
        if number == 18:
            assert form.recent.band is None  # too few: the long run speaks
    band = form.recent.band
    assert band is not None
    low, high = band
    held = 0
    for number in range(400):
        came_s = 0.3 * dice.lognormvariate(0.0, 0.5)
        form.look(NOW + number)
        held += low * form.ttfts_s[0] <= came_s <= high * form.ttfts_s[0]
    assert 0.72 <= held / 400 <= 0.88


def test_a_wrong_prediction_has_a_band_that_is_right() -> None:
    """The band is that of actual over predicted first tokens, not that of first tokens."""
    late = Lateness()
    for number in range(64):
        late.saw(2.0 + number / 64, 0.3, 0.3)
    assert late.band == (1.0, 2.0 + 57 / 64)  # and holds the prediction


def test_a_plan_has_the_band_around_its_prediction() -> None:
    plan = planned(forms_of(a=0.2, b=0.5, c=0.3))

    assert plan.predicted_low_ns is not None
    assert plan.predicted_ttft_ns is not None
    assert plan.predicted_high_ns is not None
    assert 0 < plan.predicted_low_ns <= plan.predicted_ttft_ns <= plan.predicted_high_ns
    assert plan.in_flight == 0


def test_a_plan_of_the_configuration_alone_has_no_candidates() -> None:
    alias = Alias(name="m", targets=TARGETS)

    assert (
        decide(
            PlanAsk(alias=alias, tokens_in=5), Breakers(Rules(), lambda: 0.5), NOW, 0.5
        ).candidates
        == ()
    )
