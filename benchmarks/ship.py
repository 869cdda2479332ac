"""What shipping costs: CPU for each exchange that is carried from a journal into the ledger.

    python benchmarks/ship.py [--exchanges 8000] [--rounds 5] [--batch 4000] [--json]

Every round ships the same journal into a new ledger, then inserts the very rows that came of it
with sqlite3's `executemany` into a bare file with the same tables and indexes, in transactions of
the same size: what SQLite itself takes. An exchange is announced (one note), settled (one note) and
has one attempt. `whole` answers came in one piece, `stream` in 100 bursts. CPU is that of this
process, with SQLite's writes in it. Exit code 6 if the limit is missed.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lightgate.clock.ids import Ids
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import End, Outcome
from lightgate.clock.tokens import Usage, count
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, NoteFacts, Reserved, Settled
from lightgate.ledger.journal.ship import LIMIT, Shipper
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.clock.tokens import Tokens

LIMIT_US: Final = 25.0  # CPU per exchange of a whole answer
MS: Final = 1_000_000
WALL_NS: Final = 1_790_000_100_000_000_000
KINDS: Final = {"whole": 0, "stream": 100}  # bursts
TABLES: Final = ("exchange_notes", "attempt_notes")


class Ended(NamedTuple):
    """How the call of an attempt ended."""

    tokens: Tokens
    streamed: bool
    outcome: Outcome = Outcome.OK
    error: None = None
    status: int = 200
    finish_reason: str = "stop"
    bytes_in: int = 900
    bytes_out: int = 700
    end: End = "marker"
    provider_request_id: str = "req_011CPJCIsmk2vB7PtU1O"


def attempt(made: str, at_ns: int, wall_ns: int, bursts: int) -> AttemptNote:
    """One attempt at one target, a warm connection."""
    marks = Marks(at_ns)
    marks.send, marks.headers = at_ns + MS, at_ns + 50 * MS
    for number in range(bursts):
        stamp = at_ns + (100 + number * 20) * MS
        marks.burst(stamp, stamp - 5000, 1, 4)
    marks.answer = marks.event = marks.first
    if not bursts:
        marks.event = marks.first = marks.answer = marks.last = at_ns + 60 * MS
        marks.first_since = marks.last_since = marks.first - 5000
    marks.end = (marks.last or at_ns) + MS
    tokens = count(marks, Usage(tokens_in=120, tokens_out=bursts or 100))
    facts = NoteFacts(
        f"{made}.0", made, "lab/small", "lab", "small", "openai-chat", 0, "only", None, wall_ns,
        15_000, "list", "2026-11-01",
    )  # fmt: skip
    return AttemptNote.of(facts, marks, Ended(tokens, streamed=bursts > 0))


def notes(exchanges: int, bursts: int) -> Iterator[Reserved | Settled]:
    """Two notes for each exchange; a thousand of them start in each second."""
    ids = Ids()
    for number in range(exchanges):
        made, at_ns = ids.new(), 10**12 + number * MS
        wall_ns = WALL_NS + number * MS
        yield Reserved(made, "key-1", wall_ns, 90_000, ("lab/small",), made, "fast", "openai-chat")
        one = attempt(made, at_ns, wall_ns, bursts)
        end = one.end or at_ns
        exchange = ExchangeNote(
            made, made, "key-1", "fast", "fastest", "lab/small hosts/small", "lab/small", "off",
            200, "ok", None, "openai-chat", bursts > 0, wall_ns, at_ns - 900_000, at_ns - 30_000,
            at_ns, at_ns + 90_000, one.send, one.first, (one.first or at_ns) + 80_000, one.end,
            end + 90_000, end + 110_000, 120, bursts or 100, 15_000, "list", None, None, 0,
        )  # fmt: skip
        yield Settled(exchange, (one,))


def shipped_us(data: Path, exchanges: int, bursts: int, batch: int) -> float:
    """CPU of shipping a journal of so many exchanges, in µs for each."""
    journal = Journal(data / "journal", 0)
    for note in notes(exchanges, bursts):
        journal.write(note)
    journal.close()
    with Ledger.open("sqlite", data) as ledger:
        shipper = Shipper(ledger, data / "journal")
        began = time.process_time_ns()
        done = shipper.drain(batch)
        spent = time.process_time_ns() - began
    if done.exchanges != exchanges or done.attempts != exchanges:
        raise SystemExit(f"{done} are not {exchanges} exchanges")
    return spent / 1000 / exchanges


def bare_us(data: Path, exchanges: int, batch: int) -> float:
    """CPU of inserting the same rows with nothing around it, in µs for each exchange."""
    ledger = sqlite3.connect(data / FILE)
    known = {row[0] for row in ledger.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    tables = TABLES if TABLES[0] in known else ("exchanges", "attempts")
    marks = ", ".join("?" * len(tables))
    made = ledger.execute(
        f"SELECT sql FROM sqlite_master WHERE tbl_name IN ({marks}) AND sql IS NOT NULL"  # noqa: S608 - marks
        " AND type IN ('table', 'index') ORDER BY type DESC",
        tables,
    ).fetchall()
    rows = {name: ledger.execute(f"SELECT * FROM {name}").fetchall() for name in tables}  # noqa: S608 - own names
    ledger.close()
    bare = sqlite3.connect(data / "bare.sqlite", isolation_level=None)
    for pragma in ("page_size = 8192", "journal_mode = WAL", "synchronous = NORMAL",
                   "wal_autocheckpoint = 4000"):  # fmt: skip
        bare.execute(f"PRAGMA {pragma}")
    for (statement,) in made:
        bare.execute(statement)
    at_once = batch // 2  # two notes for each exchange
    began = time.process_time_ns()
    for start in range(0, exchanges, at_once):
        bare.execute("BEGIN IMMEDIATE")
        for name, found in rows.items():
            holes = ", ".join("?" * len(found[0]))
            bare.executemany(
                f"INSERT INTO {name} VALUES ({holes})",  # noqa: S608 - own names
                found[start : start + at_once],
            )
        bare.execute("COMMIT")
    spent = time.process_time_ns() - began
    bare.close()
    return spent / 1000 / exchanges


def measure(options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Every kind and both ways, in turns."""
    found: dict[str, dict[str, list[float]]] = {
        kind: {"shipped_us": [], "bare_us": []} for kind in KINDS
    }
    for _ in range(options.rounds):
        for kind, bursts in KINDS.items():
            with tempfile.TemporaryDirectory() as folder:
                data, row = Path(folder), found[kind]
                row["shipped_us"].append(shipped_us(data, options.exchanges, bursts, options.batch))
                row["bare_us"].append(bare_us(data, options.exchanges, options.batch))
    return found


def show(found: dict[str, dict[str, list[float]]], options: argparse.Namespace) -> None:
    """The table, for the README."""
    head = f"{options.exchanges} exchanges x {options.rounds} rounds, {options.batch} notes at once"
    print(f"{head}; µs of CPU per exchange, median (min - max)")
    for kind, row in found.items():
        cells = [
            f"{statistics.median(values):5.1f} ({min(values):.1f} - {max(values):.1f})"
            for values in row.values()
        ]
        ratios = [a / b for a, b in zip(*row.values(), strict=True)]
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})"
        print(f"{kind:8} shipped {cells[0]}   bare {cells[1]}   x bare {ratio}")


def main() -> int:
    """Measure, print, and say whether the limit holds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--exchanges", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=LIMIT, help="notes in one transaction")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options)
    if options.json:
        figures: dict[str, Any] = {**found, "limit_us": LIMIT_US}
        print(json.dumps(figures))
    else:
        show(found, options)
    return 0 if statistics.median(found["whole"]["shipped_us"]) <= LIMIT_US else 6


if __name__ == "__main__":
    sys.exit(main())
