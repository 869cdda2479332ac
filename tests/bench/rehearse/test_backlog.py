"""A backlog in virtual time: every way answers all lines, and the order is what it must be."""

from __future__ import annotations

from decimal import Decimal

import pytest

from lightgate.bench.rehearse.backlog import play_backlog
from lightgate.bench.rehearse.scene import SceneChanges, scene


def test_all_targets_together_are_quicker_than_each_alone() -> None:
    wish = SceneChanges(tokens_in=50, tokens_out=100, targets=("amber/m", "birch/m"))
    made = scene("queues-2026", wish)
    rows = {row.way: row for row in play_backlog(made, 200)}
    assert set(rows) == {
        "birch/m, one at a time",
        "amber/m alone",
        "birch/m alone",
        "all, by time",
        "all, by cost",
    }
    together = rows["all, by time"].seconds
    assert together < min(rows["amber/m alone"].seconds, rows["birch/m alone"].seconds)
    assert rows["birch/m, one at a time"].seconds > 4 * rows["birch/m alone"].seconds
    assert sum(rows["all, by time"].shares.values()) == pytest.approx(1.0)
    assert {row.failed for row in rows.values()} == {0}
    assert {row.cost_usd for row in rows.values()} == {Decimal("0.09")}


def test_by_cost_the_cheapest_of_two_limited_providers_does_it() -> None:
    both = ("groq/mixtral", "together/mixtral")
    made = scene("limits-2026", SceneChanges(tokens_in=50, tokens_out=50, targets=both))
    rows = {row.way: row for row in play_backlog(made, 150)}
    assert rows["all, by cost"].shares == {"groq/mixtral": 0.0, "together/mixtral": 1.0}
    assert rows["all, by time"].seconds < rows["all, by cost"].seconds
    assert rows["all, by time"].refused <= 0.02
