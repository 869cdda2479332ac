"""Fixtures that every test may use."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import own_time
from lightgate.ledger.store.store import Ledger
from postgres import PostgresServer
from postgres import programs as postgres_programs

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
    from collections.abc import AsyncIterator, Callable, Generator, Iterator

    from own_time import OwnTime


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let every worker begin to collect at another place of a folder.

    In a fresh clone each file of tests is compiled once, which takes longer than its import: each
    worker then compiles other files, and finds those of the others compiled.
    """
    report = yield
    if isinstance(collector, pytest.Directory) and report.passed:
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        first = len(report.result) * worker // workers
        report.result = report.result[first:] + report.result[:first]
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first, the others by name; the order within a file stays."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: (places.get(item.path, len(LONG)), item.path))


def pytest_configure() -> None:
    """Collect no garbage while tests are collected: there is none, and the search takes 10 s."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Set half a million objects of the collected tests aside.

    The collector of garbage would look at all of them again, for a quarter of a second, whenever
    a test collects.
    """
    gc.enable()
    gc.collect()
    gc.freeze()


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


# Quicker than a new database: days are dropped, all other rows deleted.
_EMPTY = """
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r' LOOP
    EXECUTE format('DROP TABLE %I', name);
  END LOOP;
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public'
      AND tablename NOT IN ('alembic_version', 'meta') LOOP
    EXECUTE format('DELETE FROM %I', name);
  END LOOP;
  DELETE FROM meta WHERE meta.name = 'copied from';
END $$
"""


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One real PostgreSQL for all tests of this process, with a database for each that asks."""
    found = postgres_programs()
    if found is None:
        reason = "PostgreSQL is not installed (Debian: apt-get install postgresql)"
        if os.environ.get("LIGHTGATE_REQUIRE_ALL"):
            pytest.fail(reason)
        pytest.skip(reason)
    with PostgresServer(found) as server:
        yield server


@pytest.fixture(scope="session")
def migrated(postgres: PostgresServer) -> str:
    """The name of a database with the tables of an empty ledger, to be copied."""
    postgres.run("CREATE DATABASE ledger TEMPLATE template0")
    Ledger.open(postgres.url("ledger")).close()
    return "ledger"


@pytest.fixture
def postgres_url(postgres: PostgresServer, migrated: str) -> str:
    """The URL of an empty ledger in PostgreSQL; the same database for all, emptied for each."""
    postgres.run(_EMPTY, migrated)
    return postgres.url(migrated)


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty ledger: a test that asks for it runs with both databases.

    "sqlite" stands for the file in the data folder, which the test makes.
    """
    if request.param == "sqlite":
        return "sqlite"
    url: str = request.getfixturevalue("postgres_url")
    return url
