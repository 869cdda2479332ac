"""The terms of a key: texts made elsewhere, expiries, budgets, and a key that is changed."""

from __future__ import annotations

import re
import string
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import sqlalchemy as sa

from lightgate.clock.source import ManualClock
from lightgate.errors import UsageError
from lightgate.ledger.store.keys import (
    MOST_COUNT,
    MOST_FANOUT,
    SOUND_NAME,
    KeyConflict,
    KeyRecord,
    KeyTerms,
    KeyUnknown,
    add_key,
    budget_problem,
    change_key,
    expiry_of,
    given_key,
    hash_of,
    instant_ns,
    instant_text,
    new_key,
    read_keys,
    restore_keys,
    revoke_key,
    terms_of,
)
from lightgate.ledger.store.schema import metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

S = 1_000_000_000
NOW = 1_700_000_000 * S
LETTERS = string.ascii_letters + string.digits + "-_"


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    """The tables of a ledger, in memory."""
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection)
        yield connection


def key(name: str, at: int = NOW, **terms: Any) -> KeyRecord:
    return new_key(KeyTerms(name=name, **terms), clock=ManualClock(wall_ns=at))[1]


def text_of(length: int, distinct: int = 64) -> str:
    """A key's text with `lg-` in front: so many characters, so many different ones in all."""
    rest = "".join(one for one in LETTERS if one not in "lg-")[: distinct - 3]
    return "lg-" + (rest * length)[:length]


@pytest.mark.parametrize("length", [40, 43, 200])
def test_a_text_made_elsewhere_is_taken_as_it_is(length: int) -> None:
    text = text_of(length)
    assert given_key(text) == text
    secret, record = new_key(KeyTerms(name="n"), clock=ManualClock(wall_ns=NOW), given=text)
    assert secret == text
    assert (record.hash, record.prefix) == (hash_of(text.encode()), text[:8])


def test_every_letter_of_a_key_may_stand_in_one_that_was_made_elsewhere() -> None:
    assert given_key("lg-" + LETTERS) == "lg-" + LETTERS


@pytest.mark.parametrize(
    "text",
    [
        "",
        text_of(39),
        text_of(201),
        text_of(43)[1:],
        "sk-" + text_of(43)[3:],
        text_of(43) + "\n",
        text_of(42) + "!",
        text_of(42) + "é",
        "lg-" + "a" * 43,
        text_of(43, distinct=15),
    ],
)
def test_a_text_that_could_be_guessed_or_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="lg- and 40 to 200 letters") as caught:
        given_key(text)
    assert "keys create" in caught.value.hint


def test_sixteen_different_characters_are_enough() -> None:
    text = text_of(43, distinct=16)
    assert len(set(text)) == 16
    assert given_key(text) == text


def test_a_time_without_a_zone_is_utc_wherever_the_machine_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert instant_ns("2023-11-14T22:13:20") == instant_ns("2023-11-14T22:13:20Z") == NOW
        assert expiry_of("2027-01-31", NOW) == "2027-01-31T00:00:00Z"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("name", ["a", "x" * 100, "naïve ключ", "\x80"])
def test_names_that_can_be_shown(name: str) -> None:
    assert re.fullmatch(SOUND_NAME, name)


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", "\x1b[2J", "\x7f", "\x00"])
def test_names_that_would_control_a_terminal_or_are_endless(name: str) -> None:
    assert not re.fullmatch(SOUND_NAME, name)


def test_counts_end_where_an_integer_of_a_database_does() -> None:
    assert (MOST_COUNT, MOST_FANOUT) == (2**31 - 1, 8)


def test_terms_are_limits_that_are_not_there_unless_given() -> None:
    terms = KeyTerms(name="n")
    assert msgspec.structs.asdict(terms) == {
        "name": "n", "expires": None, "models": (), "budget_usd": None, "budget_period": "total",
        "rpm": None, "tpm": None, "max_tokens": None, "may_race": False, "max_fanout": 2,
        "tags": None,
    }  # fmt: skip
    bare = KeyRecord(id="i", name="n", hash="h", prefix="p", created="c")
    assert terms_of(bare) == terms
    assert (bare.revoked, bare.expires) == (None, None)


def test_a_keys_terms_are_those_it_was_made_with() -> None:
    terms = KeyTerms(
        name="n", expires="2030-01-01T00:00:00Z", models=("a",), budget_usd=Decimal("1.5"),
        budget_period="day", rpm=1, tpm=2, max_tokens=3, may_race=True, max_fanout=4, tags="{}",
    )  # fmt: skip
    assert terms_of(new_key(terms)[1]) == terms


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("90d", NOW + 90 * 86_400 * S),
        ("1s", NOW + S),
        ("2027-01-31", 1_801_353_600 * S),
        ("2027-01-31T01:00:00+01:00", 1_801_353_600 * S),
        ("2023-11-14T22:13:21Z", NOW + S),
    ],
)
def test_a_key_expires_after_a_duration_or_at_a_date(text: str, until: int) -> None:
    assert expiry_of(text, NOW) == instant_text(until)


@pytest.mark.parametrize(
    "text", ["", "soon", "90", "2027-13-01", "99999999999999999999d", "100000000d"]
)
def test_what_is_neither_duration_nor_date_is_no_expiry(text: str) -> None:
    with pytest.raises(ValueError, match=r"^is neither a duration such as 90d nor a date"):
        expiry_of(text, NOW)


@pytest.mark.parametrize("text", ["2023-11-14T22:13:20Z", "2023-11-14"])
def test_an_expiry_that_has_come_already_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^is in the past\.$"):
        expiry_of(text, NOW)


@pytest.mark.parametrize("amount", ["0.000000001", "0.50", "25", "1000000000", "1E+9"])
def test_budgets_that_can_be_counted(amount: str) -> None:
    assert budget_problem(Decimal(amount)) == ""


@pytest.mark.parametrize("amount", ["0", "-1", "1000000000.000000001", "NaN", "Infinity", "-0"])
def test_a_budget_is_a_positive_amount(amount: str) -> None:
    assert budget_problem(Decimal(amount)).startswith("A budget is a positive amount")


@pytest.mark.parametrize("amount", ["0.0000000001", "1.0000000000"])
def test_a_budget_is_not_finer_than_a_billionth(amount: str) -> None:
    assert "billionths" in budget_problem(Decimal(amount))


def test_a_changed_key_has_its_new_terms_and_stays_the_same_key(connection: sa.Connection) -> None:
    mine, other = key("mine", rpm=5), key("other", rpm=7)
    terms = KeyTerms(name="renamed", models=("a", "b"), budget_usd=Decimal("0.5"), may_race=True)
    add_key(connection, mine)
    add_key(connection, other)
    before, after = change_key(connection, mine.id, terms, wall_ns=NOW)
    assert before == mine
    assert terms_of(after) == terms
    assert (after.id, after.hash, after.prefix) == (mine.id, mine.hash, mine.prefix)
    assert set(read_keys(connection)) == {after, other}


def test_a_key_may_keep_its_name_or_take_that_of_one_that_is_over(
    connection: sa.Connection,
) -> None:
    mine, gone = key("mine"), key("gone")
    late = key("late", expires=instant_text(NOW + 5 * S))
    for one in (mine, gone, late):
        add_key(connection, one)
    revoke_key(connection, "gone", wall_ns=NOW)
    change_key(connection, mine.id, KeyTerms(name="mine", rpm=1), wall_ns=NOW)
    change_key(connection, mine.id, KeyTerms(name="gone"), wall_ns=NOW)
    with pytest.raises(KeyConflict, match="'late' is in use") as caught:
        change_key(connection, mine.id, KeyTerms(name="late"), wall_ns=NOW + 5 * S - 1)
    assert "revoke" in caught.value.hint
    change_key(connection, mine.id, KeyTerms(name="late"), wall_ns=NOW + 5 * S)
    names = sorted(one.name for one in read_keys(connection))
    assert names == ["gone", "late", "late"]


def test_a_revoked_or_unknown_key_is_not_changed(connection: sa.Connection) -> None:
    mine = key("mine", rpm=5)
    add_key(connection, mine)
    revoke_key(connection, mine.id, wall_ns=NOW)
    with pytest.raises(KeyConflict, match="'mine' was revoked"):
        change_key(connection, mine.id, KeyTerms(name="new"), wall_ns=NOW)
    with pytest.raises(KeyUnknown, match="no key 'nobody'"):
        change_key(connection, "nobody", KeyTerms(name="new"), wall_ns=NOW)
    assert [terms_of(one) for one in read_keys(connection)] == [terms_of(mine)]


def test_an_expired_key_is_still_changed_so_that_it_can_be_given_more_time(
    connection: sa.Connection,
) -> None:
    mine = key("mine", expires=instant_text(NOW + S))
    add_key(connection, mine)
    longer = KeyTerms(name="mine", expires=instant_text(NOW + 9 * S))
    change_key(connection, mine.id, longer, wall_ns=NOW + 2 * S)
    assert [one.over(NOW + 2 * S) for one in read_keys(connection)] == [None]


def test_a_name_revokes_all_that_have_it_and_are_not_revoked(connection: sa.Connection) -> None:
    old = key("n", expires=instant_text(NOW + S))
    add_key(connection, old)
    new = key("n", at=NOW + S)
    add_key(connection, new)
    gone = revoke_key(connection, "n", wall_ns=NOW + 2 * S)
    kept = read_keys(connection)
    assert gone == msgspec.structs.replace(new, revoked=instant_text(NOW + 2 * S))
    assert {one.revoked for one in kept} == {instant_text(NOW + 2 * S)}
    assert len(kept) == 2


def test_what_went_wrong_with_a_key_has_a_kind(connection: sa.Connection) -> None:
    mine = key("mine")
    add_key(connection, mine)
    with pytest.raises(KeyConflict):
        add_key(connection, key("mine"))
    with pytest.raises(KeyUnknown):
        revoke_key(connection, "nobody", wall_ns=NOW)
    revoke_key(connection, "mine", wall_ns=NOW)
    with pytest.raises(KeyConflict):
        revoke_key(connection, mine.id, wall_ns=NOW)


def test_keys_are_read_oldest_first_and_restored_as_they_were(connection: sa.Connection) -> None:
    gone = msgspec.structs.replace(key("a", at=NOW + 2 * S), revoked=instant_text(NOW + 3 * S))
    first = key("b", at=NOW, models=("m",), budget_usd=Decimal("0.000000001"))
    restore_keys(connection, [gone, first])
    assert read_keys(connection) == (first, gone)
