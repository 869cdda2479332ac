"""The store of files and batches: `batches/` in the data folder, for all processes of a gateway.

What files and batches there are is in one SQLite file; contents are files beside it, named by ids
that this module made. A row is found by its owner and its id together, so that another key's file
or batch does not exist. One object is for one thread at a time.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from lightgate.clock.source import SYSTEM
from lightgate.gateway.batches.records import ACTIVE, SHOWN, BatchJob, StoredFile
from lightgate.gateway.request.refusal import Refusal, Refusing
from lightgate.ledger.sqlite import BUSY_S, use_wal

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from lightgate.clock.source import Clock
    from lightgate.gateway.served.snapshot import BatchTerms

T = TypeVar("T")
FOLDER: Final = "batches"
BASE: Final = "store.sqlite"
FILES: Final = "files"
PART: Final = ".part"  # a file that is still coming in
AGAIN_S: Final = 900  # within which an equal request is the same one, sent again
FORGET_S: Final = 60 * 86_400  # after its end, a batch itself is forgotten
STALE_S: Final = 86_400  # after which an unfinished upload is nobody's any more
BATCH_WAIT_S: Final = 30.0  # a client with too many batches may ask again after so long
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS files (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
  purpose TEXT NOT NULL, digest TEXT NOT NULL, size INTEGER NOT NULL, created_s INTEGER NOT NULL,
  expires_s INTEGER, facts BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS files_owner ON files (owner, digest);
CREATE TABLE IF NOT EXISTS jobs (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
  kind TEXT NOT NULL, active INTEGER NOT NULL, digest TEXT NOT NULL, input_file TEXT NOT NULL,
  created_s INTEGER NOT NULL, facts BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS jobs_owner ON jobs (owner, digest);
"""
_encode: Final = msgspec.json.Encoder().encode
_file: Final = msgspec.json.Decoder(StoredFile).decode
_job: Final = msgspec.json.Decoder(BatchJob).decode


class ListPage(NamedTuple):
    """Which part of a list is wanted; `after` and `before` are ids, in the order of the list."""

    limit: int
    after: str | None = None
    before: str | None = None
    newest_first: bool = True


class BatchStore:
    """Files and batches of all keys."""

    def __init__(self, data: Path, clock: Clock = SYSTEM) -> None:
        self.folder = data / FOLDER
        self._clock = clock
        self._base: sqlite3.Connection | None = None

    @property
    def now_s(self) -> int:
        """Seconds of the wall."""
        return self._clock.wall_ns() // 1_000_000_000

    @property
    def exists(self) -> bool:
        """Whether anything was ever kept here."""
        return (self.folder / BASE).exists()

    def path(self, file_id: str) -> Path:
        """Where the contents of a file are; the id is one that this gateway made."""
        return self.folder / FILES / file_id

    def close(self) -> None:
        """Close the database."""
        if self._base is not None:
            self._base.close()
            self._base = None

    # Files

    def add_file(self, file: StoredFile, terms: BatchTerms) -> StoredFile:
        """Keep a file whose contents have come in; the one from before where it came again."""
        with self._writing() as base:
            before = self._again(base, "files", file.owner, file.digest, _file)
            if before is not None:
                return before
            self._check_room(base, file, terms)
            self.path(file.id + PART).rename(self.path(file.id))
            _insert_file(base, file)
        return file

    def file(self, owner: str, id_: str) -> StoredFile | None:
        """A file of this owner; None where there is none, or none any more."""
        found = self._one("files", owner, id_, _file)
        return found if found is not None and not self._past(found.expires_s) else None

    def files(
        self, owner: str, page: ListPage, purpose: str | None = None
    ) -> tuple[list[StoredFile], bool]:
        """A page of an owner's files, and whether there are more."""
        purposes = sorted(SHOWN if purpose is None else SHOWN & {purpose})
        marks = ",".join("?" * len(purposes))  # none, for a purpose that nothing has
        where = f"purpose IN ({marks}) AND (expires_s IS NULL OR expires_s > ?)"
        return self._page("files", owner, page, (where, (*purposes, self.now_s)), _file)

    def drop_file(self, owner: str, id_: str) -> bool:
        """Forget a file; whether there was one. Refusing, where a batch still reads it."""
        with self._writing() as base:
            if self._one("files", owner, id_, _file) is None:
                return False
            user = base.execute(
                "SELECT id FROM jobs WHERE owner = ? AND input_file = ? AND active", (owner, id_)
            ).fetchone()
            if user is not None:
                said = f"The batch {user[0]} still reads this file. Cancel the batch first."
                raise Refusing(
                    Refusal(status=409, message=said, code="file_in_use", exhausted=True)
                )
            base.execute("DELETE FROM files WHERE id = ?", (id_,))
        self.path(id_).unlink(missing_ok=True)
        return True

    def held_bytes(self, owner: str) -> int:
        """The bytes of all files of an owner."""
        return _sum_of(self._opened(), owner)[1]

    def _check_room(self, base: sqlite3.Connection, file: StoredFile, terms: BatchTerms) -> None:
        count, size = _sum_of(base, file.owner)
        total = base.execute("SELECT COALESCE(SUM(size), 0) FROM files").fetchone()[0]
        if count >= terms.files_per_key:
            said = f"This key has {count} files, and may have {terms.files_per_key}."
        elif size + file.size > terms.bytes_per_key:
            said = f"With this file the key's files would have more than {terms.bytes_per_key} B."
        elif total + file.size > terms.max_bytes:
            said = "This gateway keeps as many bytes of files as it may."
        else:
            return
        raise Refusing(
            Refusal(
                status=429,
                message=f"{said} Delete files that are no longer needed.",
                code="quota",
                exhausted=True,
            )
        )

    # Batches

    def add_job(
        self, job: BatchJob, terms: BatchTerms, *, repeated: bool, lines: StoredFile | None = None
    ) -> BatchJob:
        """Keep a new batch; the one from before where the request came again.

        An equal batch that still runs is the same one. One that has ended well is, where the client
        says that its request is `repeated`. `lines` are kept along with it: they came in its body.
        """
        with self._writing() as base:
            before = self._again(base, "jobs", job.owner, job.digest, _job)
            if before is not None:
                runs = before.active and before.state != "cancelling"
                if runs or (repeated and before.state == "completed"):
                    return before
            (running,) = base.execute(
                "SELECT COUNT(*) FROM jobs WHERE owner = ? AND active", (job.owner,)
            ).fetchone()
            if running >= terms.batches_per_key:
                said = f"This key has {running} batches under way, and may have no more."
                raise Refusing(
                    Refusal(
                        status=429, message=said, code="batch_limit", retry_after_s=BATCH_WAIT_S
                    )
                )
            if lines is not None:
                self._check_room(base, lines, terms)
                self.path(lines.id + PART).rename(self.path(lines.id))
                _insert_file(base, lines)
            base.execute(
                "INSERT INTO jobs (id, owner, kind, active, digest, input_file, created_s, facts)"
                " VALUES (?, ?, ?, 1, ?, ?, ?, ?)",
                (job.id, job.owner, job.kind, job.digest, job.input_file, job.created_s,
                 _encode(job)),
            )  # fmt: skip
        return job

    def job(self, owner: str, id_: str, kind: str) -> BatchJob | None:
        """A batch of this owner and dialect."""
        found = self._one("jobs", owner, id_, _job)
        return found if found is not None and found.kind == kind else None

    def jobs(self, owner: str, page: ListPage, kind: str) -> tuple[list[BatchJob], bool]:
        """A page of an owner's batches, and whether there are more."""
        return self._page("jobs", owner, page, ("kind = ?", (kind,)), _job)

    def drop_job(self, job: BatchJob) -> None:
        """Forget a batch and its own files."""
        with self._writing() as base:
            base.execute("DELETE FROM jobs WHERE id = ?", (job.id,))
            own = (job.output_file, job.input_file) if job.kind == "anthropic" else ()
            base.executemany("DELETE FROM files WHERE id = ?", [(name,) for name in own])
        for name in own:
            self.path(name).unlink(missing_ok=True)

    def active(self) -> list[BatchJob]:
        """Every batch that has lines to send or results to put together, the oldest first."""
        rows = self._opened().execute("SELECT facts FROM jobs WHERE active ORDER BY seq")
        return [_job(facts) for (facts,) in rows.fetchall()]

    def newest(self, limit: int) -> list[BatchJob]:
        """The last batches of all keys, the newest first."""
        rows = self._opened().execute("SELECT facts FROM jobs ORDER BY seq DESC LIMIT ?", (limit,))
        return [_job(facts) for (facts,) in rows.fetchall()]

    def change(
        self, id_: str, change: Callable[[BatchJob], BatchJob], *new: StoredFile
    ) -> BatchJob | None:
        """Change a batch as it is now, and keep new files with it; None where it is gone."""
        with self._writing() as base:
            row = base.execute("SELECT facts FROM jobs WHERE id = ?", (id_,)).fetchone()
            if row is None:
                return None
            changed = change(_job(row[0]))
            base.execute(
                "UPDATE jobs SET active = ?, facts = ? WHERE id = ?",
                (changed.state in ACTIVE, _encode(changed), id_),
            )
            for file in new:
                _insert_file(base, file)
        return changed

    # Age

    def sweep(self) -> int:
        """Delete what is past its time; how many files that were."""
        base, now = self._opened(), self.now_s
        rows = base.execute(
            "SELECT id FROM files WHERE expires_s <= ? AND id NOT IN"
            " (SELECT input_file FROM jobs WHERE active)",
            (now,),
        ).fetchall()
        gone = [id_ for (id_,) in rows]
        for id_ in gone:
            with self._writing() as writing:
                writing.execute("DELETE FROM files WHERE id = ?", (id_,))
            self.path(id_).unlink(missing_ok=True)
        self._archive(gone)
        with self._writing() as writing:
            writing.execute(
                "DELETE FROM jobs WHERE NOT active AND created_s < ?", (now - FORGET_S,)
            )
        self._sweep_folder(now)
        return len(gone)

    def _archive(self, gone: Sequence[str]) -> None:
        """Note in batches that their results are gone."""
        lost = set(gone)
        base = self._opened()
        rows = base.execute("SELECT facts FROM jobs WHERE NOT active").fetchall() if lost else []
        for (facts,) in rows:
            job = _job(facts)
            if {job.output_file, job.error_file} & lost:
                self.change(
                    job.id,
                    lambda now: msgspec.structs.replace(
                        now,
                        has_output=now.has_output and now.output_file not in lost,
                        has_errors=now.has_errors and now.error_file not in lost,
                    ),
                )

    def _sweep_folder(self, now_s: int) -> None:
        """Delete contents that no row names: uploads that broke off, results of deleted batches."""
        base = self._opened()
        for path in (self.folder / FILES).iterdir():
            with contextlib.suppress(OSError):
                if now_s - path.stat().st_mtime < STALE_S:
                    continue
                name = path.name
                known = base.execute("SELECT 1 FROM files WHERE id = ?", (name,)).fetchone()
                if known is None and not self._writes(base, name):
                    path.unlink()

    def _writes(self, base: sqlite3.Connection, name: str) -> bool:
        """Whether an active batch writes to this file."""
        rows = base.execute("SELECT facts FROM jobs WHERE active").fetchall()
        return any(name in {job.output_file, job.error_file} for job in map(_job, _first(rows)))

    # The database

    def _past(self, expires_s: int | None) -> bool:
        return expires_s is not None and expires_s <= self.now_s

    def _opened(self) -> sqlite3.Connection:
        if self._base is None:
            import sqlite3  # most workers keep no file

            for folder in (self.folder, self.folder / FILES):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.folder / BASE
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            base = sqlite3.connect(
                path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            use_wal(base)
            base.executescript(_TABLES)
            self._base = base
        return self._base

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other writer overlaps."""
        base = self._opened()
        base.execute("BEGIN IMMEDIATE")
        with base:
            yield base

    def _one(self, table: str, owner: str, id_: str, read: Callable[[bytes], T]) -> T | None:
        query = f"SELECT facts FROM {table} WHERE owner = ? AND id = ?"  # noqa: S608 - our own words
        row = self._opened().execute(query, (owner, id_)).fetchone()
        return None if row is None else read(row[0])

    def _again(
        self,
        base: sqlite3.Connection,
        table: str,
        owner: str,
        digest: str,
        read: Callable[[bytes], T],
    ) -> T | None:
        """What an equal request of this owner made a short while ago."""
        row = base.execute(
            f"SELECT facts FROM {table} WHERE owner = ? AND digest = ? AND created_s > ?"  # noqa: S608 - our own words
            " ORDER BY seq DESC LIMIT 1",
            (owner, digest, self.now_s - AGAIN_S),
        ).fetchone()
        return None if row is None else read(row[0])

    def _page(
        self,
        table: str,
        owner: str,
        page: ListPage,
        more: tuple[str, tuple[Any, ...]],
        read: Callable[[bytes], T],
    ) -> tuple[list[T], bool]:
        base, where = self._opened(), f"owner = ? AND {more[0]}"
        values: list[Any] = [owner, *more[1]]
        order = "DESC" if page.newest_first else "ASC"
        backwards = page.after is None and page.before is not None
        for mark, id_ in (("<", page.after), (">", page.before)):
            if id_ is None:
                continue
            sign = mark if page.newest_first else {"<": ">", ">": "<"}[mark]
            # An id that this owner does not have compares as null: an empty page.
            where += f" AND seq {sign} (SELECT seq FROM {table} WHERE owner = ? AND id = ?)"  # noqa: S608 - our own words
            values += [owner, id_]
        if backwards:
            order = "ASC" if order == "DESC" else "DESC"
        rows = base.execute(
            f"SELECT facts FROM {table} WHERE {where} ORDER BY seq {order} LIMIT ?",  # noqa: S608 - our own words
            (*values, page.limit + 1),
        ).fetchall()
        found = [read(facts) for facts in _first(rows[: page.limit])]
        return found[::-1] if backwards else found, len(rows) > page.limit


def _first(rows: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    return (row[0] for row in rows)


def _sum_of(base: sqlite3.Connection, owner: str) -> tuple[int, int]:
    """How many files an owner has, and their bytes."""
    count, size = base.execute(
        "SELECT COUNT(*), COALESCE(SUM(size), 0) FROM files WHERE owner = ?", (owner,)
    ).fetchone()
    return count, size


def _insert_file(base: sqlite3.Connection, file: StoredFile) -> None:
    base.execute(
        "INSERT OR REPLACE INTO files (id, owner, purpose, digest, size, created_s, expires_s,"
        " facts) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (file.id, file.owner, file.purpose, file.digest, file.size, file.created_s,
         file.expires_s, _encode(file)),
    )  # fmt: skip
