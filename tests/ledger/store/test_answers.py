"""Kept answers: found until they expire, the newest listed first, the oldest dropped first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lightgate.ledger.store.answers import (
    AnswerRow,
    KnownAnswer,
    _last_kept,
    find_answer,
    known_answers,
    prune_answers,
    put_answers,
)
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def ledger(tmp_path: Path, ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, tmp_path) as opened:
        yield opened


def row(key: bytes, kept_ns: int = 10, expires_ns: int = 100, size: int = 100) -> AnswerRow:
    return AnswerRow(key, "k-1", "fast", "lab/m", kept_ns, expires_ns, size, b"answer " + key)


def keys(ledger: Ledger) -> list[bytes]:
    return sorted(one.key for one in known_answers(ledger, 0, 0, 100))


def test_an_answer_is_found_until_it_expires(ledger: Ledger) -> None:
    put_answers(ledger, [row(b"a"), row(b"b")])
    assert find_answer(ledger, b"a", 99) == row(b"a")
    assert find_answer(ledger, b"a", 100) is None
    assert find_answer(ledger, b"c", 0) is None


def test_the_last_of_a_key_is_kept(ledger: Ledger) -> None:
    put_answers(ledger, [row(b"a"), row(b"a", kept_ns=20), row(b"b")])
    assert find_answer(ledger, b"a", 0) == row(b"a", kept_ns=20)
    put_answers(ledger, [row(b"a", kept_ns=30)])
    assert find_answer(ledger, b"a", 0) == row(b"a", kept_ns=30)
    assert keys(ledger) == [b"a", b"b"]


def test_the_newest_are_listed_first(ledger: Ledger) -> None:
    put_answers(ledger, [row(b"%d" % at, kept_ns=at, expires_ns=50 + at) for at in range(1, 6)])
    assert known_answers(ledger, 3, 0, 100) == [
        KnownAnswer(b"%d" % at, at, 50 + at) for at in (5, 4, 3)
    ]
    assert [one.key for one in known_answers(ledger, 0, 0, 2)] == [b"5", b"4"]
    assert [one.key for one in known_answers(ledger, 0, 53, 9)] == [b"5", b"4"]


def test_what_has_expired_goes_first(ledger: Ledger) -> None:
    put_answers(ledger, [row(b"a", expires_ns=50), row(b"b", expires_ns=51), row(b"c")])
    assert prune_answers(ledger, 49, 1000) == 0
    assert prune_answers(ledger, 50, 1000) == 1
    assert keys(ledger) == [b"b", b"c"]


def test_a_full_table_is_cut_to_nine_tenths(ledger: Ledger) -> None:
    put_answers(ledger, [row(b"%d" % at, kept_ns=at) for at in range(10)])
    assert prune_answers(ledger, 0, 1000) == 0  # it fits
    assert prune_answers(ledger, 0, 999) == 2  # 899 bytes hold eight
    assert keys(ledger) == [b"%d" % at for at in range(2, 10)]
    assert prune_answers(ledger, 0, 0) == 8
    assert prune_answers(ledger, 0, 0) == 0


def test_expired_and_oldest_are_counted_together(ledger: Ledger) -> None:
    put_answers(ledger, [row(b"old", kept_ns=1, expires_ns=5), row(b"a", 2), row(b"b", 3)])
    assert prune_answers(ledger, 5, 150) == 2
    assert keys(ledger) == [b"b"]


def test_what_has_to_go_is_the_first_answer_beyond_the_room_and_all_before(ledger: Ledger) -> None:
    put_answers(ledger, [row(b"%d" % at, kept_ns=at) for at in range(4)])
    with ledger.reading() as connection:
        found = [_last_kept(connection, room) for room in (0, 99, 100, 299, 300, 399, 400)]
    assert found == [3, 3, 2, 1, 0, 0, -1]
