"""Counters whose file is cut off or written over under the workers: nothing crashes, and no budget
is spent twice: keys with one are refused until the ledger has said what was spent.
"""

from __future__ import annotations

import os
import shutil
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from full_disk import full_disk
from lightgate.clock.source import ManualClock
from lightgate.gateway.spend.counter_file import HEADER_WORDS, SLOT_WORDS, WORD, CounterFileFailed
from lightgate.gateway.spend.counters import CHARGED, SpendCounters
from lightgate.gateway.spend.denial import RECOUNT_S
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, new_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NOON = 1_699_963_200_000_000_000
DOLLAR = 1_000_000_000
SECOND = 1_000_000_000


def key(**terms: Any) -> KeyRecord:
    return new_key(KeyTerms(name="n", **terms), clock=ManualClock())[1]


KEY = key(budget_usd=Decimal(100))
OTHER = key(budget_usd=Decimal(10))
PER_MINUTE = key(rpm=5)
EVERY = (KEY, OTHER, PER_MINUTE)


class Workers:
    """Workers that count in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock(now_ns=7 * SECOND, wall_ns=NOON)
        self.made: list[SpendCounters] = []

    def start(self, worker: int) -> SpendCounters:
        self.made.append(SpendCounters.open(self.path, worker, EVERY, clock=self.clock))
        return self.made[-1]

    def asks(self, spend: SpendCounters, dollars: int, record: KeyRecord = KEY) -> str:
        """Why a request is refused; nothing where it is not."""
        denied = spend.admit(record, self.clock.wall_ns(), 0, dollars * DOLLAR)
        return "" if denied is None else denied.reason

    def spent(self, spend: SpendCounters, record: KeyRecord = KEY) -> tuple[float, float]:
        standing = spend.standing(record.id)
        assert standing is not None
        return standing.spent_nano / DOLLAR, standing.held_nano / DOLLAR


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path / "spend")
    yield made
    for one in made.made:
        one.close()


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def halved(path: Path) -> None:
    os.truncate(path, (HEADER_WORDS + SLOT_WORDS // 2) * WORD)


def zeroed(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))


def begun_anew(path: Path) -> None:
    """What a worker does that is started between: the file is as large as it was, and empty."""
    os.truncate(path, 0)
    SpendCounters.open(path, 9).close()


DAMAGES = pytest.mark.parametrize("damage", [emptied, halved, zeroed, begun_anew])


@DAMAGES
def test_budgets_wait_for_the_ledger_and_go_on_from_it(
    workers: Workers, damage: Callable[[Path], None]
) -> None:
    one, two = workers.start(0), workers.start(1)
    one.load_spend(KEY.id, 20 * DOLLAR)  # of earlier lives
    assert [workers.asks(one, 10), workers.asks(two, 5), workers.asks(one, 2)] == ["", "", ""]
    one.settle(KEY.id, 10 * DOLLAR, 7 * DOLLAR, 0, 0)
    damage(workers.path)
    # The ledger has 30 of the spend and both reservations, 7 dollars, among what is spent.
    assert workers.asks(one, 1) == "counters"
    assert workers.asks(two, 1) == "counters"
    one.keep_in_place()  # where the question before has not gone over to the new file yet
    assert not one.keep_in_place()
    two.settle(KEY.id, 5 * DOLLAR, 3 * DOLLAR, 0, 0)
    assert workers.asks(one, 0, PER_MINUTE) == ""  # nothing is said of money
    assert [spend.recounts for spend in (one, two)] == [False, False]
    workers.clock.advance(int(RECOUNT_S * SECOND))
    assert [spend.recounts for spend in (one, two)] == [True, True]
    assert workers.asks(one, 1) == "counters"
    one.recount(EVERY, {KEY.id: 32 * DOLLAR, OTHER.id: 9 * DOLLAR})
    assert [spend.recounts for spend in (one, two)] == [False, False]
    assert workers.spent(one) == workers.spent(two) == (30, 2)
    assert workers.asks(one, 69) == "budget"
    assert workers.asks(two, 68) == ""
    assert workers.asks(two, 2, OTHER) == "budget"
    assert workers.asks(one, 1, OTHER) == ""


@DAMAGES
def test_what_workers_know_themselves_is_never_forgotten(
    workers: Workers, damage: Callable[[Path], None]
) -> None:
    """A ledger that knows less, since a disk was full, lowers nothing; nothing is counted twice."""
    one, two = workers.start(0), workers.start(1)
    one.load_spend(KEY.id, 20 * DOLLAR)
    for spend, cost in ((one, 4), (two, 6), (one, 1)):
        assert workers.asks(spend, 10) == ""
        spend.settle(KEY.id, 10 * DOLLAR, cost * DOLLAR, 0, 0)
    assert workers.asks(two, 9) == ""
    damage(workers.path)
    for spend in (one, two):
        workers.asks(spend, 1)
    workers.clock.advance(int(RECOUNT_S * SECOND))
    two.recount(EVERY, {})
    assert workers.spent(one) == workers.spent(two) == (31, 9)


def test_a_settlement_alone_finds_the_damage(workers: Workers) -> None:
    one = workers.start(0)
    assert workers.asks(one, 10) == ""
    emptied(workers.path)
    one.settle(KEY.id, 10 * DOLLAR, 7 * DOLLAR, 0, 0)
    assert workers.spent(one) == (7, 0)
    assert workers.asks(one, 1) == "counters"


def test_an_older_copy_that_was_written_into_the_file_gives_nothing_back(
    workers: Workers, tmp_path: Path
) -> None:
    one = workers.start(0)
    assert workers.asks(one, 10) == ""
    shutil.copy(workers.path, tmp_path / "backup")
    one.settle(KEY.id, 10 * DOLLAR, 9 * DOLLAR, 0, 0)
    shutil.copy(tmp_path / "backup", workers.path)
    assert workers.asks(one, 1) == "counters"
    workers.clock.advance(int(RECOUNT_S * SECOND))
    one.recount(EVERY, {})
    assert workers.spent(one) == (9, 0)


def test_every_look_at_counters_survives_a_file_that_is_cut_off(workers: Workers) -> None:
    looks: list[Callable[[SpendCounters], object]] = [
        lambda spend: spend.standing(KEY.id),
        lambda spend: spend.own_part(KEY),
        lambda spend: spend.left_nano(KEY),
        lambda spend: spend.load_spend(KEY.id, 1),
        lambda spend: spend.charge_dead(),
        lambda spend: spend.add([key(rpm=1)]),
        lambda spend: spend.keep_in_place(),
    ]
    for number, look in enumerate(looks):
        spend = workers.start(number)
        assert workers.asks(spend, 0, PER_MINUTE) in {"", "rpm"}
        emptied(workers.path)
        look(spend)
        workers.made.remove(spend)
        emptied(workers.path)
        spend.close()


def test_on_a_full_disk_what_is_settled_stays_known(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = workers.start(0)
    assert workers.asks(one, 10) == ""
    assert workers.asks(one, 20) == ""
    emptied(workers.path)
    with monkeypatch.context() as patched:
        full_disk(patched)
        with pytest.raises(CounterFileFailed, match="No space left on device"):
            workers.asks(one, 1)
        one.settle(KEY.id, 10 * DOLLAR, 7 * DOLLAR, 0, 0)
    assert workers.asks(one, 1) == "counters"
    assert workers.spent(one) == (7, 20)


@pytest.mark.parametrize(("more", "left"), [(0, 20), (5, 15), (25, 0)])
def test_on_a_full_disk_no_less_than_nothing_is_reserved(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, more: int, left: int
) -> None:
    record = key(budget_usd=Decimal(100), tpm=1000)
    one = workers.start(0)
    for _ in range(2):
        assert one.admit(record, NOON, 10, 10 * DOLLAR) is None
    emptied(workers.path)
    full_disk(monkeypatch)
    one.settle(record.id, more * DOLLAR, 7 * DOLLAR, more, 3)
    lease = one._leases[record.id]
    assert (lease.spent, lease.held, lease.held_tokens) == (7 * DOLLAR, left * DOLLAR, left)


@pytest.mark.parametrize("word", ["held_at", "spent_at"])
def test_one_word_that_was_written_over_is_enough(workers: Workers, word: str) -> None:
    one = workers.start(0)
    assert workers.asks(one, 10) == ""
    one._file.words[getattr(one._leases[KEY.id], word)] += 1
    assert workers.asks(one, 1) == "counters"
    assert workers.spent(one) == (0, 10)


def test_nobody_is_charged_in_a_file_that_was_cut_off(workers: Workers) -> None:
    one = workers.start(0)
    assert workers.asks(one, 10) == ""
    emptied(workers.path)
    assert not one.charge_dead()


def test_a_worker_says_whether_it_found_an_empty_file(workers: Workers) -> None:
    assert workers.start(0).fresh
    assert not workers.start(1).fresh
    again = workers.start(2)
    again.mark_lost()
    assert workers.asks(again, 1) == "counters"


def test_keys_of_a_dead_worker_are_looked_at_in_parts(workers: Workers) -> None:
    many = [key(budget_usd=Decimal(1)) for _ in range(5)]
    dead = workers.start(0)
    for record in many:
        assert dead.admit(record, NOON, 0, DOLLAR // 2) is None
    alive = workers.start(1)
    alive.add(many)
    assert CHARGED >= 100
    assert not alive.charge_dead(2)  # it lives
    workers.made.remove(dead)
    dead._file.close()  # as a kill does: nothing is given back
    calls = [alive.charge_dead(2) for _ in range(6)]
    assert calls == [True, True, True, False, False, False]
    standings = [alive.standing(record.id) for record in many]
    assert [one.spent_nano for one in standings if one is not None] == 5 * [DOLLAR // 2]


def test_a_life_that_follows_is_charged_from_the_first_key_on(workers: Workers) -> None:
    many = [key(budget_usd=Decimal(10)) for _ in range(3)]
    alive = workers.start(1)
    alive.add(many)

    def live_and_die(dollars: int) -> None:
        other = workers.start(0)
        assert not alive.charge_dead()
        for record in many:
            assert other.admit(record, NOON, 0, dollars * DOLLAR) is None
        workers.made.remove(other)
        other._file.close()  # as a kill does

    def spent() -> list[float]:
        return [workers.spent(alive, record)[0] for record in many]

    live_and_die(1)
    assert alive.charge_dead(len(EVERY) + 1)
    assert spent() == [1, 0, 0]
    live_and_die(2)
    assert not alive.charge_dead()
    assert spent() == [3, 3, 3]
    assert alive._charging == {}


def test_what_was_left_to_charge_of_the_old_file_is_forgotten_with_it(workers: Workers) -> None:
    many = [key(budget_usd=Decimal(1)) for _ in range(5)]
    alive, dead = workers.start(0), workers.start(1)
    for record in many:
        assert dead.admit(record, NOON, 0, DOLLAR // 2) is None
    workers.made.remove(dead)
    dead._file.close()  # as a kill does
    assert alive.charge_dead(2)
    emptied(workers.path)
    assert alive.keep_in_place()
    SpendCounters.open(workers.path, 2).close()  # now the dead one is among the file's workers
    assert not alive.charge_dead(2)


def test_going_over_to_an_empty_file_is_said_and_lets_the_old_one_go(workers: Workers) -> None:
    one = workers.start(0)
    assert workers.asks(one, 10) == ""
    before = len(os.listdir("/proc/self/fd"))
    emptied(workers.path)
    assert [one.keep_in_place(), one.keep_in_place()] == [True, False]
    assert len(os.listdir("/proc/self/fd")) == before
    workers.path.unlink()
    assert [one.keep_in_place(), one.keep_in_place()] == [True, False]
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_worker_that_dies_after_it_went_over_is_charged(workers: Workers) -> None:
    one, two = workers.start(0), workers.start(1)
    assert workers.asks(one, 10) == ""
    emptied(workers.path)
    assert [one.keep_in_place(), two.keep_in_place()] == [True, True]
    assert not two.charge_dead()  # it lives, in the new file too
    assert workers.spent(one) == (0, 10)
    workers.made.remove(one)
    one._file.close()  # as a kill does
    assert not two.counts(KEY.id)  # which has met the key in the old file alone
    assert not two.charge_dead()
    two.add([KEY])
    assert workers.spent(two) == (10, 0)


def test_counters_are_lost_from_an_instant_of_the_clock_on(workers: Workers) -> None:
    workers.clock.advance(1000 * SECOND)
    one = workers.start(0)
    assert not one.recounts
    one.mark_lost()
    assert (one._file.lost, one.recounts) == (1007 * SECOND, False)
    workers.clock.advance(int(RECOUNT_S * SECOND) - 1)
    assert not one.recounts
    workers.clock.advance(1)
    assert one.recounts


def test_counters_can_be_lost_when_a_clock_begins(tmp_path: Path) -> None:
    clock = ManualClock(now_ns=0, wall_ns=NOON)
    with SpendCounters.open(tmp_path / "spend", 0, EVERY, clock=clock) as spend:
        spend.mark_lost()
        assert spend._file.lost == 1  # 0 says that nothing is missing
        denied = spend.admit(KEY, NOON, 0, DOLLAR)
        assert denied is not None
        assert denied.reason == "counters"


def test_a_worker_that_has_met_no_key_counts_what_the_ledger_says(workers: Workers) -> None:
    spend = SpendCounters.open(workers.path, 0, [OTHER], clock=workers.clock)
    workers.made.append(spend)
    lease = spend._leases[OTHER.id]
    spend.mark_lost()
    told = {KEY.id: 30 * DOLLAR, OTHER.id: 4 * DOLLAR, "deleted": 5 * DOLLAR}
    spend.recount(EVERY, told, last=False)
    assert workers.spent(spend) == (30, 0)
    assert workers.spent(spend, OTHER) == (4, 0)
    assert spend._leases[OTHER.id] is lease
    assert [spend.counts(name) for name in (KEY.id, PER_MINUTE.id, "deleted")] == [
        True, False, False,
    ]  # fmt: skip
    assert workers.asks(spend, 1) == "counters"  # more may follow
    spend.recount((), {})
    assert workers.asks(spend, 1) == ""
