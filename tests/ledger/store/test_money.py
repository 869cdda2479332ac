"""Dollars on their way into a database and out of it, exactly."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from lightgate.ledger.store.schema import Money, money_text

SQLITE, SERVER = sqlite.dialect(), postgresql.dialect()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("stored", "taken"),
    [
        (None, "None"),
        ("0.000000001", "1E-9"),  # SQLite's text
        ("12.5", "12.5"),
        (Decimal("12.500000000000"), "12.500000000"),  # a server's, with all its decimals
        (Decimal("0.000000000000"), "0E-9"),
        (Decimal("0.000000000001"), "1E-12"),  # less than a nano-dollar stays what it is
    ],
)
def test_what_was_stored_comes_back_with_the_decimals_of_nano_dollars(
    stored: Any, taken: str
) -> None:
    assert str(Money().process_result_value(stored, SERVER)) == taken


def test_a_database_without_exact_numbers_is_given_text() -> None:
    small = Decimal("1E-9")
    assert Money().process_bind_param(small, SQLITE) == "0.000000001"
    assert Money().process_bind_param(small, SERVER) == small
    assert Money().process_bind_param(None, SQLITE) is None
    assert isinstance(Money().load_dialect_impl(SQLITE), sa.Text)
    exact = Money().load_dialect_impl(SERVER)
    assert isinstance(exact, sa.Numeric)
    assert (exact.precision, exact.scale) == (28, 12)
    assert (money_text(Decimal("1E+2")), money_text(None)) == ("100", None)
