"""Fixtures that every test may use."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import own_time

# The same examples in every run: a failure is found again, and CI is not a lottery. No deadline,
# and no stopwatch on the making of examples: a busy machine is not a defect.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from own_time import OwnTime


@pytest.fixture
def missing() -> Callable[[str], None]:
    """What to do when a part of the machine is missing: skip, or fail where all must be there."""

    def say(reason: str) -> None:
        if os.environ.get("LIGHTGATE_REQUIRE_ALL"):
            pytest.fail(reason)
        pytest.skip(reason)

    return say


@pytest.fixture
async def own(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OwnTime]:
    """No deadline depends on the machine: all that is waited for happens in this loop."""
    with own_time.kept(asyncio.get_running_loop(), monkeypatch) as own:
        yield own
