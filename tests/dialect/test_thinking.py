"""How many tokens a model of Anthropic's thinks with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.dialect.anthropic.thinking import _budget


@pytest.mark.parametrize(
    ("asked", "cap", "strict", "found"),
    [
        (2000, 4000, False, 2000),
        (3999, 4000, False, 3999),
        (4000, 4000, False, 2000),
        (4000, 4000, True, 4000),
        (9000, 4000, False, 2000),
        (9000, 1500, False, 1024),
        (9000, 1025, False, 1024),
        (9000, 1024, False, None),  # no room below the cap
        (9000, 100, False, None),
        (9000, 100, True, 9000),
    ],
)
def test_a_budget_stays_below_the_cap(
    asked: int, cap: int, strict: bool, found: int | None
) -> None:
    generation: Any = SimpleNamespace(tokens=lambda wish: asked, least=1024)
    assert _budget("high", generation, cap, strict=strict) == found
