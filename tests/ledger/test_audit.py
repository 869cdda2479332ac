"""The log of changes: what a row says, and in which order rows are read."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from lightgate.clock.attempt import wall_time
from lightgate.clock.ids import Ids
from lightgate.clock.source import ManualClock
from lightgate.ledger.audit import (
    MOST_SHOWN,
    AuditEntry,
    Author,
    ChangeNote,
    note_change,
    read_audit,
)
from lightgate.ledger.store.schema import audit, metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_700_000_000_123_000_000
ME = Author("session", "ada", "192.0.2.7")


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    """The tables of a ledger, in memory."""
    with sa.create_engine("sqlite://").begin() as connection:
        metadata.create_all(connection)
        yield connection


def noted(
    connection: sa.Connection,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    author: Author = ME,
    at: int = NOW,
) -> AuditEntry:
    """Note one change, and read it again."""
    clock = ManualClock(wall_ns=at)
    note = ChangeNote("key.change", "k1", "ci", before, after)
    note_change(connection, author, note, ids=Ids(clock), clock=clock)
    return read_audit(connection)[0]


def test_a_row_says_who_did_what_to_what_when_and_from_where(connection: sa.Connection) -> None:
    entry = noted(connection, None, {"rpm": 5})
    assert entry == AuditEntry(
        id=entry.id, at=wall_time(NOW), via="session", who="ada", address="192.0.2.7",
        action="key.change", object="k1", name="ci", before=None, after={"rpm": 5},
    )  # fmt: skip
    assert connection.execute(sa.select(audit.c.id)).scalar() == entry.id
    assert connection.execute(sa.select(audit.c.wall_ns)).scalar() == NOW


def test_of_two_states_only_what_differs_is_kept(connection: sa.Connection) -> None:
    before = {"rpm": 5, "tpm": 7, "gone": 1}
    after = {"rpm": 6, "tpm": 7, "new": None, "added": True}
    entry = noted(connection, before, after)
    assert entry.before == {"rpm": 5, "added": None}
    assert entry.after == {"rpm": 6, "added": True}


def test_a_state_that_stands_alone_is_kept_whole(connection: sa.Connection) -> None:
    gone = noted(connection, {"rpm": 5, "tpm": None}, None)
    assert (gone.before, gone.after) == ({"rpm": 5, "tpm": None}, None)
    nothing = noted(connection, None, None, Author("cli", "root"), NOW + 10**9)
    assert (nothing.before, nothing.after, nothing.address) == (None, None, "")


def test_dollars_are_kept_exactly_and_fields_in_the_order_of_their_names(
    connection: sa.Connection,
) -> None:
    noted(connection, None, {"z": 1, "budget_usd": Decimal("0.10"), "é": "ü"})
    kept = connection.execute(sa.select(audit.c.before, audit.c.after)).one()
    assert tuple(kept) == (None, '{"budget_usd":"0.10","z":1,"é":"ü"}')


def test_the_newest_come_first_and_a_page_goes_on_behind_the_last(
    connection: sa.Connection,
) -> None:
    clock = ManualClock(wall_ns=NOW)
    ids = Ids(clock)
    for number in range(MOST_SHOWN + 3):
        note = ChangeNote("key.make", f"k{number}", "n")
        note_change(connection, ME, note, ids=ids, clock=clock)
    first = read_audit(connection)
    assert [entry.object for entry in first] == [f"k{202 - n}" for n in range(200)]
    rest = read_audit(connection, before=first[-1].id)
    assert [entry.object for entry in rest] == ["k2", "k1", "k0"]
    assert [entry.object for entry in read_audit(connection, limit=2)] == ["k202", "k201"]
    assert read_audit(connection, before=rest[-1].id) == []
