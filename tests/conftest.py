"""Fixtures that every test may use."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
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

# Files of few but long tests. They are begun first: a file goes to one worker as a whole
# (`--dist loadfile`), and the one that begins last must not keep it alone for a minute.
LONG = (
    "gateway/test_faults_pairs.py",
    "strangers/sdks/test_clients.py",
    "cli/test_up.py",
    "browser/test_every_page.py",
    "ledger/journal/test_ship.py",
    "ledger/test_kill.py",
    "route/test_worlds.py",
    "cli/test_bench_freeze.py",
    "cli/test_bench_engine.py",
    "cli/test_bench.py",
    "gateway/test_kill.py",
    "gateway/test_faults_drain.py",
    "gateway/process/test_sharing.py",
    "bench/test_selftest.py",
    "console/test_serve.py",
    "test_packaging.py",
    "test_installed.py",
    "test_readme.py",
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from own_time import OwnTime


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first; the order within a file stays."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


@pytest.fixture(scope="session")
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
