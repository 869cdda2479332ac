"""What routing believes before anything was seen: the state of each object that was just made."""

from __future__ import annotations

import pytest

from first_states import kept, state_of
from route.first_objects import MADE

KEPT = kept("route")


@pytest.mark.parametrize("name", MADE)
def test_an_object_begins_with_what_is_believed_before_anything_was_seen(name: str) -> None:
    assert state_of(MADE[name]()) == KEPT[name]
