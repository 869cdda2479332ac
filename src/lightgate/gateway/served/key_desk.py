"""Make, change and revoke virtual keys: in the ledger, in its log of changes, and in the snapshot.

A running gateway takes the snapshot, and with it the change, within a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lightgate.clock.ids import Ids
from lightgate.clock.source import SYSTEM
from lightgate.gateway.served.snapshot import refresh_keys
from lightgate.ledger.audit import ChangeNote, note_change
from lightgate.ledger.store.keys import (
    KeyConflict,
    KeyUnknown,
    add_key,
    change_key,
    new_key,
    read_keys,
    revoke_key,
    terms_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy import Connection

    from lightgate.clock.source import Clock
    from lightgate.ledger.audit import Author
    from lightgate.ledger.store.keys import KeyRecord, KeyTerms
    from lightgate.ledger.store.store import Ledger


class NewKey(NamedTuple):
    """A key that was just made; `secret` exists nowhere else."""

    secret: str
    record: KeyRecord
    keys: int  # how many there are, this one included
    fresh: bool = True  # a key that a deployment brings may be there already


class KeyDesk:
    """Changes the keys of one gateway."""

    def __init__(self, ledger: Ledger, data: Path, clock: Clock = SYSTEM) -> None:
        self._ledger = ledger
        self._data = data
        self._clock = clock
        self.ids = Ids(clock)

    def create(self, terms: KeyTerms, author: Author, *, given: str | None = None) -> NewKey:
        """Make a key; only its hash is kept. One that is `given` stays as it is where it is known.

        A given key that is over is not brought back.
        """
        secret, record = new_key(terms, clock=self._clock, given=given)
        kept = [record]

        def work(connection: Connection) -> None:
            known = (key for key in read_keys(connection) if key.hash == record.hash)
            same = next(known, None)
            if same is not None:
                why = same.over(self._clock.wall_ns())
                if why:
                    said = f"This key is {why}: {same.name!r} ({same.id})."
                    raise KeyConflict(said, hint="Put another one there.")
                kept[0] = same
                return
            add_key(connection, record)
            made = ChangeNote("key.create", record.id, record.name, None, public_facts(record))
            note_change(connection, author, made, ids=self.ids, clock=self._clock)

        count = self._done(work)
        return NewKey(secret, kept[0], count, fresh=kept[0] is record)

    def change(
        self,
        id_: str,
        terms: Callable[[KeyTerms], KeyTerms],
        author: Author,
        *,
        version: str = "",
    ) -> KeyRecord:
        """Give a key other terms, made of those it has; a `version` must be the one it has."""
        found: list[KeyRecord] = []

        def work(connection: Connection) -> None:
            now = next((key for key in read_keys(connection) if key.id == id_), None)
            if now is None:
                raise KeyUnknown(f"There is no key {id_!r}.")
            if version and version != version_of(now):
                raise KeyConflict("The key was changed meanwhile: look at it again.")
            wall_ns = self._clock.wall_ns()
            before, after = change_key(connection, id_, terms(terms_of(now)), wall_ns=wall_ns)
            change = ChangeNote(
                "key.change", id_, after.name, public_facts(before), public_facts(after)
            )
            note_change(connection, author, change, ids=self.ids, clock=self._clock)
            found.append(after)

        self._done(work)
        return found[0]

    def revoke(self, named: str, author: Author) -> KeyRecord:
        """Revoke a key by its id or its name, for good."""
        found: list[KeyRecord] = []

        def work(connection: Connection) -> None:
            record = revoke_key(connection, named, wall_ns=self._clock.wall_ns())
            before = msgspec.structs.replace(record, revoked=None)
            change = ChangeNote(
                "key.revoke", record.id, record.name, public_facts(before), public_facts(record)
            )
            note_change(connection, author, change, ids=self.ids, clock=self._clock)
            found.append(record)

        self._done(work)
        return found[0]

    def _done(self, work: Callable[[Connection], None]) -> int:
        """Do the work, then put all keys into the snapshot of a gateway that runs; their number.

        Under the ledger's write lock: of two at once, the later one writes both changes.
        """
        with self._ledger.writing() as connection:
            work(connection)
        with self._ledger.writing() as connection:
            keys = read_keys(connection)
            refresh_keys(self._data, keys)
        return len(keys)


def public_facts(record: KeyRecord) -> dict[str, Any]:
    """What is shown of a key: all of its record but the hash."""
    facts = msgspec.structs.asdict(record)
    del facts["hash"]
    facts["models"] = list(record.models)
    facts["tags"] = msgspec.json.decode(record.tags) if record.tags else {}
    return facts


def version_of(record: KeyRecord) -> str:
    """A word that is another one after every change of the key; nothing can be read from it."""
    import hashlib

    told = msgspec.json.Encoder(order="sorted").encode(public_facts(record))
    return hashlib.sha256(told).hexdigest()[:16]
