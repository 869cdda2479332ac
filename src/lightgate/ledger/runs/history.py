"""What many runs measured, in one plain SQLite file: a row for each run and each attempt.

The attempts' columns are the record's, in its order, plus the load and whether it is warm-up: all
that the run's own tables do not count.
Several processes may write at once (WAL, one transaction a run); writing the same run again changes
nothing. A newer record's fields become new columns when the file is opened.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from lightgate.clock.attempt import AttemptRecord
from lightgate.errors import ConfigError, LightgateError
from lightgate.ledger.runs.run import Run
from lightgate.ledger.runs.samples import Samples, load_of
from lightgate.ledger.sqlite import use_wal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from lightgate.ledger.runs.recording import Recording

HISTORY: Final = "history.sqlite"  # in the data folder
VERSION: Final = 1  # of the file, in PRAGMA user_version
BUSY_S: Final = 30.0  # how long one writer waits for another
_FIELDS: Final = AttemptRecord.__struct_fields__
_RUN_COLUMNS: Final = ("id", "schedule", "started", "finished", "definitions", "record")
_EXTRA: Final = ("load", "warmup")
_REAL: Final = ("_ms", "_tps")
_NUMBERS: Final = frozenset({"seq", "concurrency", "status", "bursts", "bytes_in", "bytes_out"})
_FLAGS: Final = frozenset({"won", "streamed", "hidden_reasoning", "void", "resent", "warmup"})


class HistoryFailed(LightgateError):  # noqa: N818 - names the event
    """The history could not be read or written; what was in it stays."""

    label = "history"


class History:
    """The file, open; use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise HistoryFailed(f"The history {path} cannot be opened: {error}.") from None
        try:
            self._prepare()
        except BaseException:
            self._base.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def append(
        self,
        run: Run,
        attempts: Iterable[AttemptRecord],
        recordings: Mapping[str, Recording] | None = None,
        *,
        schedule: str = "",
    ) -> int:
        """Keep a run and its attempts, all or nothing; how many attempts were not there yet."""
        known, samples = recordings or {}, Samples(run)
        rows = [_row(run.id, attempt, known.get(attempt.id), samples) for attempt in attempts]
        columns = (*_FIELDS, *_EXTRA)
        record = msgspec.json.encode(run).decode()
        about = (run.id, schedule, run.started, run.finished, run.definitions, record)
        with self._writing() as base:
            base.execute(_insert("runs", _RUN_COLUMNS, "REPLACE"), about)
            before = base.total_changes
            base.executemany(_insert("attempts", columns, "IGNORE"), rows)
            return base.total_changes - before

    def runs(self, *, schedule: str | None = None, since: str = "", until: str = "9") -> list[Run]:
        """Runs by their start (RFC 3339), oldest first, of one schedule or all."""
        query = "SELECT record FROM runs WHERE started >= ? AND started < ?"
        values: list[Any] = [since, until]
        if schedule is not None:
            query += " AND schedule = ?"
            values.append(schedule)
        found = self._read(f"{query} ORDER BY started, id", values)
        return [msgspec.json.decode(row[0], type=Run) for row in found]

    def attempts(
        self,
        *,
        target: str | None = None,
        run_id: str | None = None,
        since: str = "",
        until: str = "9",
    ) -> list[AttemptRecord]:
        """Attempts by their wall time (RFC 3339), oldest first; warm-up too."""
        names = ", ".join(f'"{name}"' for name in _FIELDS)
        # The names are those of our own record; what a caller gives is bound, never pasted.
        query = f"SELECT {names} FROM attempts WHERE wall_time >= ? AND wall_time < ?"  # noqa: S608
        values: list[Any] = [since, until]
        for name, value in (("target", target), ("run_id", run_id)):
            if value is not None:
                query += f" AND {name} = ?"
                values.append(value)
        return [_attempt(row) for row in self._read(f"{query} ORDER BY wall_time, id", values)]

    def samples(
        self, metric: str, *, target: str, load: str, schedule: str = "", last: int = 50
    ) -> list[tuple[str, list[float]]]:
        """One metric of the successes of the last runs, oldest first: run id and its values."""
        if metric not in _FIELDS or not metric.endswith(_REAL):
            raise ValueError(f"{metric!r} is no metric of the record")
        query = f"""
            SELECT a.run_id, a."{metric}" FROM attempts a JOIN (
                SELECT id, started FROM runs WHERE schedule = ? ORDER BY started DESC, id DESC
                LIMIT ?
            ) r ON a.run_id = r.id
            WHERE a.target = ? AND a.load = ? AND a.outcome = 'ok' AND NOT a.warmup
              AND a.void = 0 AND a.won IS NOT 0 AND a."{metric}" IS NOT NULL
            ORDER BY r.started, r.id, a.wall_time, a.id
        """  # noqa: S608 - the metric is one of the record's own fields, checked above
        found: dict[str, list[float]] = {}
        for run_id, value in self._read(query, [schedule, last, target, load]):
            found.setdefault(run_id, []).append(value)
        return list(found.items())

    def cells(self, run_id: str) -> list[tuple[str, str]]:
        """Targets and loads of a run."""
        query = "SELECT DISTINCT target, load FROM attempts WHERE run_id = ? ORDER BY target, load"
        return [(target, load) for target, load in self._read(query, [run_id])]

    def _prepare(self) -> None:
        """Make or widen the tables; two openers at once do it one after the other."""
        try:
            use_wal(self._base)
            version = int(self._base.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.Error as error:
            raise HistoryFailed(f"{self.path} is no history: {error}.") from None
        if version > VERSION:
            raise ConfigError(
                f"{self.path} was written by a newer Lightgate (version {version}).",
                hint="Upgrade, or name another --data folder.",
            )
        with self._writing() as base:
            base.execute(_RUNS)
            base.execute(f"CREATE TABLE IF NOT EXISTS attempts ({_COLUMNS})")
            have = {row[1] for row in base.execute("PRAGMA table_info(attempts)")}
            if "replayed" in have:  # the name of `resent` in an older file
                base.execute("ALTER TABLE attempts RENAME COLUMN replayed TO resent")
                have.add("resent")
            for name in (*_FIELDS, *_EXTRA):
                if name not in have:
                    base.execute(f'ALTER TABLE attempts ADD COLUMN "{name}" {_type(name)}')
            base.execute("CREATE INDEX IF NOT EXISTS by_target ON attempts (target, wall_time)")
            base.execute("CREATE INDEX IF NOT EXISTS by_run ON attempts (run_id)")
            base.execute(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that takes the write lock at once, so that it never has to be redone."""
        try:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")
        except sqlite3.Error as error:
            raise HistoryFailed(f"The history {self.path} cannot be written: {error}.") from None

    def _read(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        try:
            return self._base.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise HistoryFailed(f"The history {self.path} cannot be read: {error}.") from None


def scheduled_runs(path: Path, *, since: str, until: str, most: int) -> list[tuple[str, Run]]:
    """The newest runs of schedules by their start (RFC 3339), oldest first, each with its schedule.

    The file is only read: none is made where there is none, and then there are no runs.
    """
    if not path.is_file():
        return []
    query = """
        SELECT schedule, record FROM runs WHERE schedule <> '' AND started >= ? AND started < ?
        ORDER BY started DESC, id DESC LIMIT ?
    """
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
            found = base.execute(query, (since, until, most)).fetchall()
    except sqlite3.Error as error:
        raise HistoryFailed(f"The history {path} cannot be read: {error}.") from None
    return [(name, msgspec.json.decode(record, type=Run)) for name, record in reversed(found)]


def _type(name: str) -> str:
    if name in _FLAGS or name in _NUMBERS or name.endswith("_ns") or _counts_tokens(name):
        return "INTEGER"
    return "REAL" if name.endswith(_REAL) else "TEXT"  # money is text: it is exact


def _counts_tokens(name: str) -> bool:
    return name.startswith("tokens_") and name != "tokens_source"


_COLUMNS: Final = ", ".join(
    f'"{name}" {_type(name)}{" PRIMARY KEY" if name == "id" else ""}'
    for name in (*_FIELDS, *_EXTRA)
)
_RUNS: Final = """
    CREATE TABLE IF NOT EXISTS runs (
        id TEXT PRIMARY KEY, schedule TEXT NOT NULL, started TEXT NOT NULL, finished TEXT,
        definitions TEXT NOT NULL, record TEXT NOT NULL
    )
"""


def _insert(table: str, columns: Sequence[str], otherwise: str) -> str:
    names = ", ".join(f'"{name}"' for name in columns)
    marks = ", ".join("?" * len(columns))
    return f"INSERT OR {otherwise} INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - own names


def _row(
    run_id: str, attempt: AttemptRecord, recording: Recording | None, samples: Samples
) -> tuple[Any, ...]:
    attempt = msgspec.structs.replace(attempt, run_id=run_id)
    load, warmup = load_of(attempt, recording), int(not samples.counts(attempt, recording))
    return (*(_plain(getattr(attempt, name)) for name in _FIELDS), load, warmup)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum | Decimal):
        return str(value)
    return int(value) if isinstance(value, bool) else value


def _attempt(row: Sequence[Any]) -> AttemptRecord:
    named = dict(zip(_FIELDS, row, strict=True))
    for name in _FLAGS.intersection(named):
        named[name] = None if named[name] is None else bool(named[name])
    return msgspec.convert(named, AttemptRecord)
