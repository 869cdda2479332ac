"""What an answer costs on each of several targets, whose prices may not be known."""

from __future__ import annotations

import pytest

from lightgate.route.plan.hedge import TargetPrice
from lightgate.route.plan.score import costs

PRICES = {
    "a/m": TargetPrice(2.0, 8.0, 0.5, True),
    "b/m": TargetPrice(0.0, 1.0, 0.0, True),
    "c/m": TargetPrice(5.0, 0.0, 5.0, False),
}


@pytest.mark.parametrize(
    ("targets", "found"),
    [
        ((), []),
        (("a/m", "b/m", "c/m"), [280.0, 10.0, 500.0]),
        (("c/m", "a/m"), [500.0, 280.0]),
        (("x/m",), [0.0]),
        (("x/m", "y/m"), [0.0, 0.0]),
        (("a/m", "x/m", "b/m"), [280.0, 280.0, 10.0]),
        (("x/m", "b/m"), [10.0, 10.0]),
    ],
)
def test_the_cost_on_each_target(targets: tuple[str, ...], found: list[float]) -> None:
    """100 tokens in and 10 out; an unknown price is the dearest known."""
    assert costs(targets, PRICES, 100, 10) == found
