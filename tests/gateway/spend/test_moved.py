"""Counters whose file is deleted under the workers: no budget begins anew, none is passed."""

from __future__ import annotations

import shutil
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from full_disk import full_disk
from lightgate.clock.source import ManualClock
from lightgate.gateway.spend.counter_file import CounterFileFailed
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, new_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOON = 1_699_963_200_000_000_000
DOLLAR = 1_000_000_000


def key(**terms: Any) -> KeyRecord:
    return new_key(KeyTerms(name="n", **terms), clock=ManualClock())[1]


KEY = key(budget_usd=Decimal(100), rpm=50)


class Workers:
    """Workers that count in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock(wall_ns=NOON)
        self.made: list[SpendCounters] = []

    def start(self, worker: int) -> SpendCounters:
        self.made.append(SpendCounters.open(self.path, worker, [KEY], clock=self.clock))
        return self.made[-1]

    def admits(self, spend: SpendCounters, dollars: int) -> bool:
        return spend.admit(KEY, self.clock.wall_ns(), 0, dollars * DOLLAR) is None

    def spent(self, spend: SpendCounters) -> tuple[float, float]:
        standing = spend.standing(KEY.id)
        assert standing is not None
        return standing.spent_nano / DOLLAR, standing.held_nano / DOLLAR


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path / "data" / "spend")
    yield made
    for one in made.made:
        one.close()


def test_all_workers_go_over_to_the_copy_and_count_on(workers: Workers) -> None:
    one, two = workers.start(0), workers.start(1)
    assert not one.keep_in_place()
    assert workers.admits(one, 10)
    assert workers.admits(two, 20)
    one.settle(KEY.id, 10 * DOLLAR, 7 * DOLLAR, 0, 0)
    for _ in range(2):  # twice
        shutil.rmtree(workers.path.parent)
        assert one.keep_in_place()
        assert workers.spent(one) == (7, 20)
        assert workers.path.stat().st_mode & 0o777 == 0o600
        assert workers.path.parent.stat().st_mode & 0o777 == 0o700
        assert two.keep_in_place()
        assert not one.keep_in_place()
        assert not two.keep_in_place()
    two.settle(KEY.id, 20 * DOLLAR, 5 * DOLLAR, 0, 0)
    assert workers.spent(one) == workers.spent(two) == (12, 0)
    assert workers.spent(workers.start(2)) == (12, 0)  # of the next start
    standing = one.standing(KEY.id)
    assert standing is not None
    assert standing.requests == 2


def test_what_is_settled_before_a_worker_goes_over_is_taken_along(workers: Workers) -> None:
    one, two = workers.start(0), workers.start(1)
    assert workers.admits(two, 30)
    workers.path.unlink()
    one.keep_in_place()
    two.settle(KEY.id, 30 * DOLLAR, 4 * DOLLAR, 0, 0)  # in the old file
    assert workers.spent(one) == (0, 30)  # more, never less
    two.keep_in_place()
    assert workers.spent(one) == (4, 0)


def test_no_two_workers_take_the_same_money_of_two_files(workers: Workers) -> None:
    """The second one has a lease of the old file, and does not know yet that it is old."""
    one, two = workers.start(0), workers.start(1)
    assert workers.admits(two, 1)
    workers.path.unlink()
    one.keep_in_place()
    admitted = sum(workers.admits(one, 1) for _ in range(45)) + 1
    admitted += 10 * sum(workers.admits(two, 10) for _ in range(4))
    admitted += 10 * sum(workers.admits(one, 10) for _ in range(4))
    assert admitted <= 100
    assert workers.spent(one) == workers.spent(two) == (0, admitted)


def test_a_worker_that_began_a_file_meanwhile_is_told_what_was_spent(workers: Workers) -> None:
    one = workers.start(0)
    assert workers.admits(one, 10)
    one.settle(KEY.id, 10 * DOLLAR, 7 * DOLLAR, 0, 0)
    assert workers.admits(one, 3)
    workers.path.unlink()
    fresh = workers.start(1)
    assert workers.spent(fresh) == (0, 0)
    assert one.keep_in_place()
    assert workers.spent(fresh) == workers.spent(one) == (7, 3)
    one.settle(KEY.id, 3 * DOLLAR, 1 * DOLLAR, 0, 0)
    assert workers.spent(fresh) == (8, 0)


def test_an_older_copy_that_was_put_back_does_not_lower_a_spend(
    workers: Workers, tmp_path: Path
) -> None:
    one = workers.start(0)
    shutil.copy(workers.path, tmp_path / "backup")
    assert workers.admits(one, 9)
    one.settle(KEY.id, 9 * DOLLAR, 9 * DOLLAR, 0, 0)
    (tmp_path / "backup").replace(workers.path)
    assert one.keep_in_place()
    assert workers.spent(one) == (9, 0)


def test_workers_that_are_not_here_yet_are_not_charged_as_dead(workers: Workers) -> None:
    one, two = workers.start(0), workers.start(1)
    assert workers.admits(two, 20)
    workers.path.unlink()
    one.keep_in_place()
    one.charge_dead()
    two.keep_in_place()
    two.settle(KEY.id, 20 * DOLLAR, 5 * DOLLAR, 0, 0)
    assert workers.spent(one) == (5, 0)


def test_a_full_disk_leaves_the_open_file_in_use(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = workers.start(0)
    assert workers.admits(one, 10)
    workers.path.unlink()
    with monkeypatch.context() as patched:
        full_disk(patched)
        with pytest.raises(CounterFileFailed, match="No space left on device"):
            one.keep_in_place()
    assert workers.admits(one, 5)
    assert workers.spent(one) == (0, 15)
    assert one.keep_in_place()
    assert workers.spent(one) == (0, 15)


def test_a_copy_that_was_deleted_too_is_made_by_the_worker_that_counts_in_it(
    workers: Workers,
) -> None:
    one, two = workers.start(0), workers.start(1)
    assert workers.admits(two, 20)
    workers.path.unlink()
    one.keep_in_place()
    assert workers.admits(one, 10)
    workers.path.unlink()
    assert not two.keep_in_place()
    assert one.keep_in_place()
    assert two.keep_in_place()
    assert workers.spent(two) == (0, 30)
