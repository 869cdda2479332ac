"""The checkpoint of a job: what was sent and what was answered, beside the file of results.

The journal is a file of JSON lines that only grows, one for each change of a line's state. That a
line is answered is decided by its record here, written before the result itself: the record says
where in which file the result stands, and its checksum. A process that dies between the two leaves
a record without its result, which does not count when the job is opened again. So every line is in
the results exactly once. A line that was sent and whose answer was not recorded is sent again: the
provider may bill it twice, and the summary says how many there were.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import zlib
from array import array
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from lightgate.errors import LightgateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lightgate.batch.lines import BadLine, BatchLine

SUFFIX: Final = ".journal"
VERSION: Final = 1
_Entry = TypeVar("_Entry")
KEY_BYTES: Final = 16
CHECKED: Final = 4096  # records from the end whose results are compared with their checksums
OUT: Final = 0
ERRORS: Final = 1
_encode: Final = msgspec.json.Encoder().encode


class JobBusy(LightgateError):  # noqa: N818 - names the event
    """Another process works on the same results."""

    label = "job_busy"


def key_of(line: BatchLine) -> bytes:
    """Return what two lines share that ask the same of the same model."""
    made = hashlib.blake2b(line.body, digest_size=KEY_BYTES)
    made.update(b"\0%b\0%b" % (line.dialect.encode(), line.model.encode()))
    return made.digest()


def key_of_bad(line: BadLine) -> bytes:
    """Return what stands for a line that cannot be sent."""
    return hashlib.blake2b(line.message.encode(), digest_size=KEY_BYTES).digest()


class DoneRecord(msgspec.Struct, array_like=True, frozen=True, tag="a", gc=False):
    """A line has its result: where it stands, and what it took.

    `cost_nano` is None where no price is known. `exchange_id` is that of the ledger, "" where
    nothing was sent for the line.
    """

    number: int
    key: str
    file: int
    offset: int
    length: int
    crc: int
    cost_nano: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    target: str = ""
    exchange_id: str = ""
    model: str = ""
    dialect: str = ""
    wall_ns: int = 0
    attempts: int = 0


class SentRecord(msgspec.Struct, array_like=True, frozen=True, tag="s", gc=False):
    """A line was handed to a target."""

    number: int
    target: str


class ReopenedRecord(msgspec.Struct, array_like=True, frozen=True, tag="r", gc=False):
    """All lines that have failed are open again."""

    wall_ns: int


class VoidRecord(msgspec.Struct, array_like=True, frozen=True, tag="v", gc=False):
    """The last record of a line does not count: its result was not written."""

    number: int


class HeadRecord(msgspec.Struct, array_like=True, frozen=True, tag="o", gc=False):
    """A process opened the job."""

    version: int
    wall_ns: int


_Record = DoneRecord | SentRecord | ReopenedRecord | VoidRecord | HeadRecord
_decode: Final = msgspec.json.Decoder(_Record).decode


class _Appended:
    """A file that only grows; what a full disk took in part is taken back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self.descriptor).st_size

    def append(self, data: bytes) -> None:
        """Write at the end, all or nothing; OSError where the disk takes nothing."""
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self.descriptor, data[written:], self.size + written)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, self.size)
            raise
        self.size += len(data)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self.descriptor, length, offset)

    def cut(self, size: int) -> None:
        os.ftruncate(self.descriptor, size)
        self.size = size

    def close(self) -> None:
        os.close(self.descriptor)


def whole_lines(path: Path, decode: Callable[[bytes], _Entry]) -> Iterator[tuple[_Entry, int]]:
    """Read the entries of a file, each with the place of its end, up to a line that is torn."""
    end = 0
    with path.open("rb") as file:
        for raw in file:
            if not raw.endswith(b"\n"):
                return
            try:
                entry = decode(raw)
            except msgspec.DecodeError:
                return
            end += len(raw)
            yield entry, end


def check_version(path: Path, written: int, known: int) -> None:
    """Refuse a file that a newer program wrote."""
    if written > known:
        raise UsageError(
            f"{path} was written by a newer Lightgate.", hint="Go on with that version."
        )


class Checkpoint:
    """The files of one job, open: results, errors and journal. Use it as a context manager.

    `answered` and `failed` count lines that have a result, `resent` those that an earlier process
    had sent and not finished. `cost_nano` is of all lines, `unpriced` how many have no price.
    """

    def __init__(
        self, out: Path, errors: Path, *, wall_ns: int, retry_failed: bool = False
    ) -> None:
        journal = out.with_name(out.name + SUFFIX)
        if not journal.exists() and out.exists() and out.stat().st_size:
            raise UsageError(
                f"{out} exists and was not written by a job that can be resumed.",
                hint="Name another file with --out, or move this one away.",
            )
        if journal.exists() and journal.stat().st_size and not out.exists():
            raise UsageError(
                f"The results of this job are gone: there is {journal} and no {out}.",
                hint="Put the results back, or remove the journal to begin anew.",
            )
        self.answered = self.failed = self.resent = 0
        self.cost_nano = self.tokens_in = self.tokens_out = self.unpriced = 0
        self.last: DoneRecord | None = None  # the last one of an earlier process that counts
        self.keys: dict[bytes, int] = {}  # of answered lines: where the result is
        self._done = array("I")  # by line: a checksum of its key; 0: not done
        self._failures: dict[int, tuple[int, int, int, int]] = {}  # what failed lines took
        self._ends = [0, 0]  # of the results and the errors that count
        self._pending: tuple[int, bytes] | None = None
        self._journal = _Appended(journal)
        try:
            fcntl.flock(self._journal.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._journal.close()
            raise JobBusy(f"Another process is writing {out}.", hint="Wait for its end.") from None
        self._files = (_Appended(out), _Appended(errors))
        try:
            self._recover()
            if retry_failed and self.failed:
                self._reopen(wall_ns)
            self._journal.append(_line(HeadRecord(VERSION, wall_ns)))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files, and with them of the job."""
        for file in (*self._files, self._journal):
            file.close()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The files that `os.fsync` makes safe, in the order in which it must."""
        return (*(file.descriptor for file in self._files), self._journal.descriptor)

    def is_done(self, number: int, key: bytes) -> bool:
        """Return whether a line has its result; UsageError where the line was another one then."""
        mark = self._done[number] if number < len(self._done) else 0
        if mark and mark != _mark(key):
            raise UsageError(
                f"Line {number} is not the one that was answered: the file has changed.",
                hint="Restore the file, or begin a new job with another --out.",
            )
        return bool(mark)

    def sent(self, number: int, target: str) -> None:
        """Write down that a line goes to a target now."""
        self._journal.append(_line(SentRecord(number, target)))

    def record(self, number: int, key: bytes, file: int, result: bytes, **facts: Any) -> DoneRecord:
        """Write down that a line is done, then its result; OSError where the disk is full.

        After an error nothing has changed. Where the disk took the record and not the result, there
        is no error yet: `flush` writes the result, and raises until it is written.
        """
        self.flush()
        where = self._files[file]
        done = DoneRecord(
            number, key.hex(), file, where.size, len(result), zlib.crc32(result), **facts
        )
        self._journal.append(_line(done))
        self._count(done)
        self._pending = file, result
        with contextlib.suppress(OSError):
            self.flush()
        return done

    def flush(self) -> None:
        """Write the result that is still to be written; OSError where the disk is full."""
        if self._pending is not None:
            file, result = self._pending
            self._files[file].append(result)
            self._pending = None

    def result_at(self, place: int) -> bytes:
        """Read a result again; `place` is a value of `keys`."""
        return self._files[OUT].read(place >> 32, place & 0xFFFFFFFF)

    def _recover(self) -> None:
        """Read the journal of earlier processes; a torn line at its end was never written.

        Only the last records are held: those before them are taken to be in their files, which are
        never written anywhere but at their ends.
        """
        held: deque[DoneRecord] = deque()
        sent: set[int] = set()
        for record in self._records():
            if isinstance(record, SentRecord):
                sent.add(record.number)
            elif isinstance(record, DoneRecord):
                held.append(record)
                sent.discard(record.number)
                if len(held) > CHECKED:
                    self._count(held.popleft())
            else:
                held = self._undo(record, held)
        for done in held:
            if self._is_whole(done):
                self._count(done)
                self.last = done
            else:
                self._journal.append(_line(VoidRecord(done.number)))
                sent.add(done.number)
        self.resent = len(sent)
        self._trim()

    def _undo(
        self, record: VoidRecord | ReopenedRecord | HeadRecord, held: deque[DoneRecord]
    ) -> deque[DoneRecord]:
        """Take back what a record takes back; return the records that are still held."""
        if isinstance(record, VoidRecord):
            return deque(one for one in held if one.number != record.number)
        if isinstance(record, ReopenedRecord):
            while held:
                self._count(held.popleft())
            self._forget_failed()
        return held

    def _trim(self) -> None:
        """Cut off what stands in the files without a record."""
        for file, end in zip(self._files, self._ends, strict=True):
            if file.size < end:
                raise UsageError(
                    f"{file.path} is shorter than it was when the job stopped.",
                    hint="Put the results back, or begin a new job with another --out.",
                )
            if file.size > end:
                file.cut(end)

    def _records(self) -> Iterator[_Record]:
        """Read the journal up to a line that is torn, and cut that off."""
        whole = 0
        for record, end in whole_lines(self._journal.path, _decode):
            whole = end
            if isinstance(record, HeadRecord):
                check_version(self._journal.path, record.version, VERSION)
            yield record
        if self._journal.size > whole:
            self._journal.cut(whole)

    def _is_whole(self, done: DoneRecord) -> bool:
        """Return whether the result of a record is in its file, as it was written."""
        file = self._files[done.file]
        if done.offset + done.length > file.size:
            return False
        return zlib.crc32(file.read(done.offset, done.length)) == done.crc

    def _forget_failed(self) -> None:
        """Count the lines that have failed as open."""
        for number, (cost, tokens_in, tokens_out, unpriced) in self._failures.items():
            self._done[number] = 0
            self.cost_nano -= cost
            self.tokens_in -= tokens_in
            self.tokens_out -= tokens_out
            self.unpriced -= unpriced
        self._failures.clear()
        self.failed = self._ends[ERRORS] = 0

    def _reopen(self, wall_ns: int) -> None:
        """Open all failed lines again, and empty the file of errors."""
        self._journal.append(_line(ReopenedRecord(wall_ns)))
        self._files[ERRORS].cut(0)
        self._forget_failed()

    def _count(self, done: DoneRecord) -> None:
        marks = self._done
        if done.number >= len(marks):
            marks.extend([0] * (max(done.number + 1, 2 * len(marks)) - len(marks)))
        key = bytes.fromhex(done.key)
        marks[done.number] = _mark(key)
        self._ends[done.file] = max(self._ends[done.file], done.offset + done.length)
        unpriced = int(bool(done.exchange_id) and done.cost_nano is None)
        took = (done.cost_nano or 0, done.tokens_in or 0, done.tokens_out or 0, unpriced)
        if done.file == OUT:
            self.answered += 1
            self.keys.setdefault(key, done.offset << 32 | done.length)
        else:
            self.failed += 1
            self._failures[done.number] = took
        self.cost_nano += took[0]
        self.tokens_in += took[1]
        self.tokens_out += took[2]
        self.unpriced += took[3]


def _line(record: _Record) -> bytes:
    return _encode(record) + b"\n"


def _mark(key: bytes) -> int:
    return zlib.crc32(key) | 1
