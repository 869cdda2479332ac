from __future__ import annotations

import pytest

from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Prior
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import SERVER
from lightgate.route.health.observe import Witness
from lightgate.route.plan.alias import Shape, lay_out
from lightgate.route.plan.hedge import HedgeBudgets
from lightgate.route.plan.plan import Plan

S = 1_000_000_000
A, B = "a/x", "b/x"


@pytest.fixture
def witness() -> Witness:
    priors = {name: Prior(300.0, 600.0, 100.0, 80.0) for name in (A, B)}
    return Witness(Breakers(Rules(), lambda: 0.5), Forms(priors), HedgeBudgets())


def hedged(reserve: float) -> Plan:
    steps = lay_out((A, B), 2, Shape(0, None, 1, S))
    return Plan(steps, "voice", "", hedge_ns=S, reserve_nano=reserve, own_nano=1000.0)


def test_slow_tokens_and_slow_decodes_are_learned(witness: Witness) -> None:
    before = witness.forms.predict(A, 0, 10 * S)
    for at in range(10, 40):
        witness.began(A, 0, at * S)
        witness.spoke(A, 0, (at + 2) * S, at * S)
        witness.succeeded(A, 0, (at + 12) * S, at * S, (100, 10 * S))
    after = witness.forms.predict(A, 0, 52 * S)
    assert after.ttft_ns > 3 * before.ttft_ns
    assert after.speed_tps < 0.5 * before.speed_tps
    assert witness.forms.form(A).in_flight == 0


def test_failures_reach_the_breaker_and_the_form(witness: Witness) -> None:
    for at in (10, 11, 12):
        witness.began(A, 0, at * S)
        witness.failed(A, 0, at * S + 1, at * S, (SERVER, None))
    assert not witness.breakers.allows(A, 12 * S + 2)
    seen = witness.forms.predict(A, 0, 12 * S + 2)
    assert seen.p_error > 0.05
    assert seen.ttft_ns > 300_000_000
    assert witness.forms.form(A).in_flight == 0


def test_a_loser_says_at_least(witness: Witness) -> None:
    before = witness.forms.predict(B, 0, 20 * S).ttft_ns
    witness.began(B, 0, 20 * S)
    witness.lost(B, 0, 25 * S, 20 * S, spoke=False)
    assert witness.forms.predict(B, 0, 25 * S).ttft_ns > before
    assert witness.breakers.allows(B, 25 * S)
    assert witness.forms.form(B).in_flight == 0


def test_a_cancelled_probe_lets_the_next_one_in(witness: Witness) -> None:
    for at in (10, 11, 12):
        witness.failed(A, 0, at * S + 1, at * S, (SERVER, None))
    again = witness.breakers.opens_again_ns(A)
    witness.began(A, 0, again)
    assert not witness.breakers.allows(A, again + 1)
    witness.lost(A, 0, again + S, again, spoke=False)
    assert witness.breakers.allows(A, again + S)


def test_budgets_are_taken_and_settled(witness: Witness) -> None:
    plan = hedged(100.0)
    primary, hedge = plan.steps
    for _ in range(10):
        witness.arrived("k")
    assert not witness.may_start("k", hedge, plan)  # nothing has been paid yet
    witness.settled("k", plan, (), 5000.0, 0.0)
    assert witness.may_start("k", primary, plan)  # it is no duplicate
    assert witness.may_start("k", hedge, plan)
    assert witness.budgets.spent("k") == (5000.0, 100.0, 0.0)
    witness.settled("k", plan, ("hedge",), 1000.0, 40.0)
    assert witness.budgets.spent("k") == (6000.0, 40.0, 0.0)
