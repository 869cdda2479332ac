"""Go over from a counter file that was deleted to the one at its path; no budget begins anew.

The first worker that sees it takes all leases back and copies the file, while all of it is locked.
What a worker counts in the old file after that is in its own words alone, which it takes along when
it goes over: at the latest when it needs another lease, since the old file is marked.

A file that was cut off or written over says nothing any more. An empty one takes its place, where
each worker writes what it knows itself: its own counts, and the spend of the others as it last saw
it. Until the ledger has been asked for the rest, keys with a budget are refused.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lightgate.gateway.spend.counter_file import WHOLE, CounterFile
from lightgate.gateway.spend.shares import (
    BASE,
    HELD,
    HELD_TOKENS,
    OWN_PERIOD,
    OWN_WORDS,
    PERIOD,
    SPENT,
    VISIBLE_S,
    LockedSlot,
    lower_limits,
    place_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightgate.gateway.spend.shares import Lease


def successor(old: CounterFile) -> tuple[CounterFile, bool] | None:
    """Open the file at the path of one that was deleted; whether it is a copy of that.

    None where the copy was deleted as well: the worker that counts in it makes the next one.
    """
    slots = list(old.slots())
    old.lock(WHOLE)
    try:
        missing = not old.path.exists()
        if old.copied and missing:
            return None
        if missing:
            for _, slot in slots:
                for worker in range(old.workers):
                    lower_limits(old.words, place_of(slot, worker))
            time.sleep(VISIBLE_S)  # after which a worker sees its limit, or we see its count
            old.copy()
        return CounterFile(old.path), old.copied
    finally:
        old.unlock(WHOLE)


def renewed(old: CounterFile, now_ns: int) -> CounterFile:
    """Open the file that takes the place of one that was cut off or written over."""
    old.lock(WHOLE)
    try:
        old.give_up(now_ns)
        return CounterFile(old.path)
    finally:
        old.unlock(WHOLE)


def carry_known(
    leases: Iterable[tuple[str, Lease]], new: CounterFile, worker: int
) -> dict[str, Lease]:
    """Write what a worker knows without its file into another one; the leases that it has there."""
    kept = {}
    for key_id, lease in leases:
        if lease.seen is None and not lease.held and not lease.held_tokens:
            continue  # nothing of this key was counted here: it gets a slot with its next request
        kept[key_id] = lease
        lease.place(new.place(key_id), worker)
        slot, words, at = lease.slot, new.words, lease.at
        new.lock(slot)
        try:
            there = LockedSlot(words, slot.at, at, new.workers)
            if lease.seen is not None:
                there.raise_to(lease.seen)
                if words[slot.at + PERIOD] == lease.seen.period:
                    words[at + SPENT] = max(words[at + SPENT], lease.spent)
            words[at + HELD], words[at + HELD_TOKENS] = lease.held, lease.held_tokens
            words[at + OWN_PERIOD] = words[slot.at + PERIOD]
            lease.give_back(words)
            lease.read(words)
        finally:
            new.unlock(slot)
    return kept


def carry(
    leases: Iterable[tuple[str, Lease]],
    old: CounterFile,
    new: CounterFile,
    worker: int,
    *,
    copied: bool,
) -> None:
    """Take the own words of a worker along, with all that a file knows which is no copy of ours.

    Such a file (of a worker that was started meanwhile, or of a backup) gets the spend of the old
    one where it knows less: it is never lowered.
    """
    for key_id, lease in leases:
        spent = LockedSlot(old.words, lease.slot.at, lease.at, old.workers).money()[0]
        period = old.words[lease.slot.at + PERIOD]
        row = old.words[lease.at : lease.at + OWN_WORDS].tolist()
        lease.place(new.place(key_id), worker)
        slot, words = lease.slot, new.words
        new.lock(slot)
        try:
            if copied:
                for at, word in enumerate(row):
                    words[lease.at + at] = word
            else:
                there = LockedSlot(words, slot.at, lease.at, new.workers)
                there.roll(period)
                there.begin_period()
                words[slot.at + BASE] += max(0, spent - there.money()[0])
                words[lease.at + HELD] = row[HELD]
                words[lease.at + HELD_TOKENS] = row[HELD_TOKENS]
                words[lease.at + OWN_PERIOD] = words[slot.at + PERIOD]
            lease.give_back(words)
            lease.read(words)
        finally:
            new.unlock(slot)
