"""Limits that answers state: a target that has nothing left is not asked before its reset."""

from __future__ import annotations

import pytest

from lightgate.route.admission.headers import RateFact, What
from lightgate.route.admission.stated import LONGEST_S, StatedLimits
from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Prior
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import RATE_LIMITED
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide

S = 1_000_000_000
NAMES = ("a/m", "b/m", "c/m")


def fact(left: float | None, reset_s: float | None = 10.0, what: What = "requests") -> RateFact:
    return RateFact(what, 100.0, left, reset_s, None)


def told(*facts: RateFact, later: int = 0, tokens: int = 0, refused: bool = False) -> StatedLimits:
    known = StatedLimits()
    known.told(facts, 5 * S, later=later, tokens=tokens, refused=refused)
    return known


def test_nothing_left_closes_until_the_reset() -> None:
    assert told(fact(0.0)).closed_ns == 15 * S
    assert told(fact(1.0)).closed_ns == 0
    assert told(fact(None)).closed_ns == 0
    assert told(fact(0.0, None)).closed_ns == 6 * S
    assert told(fact(0.0, 9e9)).closed_ns == 5 * S + LONGEST_S * S


def test_what_was_sent_since_counts_against_what_is_left() -> None:
    assert told(fact(3.0), later=2).closed_ns == 0
    assert told(fact(3.0), later=3).closed_ns == 15 * S
    known = told(fact(3.0))
    known.sent(6 * S)
    assert known.closed_ns == 0
    known.sent(7 * S)
    known.sent(7 * S)
    assert known.closed_ns == 15 * S
    known = told(fact(1.0))
    known.sent(15 * S)  # all of them are there again
    known.sent(15 * S)
    assert known.closed_ns == 0


def test_tokens_count_where_the_prompt_does_not_fit() -> None:
    assert told(fact(50.0, what="tokens"), tokens=50).closed_ns == 0
    assert told(fact(50.0, what="tokens"), tokens=51).closed_ns == 15 * S
    assert told(fact(50.0, what="input"), tokens=51).closed_ns == 15 * S
    assert told(fact(50.0, what="output"), tokens=51).closed_ns == 0


def test_a_refusal_has_met_the_limit_of_which_least_is_left() -> None:
    known = told(fact(40.0, 2.0), fact(30.0, 20.0, "tokens"), tokens=5, refused=True)
    assert known.closed_ns == 25 * S


# In plans


def a_house() -> tuple[Forms, Breakers]:
    priors = [Prior(200.0 + 200 * n, 900.0, 100.0, 80.0) for n in range(3)]
    forms = Forms(dict(zip(NAMES, priors, strict=True)))
    return forms, Breakers(Rules(), lambda: 0.5)


def order(forms: Forms, breakers: Breakers, now_ns: int, race: int = 1, count: int = 3) -> str:
    alias = Alias(name="m", targets=NAMES[:count], policy="fastest", hedge="auto", race=race)
    found = decide(PlanAsk(alias=alias, max_tokens=100), breakers, now_ns, 0.5, forms)
    together = [step.target[0] for step in found.steps if step.start_ns is not None]
    return "".join(together) + ">" + "".join(step.target[0] for step in found.steps)


def spend(forms: Forms, name: str, now_ns: int, left: float = 0.0) -> None:
    forms.stated(name, now_ns, now_ns, [fact(left)], tokens=10, refused=False)


def test_a_spent_target_comes_last_and_is_no_hedge_until_its_reset() -> None:
    forms, breakers = a_house()
    assert order(forms, breakers, S) == "ab>abc"
    before = forms.version
    spend(forms, "a/m", S)
    assert forms.version == before + 1  # plans that are kept are made anew
    assert order(forms, breakers, 2 * S) == "bc>bca"
    spend(forms, "b/m", S)
    assert order(forms, breakers, 2 * S) == "c>cab"
    assert order(forms, breakers, 2 * S, race=3) == "c>cab"
    assert order(forms, breakers, 11 * S) == "ab>abc"


def test_where_all_are_spent_all_are_asked_as_usual() -> None:
    forms, breakers = a_house()
    for name in NAMES:
        spend(forms, name, S)
    assert order(forms, breakers, 2 * S).endswith(">abc")
    assert order(forms, breakers, 2 * S, count=1) == "a>a"


def test_requests_in_flight_use_up_what_is_left() -> None:
    forms, breakers = a_house()
    spend(forms, "a/m", S, left=3.0)
    for n in range(2):
        assert order(forms, breakers, 2 * S)[0] == "a"
        forms.started("a/m", 2 * S + n)
    assert order(forms, breakers, 2 * S)[0] == "a"
    forms.started("a/m", 2 * S + 9)
    assert order(forms, breakers, 2 * S + 10)[0] == "b"


@pytest.mark.parametrize("stated", [True, False])
def test_a_refusal_that_a_stated_limit_explains_sets_no_limit_in_flight(stated: bool) -> None:
    forms, _ = a_house()
    for n in range(4):
        forms.started("a/m", S + n)
    if stated:
        forms.stated("a/m", 2 * S, S, [fact(0.0)], tokens=10, refused=True)
    forms.failed("a/m", 0, 2 * S, RATE_LIMITED, None, S)
    assert forms.form("a/m").limit.firm is not stated
