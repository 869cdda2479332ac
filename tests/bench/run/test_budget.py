from __future__ import annotations

import itertools
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from bench.test_rules import worked
from lightgate.bench.load.shape import Poisson, parse_rate
from lightgate.bench.run.budget import (
    CostEstimate,
    CostGuard,
    Planned,
    announce,
    confirm,
    largest,
    plan,
    rounded_up,
)
from lightgate.bench.run.order import Loading, RunOrder, most_in_time
from lightgate.bench.workload.calibrate import MOST_PROBES
from lightgate.bench.workload.conversation import Talk
from lightgate.bench.workload.prompts import OwnPrompt, OwnPrompts
from lightgate.bench.workload.workload import WorkloadWish
from lightgate.clock.outcome import Outcome
from lightgate.dialect.request import Message
from lightgate.errors import UsageError
from lightgate.price.rates import Rates
from lightgate.provider.catalogue import Provider
from lightgate.provider.target import Target

S = 1_000_000_000
AT = datetime(2026, 11, 15, tzinfo=UTC)
ROW = Provider(name="x", title="X", base_url="https://x.example/v1")
PRICED = Target(
    name="x/m", provider=ROW, model="m", base_url=ROW.base_url,
    rates=Rates(input=Decimal(2), output=Decimal(8), source="override"),
)  # fmt: skip


def estimate(*each: str | None, requests: int = 92) -> CostEstimate:
    return CostEstimate(
        plans=tuple(
            Planned(
                target=f"x/{at}", requests=requests, tokens_in=1, tokens_out=1,
                each=None if dollars is None else Decimal(dollars),
            )
            for at, dollars in enumerate(each)
        )
    )  # fmt: skip


def test_requests_and_probes_at_the_targets_price() -> None:
    made = plan(PRICED, 92, 500, 500, AT)
    assert made.each == Decimal("0.005")  # (500 x 2 + 500 x 8) / 1,000,000
    assert made.dollars == Decimal("0.500")  # 92 requests and eight probes


def test_an_unknown_price_is_said_and_is_not_nothing() -> None:
    made = plan(msgspec.structs.replace(PRICED, rates=None), 92, 500, 500, AT)
    assert (made.each, made.dollars) == (None, None)
    both = CostEstimate(plans=(made, plan(PRICED, 92, 500, 500, AT)))
    assert (both.total, both.unknown) == (Decimal("0.500"), ("x/m",))
    assert "; the price of x/m is not known." in both.sentence


def test_list_prices_are_read() -> None:
    row = msgspec.structs.replace(ROW, price_provider="openai")
    target = msgspec.structs.replace(PRICED, provider=row, model="gpt-4o", rates=None)
    made = plan(target, 1, 1_000_000, 0, AT)
    assert made.each is not None
    assert made.each > 0


@pytest.mark.parametrize("kind", ["local", "hourly"])
def test_what_nobody_bills_by_the_token_is_free(kind: str) -> None:
    target = PRICED
    if kind == "local":
        target = msgspec.structs.replace(target, provider=msgspec.structs.replace(ROW, local=True))
    else:
        target = msgspec.structs.replace(target, hourly_cost=Decimal("2.69"))
    made = plan(target, 1_000_000, 9999, 9999, AT)
    assert made.dollars == 0
    assert "none of them is billed" in CostEstimate(plans=(made,)).sentence


def test_up_to_a_dollar_nobody_is_asked() -> None:
    confirm(estimate("0.01"), yes=False, ask=None, limit=None)  # exactly one dollar


def test_over_a_dollar_somebody_must_agree() -> None:
    dear = estimate("0.01", "0.0001")
    asked: list[str] = []
    with pytest.raises(UsageError, match=r"may cost 1\.01 dollars"):
        confirm(dear, yes=False, ask=None, limit=None)
    confirm(dear, yes=True, ask=None, limit=None)

    def agree(question: str) -> bool:
        asked.append(question)
        return True

    confirm(dear, yes=False, ask=agree, limit=None)
    assert "200 requests; at most 1.01 dollars" in asked[0]
    with pytest.raises(UsageError, match="not started"):
        confirm(dear, yes=False, ask=lambda _: False, limit=None)


def test_a_limit_needs_known_prices() -> None:
    with pytest.raises(UsageError, match="cannot be kept"):
        confirm(estimate("0.001", None), yes=True, ask=None, limit=Decimal(5))
    confirm(estimate("0.001", None), yes=False, ask=None, limit=None)


def test_the_guard_counts_what_was_spent() -> None:
    attempt, _ = worked()
    guard = CostGuard(Decimal("0.10"))
    for _ in range(9):
        guard.add(msgspec.structs.replace(attempt, cost_usd=Decimal("0.01")))
    assert (guard.spent, guard.room()) == (Decimal("0.09"), True)
    assert guard.room(Decimal("0.01"))
    assert not guard.room(Decimal("0.02"))  # one in flight takes what is left
    guard.add(msgspec.structs.replace(attempt, cost_usd=Decimal("0.01")))
    assert not guard.room()
    assert "0.10 of 0.10 dollars" in guard.sentence


def test_the_guard_knows_what_it_does_not_know() -> None:
    attempt, _ = worked()
    guard = CostGuard(None)
    guard.add(attempt)
    guard.add(msgspec.structs.replace(attempt, cost_source="hourly"))
    guard.add(msgspec.structs.replace(attempt, tokens_out=None))
    assert (guard.spent, guard.unpriced) == (Decimal(0), 1)
    assert guard.room(Decimal(990_000))


@pytest.mark.parametrize("limit", [Decimal(0), Decimal(-1)])
def test_no_budget_is_no_limit(limit: Decimal) -> None:
    with pytest.raises(UsageError, match="more than nothing"):
        CostGuard(limit)


def test_totals() -> None:
    assert rounded_up(Decimal("1234.5601")) == "1,234.57"


def ordered(*loads: Loading, targets: tuple[Target, ...] = (PRICED,), **given: Any) -> RunOrder:
    return RunOrder(
        targets=targets, loads=loads, wish=WorkloadWish(tokens_in=500, tokens_out=500), seed=1,
        stamps="read", at=AT, **given,
    )  # fmt: skip


def test_everything_that_may_be_sent_is_announced() -> None:
    alone = ordered(Loading(label="c=32", concurrency=32, requests=128))
    (one,) = announce(alone).plans
    assert one.requests == 128 + 2 + 40 + 64  # warm-up, ramp and fillers
    assert one.probes == MOST_PROBES
    # Two targets take turns, and the first has a twin: each has two stretches of 64.
    other = msgspec.structs.replace(PRICED, name="x/n")
    turns = ordered(*alone.loads, targets=(PRICED, other))
    plans = announce(turns).plans
    assert [plan.target for plan in plans] == ["x/m", "x/n", "x/m (twin)"]
    assert {plan.requests for plan in plans} == {128 + 2 + 2 * (40 + 64)}
    assert [plan.probes for plan in plans] == [MOST_PROBES, MOST_PROBES, 0]


def test_one_worker_sends_no_more_than_it_counts() -> None:
    (one,) = announce(ordered(Loading(label="c=1", concurrency=1, requests=96))).plans
    assert one.requests == 96 + 2


def test_a_plan_is_counted_instant_by_instant() -> None:
    pacer = Poisson(parse_rate("20/s"), seed=3)
    load = Loading(label="p", pacer=pacer, duration_ns=10 * S)
    (one,) = announce(ordered(load)).plans
    assert one.requests == sum(1 for at in itertools.islice(pacer.offsets(), 999) if at < 10 * S)


def test_time_alone_is_an_end_only_where_nothing_is_billed() -> None:
    load = Loading(label="c=8", concurrency=8, duration_ns=60 * S)
    assert "As many requests as fit" in announce(ordered(load)).sentence
    capped = msgspec.structs.replace(load, cap=most_in_time(60.0, 8, 500))
    (one,) = announce(ordered(capped)).plans
    assert one.requests > 60 * 8  # the fastest target makes one in half a second
    assert one.dollars is not None


def test_what_was_announced_is_the_limit() -> None:
    attempt, _ = worked()
    guard = CostGuard(None, Decimal("0.02"))
    assert guard.limited
    guard.add(msgspec.structs.replace(attempt, cost_usd=Decimal("0.02")))
    assert not guard.room(Decimal("0.01"))
    assert "0.02 of the 0.02 dollars that were announced are spent" in guard.sentence
    own = CostGuard(Decimal(5), Decimal("0.02"))
    own.add(msgspec.structs.replace(attempt, cost_usd=Decimal("0.02")))
    assert own.room(Decimal("0.01"))  # who gives --max-cost has chosen


def test_what_was_cut_may_be_billed_in_full() -> None:
    attempt, _ = worked()
    guard = CostGuard(None)
    guard.add(msgspec.structs.replace(attempt, outcome=Outcome.CUT, cost_usd=None), Decimal("0.5"))
    assert guard.spent == Decimal("0.5")


def test_a_conversation_and_own_prompts_are_priced_by_their_size() -> None:
    talk = Talk(turns=5, turn_tokens=100, tokens_out=100)
    assert largest(ordered(talk=talk)) == (500 + 4 * 200 // 2 + 1, 500)
    message = Message(role="user", content="x" * 4000)
    own = OwnPrompts(source="f", prompts=(OwnPrompt(messages=(message,), max_tokens=900),))
    order = msgspec.structs.replace(ordered(), wish=WorkloadWish(own=own))
    tokens_in, tokens_out = largest(order)
    assert tokens_in >= 1000
    assert tokens_out == 900
