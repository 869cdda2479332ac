"""What a worker and its parts begin with: the state of each object that was just made."""

from __future__ import annotations

import pytest

from first_states import kept, state_of
from gateway.first_objects import MADE

KEPT = kept("gateway")


@pytest.mark.parametrize("name", MADE)
async def test_an_object_begins_with_nothing_done_and_nothing_seen(name: str) -> None:
    assert state_of(MADE[name]()) == KEPT[name]
