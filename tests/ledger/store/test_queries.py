from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import sqlalchemy as sa

from ledger.notes import MS, T0, Called, attempt_note, marks, reserved, settled
from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import interval, quantile
from lightgate.clock.sketch import DDSketch
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store import schema
from lightgate.ledger.store.queries import (
    _summed,
    attempts_of,
    counts,
    exchange_by_id,
    recent,
    speed_rows,
    spend_by_period,
    spend_per_key,
    usage_of_key,
)
from lightgate.ledger.store.retention import Keep, Pruned, prune
from lightgate.ledger.store.rollup import DAY_S, FINE_S, HOUR_S
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.journal.notes import Settled

S = 1_000_000_000
NOW = datetime.fromtimestamp(T0 / S, UTC) + timedelta(hours=30)


@pytest.fixture
def ledger(tmp_path: Path, ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, tmp_path) as opened:
        yield opened


def keep(ledger: Ledger, folder: Path, notes: list[Settled], limit: int = 50) -> None:
    journal = Journal(folder / "journal", 0)
    for note in notes:
        journal.write(note)
    journal.close()
    Shipper(ledger, folder / "journal").drain(limit)


def traffic(n: int = 300) -> list[Settled]:
    """Thirty hours of mixed attempts at two targets, in no order of time."""
    draw = random.Random(7)  # noqa: S311 - the same traffic every time
    notes = []
    for at in range(n):
        made = f"x-{at}"
        wall_ns = T0 + draw.randrange(30 * 3600) * S
        stamps = marks(draw.randrange(1, 9), draw.randrange(50, 400), draw.randrange(1, 40))
        stamps.void, stamps.resent = draw.random() < 0.05, draw.random() < 0.05
        stamps.dispatch_lag_ns = draw.choice([0, 50 * MS])
        one = attempt_note(made, stamps, wall_ns=wall_ns, cost_nano=draw.choice([None, 1234, 99]))
        if draw.random() < 0.2:
            outcome = draw.choice([Outcome.TIMEOUT, Outcome.RATE_LIMITED, Outcome.CUT])
            one = msgspec.structs.replace(one, outcome=outcome)
        target = draw.choice(["lab/s1", "far/s1"])
        about = msgspec.structs.replace(
            one.facts, target=target, provider=target[:3], won=draw.choice([None, True, False])
        )
        notes.append(
            settled(
                made, msgspec.structs.replace(one, facts=about), wall_ns=wall_ns, winner=target,
                outcome=one.outcome.value, loser_cost_nano=draw.choice([None, 5]),
                key_id=draw.choice([None, "k-1", "k-2"]), cache=draw.choice(["off", "hit"]),
            )
        )  # fmt: skip
    return notes


def tried(notes: list[Settled]) -> list[tuple[int, AttemptRecord]]:
    return [(one.facts.wall_ns // S, one.attempt()) for note in notes for one in note.attempts]


def measured(attempt: AttemptRecord) -> bool:
    return (
        attempt.outcome is Outcome.OK
        and attempt.source == "gateway"
        and attempt.won is not False
        and not attempt.void
    )


@pytest.mark.parametrize("width", [FINE_S, HOUR_S])
def test_sums_are_those_of_the_rows(ledger: Ledger, tmp_path: Path, width: int) -> None:
    notes = traffic()
    keep(ledger, tmp_path, notes)
    groups: dict[tuple[int, str], list[AttemptRecord]] = {}
    for second, attempt in tried(notes):
        groups.setdefault((second // width * width, attempt.target), []).append(attempt)
    with ledger.reading() as connection:
        table = schema.rollups
        rows = connection.execute(table.select().where(table.c.width_s == width)).all()
    assert {(row.bucket_s, row.target) for row in rows} == set(groups)
    for row in rows:
        some = groups[row.bucket_s, row.target]
        fair = [attempt for attempt in some if measured(attempt)]
        assert (row.provider, row.model) == (row.target[:3], "s1")
        assert (row.attempts, row.measured) == (len(some), len(fair))
        for outcome in Outcome:
            expected = sum(attempt.outcome is outcome for attempt in some)
            assert getattr(row, outcome.value) == expected
        assert row.tokens_in == sum(attempt.tokens_in or 0 for attempt in some)
        assert row.tokens_out == sum(attempt.tokens_out or 0 for attempt in some)
        assert row.cost_usd == sum((a.cost_usd for a in some if a.cost_usd), Decimal(0))
        for metric in ("ttft_ms", "ttfa_ms", "speed_tps", "speed_total_tps", "e2e_ms"):
            values = [v for v in (getattr(a, metric) for a in fair) if v is not None]
            same_sketch(getattr(row, f"{metric}_sketch"), values)
        same_sketch(row.overhead_ms_sketch, [1.5] * len(fair))


def same_sketch(blob: bytes | None, values: list[float]) -> None:
    if not values:
        assert blob is None
        return
    assert blob is not None
    direct, kept = DDSketch(), DDSketch.from_bytes(blob)
    direct.add_many(values)
    assert kept.count == direct.count
    assert [kept.quantile(q / 10) for q in range(11)] == [
        direct.quantile(q / 10) for q in range(11)
    ]


@pytest.mark.parametrize("width", [FINE_S, DAY_S])
def test_sums_of_keys_are_those_of_the_rows(ledger: Ledger, tmp_path: Path, width: int) -> None:
    notes = traffic()
    keep(ledger, tmp_path, notes)
    wanted: dict[tuple[int, str], list[Any]] = {}
    for note in notes:
        record = note.exchange.record(1)
        bucket = note.exchange.wall_ns // S // width * width
        sums = wanted.setdefault(
            (bucket, record.key_id or ""), [0, 0, 0, 0, Decimal(0), Decimal(0)]
        )
        sums[0] += 1
        sums[1] += record.outcome == "ok"
        sums[2] += record.cache == "hit"
        sums[3] += record.tokens_out
        sums[4] += record.cost_usd
        sums[5] += record.loser_cost_usd or 0
    with ledger.reading() as connection:
        table = schema.key_rollups
        rows = connection.execute(table.select().where(table.c.width_s == width)).all()
    assert wanted == {
        (row.bucket_s, row.key_id): [
            row.exchanges, row.ok, row.cached, row.tokens_out, row.cost_usd, row.loser_cost_usd,
        ]
        for row in rows
    }  # fmt: skip


def test_what_is_no_speed_of_a_provider_is_left_out(ledger: Ledger, tmp_path: Path) -> None:
    plain = attempt_note("x")
    changes: tuple[dict[str, Any], ...] = (
        {}, {"outcome": Outcome.TRUNCATED}, {"void": True}, {"resent": True},
        {"dispatch_lag_ns": 10**12},
    )  # fmt: skip
    about: tuple[dict[str, Any], ...] = ({}, {"won": False}, {"won": True}, {"source": "probe"})
    tries = [msgspec.structs.replace(plain, **change) for change in changes]
    tries += [attempt_note("x", **change) for change in about]
    notes = [
        settled(
            f"x-{at}", msgspec.structs.replace(
                one, facts=msgspec.structs.replace(
                    one.facts, id=f"a-{at}", exchange_id=f"x-{at}", target=f"lab/{at}"
                )
            )
        )
        for at, one in enumerate(tries)
    ]  # fmt: skip
    keep(ledger, tmp_path, notes)
    with ledger.reading() as connection:
        table = schema.rollups.c
        found = connection.execute(
            schema.rollups.select().where(table.width_s == FINE_S).order_by(table.target)
        ).all()
    expected = [int(measured(one.attempt())) for one in tries]
    assert [row.measured for row in found] == expected == [1, 0, 0, 1, 1, 1, 0, 1, 0]
    assert [row.ttft_ms_sketch is not None for row in found] == [bool(one) for one in expected]


@pytest.mark.parametrize("by", ["model", "provider", "target"])
def test_speeds_from_rows_and_from_sketches(ledger: Ledger, tmp_path: Path, by: Any) -> None:
    notes = traffic()
    keep(ledger, tmp_path, notes)
    last = timedelta(hours=20)
    start = int((NOW - last).timestamp()) // FINE_S * FINE_S
    inside = [attempt for second, attempt in tried(notes) if second >= start]
    exact = speed_rows(ledger, last, by, NOW)
    rough = speed_rows(ledger, last, by, NOW, raw_rows=10)
    assert [row.name for row in exact] == sorted({getattr(a, by) for a in inside})
    for row, about in zip(exact, rough, strict=True):
        some = [attempt for attempt in inside if getattr(attempt, by) == row.name]
        fair = [attempt for attempt in some if measured(attempt)]
        speeds = [a.speed_total_tps for a in fair if a.speed_total_tps is not None]
        waits = [a.ttft_ms for a in fair if a.ttft_ms is not None]
        assert row.exact
        assert not about.exact
        assert (row.attempts, row.successes) == (len(some), len(fair))
        assert row.speed_total_p50 == quantile(speeds, 0.5)
        assert row.speed_total_interval == interval(speeds, 0.5)
        assert (row.ttft_p50_ms, row.ttft_p95_ms) == (quantile(waits, 0.5), quantile(waits, 0.95))
        assert row.tokens_out == sum(a.tokens_out or 0 for a in some)
        assert row.cost_usd == sum((a.cost_usd for a in some if a.cost_usd), Decimal(0))
        assert about.speed_total_p50 == pytest.approx(row.speed_total_p50, rel=0.011)
        assert row.speed_total_interval is not None
        assert about.speed_total_interval is not None
        assert about.speed_total_interval.low <= row.speed_total_interval.low
        assert about.speed_total_interval.high >= row.speed_total_interval.high
        assert about.speed_total_interval.low == pytest.approx(
            row.speed_total_interval.low, rel=0.021
        )
        assert about.ttft_p95_ms == pytest.approx(row.ttft_p95_ms, rel=0.011)
        same = ("attempts", "successes", "tokens_in", "tokens_out", "cost_usd")
        assert [getattr(row, name) for name in same] == [getattr(about, name) for name in same]


def test_speeds_of_nothing(ledger: Ledger) -> None:
    assert speed_rows(ledger, timedelta(days=14), "model", NOW) == []


@pytest.mark.parametrize("raw_rows", [10, -1])
def test_speeds_are_of_whole_five_minutes_from_the_first_to_the_running_one(
    ledger: Ledger, tmp_path: Path, raw_rows: int
) -> None:
    """Those before the first and those of a clock that is ahead do not count."""
    now_s = int(NOW.timestamp()) // FINE_S * FINE_S + 10
    first, running = now_s - 10 - 2 * FINE_S, now_s - 10
    seconds = (first - 1, first, running - 1, running + FINE_S - 1, running + FINE_S)
    notes = []
    for at, second in enumerate(seconds):
        one = attempt_note(f"x-{at}", wall_ns=second * S, cost_nano=10**at)
        notes.append(settled(f"x-{at}", one, wall_ns=second * S))
    keep(ledger, tmp_path, notes)
    now, last = datetime.fromtimestamp(now_s, UTC), timedelta(seconds=2 * FINE_S)
    (row,) = speed_rows(ledger, last, "target", now, raw_rows=raw_rows)
    assert (row.attempts, int(row.cost_usd * 10**9)) == (3, 10 + 100 + 1000)


def test_failures_alone_have_no_speed(ledger: Ledger, tmp_path: Path) -> None:
    failed = attempt_note("x-1", called=Called(outcome=Outcome.TIMEOUT, status=None))
    keep(ledger, tmp_path, [settled("x-1", failed, outcome="timeout", winner=None)])
    for raw_rows in (10, -1):
        (row,) = speed_rows(ledger, timedelta(days=14), "target", NOW, raw_rows=raw_rows)
        assert (row.attempts, row.successes, row.exact) == (1, 0, raw_rows > 0)
        assert (row.speed_total_p50, row.speed_total_interval, row.ttft_p50_ms) == (None,) * 3


def test_rows_that_are_gone_leave_their_sums(ledger: Ledger, tmp_path: Path) -> None:
    notes = traffic()
    keep(ledger, tmp_path, notes)
    rough = speed_rows(ledger, timedelta(hours=30), "model", NOW, raw_rows=10)
    spent = spend_per_key(ledger)
    now_ns = T0 + 30 * DAY_S * S + 15 * 3600 * S
    limit_ns = T0 + 15 * 3600 * S
    if ledger.postgres is not None:  # which keeps the rest of the day
        limit_ns -= limit_ns % (DAY_S * S)
    old = [note for note in notes if note.exchange.wall_ns < limit_ns]
    assert old
    pruned = prune(ledger, now=lambda: now_ns)
    assert pruned == Pruned(exchanges=len(old), attempts=len(old))
    assert len(recent(ledger, 1000)) == len(notes) - len(old)
    assert speed_rows(ledger, timedelta(hours=30), "model", NOW) == rough
    assert spend_per_key(ledger) == spent


def test_a_sum_goes_once_the_whole_of_its_time_is_too_old(ledger: Ledger, tmp_path: Path) -> None:
    keep(ledger, tmp_path, traffic(50))
    fine = sa.select(sa.func.min(schema.rollups.c.bucket_s)).where(
        schema.rollups.c.width_s == FINE_S
    )

    def oldest() -> int:
        with ledger.reading() as connection:
            return int(connection.execute(fine).scalar_one())

    first = oldest()
    over = first + FINE_S + 2 * DAY_S
    rules = Keep(raw_days=1, fine_days=2, rollup_days=3)
    assert prune(ledger, rules, now=lambda: over * S).rollups == 0
    assert oldest() == first
    assert prune(ledger, rules, now=lambda: (over + 1) * S).rollups > 0
    assert oldest() > first


def test_retention_goes_in_bounded_steps(ledger: Ledger, tmp_path: Path) -> None:
    keep(ledger, tmp_path, traffic(50))
    rules = Keep(raw_days=1, fine_days=2, rollup_days=3)
    late = T0 + 20 * DAY_S * S
    first = prune(ledger, rules, now=lambda: late, limit=20)
    assert first.more
    if ledger.postgres is None:  # which drops days as a whole
        assert (first.exchanges, first.attempts) == (20, 20)
    while prune(ledger, rules, now=lambda: late, limit=20).more:
        pass
    with ledger.reading() as connection:
        kept = {
            table.name: connection.execute(table.select()).all()
            for table in (schema.exchanges, schema.attempts, schema.rollups, schema.key_rollups)
        }
    assert (kept["exchanges"], kept["attempts"], kept["rollups"]) == ([], [], [])
    assert {row.width_s for row in kept["key_rollups"]} == {DAY_S}  # budgets without a period


def test_spending_since_a_time(ledger: Ledger, tmp_path: Path) -> None:
    notes = [
        settled(f"x-{at}", key_id="k-1", wall_ns=T0 + at * 3600 * S, cost_nano=10**at)
        for at in range(9)
    ]
    notes += [settled("y", key_id="k-2", cost_nano=7, loser_cost_nano=5)]
    notes += [settled("z", key_id=None, cost_nano=1)]
    keep(ledger, tmp_path, notes)
    assert spend_per_key(ledger) == {"k-1": Decimal("0.111111111"), "k-2": Decimal("0.000000012")}
    for hours in range(12):
        since = datetime.fromtimestamp(T0 / S, UTC) + timedelta(hours=hours)
        wanted = sum(10**at for at in range(hours, 9))
        assert spend_per_key(ledger, since).get("k-1", Decimal(0)) * 10**9 == wanted


def test_what_is_reserved_counts_as_spent_from_its_own_time_on(
    ledger: Ledger, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "journal", 0)  # its worker lives: nothing is settled yet
    for at in range(4):
        journal.write(reserved(f"x-{at}", 10**at, T0 + at * 300 * S))
    Shipper(ledger, tmp_path / "journal").ship()
    begin = datetime.fromtimestamp(T0 / S, UTC)
    for late_s, wanted in ((-300, 1111), (0, 1111), (299, 1111), (300, 1110), (600, 1100)):
        found = spend_per_key(ledger, begin + timedelta(seconds=late_s))
        assert found == {"k-1": Decimal(wanted).scaleb(-9)}
    assert spend_per_key(ledger, begin + timedelta(seconds=1200)) == {}
    assert spend_per_key(ledger) == {"k-1": Decimal(1111).scaleb(-9)}
    journal.close()


def test_an_exchange_by_either_id(ledger: Ledger, tmp_path: Path) -> None:
    first = settled("x-1", request_id="mine", wall_ns=T0)
    again = settled("x-2", request_id="mine", wall_ns=T0 + S)
    raced = [
        attempt_note("x-3", id=f"a-{seq}", seq=seq, won=seq == 1, role="racer") for seq in (1, 0)
    ]
    keep(ledger, tmp_path, [again, first, settled("x-3", *raced)])
    for wanted, made in (("x-1", "x-1"), ("mine", "x-2")):
        found = exchange_by_id(ledger, wanted)
        assert found is not None
        assert found[0].id == made
    assert exchange_by_id(ledger, "x' OR 1=1 --") is None
    assert [attempt.seq for attempt in attempts_of(ledger, "x-3")] == [0, 1]
    assert attempts_of(ledger, "x-3") == [raced[1].attempt(), raced[0].attempt()]


def test_the_last_exchanges(ledger: Ledger, tmp_path: Path) -> None:
    notes = [
        settled(f"x-{at}", wall_ns=T0 + at * S, key_id="even" if at % 2 == 0 else None)
        for at in range(6)
    ]
    keep(ledger, tmp_path, notes)
    assert [record.id for record in recent(ledger, 2)] == ["x-5", "x-4"]
    assert [record.id for record in recent(ledger, 2, key_id="even")] == ["x-4", "x-2"]


def test_counts_of_targets(ledger: Ledger, tmp_path: Path) -> None:
    notes = traffic()
    keep(ledger, tmp_path, notes)
    for row in counts(ledger):
        some = [attempt for _, attempt in tried(notes) if attempt.target == row.target]
        assert (row.provider, row.attempts) == (row.target[:3], len(some))
        assert row.outcomes["timeout"] == sum(a.outcome is Outcome.TIMEOUT for a in some)
        assert row.cost_usd == sum((a.cost_usd for a in some if a.cost_usd), Decimal(0))
    assert sum(row.attempts for row in counts(ledger)) == len(notes)
    since = NOW - timedelta(hours=3)
    fresh = [second for second, _ in tried(notes) if second >= since.timestamp() // 3600 * 3600]
    assert sum(row.attempts for row in counts(ledger, since)) == len(fresh) > 0


def test_what_a_key_used_is_summed_by_model(ledger: Ledger, tmp_path: Path) -> None:
    def used(made: str, **about: Any) -> Settled:
        note = attempt_note(made, marks(4), wall_ns=about.get("wall_ns", T0), cost_nano=1500)
        return settled(made, note, **about)

    day = DAY_S * S
    keep(
        ledger,
        tmp_path,
        [
            used("a", key_id="k-1", model_asked="fast", loser_cost_nano=500),
            used("b", key_id="k-1", model_asked="fast", cache="hit", wall_ns=T0 + 3 * day),
            used("c", key_id="k-1", model_asked="slow", outcome="timeout"),
            used("d", key_id="k-2", model_asked="fast"),
        ],
    )
    fast, slow = usage_of_key(ledger, "k-1")
    assert (fast.model, fast.requests, fast.ok, fast.cached) == ("fast", 2, 2, 1)
    assert (slow.model, slow.requests, slow.ok, slow.cached) == ("slow", 1, 0, 0)
    (other,) = usage_of_key(ledger, "k-2")
    assert (fast.tokens_in, fast.tokens_out) == (2 * other.tokens_in, 2 * other.tokens_out)
    assert other.tokens_in != other.tokens_out
    assert fast.cost_usd == 2 * other.cost_usd + Decimal(500) / 10**9
    assert usage_of_key(ledger, "") == []
    later = datetime.fromtimestamp(T0 / S, UTC) + timedelta(days=2)
    (since,) = usage_of_key(ledger, "k-1", later)
    assert (since.model, since.requests) == ("fast", 1)
    at_once = datetime.fromtimestamp(T0 / S, UTC) + timedelta(seconds=FINE_S - 1)
    assert [one.requests for one in usage_of_key(ledger, "k-1", at_once)] == [2, 1]
    after = datetime.fromtimestamp(T0 / S, UTC) + timedelta(seconds=FINE_S)
    assert [one.requests for one in usage_of_key(ledger, "k-1", after)] == [1]


def test_a_time_is_made_of_whole_hours_and_the_rest_of_five_minutes() -> None:
    """Five minutes are counted once, as a part of their hour where the whole of it is asked."""
    table = schema.rollups.c
    zeros: dict[str, Any] = {column.name: 0 for column in table if not column.nullable}
    named = zeros | {"target": "a/m", "provider": "a", "model": "m", "cost_usd": Decimal(0)}
    rows = [
        named | {"width_s": width, "bucket_s": at, "attempts": width // FINE_S}
        for width in (FINE_S, HOUR_S, DAY_S)
        for at in range(0, 5 * HOUR_S, width)
    ]
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        schema.rollups.create(connection)
        connection.execute(schema.rollups.insert(), rows)
        for start in (0, 300, 3300, 3600, 3900):
            for stop in range(start + FINE_S, 5 * HOUR_S, FINE_S):
                asked = _summed(start, stop, table.width_s, table.attempts)
                found = connection.execute(asked).all()
                assert sum(row.attempts for row in found) == (stop - start) // FINE_S
                hours = stop // HOUR_S - -(-start // HOUR_S)
                assert sum(row.width_s == HOUR_S for row in found) == max(0, hours)
    engine.dispose()


def test_spending_of_each_running_period(ledger: Ledger, tmp_path: Path) -> None:
    note = settled("x-1", attempt_note("x-1"))
    note = msgspec.structs.replace(
        note, exchange=msgspec.structs.replace(note.exchange, key_id="k", cost_nano=7)
    )
    keep(ledger, tmp_path, [note])
    day = 86_400 * 1_000_000_000
    found = {ago: spend_by_period(ledger, T0 + ago * day) for ago in (0, 2, 40)}
    assert [sorted(kind for kind, of in found[ago].items() if of) for ago in (0, 2, 40)] == [
        ["day", "month", "total"],
        ["month", "total"],
        ["total"],
    ]
    assert found[0]["day"] == {"k": Decimal("0.000000007")}


def test_sums_without_a_beginning_are_those_since_the_first_day_of_all(
    ledger: Ledger, tmp_path: Path
) -> None:
    keep(ledger, tmp_path, [settled("x-1", attempt_note("x-1", wall_ns=0), wall_ns=0)])
    assert spend_per_key(ledger) == {"k-1": Decimal(1500).scaleb(-9)}
    assert [one.requests for one in usage_of_key(ledger, "k-1")] == [1]
    assert [one.attempts for one in counts(ledger)] == [1]


def test_of_exchanges_at_one_instant_the_later_id_is_the_newer(
    ledger: Ledger, tmp_path: Path
) -> None:
    notes = [settled(made, request_id="mine") for made in ("x-1", "x-3", "x-2")]
    keep(ledger, tmp_path, notes)
    assert [record.id for record in recent(ledger)] == ["x-3", "x-2", "x-1"]
    found = exchange_by_id(ledger, "mine")
    assert found is not None
    assert found[0].id == "x-3"


def test_attempts_of_one_place_in_a_plan_are_in_the_order_of_their_ids(
    ledger: Ledger, tmp_path: Path
) -> None:
    tries = [attempt_note("x", id=made, seq=seq) for made, seq in (("c", 0), ("b", 1), ("a", 1))]
    keep(ledger, tmp_path, [settled("x", *tries)])
    assert [attempt.id for attempt in attempts_of(ledger, "x")] == ["c", "a", "b"]


def test_the_last_hundred_exchanges_are_returned_unless_told_otherwise(
    ledger: Ledger, tmp_path: Path
) -> None:
    keep(ledger, tmp_path, [settled(f"x-{at:03d}") for at in range(101)], 200)
    assert len(recent(ledger)) == 100
