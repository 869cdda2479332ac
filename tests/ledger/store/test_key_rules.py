"""Keys: their text and record, their times, and what revokes them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.source import ManualClock
from lightgate.errors import UsageError
from lightgate.ledger.store.keys import (
    KeyRecord,
    KeyTerms,
    add_key,
    instant_ns,
    instant_text,
    new_key,
    period_start,
    read_keys,
    restore_keys,
    revoke_key,
)
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

S = 1_000_000_000
NOW = 1_700_000_000 * S


@pytest.fixture
def ledger(tmp_path: Path, ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, tmp_path) as opened:
        yield opened


def key(name: str = "n", at: int = NOW, **terms: Any) -> KeyRecord:
    return new_key(KeyTerms(name=name, **terms), clock=ManualClock(wall_ns=at))[1]


def test_a_key_is_256_random_bits() -> None:
    asked: list[int] = []

    def zeros(size: int) -> bytes:
        asked.append(size)
        return bytes(size)

    clock = ManualClock(wall_ns=NOW)
    secret, record = new_key(KeyTerms(name="n", rpm=3), clock=clock, random_bytes=zeros)
    assert (asked, secret) == ([32], "lg-" + "A" * 43)
    assert record.hash == hashlib.sha256(secret.encode()).hexdigest()
    assert (record.prefix, record.created) == ("lg-AAAAA", "2023-11-14T22:13:20Z")
    assert (record.name, record.rpm, record.max_fanout, record.may_race) == ("n", 3, 2, False)
    assert (record.budget_period, record.revoked) == ("total", None)


def test_times_are_of_the_second_in_utc() -> None:
    assert instant_text(NOW + S - 1) == "2023-11-14T22:13:20Z"
    for text in ("2023-11-14T22:13:20Z", "2023-11-14T23:13:20+01:00", "2023-11-14T22:13:20"):
        assert instant_ns(text) == NOW


def test_a_key_is_over_at_its_last_instant() -> None:
    record = key(expires=instant_text(NOW))
    assert (record.over(NOW - 1), record.over(NOW)) == (None, "expired")
    assert key().over(2 * NOW) is None


def test_periods_begin_at_midnight_in_utc() -> None:
    assert period_start("total", NOW) is None
    assert period_start("day", NOW) == datetime(2023, 11, 14, tzinfo=UTC)
    assert period_start("month", NOW) == datetime(2023, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wall", "day", "month"),
    [
        ("2026-03-01T00:00:00Z", (2026, 3, 1), (2026, 3, 1)),
        ("2024-02-29T23:59:59Z", (2024, 2, 29), (2024, 2, 1)),
        ("2026-12-31T00:00:00Z", (2026, 12, 31), (2026, 12, 1)),
    ],
)
def test_the_first_and_the_last_instant_of_a_period(
    wall: str, day: tuple[int, int, int], month: tuple[int, int, int]
) -> None:
    for late in (0, S - 1):  # the whole second belongs to it
        at = instant_ns(wall) + late
        assert period_start("day", at) == datetime(*day, tzinfo=UTC)
        assert period_start("month", at) == datetime(*month, tzinfo=UTC)
    before = period_start("day", instant_ns("2026-03-01T00:00:00Z") - 1)
    assert before == datetime(2026, 2, 28, tzinfo=UTC)
    assert instant_text(instant_ns(wall) - 1) < wall == instant_text(instant_ns(wall))


def test_two_keys_in_use_have_two_names(ledger: Ledger) -> None:
    old = key(expires=instant_text(NOW + 5 * S), models=("a", "b"))
    with ledger.writing() as connection:
        add_key(connection, old)
        with pytest.raises(UsageError, match="is in use") as caught:
            add_key(connection, key(at=NOW + 4 * S))
        assert "revoke" in caught.value.hint
        later = key(at=NOW + 5 * S)
        add_key(connection, later)
        add_key(connection, key("other"))
    with ledger.reading() as connection:
        kept = read_keys(connection)
    assert [one.name for one in kept].count("n") == 2
    assert old in kept
    assert later in kept


def test_a_key_is_revoked_once_by_name_or_id(ledger: Ledger) -> None:
    first, second = key("a"), key("b")
    with ledger.writing() as connection:
        add_key(connection, first)
        add_key(connection, second)
        gone = revoke_key(connection, "a", wall_ns=NOW + S)
        assert (gone.id, gone.revoked) == (first.id, instant_text(NOW + S))
        with pytest.raises(UsageError, match="no key 'a'") as caught:
            revoke_key(connection, "a", wall_ns=NOW)
        assert "keys list" in caught.value.hint
        with pytest.raises(UsageError, match="revoked before"):
            revoke_key(connection, first.id, wall_ns=NOW)
        assert revoke_key(connection, second.id, wall_ns=NOW).id == second.id
        kept = {one.name: one.revoked for one in read_keys(connection)}
        assert kept == {"a": instant_text(NOW + S), "b": instant_text(NOW)}
        assert [one.over(NOW) for one in read_keys(connection)] == ["revoked", "revoked"]
        add_key(connection, key("a"))  # the name is free again


def test_only_missing_keys_are_restored(ledger: Ledger) -> None:
    known, missing = key("a"), key("b", models=("m",))
    with ledger.writing() as connection:
        add_key(connection, known)
        changed = key("a")
        restore_keys(connection, [known, missing])
        restore_keys(connection, [missing])
        assert set(read_keys(connection)) == {known, missing}
        assert changed not in read_keys(connection)
