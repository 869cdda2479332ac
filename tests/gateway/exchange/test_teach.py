"""What a whole exchange tells the hedge budgets: what was won, lost, and paid for a second."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.gateway.exchange.settle import _teach
from lightgate.route.plan.alias import Alias
from lightgate.route.plan.plan import Plan, Step

ALIAS = Alias(name="m", targets=("a/m", "b/m"), hedge="auto", policy="fastest")


def attempt(role: Any, nano: int | None, *, rejected: bool = False) -> Any:
    return SimpleNamespace(
        step=Step("a/m", 0, None, role),
        bill=SimpleNamespace(nano_usd=nano),
        rejected=rejected,
        called=None,
    )


def taught(winner: Any, *others: Any, key: str | None = "k") -> tuple[Any, ...]:
    """What the budgets are told of an exchange with these attempts."""
    told: list[tuple[Any, ...]] = []
    steps = (Step("a/m", 0, None, "primary"), Step("b/m", 9, None, "hedge"))
    plan = Plan(steps, "fastest", "", premium=0.25)
    state: Any = SimpleNamespace(
        learned=SimpleNamespace(
            spent_nano=0, observer=SimpleNamespace(settled=lambda *facts: told.append(facts))
        )
    )
    attempts = [one for one in (winner, *others) if one is not None]
    exchange: Any = SimpleNamespace(
        winner=winner,
        alias=ALIAS,
        attempts=attempts,
        plan=plan,
        caller=SimpleNamespace(key=None if key is None else SimpleNamespace(id=key)),
        beside=("b/m",),
    )
    _teach(state, exchange)
    ((name, shown, beside, *amounts),) = told
    assert (shown, beside) == (plan, ("b/m",))
    assert state.learned.spent_nano == sum(amounts[:2])
    return (name, *amounts)


@pytest.mark.parametrize(
    ("role", "premium"), [("primary", 0.0), ("hedge", 250.0), ("racer", 250.0)]
)
def test_a_second_that_wins_costs_its_premium(role: str, premium: float) -> None:
    assert taught(attempt(role, 1000), attempt("primary", 30)) == ("k", 1000, 30, premium)


def test_an_exchange_that_nobody_won_has_only_lost() -> None:
    assert taught(None, attempt("primary", 30), attempt("hedge", 40)) == ("k", 0, 70, 0.0)


def test_an_answer_that_a_check_rejected_is_paid_as_the_winner_is() -> None:
    rejected = attempt("primary", 30, rejected=True)
    assert taught(attempt("fallback", 1000), rejected) == ("k", 1030, 0, 0.0)


def test_an_unknown_price_counts_for_nothing() -> None:
    found = taught(attempt("primary", None), attempt("hedge", None), key=None)
    assert found == ("", 0, 0, 0.0)
