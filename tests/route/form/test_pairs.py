"""Which targets are slow together, and who is the second because of it."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.route.form.forms import Forms, FormState
from lightgate.route.form.pairs import FEW, MOST, SAME, TOGETHER_NS, Pairs
from lightgate.route.form.prior import Prior
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide

S = 1_000_000_000
A, B, C = "a/m", "b/m", "c/m"


def pairs(rho: float, count: int = 400, *, hedged: bool = False) -> Pairs:
    """Two targets that are seen together; `hedged`: only where the first one is slow."""
    dice, found = random.Random(3), Pairs()  # noqa: S311 - a test's own draws
    seen = 0
    while seen < count:
        x = dice.gauss(0, 1)
        y = rho * x + math.sqrt(1 - rho * rho) * dice.gauss(0, 1)
        if hedged and x < 1.28:
            continue
        seen += 1
        found.saw(A, seen * 10 * S, x)
        found.saw(B, seen * 10 * S + S // 10, y)
    return found


def test_of_many_targets_those_seen_last_are_kept_in_mind() -> None:
    found = Pairs()
    for number in range(FEW):
        found.saw(f"t/{number:02}", number, 1.0)
    found.saw("t/00", 100, 1.0)  # again: now another one is the oldest
    found.saw("u/one", 200, 1.0)
    before = {pair for pair in found._known if "u/two" in pair}
    found.saw("u/two", 300, 1.0)
    met = {pair for pair in found._known if "u/two" in pair} - before
    assert ("t/00", "u/two") in met
    assert ("t/01", "u/two") not in met
    assert len(met) == FEW


def test_before_anything_was_seen_the_provider_says_it() -> None:
    assert Pairs().correlation(A, B) == 0.0
    assert Pairs().correlation("a/m", "a/n") == SAME
    assert Pairs().worse("a/m", "a/n") == pytest.approx(1.25, abs=0.01)
    assert Pairs().worse(A, B) == 1.0


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("hedged", [False, True])
def test_it_is_learned_though_hedges_show_only_the_slow_ones(rho: float, hedged: bool) -> None:
    assert pairs(rho, hedged=hedged).correlation(A, B) == pytest.approx(rho, abs=0.17)
    assert pairs(rho, hedged=hedged).correlation(B, A) == pairs(rho, hedged=hedged).correlation(
        A, B
    )


def test_what_was_worked_out_is_forgotten_in_both_directions() -> None:
    found, fresh = pairs(0.9), pairs(0.9)
    before = found.worse(A, B), found.worse(B, A)
    for known in (found, fresh):
        for number in range(200):
            known.saw(A, (5000 + number) * 10 * S, 1.0)
            known.saw(B, (5000 + number) * 10 * S, -1.0)
    after = found.worse(A, B), found.worse(B, A)
    assert after == (fresh.worse(A, B), fresh.worse(B, A))
    assert after[0] != before[0]
    assert after[1] != before[1]


def test_two_of_one_provider_can_turn_out_to_be_apart() -> None:
    found = Pairs()
    dice = random.Random(4)  # noqa: S311 - a test's own draws
    for number in range(300):
        found.saw("a/m", number * 10 * S, dice.gauss(0, 1))
        found.saw("a/n", number * 10 * S, dice.gauss(0, 1))
    assert found.worse("a/m", "a/n") < 1.1


def test_what_is_not_of_the_same_time_is_no_pair() -> None:
    found = Pairs()
    for number in range(100):
        found.saw(A, number * 100 * S, 2.0)
        found.saw(B, number * 100 * S + TOGETHER_NS, 2.0)
    assert found.correlation(A, B) == 0.0


def test_one_sample_is_nobodys_partner_twice() -> None:
    found = Pairs()
    found.saw(B, 0, 3.0)
    for number in range(100):
        found.saw(A, number, 3.0)
    assert found.correlation(A, B) < 0.5


def test_a_loser_that_was_closed_early_says_nothing_and_a_late_one_at_least() -> None:
    found = Pairs()
    for number in range(100):
        found.saw(A, number * 10 * S, 2.0)
        found.waited(B, number * 10 * S, -0.5)
    assert found.correlation(A, B) == 0.0
    for number in range(100, 200):
        found.saw(A, number * 10 * S, 2.0)
        found.waited(B, number * 10 * S, 1.5)
    assert found.correlation(A, B) > 0.7


def test_the_second_is_the_one_that_is_not_slow_with_the_first() -> None:
    prior = Prior(400.0, 600.0, 100.0, 80.0)
    forms = Forms({A: Prior(200.0, 300.0, 200.0, 150.0), B: prior, C: prior})
    alias = Alias(name="m", targets=(A, B, C), policy="fastest", hedge="500ms")
    breakers = Breakers(Rules(), lambda: 0.5)
    assert decide(PlanAsk(alias=alias), breakers, 0, 0.5, forms).steps[1].target == B
    dice = random.Random(5)  # noqa: S311 - a test's own draws
    for number in range(200):
        shared, now = dice.gauss(0, 0.3), number * 10 * S
        forms.first(A, 0, now, int(0.2 * math.exp(shared) * S))
        forms.first(B, 0, now, int(0.4 * math.exp(shared) * S))
        forms.first(C, 0, now, int(0.4 * math.exp(dice.gauss(0, 0.3)) * S))
    plan = decide(PlanAsk(alias=alias), breakers, 2000 * S, 0.5, forms)
    assert [step.target for step in plan.steps] == [A, C, B]


def test_it_survives_and_hearing_it_again_changes_nothing() -> None:
    found, other = Forms({}), Forms({})
    found.pairs = pairs(0.8)
    state = msgspec.json.decode(msgspec.json.encode(found.export()), type=FormState)
    other.adopt(state, 0)
    assert other.pairs.correlation(A, B) == pytest.approx(found.pairs.correlation(A, B))
    other.adopt(state, 0)
    assert other.pairs.export() == found.pairs.export()


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(-9, 9), st.booleans()), max_size=300))
def test_it_is_bounded_in_value_and_in_memory(
    events: list[tuple[int, float, bool]],
) -> None:
    found = Pairs()
    for number, (target, sigmas, cut) in enumerate(events):
        (found.waited if cut else found.saw)(f"p{target}/m", number * S // 4, sigmas)
    for one in range(5):
        for other in range(5):
            assert -1.0 <= found.correlation(f"p{one}/m", f"p{other}/m") <= 1.0
            assert found.worse(f"p{one}/m", f"p{other}/m") >= 1.0


def test_clients_cannot_fill_the_memory() -> None:
    found = Pairs()
    for number in range(2000):
        found.saw(f"p/{number}", number, 1.0)
    assert len(found.export()) <= MOST
    for number in range(2 * MOST):
        found.worse("a/m", f"p/{number}")
    assert len(found._worse) == 2 * MOST
    found.worse("a/m", "q/m")  # one too many: what was worked out is worked out again
    assert list(found._worse) == [("a/m", "q/m")]
