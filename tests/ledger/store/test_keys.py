from __future__ import annotations

import base64
import hashlib
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.clock.source import ManualClock
from lightgate.errors import UsageError
from lightgate.ledger.store import schema
from lightgate.ledger.store.keys import (
    KeyRecord,
    KeyTerms,
    add_key,
    instant_ns,
    instant_text,
    new_key,
    period_start,
    read_keys,
    revoke_key,
)
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = ManualClock().wall_ns()
HOUR = 3_600_000_000_000
WHOLE = KeyTerms(
    name="whole",
    expires=instant_text(NOW + HOUR),
    models=("fast", "groq/llama-3.3-70b-versatile"),
    budget_usd=Decimal("25.000000001"),
    budget_period="month",
    rpm=60,
    tpm=100_000,
    max_tokens=500,
    may_race=True,
    max_fanout=3,
    tags='{"team":"search"}',
)


def made(**terms: Any) -> KeyRecord:
    return new_key(KeyTerms(**({"name": "n"} | terms)), clock=ManualClock())[1]


@pytest.fixture
def ledger(tmp_path: Path, ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, tmp_path) as opened:
        yield opened


def test_a_key_is_256_random_bits_and_its_record_has_only_their_hash() -> None:
    drawn = bytes(range(32))
    secret, record = new_key(WHOLE, clock=ManualClock(), random_bytes=lambda n: drawn[:n])
    assert secret == "lg-AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    assert base64.urlsafe_b64decode(secret[3:] + "=") == drawn
    assert record.hash == hashlib.sha256(secret.encode()).hexdigest()
    assert (record.prefix, record.created) == ("lg-AAECA", "2023-11-14T22:13:20Z")
    assert secret not in msgspec.json.encode(record).decode()
    assert {name: getattr(record, name) for name in KeyTerms.__struct_fields__} == (
        msgspec.structs.asdict(WHOLE)
    )


def test_no_two_keys_are_alike() -> None:
    assert len({new_key(KeyTerms(name="n"))[0] for _ in range(100)}) == 100
    assert all(len(new_key(KeyTerms(name="n"))[0]) == 46 for _ in range(20))


def test_the_table_has_the_records_columns() -> None:
    assert tuple(schema.keys.columns.keys()) == KeyRecord.__struct_fields__


def test_records_come_back_as_they_went(ledger: Ledger) -> None:
    records = (made(name="plain"), new_key(WHOLE, clock=ManualClock(wall_ns=NOW + 10**9))[1])
    with ledger.writing() as connection:
        for record in records:
            add_key(connection, record)
    with ledger.reading() as connection:
        assert read_keys(connection) == records


def test_a_name_is_free_again_after_its_key_is_over(ledger: Ledger) -> None:
    with ledger.writing() as connection:
        add_key(connection, made())
        with pytest.raises(UsageError, match="'n' is in use"):
            add_key(connection, made())
        first = revoke_key(connection, "n", wall_ns=NOW)
        add_key(connection, made(expires=instant_text(NOW - HOUR)))
        add_key(connection, made())
        assert [key.over(NOW) for key in sorted(read_keys(connection), key=_ended)] == [
            None, "expired", "revoked",
        ]  # fmt: skip
    assert first.revoked == instant_text(NOW)


def _ended(key: KeyRecord) -> str:
    return key.over(NOW) or ""


@pytest.mark.parametrize("by", ["id", "name"])
def test_revoking_by_id_and_by_name(ledger: Ledger, by: str) -> None:
    one, other = made(name="one"), made(name="other")
    with ledger.writing() as connection:
        add_key(connection, one)
        add_key(connection, other)
        revoked = revoke_key(connection, getattr(one, by), wall_ns=NOW)
        assert revoked == msgspec.structs.replace(one, revoked=instant_text(NOW))
        assert {key.name: key.over(NOW) for key in read_keys(connection)} == {
            "one": "revoked", "other": None,
        }  # fmt: skip
        with pytest.raises(UsageError):
            revoke_key(connection, getattr(one, by), wall_ns=NOW)
        with pytest.raises(UsageError, match="no key 'nobody'"):
            revoke_key(connection, "nobody", wall_ns=NOW)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T22:13:20", NOW),
        ("2023-11-15T00:13:20+02:00", NOW),
        ("2023-11-14", NOW - 80_000 * 10**9),
    ],
)
def test_instants(text: str, ns: int) -> None:
    assert instant_ns(text) == ns
    assert instant_ns(instant_text(ns)) == ns


@pytest.mark.parametrize(
    ("period", "began"),
    [("total", None), ("day", "2023-11-14T00:00:00+00:00"), ("month", "2023-11-01T00:00:00+00:00")],
)
def test_when_a_period_began(period: Any, began: str | None) -> None:
    found = period_start(period, NOW + 999)
    assert (None if found is None else found.isoformat()) == began
