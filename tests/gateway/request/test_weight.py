"""The weight of a body: what the loop reads itself, and what is too much for anybody."""

from __future__ import annotations

import pytest

from lightgate.gateway.request.weight import (
    HEAVY_BYTES,
    MOST_COMMAS,
    MOST_LINES,
    MOST_NESTS,
    TooManyValues,
    check_values,
    is_heavy,
)


@pytest.mark.parametrize(
    ("body", "heavy"),
    [
        (b"a" * HEAVY_BYTES, False),
        (b"a" * (HEAVY_BYTES + 1), True),
        (b"{" * MOST_NESTS, False),
        (b"{" * MOST_NESTS + b"[", True),
        (b"," * MOST_COMMAS, False),
        (b"," * (MOST_COMMAS + 1), True),
        (b"\\n" * MOST_LINES, False),
        (b"\\n" * (MOST_LINES + 1), True),
    ],
)
def test_the_limits_of_the_loop(body: bytes, heavy: bool) -> None:
    assert is_heavy(body) is heavy


@pytest.mark.parametrize(
    "body",
    [
        b"[[],[],[]]",
        b'{"text":"{{{{[[[[ \\" {{{{","more":[{}]}',
        b'["\\\\",[],[]]',
    ],
)
def test_braces_in_texts_are_no_values(body: bytes) -> None:
    check_values(body, 4)


@pytest.mark.parametrize(
    ("body", "most"),
    [(b"[[],[],[]]", 3), (b'{"text":"{{{{","more":[{}]}', 2), (b'["\\\\",[],[],"\\\\\\""]', 2)],
)
def test_too_many_values_are_refused(body: bytes, most: int) -> None:
    with pytest.raises(TooManyValues, match=f"more than {most} JSON objects"):
        check_values(body, most)


def test_no_limit_is_no_limit() -> None:
    check_values(b"[" * 1000, 0)
