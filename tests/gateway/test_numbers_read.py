"""Numbers that clients and providers wrote are read by the gateway in a bounded time."""

from __future__ import annotations

import pytest

from dialect.neutral.test_numbers import slow_decoders


@pytest.mark.parametrize("room", ["request", "kept", "exchange"])
def test_values_of_any_kind_are_read_by_the_reader_of_numbers(room: str) -> None:
    assert slow_decoders(f"gateway.{room}") == []
