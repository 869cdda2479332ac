from __future__ import annotations

import msgspec
import pytest

from lightgate.route.admission.headers import RateFact
from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Prior
from lightgate.route.form.slo import ServiceLevels
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import SERVER
from lightgate.route.observe import Observer
from lightgate.route.plan.alias import Layout, lay_out
from lightgate.route.plan.hedge import HedgeBudgets
from lightgate.route.plan.plan import Plan, StandInHedge

S = 1_000_000_000
A, B = "a/x", "b/x"


@pytest.fixture
def observer() -> Observer:
    priors = {name: Prior(300.0, 600.0, 100.0, 80.0) for name in (A, B)}
    return Observer(Breakers(Rules(), lambda: 0.5), Forms(priors), HedgeBudgets())


def hedged(reserve: float) -> Plan:
    steps = lay_out((A, B), 2, Layout(0, None, 1, S))
    return Plan(steps, "voice", "", hedge_ns=S, reserve_nano=reserve, own_nano=1000.0)


def test_slow_tokens_and_slow_decodes_are_learned(observer: Observer) -> None:
    before = observer.forms.predict(A, 0, 10 * S)
    for at in range(10, 40):
        observer.began(A, at * S)
        observer.spoke(A, 0, (at + 2) * S, at * S)
        observer.succeeded(A, (at + 12) * S, at * S, (100, 10 * S))
    after = observer.forms.predict(A, 0, 52 * S)
    assert after.ttft_ns > 3 * before.ttft_ns
    assert after.speed_tps < 0.5 * before.speed_tps
    assert observer.forms.form(A).in_flight == 0


def test_failures_reach_the_breaker_and_the_form(observer: Observer) -> None:
    for at in (10, 11, 12):
        observer.began(A, at * S)
        observer.failed(A, 0, at * S + 1, at * S, (SERVER, None))
    assert not observer.breakers.allows(A, 12 * S + 2)
    seen = observer.forms.predict(A, 0, 12 * S + 2)
    assert seen.p_error > 0.05
    assert seen.ttft_ns > 300_000_000
    assert observer.forms.form(A).in_flight == 0


def test_a_loser_says_at_least(observer: Observer) -> None:
    before = observer.forms.predict(B, 0, 20 * S).ttft_ns
    observer.began(B, 20 * S)
    observer.lost(B, 0, 25 * S, 20 * S, spoke=False)
    assert observer.forms.predict(B, 0, 25 * S).ttft_ns > before
    assert observer.breakers.allows(B, 25 * S)
    assert observer.forms.form(B).in_flight == 0


def test_a_cancelled_probe_lets_the_next_one_in(observer: Observer) -> None:
    for at in (10, 11, 12):
        observer.failed(A, 0, at * S + 1, at * S, (SERVER, None))
    again = observer.breakers.opens_again_ns(A)
    observer.began(A, again)
    assert not observer.breakers.allows(A, again + 1)
    observer.lost(A, 0, again + S, again, spoke=False)
    assert observer.breakers.allows(A, again + S)


def test_budgets_are_taken_and_settled(observer: Observer) -> None:
    plan = hedged(100.0)
    primary, hedge = plan.steps
    for _ in range(10):
        observer.arrived("k")
    assert not observer.may_start("k", hedge, plan)  # nothing has been paid yet
    observer.settled("k", plan, (), 5000.0, 0.0)
    assert observer.may_start("k", primary, plan)  # it is no duplicate
    assert observer.may_start("k", hedge, plan)
    assert observer.budgets.spent("k") == (5000.0, 100.0, 0.0)
    observer.settled("k", plan, (hedge,), 1000.0, 40.0)
    assert observer.budgets.spent("k") == (6000.0, 40.0, 0.0)


def test_a_loser_that_had_spoken_says_nothing_about_its_first_token(observer: Observer) -> None:
    before = observer.forms.predict(B, 0, 20 * S).ttft_ns
    version = observer.forms.version
    observer.began(B, 20 * S)
    observer.lost(B, 0, 25 * S, 20 * S, spoke=True)
    assert observer.forms.predict(B, 0, 25 * S).ttft_ns == before
    assert (observer.forms.version, observer.forms.form(B).in_flight) == (version, 0)


def test_an_attempt_tells_how_long_it_was_in_flight(observer: Observer) -> None:
    observer.began(A, 10 * S)
    observer.succeeded(A, 17 * S, 10 * S, (100, 5 * S))
    assert observer.forms.form(A).curve.holding_s == 7.0


def test_a_probe_that_speaks_closes_the_breaker(observer: Observer) -> None:
    for at in (10, 11, 12):
        observer.failed(A, 0, at * S + 1, at * S, (SERVER, None))
    again = observer.breakers.opens_again_ns(A)
    observer.began(A, again)
    observer.spoke(A, 0, again + S, again)
    assert observer.breakers.troubled == set()


def test_the_hedge_of_a_fallback_sets_its_own_price_aside(observer: Observer) -> None:
    plan = hedged(100.0)
    stands_by = msgspec.structs.replace(plan.steps[1], stands_by=StandInHedge(S, 30.0))
    for _ in range(10):
        observer.arrived("k")
    observer.settled("k", plan, (), 1000.0, 0.0)
    assert observer.may_start("k", stands_by, plan)
    assert observer.budgets.spent("k") == (1000.0, 30.0, 0.0)
    observer.settled("k", plan, (stands_by,), 500.0, 10.0, 5.0)
    assert observer.budgets.spent("k") == (1495.0, 15.0, 0.0)  # a winner's premium is a loss


def test_of_two_racers_beside_the_first_each_counts_for_half(observer: Observer) -> None:
    steps = lay_out((A, B, "c/x"), 3, Layout(0, None, 3, None))
    plan = Plan(steps, "voice", "", reserve_nano=1000.0, own_nano=1000.0)
    observer.arrived("k")
    assert observer.may_start("k", steps[1], plan)
    assert observer.budgets.spent("k") == (0.0, 0.0, 500.0)
    assert observer.may_start("k", steps[2], plan)
    observer.settled("k", plan, steps[1:], 1000.0, 600.0)
    assert observer.budgets.spent("k") == (1000.0, 0.0, 300.0)


def test_what_clients_saw_of_a_model_counts_for_its_service_levels(observer: Observer) -> None:
    promise = observer.forms.promise("m", ServiceLevels(ttft_p50=S))
    observer.answered("m", 9 * S, (10, S))
    observer.answered("m", 9 * S, (10, S))
    late = promise.margins
    assert late > (0.0,)
    observer.unanswered("m")
    observer.unanswered("m")
    assert promise.margins > late


def test_limits_that_an_answer_states_close_the_target(observer: Observer) -> None:
    left = RateFact("tokens", 1000.0, 50.0, 10.0, None)
    observer.stated(A, 5 * S, 4 * S, [left], tokens=50, refused=False)
    assert observer.forms.closed(6 * S) == set()
    observer.stated(A, 5 * S, 4 * S, [left], tokens=51, refused=False)
    assert observer.forms.closed(15 * S - 1) == {A}
    assert observer.forms.closed(15 * S) == set()
    observer.stated(B, 5 * S, 4 * S, [left], tokens=0, refused=True)
    assert observer.forms.closed(6 * S) == {A, B}
