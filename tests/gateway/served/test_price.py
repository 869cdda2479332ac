"""Money as it is shown: exact, and never in powers of ten."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.gateway.served.price import dollars


@given(st.integers(0, 10**18))
def test_dollars_are_exact(nano_usd: int) -> None:
    said = dollars(nano_usd)
    assert Decimal(said) * 10**9 == nano_usd
    assert set(said) <= set("0123456789.")


@pytest.mark.parametrize(
    ("nano_usd", "said"), [(0, "0"), (1, "0.000000001"), (4500, "0.0000045"), (10**10, "10")]
)
def test_dollars_are_short(nano_usd: int, said: str) -> None:
    assert dollars(nano_usd) == said
