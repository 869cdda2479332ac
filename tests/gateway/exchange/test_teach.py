"""What a whole exchange tells the hedge budgets, the service levels and the ledger."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.tokens import Tokens
from lightgate.gateway.exchange.settle import _judge, _teach
from lightgate.route.plan.alias import Alias
from lightgate.route.plan.plan import Plan, Step

if TYPE_CHECKING:
    from gateway.conftest import Start

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


def judged(status: int = 200, **answer: Any) -> list[tuple[Any, ...]]:
    """What the service levels are told of an exchange; without `answer` there was none."""
    told: list[tuple[Any, ...]] = []
    observer = SimpleNamespace(
        answered=lambda *facts: told.append(("answered", *facts)),
        unanswered=lambda *facts: told.append(("unanswered", *facts)),
    )
    winner = None
    if answer:
        called = SimpleNamespace(error=None, streamed=answer["streamed"], tokens=Tokens(out=7))
        marks = SimpleNamespace(first=answer.get("first"), last=answer.get("last"))
        winner = SimpleNamespace(called=called, marks=marks)
    exchange: Any = SimpleNamespace(
        winner=winner,
        alias=ALIAS,
        inbound=SimpleNamespace(received_ns=100),
        refusal=SimpleNamespace(status=status),
        reply=SimpleNamespace(started=False),
    )
    state: Any = SimpleNamespace(learned=SimpleNamespace(observer=observer))
    _judge(state, exchange)
    return told


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"streamed": True, "first": 300, "last": 1000}, [("answered", "m", 200, (7, 700))]),
        ({"streamed": False, "first": 300, "last": 1000}, []),
        ({"streamed": True, "first": 300}, []),
        ({"streamed": True}, []),
    ],
)
def test_levels_are_judged_by_streams_with_tokens(
    answer: dict[str, Any], told: list[tuple[Any, ...]]
) -> None:
    assert judged(**answer) == told


@pytest.mark.parametrize(("status", "missed"), [(499, 0), (500, 1), (503, 1)])
def test_a_request_without_an_answer_misses_its_levels_unless_the_client_ended_it(
    status: int, missed: int
) -> None:
    assert judged(status) == [("unanswered", "m")] * missed


async def test_the_names_of_attempts_and_the_winner_among_several(start: Start) -> None:
    rig = await start('[models.m]\ntargets = ["lab/nothing", "lab/plain"]\npolicy = "ordered"\n')
    assert (await rig.chat("lab/plain")).status == 200
    assert (await rig.chat("m")).status == 200
    await rig.until(lambda: len(rig.settled()) == 2)
    single, several = rig.settled()
    name = single.exchange.id
    assert [(one.facts.id, one.facts.won) for one in single.attempts] == [(f"{name}.0", None)]
    assert single.attempts[0].facts.source == "gateway"
    name = several.exchange.id
    assert [(one.facts.id, one.facts.won) for one in several.attempts] == [
        (f"{name}.0", False),
        (f"{name}.1", True),
    ]


def learned_of(tokens: int | None) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What the expected lengths and the times of whole answers are told of one whole answer."""
    lengths: list[tuple[Any, ...]] = []
    times: list[tuple[Any, ...]] = []
    winner = attempt("primary", 5)
    winner.called = SimpleNamespace(error=None, streamed=False, tokens=Tokens(out=tokens))
    winner.marks = SimpleNamespace(end=1000)
    winner.began_ns = 100
    exchange: Any = SimpleNamespace(
        winner=winner,
        alias=ALIAS,
        attempts=[winner],
        plan=Plan((winner.step, Step("b/m", 9, None, "hedge")), "fastest", ""),
        caller=SimpleNamespace(key=None, session=None, overrides=SimpleNamespace(session=False)),
        beside=(),
        size=1,
    )
    learned = SimpleNamespace(
        spent_nano=0,
        observer=SimpleNamespace(settled=lambda *facts: None),
        lengths=SimpleNamespace(saw=lambda *facts: lengths.append(facts)),
        whole_times=SimpleNamespace(saw=lambda *facts: times.append(facts)),
    )
    state: Any = SimpleNamespace(learned=learned)
    _teach(state, exchange)
    return lengths, times


@pytest.mark.parametrize(
    ("tokens", "lengths", "times"),
    [(7, [("m", "", 1, 7)], [("a/m", 900, 7)]), (None, [], [("a/m", 900, 0)])],
)
def test_an_answer_of_unknown_length_says_nothing_about_lengths(
    tokens: int | None, lengths: list[tuple[Any, ...]], times: list[tuple[Any, ...]]
) -> None:
    assert learned_of(tokens) == (lengths, times)
