"""Going over to another counter file, word by word, and under which locks."""

from __future__ import annotations

import shutil
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.spend import moved
from lightgate.gateway.spend.counter_file import GROWTH, WHOLE, CounterFile
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.gateway.spend.shares import (
    BASE,
    HELD,
    HELD_TOKENS,
    OWN_PERIOD,
    OWN_WORDS,
    PERIOD,
    REQUEST_LIMIT,
    REQUESTS,
    SPEND_LIMIT,
    SPENT,
    TOKEN_LIMIT,
    TOKENS,
    Lease,
    SeenSpend,
    place_of,
)
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, new_key

if TYPE_CHECKING:
    from pathlib import Path

NOW = 8  # a period; they differ by 4


def key(**terms: Any) -> KeyRecord:
    return new_key(KeyTerms(name="n", **terms), clock=ManualClock())[1]


KEY = key(budget_usd=Decimal(100), rpm=50)
# What a worker has in its own words: each number another, the limits far above the counts.
ROW = {HELD: 20, SPENT: 30, SPEND_LIMIT: 999, REQUESTS: 4, REQUEST_LIMIT: 999, HELD_TOKENS: 50,
       TOKENS: 60, TOKEN_LIMIT: 999}  # fmt: skip


class Pair:
    """An old file with a key of worker 1 in it, and a new one in which another key came first."""

    def __init__(self, folder: Path) -> None:
        self.old, self.new = CounterFile(folder / "old"), CounterFile(folder / "new")
        for file in (self.old, self.new):
            file.take_worker(1)
        self.new.place("another")
        self.lease = Lease(KEY, self.old.place(KEY.id), 1, 0)
        self.lease.until_ns = 77
        self.words(self.old, ROW, period=NOW)

    def words(self, file: CounterFile, row: dict[int, int], *, period: int, base: int = 0) -> None:
        """Let a file know this of the key and of worker 1."""
        slot = file.place(KEY.id)
        file.words[slot.at + PERIOD], file.words[slot.at + BASE] = period, base
        own = place_of(slot, 1)
        file.words[own + OWN_PERIOD] = period
        for at, word in row.items():
            file.words[own + at] = word

    def carry(self, *, copied: bool) -> dict[int, int]:
        """The own words in the new file, once they were taken along."""
        moved.carry([(KEY.id, self.lease)], self.old, self.new, 1, copied=copied)
        slot = self.new.place(KEY.id)
        assert (self.lease.slot, self.lease.at) == (slot, place_of(slot, 1))
        assert self.lease.until_ns == 0  # the next request asks again
        return dict(enumerate(self.new.words[self.lease.at : self.lease.at + OWN_WORDS]))

    def base(self) -> int:
        return self.new.words[self.new.place(KEY.id).at + BASE]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_to_a_copy_all_own_words_go_along_and_the_limits_fall_to_what_is_used(pair: Pair) -> None:
    found = pair.carry(copied=True)
    counts = {at: word for at, word in ROW.items() if word != 999}
    limits = {SPEND_LIMIT: 50, REQUEST_LIMIT: 4, TOKEN_LIMIT: 110}
    assert found.items() >= (counts | limits | {OWN_PERIOD: NOW}).items()
    lease = pair.lease
    assert (lease.spent, lease.held, lease.requests) == (30, 20, 4)
    assert (lease.tokens, lease.held_tokens) == (60, 50)
    assert pair.base() == 0


def test_without_the_old_file_the_limits_fall_to_what_the_worker_knows(pair: Pair) -> None:
    """The new file may have limits of an earlier life; a worker asks before it takes more."""
    lease = pair.lease
    lease.spent, lease.held, lease.held_tokens = 30, 20, 50
    lease.seen = SeenSpend(NOW, 5, [0, 30])
    pair.words(pair.new, {SPENT: 10, SPEND_LIMIT: 999, TOKEN_LIMIT: 999}, period=NOW)
    kept = moved.carry_known([(KEY.id, lease)], pair.new, 1)
    assert kept == {KEY.id: lease}
    assert lease.until_ns == 0
    found = dict(enumerate(pair.new.words[lease.at : lease.at + OWN_WORDS]))
    assert (found[SPENT], found[HELD], found[HELD_TOKENS]) == (30, 20, 50)
    assert (found[SPEND_LIMIT], found[TOKEN_LIMIT], found[OWN_PERIOD]) == (50, 50, NOW)


@pytest.mark.parametrize(
    ("seen", "spent", "others", "own"),
    [([10, 30], 35, 10, 35), ([10, 30], 3, 10, 30), ([10], 35, 10, 35), ([], 0, 0, 0)],
)
def test_into_an_empty_file_goes_what_a_worker_knows_of_itself_and_others(
    pair: Pair, seen: list[int], spent: int, others: int, own: int
) -> None:
    lease = pair.lease
    lease.spent, lease.held, lease.held_tokens = spent, 20, 50
    lease.seen = SeenSpend(NOW, 5, seen)
    moved.carry_known([(KEY.id, lease)], pair.new, 1)
    words, slot = pair.new.words, lease.slot
    found = dict(enumerate(words[lease.at : lease.at + OWN_WORDS]))
    assert (found[OWN_PERIOD], found[SPENT], found[HELD], found[HELD_TOKENS]) == (NOW, own, 20, 50)
    assert (words[slot.at + PERIOD], words[slot.at + BASE]) == (NOW, 5)
    assert words[place_of(slot, 0) + SPENT] == others
    assert (lease.spent, lease.held, lease.held_tokens) == (own, 20, 50)


def test_a_spend_of_another_period_does_not_go_along(pair: Pair) -> None:
    lease = pair.lease
    lease.spent, lease.held, lease.seen = 35, 20, SeenSpend(NOW, 5, [10, 30])
    pair.words(pair.new, {}, period=NOW + 4)
    moved.carry_known([(KEY.id, lease)], pair.new, 1)
    assert (lease.spent, lease.held) == (0, 20)


def test_keys_of_which_nothing_is_known_get_no_slot(pair: Pair) -> None:
    pair.lease.seen = SeenSpend(NOW, 5, [10])
    nothing = Lease(KEY, pair.lease.slot, 1, 0)
    kept = moved.carry_known([("nothing", nothing), (KEY.id, pair.lease)], pair.new, 1)
    assert kept == {KEY.id: pair.lease}
    assert [name for name, _ in pair.new.slots()] == ["another", KEY.id]


def test_what_a_worker_knows_is_written_under_the_lock_of_the_slot(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    pair.lease.held = 20
    for name in ("lock", "unlock"):
        monkeypatch.setattr(CounterFile, name, lambda _, slot, name=name: done.append((name, slot)))
    monkeypatch.setattr(Lease, "give_back", lambda *_: done.append("written"))
    moved.carry_known([(KEY.id, pair.lease)], pair.new, 1)
    slot = pair.lease.slot
    assert done[-3:] == [("lock", slot), "written", ("unlock", slot)]


@pytest.mark.parametrize("fails", [False, True])
def test_a_file_is_given_up_under_its_lock(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    done: list[Any] = []

    def give_up(_: CounterFile, now_ns: int) -> None:
        done.append(now_ns)
        if fails:
            raise OSError

    for name in ("lock", "unlock"):
        monkeypatch.setattr(CounterFile, name, lambda _, slot, name=name: done.append((name, slot)))
    monkeypatch.setattr(CounterFile, "give_up", give_up)
    if fails:
        with pytest.raises(OSError):  # noqa: PT011 - of this test
            moved.renewed(pair.old, 7)
    else:
        moved.renewed(pair.old, 7).close()
    assert (done[:2], done[-1]) == ([("lock", WHOLE), 7], ("unlock", WHOLE))


@pytest.mark.parametrize(
    ("known", "base", "after"),
    [(0, 0, 30), (10, 5, 20), (25, 5, 5), (40, 5, 5)],  # spent by the worker itself, and beside
)
def test_a_file_that_is_no_copy_gets_the_spend_that_it_does_not_know(
    pair: Pair, known: int, base: int, after: int
) -> None:
    pair.words(pair.new, {SPENT: known, HELD: 3, SPEND_LIMIT: 999}, period=NOW, base=base)
    found = pair.carry(copied=False)
    assert pair.base() == after
    assert (found[SPENT], found[HELD], found[HELD_TOKENS]) == (known, 20, 50)
    assert (found[OWN_PERIOD], found[SPEND_LIMIT]) == (NOW, known + 20)
    assert (pair.lease.spent, pair.lease.held, pair.lease.held_tokens) == (known, 20, 50)


def test_what_a_file_knows_of_an_earlier_period_does_not_count(pair: Pair) -> None:
    pair.words(pair.new, {SPENT: 500, HELD: 3}, period=NOW - 4, base=700)
    found = pair.carry(copied=False)
    assert (found[SPENT], found[OWN_PERIOD], pair.base()) == (0, NOW, 30)
    assert pair.new.words[pair.lease.slot.at + PERIOD] == NOW


def test_own_words_of_an_earlier_period_do_not_count(pair: Pair) -> None:
    pair.words(pair.new, {SPENT: 500}, period=NOW, base=10)
    own = place_of(pair.new.place(KEY.id), 1)
    pair.new.words[own + OWN_PERIOD] = NOW - 4
    found = pair.carry(copied=False)
    assert (found[SPENT], found[OWN_PERIOD], pair.base()) == (0, NOW, 30)


# Locks


class Log:
    """What is done to files, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[Any] = []
        for name in ("lock", "unlock", "copy"):
            self._watch(monkeypatch, name, getattr(CounterFile, name))
        sleep = time.sleep

        def wait(seconds: float) -> None:
            self.done.append("wait")
            sleep(seconds)

        monkeypatch.setattr("lightgate.gateway.spend.moved.time.sleep", wait)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, name: str, real: Any) -> None:
        def called(file: CounterFile, *slot: Any) -> None:
            self.done.append((name, *slot))
            real(file, *slot)

        monkeypatch.setattr(CounterFile, name, called)


def test_a_key_is_locked_while_its_words_are_taken_along(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot, log = pair.new.place(KEY.id), Log(monkeypatch)
    pair.carry(copied=True)
    assert log.done == [("lock", slot), ("unlock", slot)]


def test_a_copy_is_made_of_a_file_that_is_locked_and_whose_leases_were_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = CounterFile(tmp_path / "spend")
    old.take_worker(2)
    slot = old.place(KEY.id)
    for worker in range(3):
        old.words[place_of(slot, worker) + SPENT] = worker
        old.words[place_of(slot, worker) + SPEND_LIMIT] = 999
    old.path.unlink()
    log = Log(monkeypatch)
    found = moved.successor(old)
    assert found is not None
    new, copied = found
    assert copied
    inside = log.done[log.done.index(("lock", WHOLE)) :]
    assert inside[:3] == [("lock", WHOLE), "wait", ("copy",)]
    assert inside[-1] == ("unlock", WHOLE)
    for file in (old, new):
        limits = [file.words[place_of(slot, worker) + SPEND_LIMIT] for worker in range(3)]
        assert limits == [0, 1, 2]
    new.close()
    old.close()


def test_a_file_that_cannot_be_copied_is_not_left_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = CounterFile(tmp_path / "data" / "spend")
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "data").write_text("in its place")
    log = Log(monkeypatch)
    with pytest.raises(Exception, match="cannot be written"):
        moved.successor(old)
    assert log.done[-1] == ("unlock", WHOLE)
    assert not old.copied
    old.close()


# The file and its worker


def test_a_copy_has_the_keys_that_others_placed_after_the_last_look(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "spend"
    with CounterFile(path) as one:
        with CounterFile(path) as other:
            names = [f"key-{number}" for number in range(GROWTH + 1)]  # the file has to grow
            for name in names:
                other.place(name)
        shutil.rmtree(tmp_path / "a")
        one.copy()
        assert one.copied
    assert SpendCounters.keys_in(path) == set(names)
    assert [one.name for one in path.parent.iterdir()] == ["spend"]
    for folder in (path.parent, path.parent.parent):
        assert folder.is_dir()
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_folder_of_a_new_file_is_the_owners_alone(tmp_path: Path) -> None:
    with CounterFile(tmp_path / "data" / "spend"):
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_two_processes_write_their_copies_under_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    monkeypatch.setattr(
        "lightgate.gateway.spend.counter_file.put",
        lambda path, _content, *, unborn="": names.append(unborn or f"{path.name}.new"),
    )
    with CounterFile(tmp_path / "spend") as one, CounterFile(tmp_path / "spend") as other:
        one.copy()
        other.copy()
    assert "spend.new" not in names


def test_a_worker_is_the_only_one_in_the_file_that_it_goes_over_to(tmp_path: Path) -> None:
    path, clock = tmp_path / "spend", ManualClock(wall_ns=1_699_963_200_000_000_000)
    one = SpendCounters.open(path, 3, [KEY], clock=clock)
    before = one._file
    path.unlink()
    fresh = SpendCounters.open(path, 0, [KEY], clock=clock)  # another begins a file meanwhile
    assert one.keep_in_place()
    assert (one.workers, fresh.workers) == (4, 4)
    assert not fresh._file.borrow_worker(3)
    with pytest.raises(ValueError, match="released"):
        before.words[0]
    for counters in (one, fresh):
        counters.close()


def test_a_request_that_finds_its_file_copied_takes_a_lease_as_any_other(tmp_path: Path) -> None:
    path, clock = tmp_path / "spend", ManualClock(wall_ns=1_699_963_200_000_000_000)
    one = SpendCounters.open(path, 0, [KEY], clock=clock)
    two = SpendCounters.open(path, 1, [KEY], clock=clock)
    path.unlink()
    assert one.keep_in_place()
    assert two.admit(KEY, clock.wall_ns(), 0, 0) is None  # it goes over by itself
    assert two._file.in_place
    at = place_of(two._file.place(KEY.id), 1)
    # One request, and half of an equal share of the 49 that are left.
    assert two._file.words[at + REQUESTS] == 1
    assert two._file.words[at + REQUEST_LIMIT] == 1 + 49 // 4
    for counters in (one, two):
        counters.close()
