"""Money in journals that cannot be shipped now, because the ledger's disk takes nothing more."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import sqlalchemy as sa

from lightgate.ledger.journal.journal import Frames, journals
from lightgate.ledger.journal.notes import Reserved, Settled
from lightgate.ledger.store import schema

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.ledger.store.store import Ledger


def shipped_places(ledger: Ledger) -> dict[str, tuple[int, bool]]:
    """How far each journal is shipped, and whether it is finished."""
    table = schema.shipped.c
    with ledger.reading() as connection:
        rows = connection.execute(sa.select(table.journal, table.offset, table.finished)).all()
    return {name: (offset, finished) for name, offset, finished in rows}


def waiting_spend(ledger: Ledger, folder: Path, since_ns: int) -> Counter[str]:
    """Count the nano-dollars of each key that the journals know since a time, and no ledger yet.

    What is reserved and not settled counts as spent. An exchange that is reserved in the ledger and
    settled in a journal counts with the difference, which may be below 0: read this and the ledger
    while nothing is shipped (`shipped_places`).
    """
    kept = schema.reservations.c
    places = shipped_places(ledger)
    with ledger.reading() as connection:
        there = {
            found: nano_usd or 0
            for found, nano_usd in connection.execute(sa.select(kept.exchange_id, kept.nano_usd))
        }
    spent: Counter[str] = Counter()
    reserved: dict[str, Reserved] = {}
    for path in journals(folder):
        offset, finished = places.get(path.name, (0, False))
        for note, _ in () if finished else Frames(path, offset):
            if isinstance(note, Reserved):
                reserved[note.exchange_id] = note
            elif isinstance(note, Settled):
                one = note.exchange
                reserved.pop(one.id, None)
                if one.wall_ns >= since_ns and one.key_id is not None:
                    spent[one.key_id] += (one.cost_nano or 0) + (one.loser_cost_nano or 0)
                    spent[one.key_id] -= there.get(one.id, 0)
    for held in reserved.values():
        if held.wall_ns >= since_ns and held.key_id is not None:
            spent[held.key_id] += held.nano_usd
    return spent
