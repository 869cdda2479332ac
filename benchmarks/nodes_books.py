"""The books of nodes.py: the ledger in PostgreSQL against what the clients wrote down.

Every answer is in the ledger once, with its id, key, tokens and price; nothing else is there but
what was under way on a machine that was killed. Sums for keys are those of the rows.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlalchemy as sa

from lightgate.ledger.journal.ship import ORPHANED
from lightgate.ledger.store import schema
from lightgate.ledger.store.queries import spend_per_key
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from nodes_cluster import Answer, Cluster

NANO: Final = 1_000_000_000
IN_NANO, OUT_NANO = 1_000, 2_000  # the price of a token
SHIPPED_S: Final = 60.0  # for the journals to reach the ledger
SHOWN: Final = 4


class Check(NamedTuple):
    """One finding, and whether it is as it must be."""

    text: str
    holds: bool


async def shipped(cluster: Cluster) -> Check:
    """Wait until every answer is in the ledger, while the machines run."""
    began = time.monotonic()
    names = {answer.name for answer in cluster.seen if answer.status == 200}
    while (missing := len(names - await asyncio.to_thread(_names, cluster.url))) > 0:
        if time.monotonic() - began > SHIPPED_S:
            break
        await asyncio.sleep(0.2)
    took = time.monotonic() - began
    return Check(f"{len(names)} answers are in the ledger {took:.1f} s after the last; missing:"
                 f" {missing}", missing == 0)  # fmt: skip


def _names(url: str) -> set[str]:
    with Ledger.open(url) as ledger, ledger.reading() as connection:
        return set(connection.scalars(sa.select(schema.exchange_notes.c.request_id)))


def audit(cluster: Cluster) -> list[Check]:
    """Hold the ledger against all transcripts, request by request; the machines have ended."""
    with Ledger.open(cluster.url) as ledger:
        with ledger.reading() as connection:
            rows = connection.execute(sa.select(schema.exchange_notes)).all()
            tried = {
                made: (count, int(cost or 0))
                for made, count, cost in connection.execute(
                    sa.select(
                        schema.attempt_notes.c.exchange_id,
                        sa.func.count(),
                        sa.func.sum(schema.attempt_notes.c.cost_nano),
                    ).group_by(schema.attempt_notes.c.exchange_id)
                )
            }
            table = schema.reservations
            open_ = connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
        sums = spend_per_key(ledger)
    by_name: dict[str, list[Any]] = {}
    for row in rows:
        by_name.setdefault(row.request_id, []).append(row)
    keys = {name: record.id for name, record in cluster.records.items()}
    wrong = [
        why
        for answer in cluster.seen
        if (why := _wrong(answer, by_name.pop(answer.name, []), tried, keys))
    ]
    wrong += [f"{name}: nobody has asked for it" for name in by_name]
    by_key: dict[str, int] = {}
    for row in rows:
        by_key[row.key_id] = by_key.get(row.key_id, 0) + (row.cost_nano or 0)
    summed = {key: int(usd * NANO) for key, usd in sums.items()}
    differ = {key: (cost, summed.get(key)) for key, cost in by_key.items()
              if cost != summed.get(key, 0)}  # fmt: skip
    answered = [a for a in cluster.seen if a.status == 200]
    paid = sum(map(cost_of, answered))
    cut = sum(row.cost_nano or 0 for row in rows if row.error == ORPHANED)
    total = sum(by_key.values())
    found = f"{len(answered)} answers of {len(cluster.seen)} requests, {len(rows)} rows"
    return [
        Check(f"ledger against transcripts: {found}; wrong: {len(wrong)} {wrong[:SHOWN]}",
              not wrong),
        Check(f"clients were told of {paid} nano-dollars, the ledger has {total}, {cut} of them"
              " reserved by killed machines", paid + cut == total),
        Check(f"sums of keys that are not those of their rows: {differ}; left open: {open_}",
              not differ and not open_),
    ]  # fmt: skip


def cost_of(answer: Answer) -> int:
    """Nano-dollars of an answer, by the tokens that its client was told."""
    return answer.tokens_in * IN_NANO + answer.tokens_out * OUT_NANO


def _wrong(
    answer: Answer, rows: list[Any], tried: dict[str, tuple[int, int]], keys: dict[str, str]
) -> str:
    """What the ledger has wrong of a request; empty where nothing is."""
    if len(rows) > 1:
        return f"{answer.name}: {len(rows)} rows"
    if answer.status != 200:
        broke = answer.status == 0 and rows and rows[0].error == ORPHANED
        paid = rows and (rows[0].cost_nano or rows[0].id in tried)
        return f"{answer.name}: {answer.status}, but {rows[0]}" if paid and not broke else ""
    if not rows:
        return f"{answer.name}: no row"
    row, cost = rows[0], cost_of(answer)
    seen = (answer.id, keys[answer.key], 200, "ok", answer.tokens_in, answer.tokens_out, cost)
    kept = (row.id, row.key_id, row.status, row.outcome, row.tokens_in, row.tokens_out,
            row.cost_nano)  # fmt: skip
    if seen != kept:
        return f"{answer.name}: seen {seen}, kept {kept}"
    return "" if tried.get(row.id) == (1, cost) else f"{answer.name}: attempts {tried.get(row.id)}"
