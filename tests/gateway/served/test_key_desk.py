"""Keys made, changed and revoked: in the ledger, its log of changes and the running gateway."""

from __future__ import annotations

import string
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.clock.attempt import wall_time
from lightgate.clock.source import ManualClock
from lightgate.gateway.served.key_desk import KeyDesk, public_facts, version_of
from lightgate.gateway.served.snapshot import (
    Snapshot,
    follow_keys,
    put_snapshot,
    read_snapshot,
)
from lightgate.ledger.audit import AuditEntry, Author, read_audit
from lightgate.ledger.store.keys import (
    KeyConflict,
    KeyTerms,
    KeyUnknown,
    hash_of,
    instant_text,
    new_key,
    read_keys,
)
from lightgate.ledger.store.schema import audit, keys
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.ledger.store.keys import KeyRecord

S = 1_000_000_000
ADA = Author("session", "ada", "192.0.2.7")
GIVEN = "lg-" + string.ascii_letters


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with Ledger.open("sqlite", tmp_path_factory.mktemp("desk")) as ledger:
        yield ledger


class Office:
    """A desk with its ledger, its clock, and the snapshot of a gateway that runs."""

    def __init__(self, ledger: Ledger, data: Path) -> None:
        self.ledger, self.data, self.clock = ledger, data, ManualClock()
        self.desk = KeyDesk(ledger, data, self.clock)
        put_snapshot(data, Snapshot(made_ns=1, providers={}, instance="here"))

    @property
    def kept(self) -> tuple[KeyRecord, ...]:
        """The keys in the ledger, which the gateway must have been told about."""
        with self.ledger.reading() as connection:
            found = read_keys(connection)
        told = read_snapshot(self.data)
        assert told.keys == found
        assert told.instance == "here"
        return found

    @property
    def log(self) -> list[AuditEntry]:
        with self.ledger.reading() as connection:
            return read_audit(connection)


@pytest.fixture
def office(opened: Ledger, tmp_path: Path) -> Office:
    with opened.writing() as connection:
        connection.execute(keys.delete())
        connection.execute(audit.delete())
    return Office(opened, tmp_path)


def test_a_key_that_is_made_is_told_to_the_gateway_and_noted(office: Office) -> None:
    made = office.desk.create(KeyTerms(name="ci", rpm=5, models=("a",), tags='{"t":"x"}'), ADA)
    assert office.kept == (made.record,)
    assert made.record.hash == hash_of(made.secret.encode())
    assert made.record.created == instant_text(office.clock.wall_ns())
    assert (made.keys, made.fresh) == (1, True)
    (entry,) = office.log
    assert (entry.action, entry.object, entry.name) == ("key.create", made.record.id, "ci")
    assert (entry.via, entry.who, entry.address) == ADA
    assert entry.before is None
    assert entry.after is not None
    assert (entry.after["rpm"], entry.after["models"], entry.after["tags"]) == (
        5,
        ["a"],
        {"t": "x"},
    )
    assert "hash" not in entry.after
    assert made.secret not in msgspec.json.encode(entry).decode()
    assert office.desk.create(KeyTerms(name="other"), ADA).keys == 2


def test_a_key_that_a_deployment_brings_is_made_once(office: Office) -> None:
    made = office.desk.create(KeyTerms(name="theirs", rpm=5), ADA, given=GIVEN)
    assert (made.secret, made.fresh, made.record.prefix) == (GIVEN, True, GIVEN[:8])
    again = office.desk.create(KeyTerms(name="renamed", rpm=9), ADA, given=GIVEN)
    assert (again.secret, again.fresh, again.keys) == (GIVEN, False, 1)
    assert again.record == made.record
    assert office.kept == (made.record,)
    assert len(office.log) == 1
    office.desk.revoke("theirs", ADA)
    with pytest.raises(KeyConflict, match="This key is revoked: 'theirs'") as caught:
        office.desk.create(KeyTerms(name="theirs"), ADA, given=GIVEN)
    assert "another" in caught.value.hint


def test_a_brought_key_that_has_expired_is_not_brought_back(office: Office) -> None:
    until = instant_text(office.clock.wall_ns() + 5 * S)
    office.desk.create(KeyTerms(name="theirs", expires=until), ADA, given=GIVEN)
    office.clock.advance(4 * S)
    assert not office.desk.create(KeyTerms(name="theirs"), ADA, given=GIVEN).fresh
    office.clock.advance(S)
    with pytest.raises(KeyConflict, match="This key is expired"):
        office.desk.create(KeyTerms(name="theirs"), ADA, given=GIVEN)


def test_a_change_of_one_of_several_keys_is_made_of_its_own_terms(office: Office) -> None:
    made = [office.desk.create(KeyTerms(name=f"k{n}", rpm=n), ADA).record for n in (1, 2, 3)]
    office.clock.advance(S)
    for number, record in enumerate(made, 1):
        changed = office.desk.change(
            record.id, lambda terms: msgspec.structs.replace(terms, tpm=7), ADA
        )
        assert (changed.id, changed.name) == (record.id, f"k{number}")
        assert (changed.rpm, changed.tpm) == (number, 7)
    office.clock.advance(S)
    office.desk.revoke("k2", ADA)
    assert {key.name for key in office.kept if key.revoked} == {"k2"}
    now_ns = office.clock.wall_ns()  # by the clock of the desk, the last one first
    times = [wall_time(now_ns - age * S) for age in (0, 1, 1, 1, 2, 2, 2)]
    assert [entry.at for entry in office.log] == times


def test_a_change_is_made_of_the_terms_that_the_key_has(office: Office) -> None:
    made = office.desk.create(KeyTerms(name="ci", rpm=5, tpm=7), ADA).record
    other = office.desk.create(KeyTerms(name="other"), ADA).record
    office.clock.advance(S)

    def doubled(terms: KeyTerms) -> KeyTerms:
        return msgspec.structs.replace(terms, rpm=2 * (terms.rpm or 0), name="ci-2")

    after = office.desk.change(made.id, doubled, ADA)
    assert after == msgspec.structs.replace(made, rpm=10, name="ci-2")
    assert set(office.kept) == {after, other}
    entry = office.log[0]
    assert (entry.action, entry.object, entry.name) == ("key.change", made.id, "ci-2")
    assert entry.before == {"name": "ci", "rpm": 5}
    assert entry.after == {"name": "ci-2", "rpm": 10}


def test_a_change_of_what_somebody_else_has_changed_meanwhile_is_refused(office: Office) -> None:
    made = office.desk.create(KeyTerms(name="ci", rpm=5), ADA).record
    seen = version_of(made)

    def more(terms: KeyTerms) -> KeyTerms:
        return msgspec.structs.replace(terms, rpm=(terms.rpm or 0) + 1)

    after = office.desk.change(made.id, more, ADA, version=seen)
    with pytest.raises(KeyConflict, match="changed meanwhile"):
        office.desk.change(made.id, more, ADA, version=seen)
    assert office.kept == (after,)
    assert len(office.log) == 2
    assert office.desk.change(made.id, more, ADA).rpm == 7  # without a version it is the last one


def test_an_unknown_key_is_neither_changed_nor_noted(office: Office) -> None:
    with pytest.raises(KeyUnknown, match="no key 'nobody'"):
        office.desk.change("nobody", lambda terms: terms, ADA)
    with pytest.raises(KeyUnknown):
        office.desk.revoke("nobody", ADA)
    assert office.log == []


@pytest.mark.parametrize("by", ["id", "name"])
def test_a_revoked_key_is_told_to_the_gateway_and_noted(office: Office, by: str) -> None:
    made = office.desk.create(KeyTerms(name="ci", rpm=5), ADA).record
    office.clock.advance(3 * S)
    gone = office.desk.revoke(getattr(made, by), ADA)
    at = instant_text(office.clock.wall_ns())
    assert gone == msgspec.structs.replace(made, revoked=at)
    assert office.kept == (gone,)
    entry = office.log[0]
    assert (entry.action, entry.object, entry.name) == ("key.revoke", made.id, "ci")
    assert (entry.before, entry.after) == ({"revoked": None}, {"revoked": at})


def test_the_log_is_in_the_order_of_the_changes(office: Office) -> None:
    made = [office.desk.create(KeyTerms(name=f"k{n}"), ADA).record.id for n in range(5)]
    assert [entry.object for entry in office.log] == made[::-1]
    assert {entry.at for entry in office.log} == {office.log[0].at}


def test_where_no_gateway_runs_the_ledger_alone_is_changed(opened: Ledger, tmp_path: Path) -> None:
    desk = KeyDesk(opened, tmp_path / "none")
    record = desk.create(KeyTerms(name="quiet"), ADA).record
    with opened.reading() as connection:
        assert record in read_keys(connection)
    assert not (tmp_path / "none" / "snapshot.json").exists()


def test_all_but_the_hash_of_a_key_is_shown() -> None:
    terms: dict[str, Any] = {"name": "n", "models": ("a", "b"), "budget_usd": Decimal("0.50")}
    record = new_key(KeyTerms(**terms))[1]
    facts = public_facts(record)
    assert set(facts) == set(record.__struct_fields__) - {"hash"}
    assert (facts["models"], facts["tags"], facts["budget_usd"]) == (
        ["a", "b"],
        {},
        Decimal("0.50"),
    )


def test_every_change_has_a_version_of_its_own() -> None:
    record = new_key(KeyTerms(name="n"))[1]
    others = [
        msgspec.structs.replace(record, **change)
        for change in ({}, {"name": "m"}, {"rpm": 1}, {"revoked": record.created}, {"tags": "{}"})
    ]
    versions = [version_of(other) for other in others]
    assert versions[0] == versions[4] == version_of(record)
    assert len(set(versions)) == 4
    assert all(len(version) == 16 and set(version) <= set(string.hexdigits) for version in versions)
    assert version_of(msgspec.structs.replace(record, hash="other")) == versions[0]


def test_keys_of_another_machine_are_followed_only_where_they_differ(tmp_path: Path) -> None:
    follow_keys(tmp_path, ())
    assert list(tmp_path.iterdir()) == []  # no gateway runs yet
    one = new_key(KeyTerms(name="one"))[1]
    put_snapshot(tmp_path, Snapshot(made_ns=1, providers={}, keys=(one,)))
    follow_keys(tmp_path, (one,))
    assert read_snapshot(tmp_path).made_ns == 1
    follow_keys(tmp_path, ())
    assert read_snapshot(tmp_path).keys == ()
    assert read_snapshot(tmp_path).made_ns > 1
