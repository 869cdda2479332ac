"""Fixtures that every test may use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def missing() -> Callable[[str], None]:
    """What to do when a part of the machine is missing: skip, or fail where all must be there."""

    def say(reason: str) -> None:
        if os.environ.get("LIGHTGATE_REQUIRE_ALL"):
            pytest.fail(reason)
        pytest.skip(reason)

    return say
