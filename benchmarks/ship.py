"""What shipping costs: CPU for each exchange that is carried from a journal into the ledger.

    python benchmarks/ship.py [--postgres] [--exchanges 16000] [--rounds 5] [--batch N] [--json]

Every round ships the same journal into a new ledger, then inserts the very rows that came of it
with nothing around it into the same tables and indexes, in transactions of the same size: what the
database itself takes. That is sqlite3's `executemany` or, with `--postgres`, psycopg's COPY as its
documentation writes it, on a server of the benchmark's own with default settings. An exchange is
announced (one note), settled (one note) and has one attempt. `whole` answers came in one piece,
`stream` in 100 bursts. CPU is that of this process and of all of the server's processes, so the
attempts per second are those of one core for both. Exit code 6 if a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lightgate.clock.ids import Ids
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import End, Outcome
from lightgate.clock.tokens import Usage, count
from lightgate.ledger.database.partitions import DAY_NS
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, NoteFacts, Reserved, Settled
from lightgate.ledger.journal.ship import LIMIT, SERVER_LIMIT, Shipper
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store import schema
from lightgate.ledger.store.store import Ledger
from postgres import PostgresServer, programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.clock.tokens import Tokens

LEAST_PER_S: Final = {"sqlite": 30_000, "postgresql": 20_000}  # attempts, on one core
LEAST_OF_BARE: Final = 0.4  # of the speed of the bare insert, in the same run
MS: Final = 1_000_000
WALL_NS: Final = 1_790_000_100_000_000_000
KINDS: Final = {"whole": 0, "stream": 100}  # bursts
TABLES: Final = ("exchange_notes", "attempt_notes")
_OF: Final = {"exchange_notes": schema.exchange_notes, "attempt_notes": schema.attempt_notes}
COLUMNS: Final = {
    name: ", ".join(f'"{column.name}"' for column in _OF[name].columns) for name in TABLES
}
SELECT: Final = {
    name: f"SELECT {COLUMNS[name]} FROM {name} ORDER BY wall_ns".encode()  # noqa: S608 - own names
    for name in TABLES
}


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


def shipped_us(base: Lite | Postgres, data: Path, url: str, options: Any, bursts: int) -> float:
    """CPU of shipping a journal of so many exchanges, in µs for each."""
    exchanges = options.exchanges
    journal = Journal(data / "journal", 0)
    for note in notes(exchanges, bursts):
        journal.write(note)
    journal.close()
    with Ledger.open(url, data) as ledger:
        shipper = Shipper(ledger, data / "journal")
        began = base.cpu_ns()
        done = shipper.drain(options.batch)
        spent = base.cpu_ns() - began
    if done.exchanges != exchanges or done.attempts != exchanges:
        raise SystemExit(f"{done} are not {exchanges} exchanges")
    return float(spent / 1000 / exchanges)


@contextmanager
def plain_sqlite() -> Iterator[None]:
    """Let sqlite3 be as Python has it, without what the ledger has told it about nulls."""
    kept = dict(sqlite3.adapters)
    sqlite3.adapters.clear()
    try:
        yield
    finally:
        sqlite3.adapters.update(kept)


class Lite:
    """SQLite: a file in a folder."""

    name: Final = "sqlite"

    def new(self) -> str:
        """The URL of a new ledger."""
        return self.name

    def cpu_ns(self) -> int:
        """CPU that was spent until now."""
        return time.process_time_ns()

    def bare_us(self, data: Path, url: str, exchanges: int, batch: int) -> float:
        """CPU of inserting the same rows with `executemany`, in µs for each exchange."""
        del url
        with plain_sqlite():
            return bare_us(data, exchanges, batch)


class Postgres:
    """PostgreSQL: a server that was started for this."""

    name: Final = "postgresql"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def new(self) -> str:
        """The URL of a new ledger."""
        return self._server.database()

    def cpu_ns(self) -> int:
        """CPU that was spent until now, here and by the server."""
        return time.process_time_ns() + self._server.cpu_ns()

    def bare_us(self, data: Path, url: str, exchanges: int, batch: int) -> float:
        """CPU of inserting the same rows by COPY, in µs for each exchange."""
        del data
        with psycopg.connect(url) as full:
            rows = {name: full.execute(SELECT[name]).fetchall() for name in TABLES}
        other = self._server.database()
        with Ledger.open(other) as ledger:
            for name in TABLES:
                if ledger.postgres is not None:
                    ledger.postgres.partitions.make(name, {WALL_NS // DAY_NS})
        at_once = batch // 2  # two notes for each exchange
        with psycopg.connect(other) as base:
            began = self.cpu_ns()
            for start in range(0, exchanges, at_once):
                for name, found in rows.items():
                    copied = base.cursor().copy(
                        f"COPY {name} ({COLUMNS[name]}) FROM STDIN".encode()
                    )
                    with copied as copy:
                        for row in found[start : start + at_once]:
                            copy.write_row(row)
                base.commit()
            spent = self.cpu_ns() - began
        self._server.drop(other)
        self._server.drop(url)
        return spent / 1000 / exchanges


def measure(
    base: Lite | Postgres, options: argparse.Namespace
) -> dict[str, dict[str, list[float]]]:
    """Every kind and both ways, in turns."""
    found: dict[str, dict[str, list[float]]] = {
        kind: {"shipped_us": [], "bare_us": []} for kind in KINDS
    }
    for _ in range(options.rounds):
        for kind, bursts in KINDS.items():
            with tempfile.TemporaryDirectory() as folder:
                data, row, url = Path(folder), found[kind], base.new()
                row["shipped_us"].append(shipped_us(base, data, url, options, bursts))
                row["bare_us"].append(base.bare_us(data, url, options.exchanges, options.batch))
    return found


def ratio(row: dict[str, list[float]]) -> float:
    """The speed of shipping beside that of the bare insert: the median of the rounds."""
    pairs = zip(row["shipped_us"], row["bare_us"], strict=True)
    return statistics.median(bare / shipped for shipped, bare in pairs)


def show(name: str, found: dict[str, dict[str, list[float]]], options: argparse.Namespace) -> None:
    """The table, for the README."""
    head = f"{options.exchanges} exchanges x {options.rounds} rounds, {options.batch} notes at once"
    print(f"{name}: {head}; µs of CPU per exchange, median (min - max)")
    for kind, row in found.items():
        cells = [
            f"{statistics.median(values):5.1f} ({min(values):.1f} - {max(values):.1f})"
            for values in row.values()
        ]
        per_s = 1e6 / statistics.median(row["shipped_us"])
        print(f"{kind:8} shipped {cells[0]}   bare {cells[1]}   {per_s:,.0f} attempts/s,"
              f" {ratio(row):.2f} of bare")  # fmt: skip


def missed(name: str, found: dict[str, dict[str, list[float]]]) -> bool:
    """Whether a limit is missed: the rate of whole answers, or the share of the bare insert."""
    rate = 1e6 / statistics.median(found["whole"]["shipped_us"])
    return rate < LEAST_PER_S[name] or min(map(ratio, found.values())) < LEAST_OF_BARE


def main() -> int:
    """Measure, print, and say whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--postgres", action="store_true", help="into PostgreSQL, not SQLite")
    parser.add_argument("--exchanges", type=int, default=16_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, help="notes in one transaction; the shipper's own")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.batch = options.batch or (SERVER_LIMIT if options.postgres else LIMIT)
    with ExitStack() as stack:
        base: Lite | Postgres = Lite()
        if options.postgres:
            installed = programs()
            if installed is None:
                raise SystemExit("PostgreSQL is not installed.")
            base = Postgres(stack.enter_context(PostgresServer(installed, settings=())))
        found = measure(base, options)
    if options.json:
        limits = {"least_per_s": LEAST_PER_S[base.name], "least_of_bare": LEAST_OF_BARE}
        print(json.dumps({"database": base.name, **found, **limits}))
    else:
        show(base.name, found, options)
    return 6 if missed(base.name, found) else 0


if __name__ == "__main__":
    sys.exit(main())
