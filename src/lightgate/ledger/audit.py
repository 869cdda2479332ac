"""The log of changes: who has changed what, when, from where, and how it was before.

Rows are added and never changed or deleted. A secret is in none of them: what is noted of a key is
its public record, without the hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from lightgate.clock.attempt import wall_time
from lightgate.clock.source import SYSTEM

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from lightgate.clock.ids import Ids
    from lightgate.clock.source import Clock

Via = Literal["cli", "session", "bearer", "password"]
MOST_SHOWN: Final = 200  # entries of one page
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Author(NamedTuple):
    """Who makes a change: how they came, what they are called, and the address they came from."""

    via: Via
    who: str
    address: str = ""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change; `before` and `after` have the fields that differ, None where there is none."""

    id: str
    at: str
    via: str
    who: str
    address: str
    action: str
    object: str
    name: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class ChangeNote(NamedTuple):
    """What was done to what: `object` is an id, `name` what people call it."""

    action: str
    object: str
    name: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


def note_change(
    connection: Connection, author: Author, change: ChangeNote, *, ids: Ids, clock: Clock = SYSTEM
) -> None:
    """Add a row, in the transaction of the change itself; of two states only what differs.

    `ids` are those of the process: so the rows sort in the order of the changes.
    """
    from lightgate.ledger.store.schema import audit

    before, after = change.before, change.after
    if before is not None and after is not None:
        differs = [name for name in after if before.get(name) != after[name]]
        before = {name: before.get(name) for name in differs}
        after = {name: after[name] for name in differs}
    connection.execute(
        audit.insert().values(
            id=ids.new(),
            wall_ns=clock.wall_ns(),
            via=author.via,
            who=author.who,
            address=author.address,
            action=change.action,
            object=change.object,
            name=change.name,
            before=None if before is None else _encode(before).decode(),
            after=None if after is None else _encode(after).decode(),
        )
    )


def read_audit(
    connection: Connection, *, before: str | None = None, limit: int = MOST_SHOWN
) -> list[AuditEntry]:
    """The newest changes first; `before` is the id of the last one that was seen."""
    from lightgate.ledger.store.schema import audit

    query = audit.select().order_by(audit.c.id.desc()).limit(limit)
    if before:
        query = query.where(audit.c.id < before)
    return [
        AuditEntry(
            id=row.id,
            at=wall_time(row.wall_ns),
            via=row.via,
            who=row.who,
            address=row.address,
            action=row.action,
            object=row.object,
            name=row.name,
            before=None if row.before is None else msgspec.json.decode(row.before),
            after=None if row.after is None else msgspec.json.decode(row.after),
        )
        for row in connection.execute(query)
    ]
