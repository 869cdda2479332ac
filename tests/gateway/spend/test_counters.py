from __future__ import annotations

import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.clock.source import ManualClock
from lightgate.gateway.spend import counter_file
from lightgate.gateway.spend.counter_file import GROWTH, CounterFile, CounterFileFailed
from lightgate.gateway.spend.counters import Orphaned, OwnPart, SpendCounters
from lightgate.gateway.spend.shares import PERIOD
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, new_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.gateway.spend.counter_file import Slot

SECOND = 1_000_000_000
DAY = 86_400 * SECOND
NOON = 1_699_963_200 * SECOND  # 2023-11-14, UTC
DOLLAR = 1_000_000_000


def key(**terms: Any) -> KeyRecord:
    return new_key(KeyTerms(name="n", **terms), clock=ManualClock())[1]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall_ns=NOON)


@pytest.fixture
def spend(tmp_path: Path, clock: ManualClock) -> Iterator[SpendCounters]:
    with SpendCounters.open(tmp_path / "spend", 0, clock=clock) as opened:
        yield opened


def test_a_key_without_limits_never_touches_the_file(spend: SpendCounters) -> None:
    free = key()
    spend.add([free])
    assert spend.admit(free, NOON, 10**18, 10**18) is None
    spend.settle(free.id, 10**18, 10**18, 10**18, 10**18)
    spend.load_spend(free.id, 1)
    assert spend.standing(free.id) is None


def test_only_a_key_with_limits_is_counted(spend: SpendCounters) -> None:
    free, paid = key(), key(budget_usd=Decimal(1))
    spend.add((free, paid))
    assert (spend.counts(free.id), spend.counts(paid.id), spend.counts("nobody's")) == (
        False, True, False,
    )  # fmt: skip


def test_a_budget_is_reserved_then_spent(spend: SpendCounters) -> None:
    one = key(budget_usd=Decimal(1))
    assert spend.admit(one, NOON, 0, DOLLAR * 6 // 10) is None
    refused = spend.admit(one, NOON, 0, DOLLAR * 6 // 10)
    assert refused is not None
    assert (refused.reason, refused.retry_after_s) == ("budget", 86_400)
    assert refused.message == (
        "This key has $0.40 left of its budget of $1, and this request may cost $0.60."
    )
    spend.settle(one.id, DOLLAR * 6 // 10, DOLLAR // 10, 0, 0)
    assert spend.admit(one, NOON, 0, DOLLAR * 9 // 10) is None
    assert spend.admit(one, NOON, 0, 1) is not None
    assert spend.admit(one, NOON, 0, 0) is None


@pytest.mark.parametrize(
    ("period", "next_period", "wait_s", "until"),
    [
        ("day", NOON + DAY // 2, 43_200, "today; the budget is full again on 2023-11-15"),
        ("month", NOON + 17 * DAY, 16.5 * 86_400, "month; the budget is full again on 2023-12-01"),
    ],
)
def test_a_period_begins_again(
    spend: SpendCounters,
    clock: ManualClock,
    period: str,
    next_period: int,
    wait_s: float,
    until: str,
) -> None:
    one = key(budget_usd=Decimal("0.5"), budget_period=period)
    assert spend.admit(one, NOON, 0, DOLLAR // 2) is None
    spend.settle(one.id, DOLLAR // 2, DOLLAR // 2, 0, 0)
    refused = spend.admit(one, NOON, 0, 1)
    assert refused is not None
    assert refused.retry_after_s == wait_s
    first, _, rest = until.partition(";")
    assert first in refused.message
    assert rest in refused.message
    assert spend.admit(one, next_period, 0, DOLLAR // 2) is None
    clock.step_wall(next_period - NOON)
    spend.settle(one.id, DOLLAR // 2, DOLLAR // 4, 0, 0)
    standing = spend.standing(one.id)
    assert standing is not None
    assert standing.spent_nano == DOLLAR // 4


def test_a_clock_that_is_put_back_over_midnight_does_not_refill(spend: SpendCounters) -> None:
    one = key(budget_usd=Decimal(1), budget_period="day")
    midnight = NOON + DAY // 2
    assert spend.admit(one, midnight + SECOND, 0, DOLLAR) is None
    spend.settle(one.id, 0, 0, 0, 0)  # the clock of the counters still says noon of the day before
    assert spend.admit(one, midnight - SECOND, 0, 1) is not None
    assert spend.admit(one, midnight + SECOND, 0, 1) is not None


def test_requests_per_minute(spend: SpendCounters) -> None:
    one = key(rpm=3)
    for at in (0, 1, 2):
        assert spend.admit(one, NOON + at * SECOND, 0, 0) is None
    refused = spend.admit(one, NOON + 10 * SECOND, 0, 0)
    assert refused is not None
    assert (refused.reason, refused.retry_after_s) == ("rpm", 51)
    assert refused.message == "This key may make 3 requests in a minute; try again in 51 s."
    assert spend.admit(one, NOON + 60 * SECOND, 0, 0) is not None
    assert spend.admit(one, NOON + 61 * SECOND, 0, 0) is None
    assert spend.admit(one, NOON + 61 * SECOND, 0, 0) is not None


def test_tokens_per_minute_count_the_worst_case_until_they_are_settled(
    spend: SpendCounters, clock: ManualClock
) -> None:
    one = key(tpm=1000)
    assert spend.admit(one, NOON, 900, 0) is None
    refused = spend.admit(one, NOON, 200, 0)
    assert refused is not None
    assert (refused.reason, refused.retry_after_s) == ("tpm", 60)
    spend.settle(one.id, 0, 0, 900, 100)
    assert spend.admit(one, NOON, 900, 0) is None
    spend.settle(one.id, 0, 0, 900, 900)
    waits = spend.admit(one, NOON, 900, 0)
    assert waits is not None
    assert waits.retry_after_s == 60
    never = spend.admit(one, NOON, 1001, 0)
    assert never is not None
    assert never.message.endswith("may take 1001; ask for fewer with max_tokens.")
    assert spend.admit(one, NOON + 61 * SECOND, 1000, 0) is None


def test_a_refused_request_changes_nothing(spend: SpendCounters) -> None:
    one = key(rpm=5, tpm=10, budget_usd=Decimal(1))
    assert spend.admit(one, NOON, 1, 2 * DOLLAR) is not None
    assert spend.admit(one, NOON, 11, 1) is not None
    standing = spend.standing(one.id)
    assert standing is not None
    assert (standing.requests, standing.tokens, standing.held_tokens) == (0, 0, 0)
    assert (standing.spent_nano, standing.held_nano) == (0, 0)


def test_absurd_wishes_are_counted_not_crashed_on(spend: SpendCounters) -> None:
    one = key(rpm=5)
    assert spend.admit(one, NOON, 10**40, 10**40) is None
    spend.settle(one.id, 10**40, 0, 10**40, 0)
    standing = spend.standing(one.id)
    assert standing is not None
    assert (standing.held_nano, standing.held_tokens) == (0, 0)


def test_a_large_step_of_the_clock_does_not_lock_a_key_out(spend: SpendCounters) -> None:
    one = key(rpm=1, budget_usd=Decimal(1), budget_period="day")
    assert spend.admit(one, NOON + 400 * DAY, 0, DOLLAR) is None
    spend.clear_worker(0)
    assert spend.admit(one, NOON, 0, DOLLAR) is None


def test_a_dead_workers_reservations_are_found_and_dropped(
    tmp_path: Path, clock: ManualClock
) -> None:
    one, other = key(budget_usd=Decimal(1)), key(tpm=100)
    with (
        SpendCounters.open(tmp_path / "spend", 7, [one, other], clock=clock) as dead,
        SpendCounters.open(tmp_path / "spend", 0, [one, other], clock=clock) as alive,
    ):
        assert dead.admit(one, NOON, 5, DOLLAR // 2) is None
        assert dead.admit(other, NOON, 60, 0) is None
        assert alive.admit(one, NOON, 1, DOLLAR // 4) is None
        assert alive.admit(one, NOON, 1, DOLLAR // 2) is not None
        assert alive.admit(other, NOON, 60, 0) is not None
        alive.settle(one.id, 0, DOLLAR // 8, 0, 0)  # its orphan, charged
        assert alive.clear_worker(7) == {
            one.id: Orphaned(DOLLAR // 2, 0),  # its tokens are not limited
            other.id: Orphaned(0, 60),
        }
        assert alive.clear_worker(7) == {}
        standing = alive.standing(one.id)
        assert standing is not None
        assert (standing.spent_nano, standing.held_nano) == (DOLLAR // 8, DOLLAR // 4)


def test_what_a_dead_worker_had_reserved_is_charged_by_another(
    tmp_path: Path, clock: ManualClock
) -> None:
    """A worker that was replaced and then killed has no next life; the living are left alone."""
    one, other = key(budget_usd=Decimal(1)), key(tpm=100)
    path, both = tmp_path / "spend", [one, other]

    def standing(of: SpendCounters) -> tuple[int, int]:
        found = of.standing(one.id)
        assert found is not None
        return found.spent_nano, found.held_nano

    dead = SpendCounters.open(path, 3, both, clock=clock)
    with (
        SpendCounters.open(path, 0, both, clock=clock) as alive,
        SpendCounters.open(path, 1, both, clock=clock) as beside,
    ):
        for worker in (dead, alive, beside):
            assert worker.admit(one, NOON, 5, DOLLAR // 8) is None
        assert dead.admit(other, NOON, 60, 0) is None
        alive.charge_dead()
        assert standing(alive) == (0, 3 * DOLLAR // 8)  # it lives
        dead._file.close()  # as a killed process leaves it
        alive.charge_dead()
        assert standing(alive) == (DOLLAR // 8, 2 * DOLLAR // 8)
        assert alive.admit(other, NOON, 60, 0) is not None  # they count as used in this minute
        beside.charge_dead()
        assert standing(alive) == (DOLLAR // 8, 2 * DOLLAR // 8)
        # The next life finds its words free, and is seen when it dies in turn.
        again = SpendCounters.open(path, 3, both, clock=clock)
        assert again.admit(one, NOON, 5, DOLLAR // 4) is None
        alive.charge_dead()
        again._file.close()
        alive.charge_dead()
        assert standing(alive) == (3 * DOLLAR // 8, 2 * DOLLAR // 8)


def test_a_dead_worker_is_charged_once(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, charged = tmp_path / "spend", list[int]()
    SpendCounters.open(path, 2, clock=clock).close()
    clear = SpendCounters._clear

    def cleared(self: SpendCounters, slot: Any, worker: int) -> Any:
        charged.append(worker)
        return clear(self, slot, worker)

    monkeypatch.setattr(SpendCounters, "_clear", cleared)
    SpendCounters.open(path, 1, [key(rpm=1)], clock=clock).close()
    with SpendCounters.open(path, 0, clock=clock) as alive:
        for _ in range(3):
            alive.charge_dead()
        assert charged == [1, 2]
        with SpendCounters.open(path, 1, clock=clock):
            alive.charge_dead()  # it lives again
        alive.charge_dead()
        assert charged == [1, 2, 1]
        alive.charge_own()
        assert charged == [1, 2, 1, 0]


def test_the_ledgers_spend_raises_and_never_lowers(spend: SpendCounters) -> None:
    one = key(budget_usd=Decimal(1), budget_period="month")
    spend.add([one])
    for loaded, expected in ((DOLLAR // 2, DOLLAR // 2), (1, DOLLAR // 2), (DOLLAR, DOLLAR)):
        spend.load_spend(one.id, loaded)
        standing = spend.standing(one.id)
        assert standing is not None
        assert standing.spent_nano == expected
    assert spend.admit(one, NOON, 0, 1) is not None


def test_the_file_outlives_its_processes(tmp_path: Path, clock: ManualClock) -> None:
    one = key(budget_usd=Decimal(1))
    for expected in range(3):
        with SpendCounters.open(tmp_path / "spend", 0, [one], clock=clock) as spend:
            standing = spend.standing(one.id)
            assert standing is not None
            assert standing.spent_nano == expected
            spend.settle(one.id, 0, 1, 0, 0)


def test_the_file_grows_under_those_who_have_it_open(tmp_path: Path, clock: ManualClock) -> None:
    keys = [key(rpm=1) for _ in range(3 * GROWTH)]
    with (
        SpendCounters.open(tmp_path / "spend", 0, keys[:1], clock=clock) as first,
        SpendCounters.open(tmp_path / "spend", 1, clock=clock) as second,
    ):
        small = (tmp_path / "spend").stat().st_size
        second.add(keys)
        assert (tmp_path / "spend").stat().st_size > 2 * small
        assert all(second.admit(one, NOON, 0, 0) is None for one in keys)
        assert all(first.admit(one, NOON, 0, 0) is not None for one in keys)


def test_a_file_of_another_version_is_moved_aside(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "spend"
    path.write_bytes(b"something else" * 1000)
    one = key(rpm=1)
    with SpendCounters.open(path, 0, [one], clock=clock) as spend:
        assert spend.admit(one, NOON, 0, 0) is None
    assert (tmp_path / "spend.old").read_bytes().startswith(b"something else")
    path.write_bytes(path.read_bytes()[:5000])  # cut short: its slots are gone
    with SpendCounters.open(path, 0, [one], clock=clock) as spend:
        assert spend.admit(one, NOON, 0, 0) is None


def test_the_file_is_the_owners_alone(tmp_path: Path, spend: SpendCounters) -> None:
    assert (tmp_path / "spend").stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "spend").mkdir()
    with pytest.raises(CounterFileFailed, match="cannot be opened: Is a directory"):
        SpendCounters.open(tmp_path / "spend", 0)


@pytest.mark.parametrize("worker", [-1, 256])
def test_a_worker_has_its_place(tmp_path: Path, worker: int) -> None:
    with pytest.raises(ValueError, match="0 to 255"):
        SpendCounters.open(tmp_path / "spend", worker)


def test_objects_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    one = key(budget_usd=Decimal(1), rpm=10**6)
    counters = [SpendCounters.open(tmp_path / "spend", worker, [one]) for worker in range(3)]
    rounds = 1000

    def work(spend: SpendCounters) -> None:
        for _ in range(rounds):
            assert spend.admit(one, NOON, 1, 1) is None
            spend.settle(one.id, 1, 1, 1, 1)

    threads = [threading.Thread(target=work, args=(spend,)) for spend in counters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    standing = counters[0].standing(one.id)
    assert standing is not None
    assert standing.spent_nano == rounds * len(threads)
    assert (standing.held_nano, standing.held_tokens) == (0, 0)
    for spend in counters:
        spend.close()


OPS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.integers(0, 2), st.integers(0, 60)),
        st.tuples(st.just("settle"), st.integers(0, 9), st.integers(0, 100)),
        st.tuples(st.just("crash"), st.integers(0, 2), st.just(0)),
    ),
    max_size=60,
)


@given(ops=OPS)
@settings(max_examples=120)
def test_spend_never_passes_the_budget_whatever_the_order(
    tmp_path_factory: pytest.TempPathFactory, ops: list[tuple[str, int, int]]
) -> None:
    one = key(budget_usd=Decimal(100) / DOLLAR)
    clock = ManualClock(wall_ns=NOON)
    path = tmp_path_factory.mktemp("spend") / "spend"
    counters = [SpendCounters.open(path, worker, [one], clock=clock) for worker in range(3)]
    running: list[tuple[int, int]] = []
    spent = 0
    for name, which, amount in ops:
        if name == "admit":
            fits = spent + sum(held for _, held in running) + amount <= 100
            assert (counters[which].admit(one, NOON, 0, amount) is None) == fits
            if fits:
                running.append((which, amount))
        elif name == "settle" and running:
            worker, held = running.pop(which % len(running))
            cost = held * amount // 100
            counters[worker].settle(one.id, held, cost, 0, 0)
            spent += cost
        elif name == "crash":
            lost = sum(held for worker, held in running if worker == which)
            counters[which]._file.close()  # as a killed process leaves it: with its lease
            counters[which] = SpendCounters.open(path, which, [one], clock=clock)
            assert counters[0].clear_worker(which) == ({one.id: Orphaned(lost, 0)} if lost else {})
            running = [(worker, held) for worker, held in running if worker != which]
        standing = counters[0].standing(one.id)
        assert standing is not None
        assert standing.spent_nano == spent <= 100
        assert standing.held_nano == sum(held for _, held in running)
    for spend in counters:
        spend.close()


@given(
    st.integers(1, 12),
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 20 * SECOND) | st.sampled_from([0, SECOND, 60 * SECOND]),
        ),
        max_size=80,
    ),
)
@settings(max_examples=120)
def test_no_minute_holds_more_than_the_limit_and_no_room_is_wasted(
    tmp_path_factory: pytest.TempPathFactory, rpm: int, steps: list[tuple[int, int]]
) -> None:
    one = key(rpm=rpm)
    admitted: list[int] = []
    now = NOON
    path = tmp_path_factory.mktemp("spend") / "spend"
    counters = [SpendCounters.open(path, worker, [one]) for worker in range(3)]
    for which, step in steps:
        now += step
        refused = counters[which].admit(one, now, 0, 0)
        if refused is None:
            admitted.append(now)
            assert sum(now - at < 60 * SECOND for at in admitted) <= rpm
        else:
            assert sum(now - at < 61 * SECOND for at in admitted) >= rpm
            then = now + round(refused.retry_after_s * SECOND)
            assert sum(then - at < 60 * SECOND for at in admitted) < rpm
    for spend in counters:
        spend.close()


class Locks:
    """How often a worker's object locks something."""

    def __init__(self, spend: SpendCounters, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        lock = CounterFile.lock

        def counted(file: CounterFile, slot: Slot) -> None:
            self.taken += file is spend._file
            lock(file, slot)

        monkeypatch.setattr(CounterFile, "lock", counted)


@pytest.mark.parametrize("limits", [{}, {"rpm": 1000, "tpm": 100_000}])
def test_a_leased_share_costs_no_lock(
    spend: SpendCounters, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    one = key(budget_usd=Decimal(1), budget_period="day", **limits)
    assert spend.admit(one, NOON, 10, 1000) is None
    locks = Locks(spend, monkeypatch)
    for _ in range(400):
        assert spend.admit(one, NOON, 10, 1000) is None
        spend.settle(one.id, 1000, 700, 10, 9)
    assert locks.taken == 0
    standing = spend.standing(one.id)
    assert standing is not None
    assert (standing.spent_nano, standing.held_nano) == (400 * 700, 1000)
    if limits:
        assert (standing.requests, standing.tokens, standing.held_tokens) == (401, 3600, 10)


@pytest.mark.parametrize(
    ("limits", "tokens", "nano"),
    [
        ({"rpm": 21}, 0, 0),
        ({"tpm": 2100}, 100, 0),
        ({"budget_usd": Decimal("0.0000021")}, 0, 100),
        ({"budget_usd": Decimal("0.0000021"), "rpm": 10_000}, 0, 100),
    ],
)
def test_a_lease_is_half_of_what_is_left_and_is_taken_to_its_last(
    spend: SpendCounters,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, Any],
    tokens: int,
    nano: int,
) -> None:
    """Of 21 requests the first has 1 and half of the other 20: ten more need no lock."""
    one, locks = key(**limits), Locks(spend, monkeypatch)
    locked = []
    for _ in range(22):
        before = locks.taken
        denied = spend.admit(one, NOON, tokens, nano)
        locked.append((locks.taken > before, denied is None))
    asked, free = (True, True), (False, True)
    # 11 of 21, then 1 and half of 9, then 1 and half of 4, and so on to the last.
    assert locked[:11] == [asked] + [free] * 10
    assert locked[11:16] == [asked] + [free] * 4
    assert locked[16:19] == [asked] + [free] * 2
    assert locked[19:] == [asked, asked, (True, False)]


@pytest.mark.parametrize(
    ("limits", "each"),
    [
        ({"budget_usd": Decimal(1)}, (0, DOLLAR // 100)),
        ({"rpm": 100}, (0, 0)),
        ({"tpm": 100}, (1, 0)),
    ],
)
def test_what_one_worker_leased_and_left_another_can_have(
    tmp_path: Path, clock: ManualClock, limits: dict[str, Any], each: tuple[int, int]
) -> None:
    one = key(**limits)
    tokens, nano = each
    with (
        SpendCounters.open(tmp_path / "spend", 0, [one], clock=clock) as idle,
        SpendCounters.open(tmp_path / "spend", 1, [one], clock=clock) as busy,
    ):
        assert idle.admit(one, NOON, tokens, nano) is None  # and more than that is leased
        assert [busy.admit(one, NOON, tokens, nano) for _ in range(99)] == [None] * 99
        assert busy.admit(one, NOON, tokens, nano) is not None
        assert idle.admit(one, NOON, tokens, nano) is not None


@pytest.mark.parametrize("rates", [{}, {"rpm": 1000}, {"tpm": 10**9}])
def test_what_was_spent_under_a_lease_counts_with_what_is_reserved(
    spend: SpendCounters, rates: dict[str, int]
) -> None:
    one = key(budget_usd=Decimal(1), **rates)
    for _ in range(2):  # 0.2 dollars each, of which 0.2 are spent
        assert spend.admit(one, NOON, 5, DOLLAR // 5) is None
        spend.settle(one.id, DOLLAR // 5, DOLLAR // 5, 5, 5)
    lease = spend._leases[one.id]
    assert lease.from_ns <= NOON < lease.until_ns
    assert spend.admit(one, NOON, 5, 7 * DOLLAR // 10) is not None
    assert spend.admit(one, NOON, 5, 6 * DOLLAR // 10) is None
    assert spend.admit(one, NOON, 5, 1) is not None


@pytest.mark.parametrize(
    ("kind", "period"),
    [("total", 0), ("day", 4 * (NOON // DAY) + 1), ("month", 4 * (2023 * 12 + 11) + 2)],
)
def test_what_one_machine_has_spent_and_one_worker_reserved(
    spend: SpendCounters, kind: Any, period: int
) -> None:
    one = key(budget_usd=Decimal(1), budget_period=kind, tpm=1000)
    assert spend.own_part(one) == OwnPart(period, 0, 0, 0)
    assert spend.admit(one, NOON, 7, 100) is None
    assert spend.admit(one, NOON, 9, 300) is None
    spend.settle(one.id, 100, 40, 7, 5)
    assert spend.own_part(one) == OwnPart(period, 40, 300, 9)
    at = spend._leases[one.id].slot.at
    assert spend._file.words[at + PERIOD] == period  # as the file says it to the other workers


@pytest.mark.parametrize(
    ("terms", "span"),
    [
        ({"budget_period": "total"}, None),
        ({"budget_period": "day"}, (NOON // DAY * DAY, NOON // DAY * DAY + DAY)),
        ({"budget_period": "month"}, (NOON // DAY * DAY, NOON // DAY * DAY + DAY)),
        ({"budget_period": "month", "rpm": 9}, (NOON, NOON + SECOND)),
        ({"budget_period": "total", "tpm": 900}, (NOON, NOON + SECOND)),
    ],
)
def test_how_long_a_lease_is_good(
    spend: SpendCounters, terms: dict[str, Any], span: tuple[int, int] | None
) -> None:
    one = key(budget_usd=Decimal(1), **terms)
    assert spend.admit(one, NOON + 7, 5, 5) is None
    lease = spend._leases[one.id]
    if span is None:
        assert lease.from_ns < 0
        assert lease.until_ns > 200 * 366 * DAY
    else:
        assert (lease.from_ns, lease.until_ns) == span


@pytest.mark.parametrize("rpm", [1, 2, 3])
def test_so_many_requests_of_a_minute_and_no_more(spend: SpendCounters, rpm: int) -> None:
    one = key(rpm=rpm)
    said = [spend.admit(one, NOON, 5, 5) is None for _ in range(rpm + 2)]
    assert said == [True] * rpm + [False] * 2


def test_a_request_that_is_denied_leaves_no_lease(spend: SpendCounters) -> None:
    one = key(budget_usd=Decimal(1))
    assert spend.admit(one, NOON, 5, DOLLAR // 2) is None
    lease = spend._leases[one.id]
    assert spend._file.words[lease.spend_limit_at] > DOLLAR // 2
    assert spend.admit(one, NOON, 5, DOLLAR) is not None
    assert spend._file.words[lease.spend_limit_at] == DOLLAR // 2
    assert lease.until_ns == 0  # the next one asks again
    assert spend.admit(one, NOON, 5, DOLLAR // 2) is None


def test_a_slot_is_locked_while_it_is_changed(
    spend: SpendCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, log = key(budget_usd=Decimal(1)), list[str]()
    spend.add([one])
    slot = spend._leases[one.id].slot
    for name in ("lock", "unlock"):
        monkeypatch.setattr(
            CounterFile, name, lambda self, given, name=name: log.append(f"{name} {given == slot}")
        )
    spend.load_spend(one.id, 5)
    assert log == ["lock True", "unlock True"]

    def broken(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(SpendCounters, "_rolled", broken)
    with pytest.raises(ValueError):  # noqa: PT011 - of this test
        spend.load_spend(one.id, 5)
    assert log == ["lock True", "unlock True"] * 2
    monkeypatch.undo()


def test_an_end_in_order_gives_back_what_was_leased(tmp_path: Path, clock: ManualClock) -> None:
    one, path = key(budget_usd=Decimal(1)), tmp_path / "spend"
    spend = SpendCounters.open(path, 0, [one], clock=clock)
    assert spend.admit(one, NOON, 5, 1000) is None
    lease = spend._leases[one.id]
    with CounterFile(path) as seen:
        assert seen.words[lease.held_at] == 1000
        assert seen.words[lease.spend_limit_at] > 1000  # more than the request needs
        spend.close()
        assert seen.words[lease.held_at] == seen.words[lease.spend_limit_at] == 1000


def test_a_killed_workers_lease_comes_back(tmp_path: Path, clock: ManualClock) -> None:
    one = key(budget_usd=Decimal(1))
    dead = SpendCounters.open(tmp_path / "spend", 1, [one], clock=clock)
    assert dead.admit(one, NOON, 0, DOLLAR // 10) is None
    dead._file.close()  # as a killed process leaves it
    with SpendCounters.open(tmp_path / "spend", 1, [one], clock=clock) as again:
        for key_id, orphaned in again.clear_worker(1).items():
            again.settle(key_id, 0, orphaned.nano_usd, 0, orphaned.tokens)
        standing = again.standing(one.id)
        assert standing is not None
        assert (standing.spent_nano, standing.held_nano) == (DOLLAR // 10, 0)
        assert again.admit(one, NOON, 0, DOLLAR * 9 // 10) is None
        assert again.admit(one, NOON, 0, 1) is not None


def test_one_object_at_a_time_counts_for_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_file, "_TAKE_S", 0.0)
    with (
        SpendCounters.open(tmp_path / "spend", 0),
        pytest.raises(CounterFileFailed, match="as worker 0"),
    ):
        SpendCounters.open(tmp_path / "spend", 0)
