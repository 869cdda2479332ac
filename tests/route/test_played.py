"""A played day ends as it did: every number that is learned and every plan that is made by it."""

from __future__ import annotations

import pytest

from route.played import PLAYED, kept

KEPT = kept()


@pytest.mark.parametrize("name", PLAYED)
def test_what_is_learned_and_planned_on_a_played_day_is_what_it_was(name: str) -> None:
    known, played = KEPT[name], PLAYED[name]()
    different = [(was, now) for was, now in zip(known, played, strict=True) if was != now]
    assert different[:1] == [], "If this is meant: python -m route.played, in tests/."
