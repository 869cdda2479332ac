from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest

from bench.test_rules import worked
from lightgate.bench.run.budget import (
    CostEstimate,
    CostGuard,
    Planned,
    confirm,
    plan,
    rounded_up,
)
from lightgate.errors import UsageError
from lightgate.price.rates import Rates
from lightgate.provider.catalogue import Provider
from lightgate.provider.target import Target

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
