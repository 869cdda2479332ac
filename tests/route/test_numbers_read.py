"""Numbers that clients wrote are read by the route in a bounded time."""

from __future__ import annotations

from dialect.neutral.test_numbers import slow_decoders


def test_values_of_any_kind_are_read_by_the_reader_of_numbers() -> None:
    assert slow_decoders("route") == []
