from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.ledger.store.lengths import Lengths
from lightgate.report.tables.caps import ENOUGH, ROOM, Cap, TokenLimits, rounded, suggest

PRICES = {"a/m": Decimal("2.5"), "b/m": Decimal(10)}


def lengths(**changes: Any) -> Lengths:
    plain: dict[str, Any] = {
        "model": "fast", "key_id": None, "n": 1000, "cut": 0, "p50": 120, "p99": 400,
        "longest": 700, "speed_p50": 50.0, "targets": ("a/m", "b/m", "c/m"),
    }  # fmt: skip
    return Lengths(**(plain | changes))


def cap(limits: TokenLimits | None = None, **changes: Any) -> Cap:
    (found,) = suggest([lengths(**changes)], limits or TokenLimits(), PRICES)
    return found


def test_a_cap_has_room_above_the_longest_usual_answers() -> None:
    found = cap(TokenLimits(models={"fast": 4096}))
    assert (found.suggested, found.because) == (512, "suggested")
    assert (found.reserved_now_usd, found.reserved_usd) == (Decimal("0.04096"), Decimal("0.00512"))
    assert (found.worst_now_s, found.worst_s) == (4096 / 50, 512 / 50)


def test_without_a_cap_a_price_or_a_speed_nothing_is_made_up() -> None:
    found = cap(targets=("c/m",), speed_p50=None)
    assert found.suggested == 512
    assert (found.reserved_now_usd, found.reserved_usd, found.worst_now_s, found.worst_s) == (
        None, None, None, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"n": ENOUGH - 1}, "too few answers"),
        ({"n": 1000, "cut": 11}, "answers are cut"),
        ({"p99": 900}, "the cap is tight already"),
    ],
)
def test_nothing_is_suggested_where_it_would_be_wrong(
    changes: dict[str, Any], because: str
) -> None:
    found = cap(TokenLimits(models={"fast": 1024}), **changes)
    assert (found.suggested, found.because, found.reserved_usd) == (None, because, None)


def test_one_in_a_hundred_may_be_cut() -> None:
    assert cap(n=1000, cut=10).suggested == 512


def test_the_smallest_limit_is_the_cap() -> None:
    limits = TokenLimits(models={"fast": 2048}, keys={"k-1": 1024})
    assert cap(limits).cap == 2048
    assert cap(limits, key_id="k-1").cap == 1024
    assert cap(limits, key_id="k-2").cap == 2048
    assert cap(limits, model="else", key_id="k-2").cap is None


@given(st.floats(1, 1e6))
def test_a_rounded_cap_is_a_little_more_and_a_whole_step(tokens: float) -> None:
    found = rounded(tokens)
    assert tokens <= found < tokens + 256
    assert found % 64 == 0


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_a_suggestion_cuts_less_than_one_in_a_hundred_and_lowers_the_cap(
    p99: int, limit: int
) -> None:
    found = cap(TokenLimits(models={"fast": limit}), p99=p99)
    if found.suggested is not None:
        assert ROOM * p99 <= found.suggested < limit
