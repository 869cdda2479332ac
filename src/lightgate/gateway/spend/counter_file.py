"""Map the file that the workers of one machine count in: 64-bit words, shared by all of them.

A header page, then one slot of fixed size for each key; a slot never moves and the file only grows.
Every word is written whole, so a killed process leaves words, never halves of them; the order in
which `counters` writes them makes any prefix of a change safe.

A slot is locked by its byte range. The locks belong to the open file (Linux: open file description
locks), so two `CounterFile` objects of one process exclude each other too, the kernel releases them
when a process dies, and closing one object does not release another's. Open the file in the process
that uses it: a forked copy shares the locks.

A file that was deleted under its workers is copied to its path again by the first one that sees it
and marked: each of the others goes over to the copy when it finds the mark. One that was cut off
or written over is given up in the same way for an empty one, which waits for the ledger: `lost`.
Words of a mapped file that are no longer in the file must not be touched (the system would kill the
process), so `whole` is asked before.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from lightgate.errors import LightgateError
from lightgate.whole_file import own_name, put

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION: Final = 2
WORD: Final = 8
HEADER_WORDS: Final = 512  # one page
ID_WORDS: Final = 5
SLOT_WORDS: Final = 2696  # of a key: 5 for its id, 2, two rings of 62, ten of each of 256 workers
GROWTH: Final = 64  # slots by which the file grows

_MAGIC: Final = int.from_bytes(b"LGSPEND\0", "little")
_AT_MAGIC, _AT_VERSION, _AT_SIZE, _AT_USED, _AT_WORKERS, _AT_COPIED, _AT_LOST = range(7)
_HEADER_BYTES: Final = HEADER_WORDS * WORD
_SLOT_BYTES: Final = SLOT_WORDS * WORD
_OFD: Final[int | None] = getattr(fcntl, "F_OFD_SETLKW", None)
_FLOCK: Final = "hhqqi"  # struct flock: type, whence, start, length, pid
_WORKER_BYTES: Final = 1 << 60  # beyond every slot: a byte for each worker, locked while it counts
_TAKE_S: Final = 5.0  # for an earlier life of a worker to end; a worker without a parent has 1.5


class CounterFileFailed(LightgateError):  # noqa: N818 - names the event
    """The counter file could not be opened or enlarged."""

    status = 503
    label = "spend"


class Slot(NamedTuple):
    """Where a key's words begin, and how their bytes are locked and released."""

    at: int
    lock: bytes
    unlock: bytes


class CounterFile:
    """The mapped file; `words` is the whole of it and is replaced when the file grows."""

    __slots__ = ("_bytes", "_descriptor", "_map", "_path", "_seen", "_slots", "fresh", "words")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._slots: dict[str, Slot] = {}
        self._seen = 0
        try:
            self._descriptor, self.fresh = _opened(path)  # fresh: nothing had been counted in it
        except OSError as error:
            raise CounterFileFailed(
                f"The counter file {path} cannot be opened: {error.strerror}."
            ) from None
        self._map, self.words = _mapped(self._descriptor)
        self._bytes = len(self._map)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the mapping, the locks and the file."""
        self.words.release()
        self._map.close()
        os.close(self._descriptor)

    @property
    def workers(self) -> int:
        """One more than the highest worker that has ever counted here."""
        return self.words[_AT_WORKERS]

    def take_worker(self, worker: int) -> None:
        """Make this object the only one that writes a worker's words, and have them looked at."""
        if _OFD is not None:
            self._take_byte(worker)
        self.lock(_HEADER)
        try:
            self.words[_AT_WORKERS] = max(self.words[_AT_WORKERS], worker + 1)
        finally:
            self.unlock(_HEADER)

    def borrow_worker(self, worker: int) -> bool:
        """Write the words of a worker that is no more, until they are given back; whether so."""
        if _OFD is None:
            return False  # nobody can see there whether it lives
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _worker_byte(worker, fcntl.F_WRLCK))
        except BlockingIOError:
            return False
        return True

    def give_worker_back(self, worker: int) -> None:
        """Let the next life of a worker have its words."""
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _worker_byte(worker, fcntl.F_UNLCK))

    def lock(self, slot: Slot) -> None:
        """Wait until the slot is this object's alone."""
        _lock(self._descriptor, slot.lock)

    def unlock(self, slot: Slot) -> None:
        """Let others have the slot."""
        _lock(self._descriptor, slot.unlock)

    @property
    def path(self) -> Path:
        """Where the file lies, or lay before it was deleted."""
        return self._path

    @property
    def in_place(self) -> bool:
        """Whether this file is still the one at its path."""
        return _same_file(self._path, os.fstat(self._descriptor))

    @property
    def whole(self) -> bool:
        """Whether the file still has all that is mapped of it, and begins as it should."""
        return (
            os.lseek(self._descriptor, 0, os.SEEK_END) >= self._bytes
            and self.words[_AT_MAGIC] == _MAGIC
        )

    @property
    def copied(self) -> bool:
        """Whether a copy of this file counts in its place."""
        return bool(self.words[_AT_COPIED])

    @property
    def lost(self) -> int:
        """When the counts before this file's were lost (monotonic ns); 0: nothing is missing."""
        return self.words[_AT_LOST]

    def mark_lost(self, now_ns: int) -> None:
        """Note that counts are missing since a time, or with 0 that they are not."""
        self.words[_AT_LOST] = now_ns

    def give_up(self, now_ns: int) -> None:
        """Put an empty file at the path, and leave this one; call it while all of it is locked.

        It is enlarged again, since others may be about to touch it, and is whole for none of them.
        """
        try:
            _enlarge_to(self._descriptor, self._bytes)
            self.words[_AT_MAGIC] = 0
            if self.in_place:
                empty = struct.pack("<7q", _MAGIC, VERSION, SLOT_WORDS, 0, 0, 0, now_ns)
                put(self._path, empty.ljust(_HEADER_BYTES, b"\0"), unborn=own_name(self._path))
        except OSError as error:
            raise CounterFileFailed(
                f"The counter file {self._path} cannot be written: {error.strerror}."
            ) from None

    def copy(self) -> None:
        """Put a copy at the path, then mark this file; call it while all of it is locked."""
        self._look()
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            put(self._path, bytes(self._map), unborn=own_name(self._path))
        except OSError as error:
            raise CounterFileFailed(
                f"The counter file {self._path} cannot be written: {error.strerror}."
            ) from None
        self.words[_AT_COPIED] = 1

    def place(self, key_id: str) -> Slot:
        """The slot of a key, which is given one if it has none."""
        found = self._slots.get(key_id)
        if found is not None:
            return found
        self.lock(_HEADER)
        try:
            self._look()
            if key_id not in self._slots:
                self._take(key_id)
                self._look()
        finally:
            self.unlock(_HEADER)
        return self._slots[key_id]

    def slots(self) -> Iterator[tuple[str, Slot]]:
        """Every key that has a slot, whoever placed it."""
        self.lock(_HEADER)
        try:
            self._look()
        finally:
            self.unlock(_HEADER)
        yield from tuple(self._slots.items())

    def _look(self) -> None:
        """Learn of the slots that were taken since the last look."""
        used = self.words[_AT_USED]
        if len(self.words) < HEADER_WORDS + used * SLOT_WORDS:
            self._map_again()
        for number in range(self._seen, used):
            at = HEADER_WORDS + number * SLOT_WORDS
            name = self.words[at : at + ID_WORDS].tobytes().rstrip(b"\0").decode()
            self._slots[name] = _slot(at, SLOT_WORDS)
        self._seen = used

    def _take(self, key_id: str) -> None:
        """Write the id into the next free slot, then count it: a kill between leaves it free."""
        name = key_id.encode()
        if len(name) > ID_WORDS * WORD:
            raise ValueError(f"a key's id has at most {ID_WORDS * WORD} bytes")
        used = self.words[_AT_USED]
        at = HEADER_WORDS + used * SLOT_WORDS
        if len(self.words) < at + SLOT_WORDS:
            try:
                _enlarge(self._descriptor, used + GROWTH)
            except OSError as error:
                raise CounterFileFailed(
                    f"The counter file {self._path} cannot grow: {error.strerror}."
                ) from None
            self._map_again()
        padded = name.ljust(ID_WORDS * WORD, b"\0")
        self.words[at : at + ID_WORDS] = memoryview(padded).cast("q")
        self.words[_AT_USED] = used + 1

    def _take_byte(self, worker: int) -> None:
        until = time.monotonic() + _TAKE_S
        while not self.borrow_worker(worker):
            if time.monotonic() > until:
                raise CounterFileFailed(
                    f"Another process counts in {self._path} as worker {worker}."
                )
            time.sleep(0.02)

    def _map_again(self) -> None:
        self.words.release()
        self._map.close()
        self._map, self.words = _mapped(self._descriptor)
        self._bytes = len(self._map)


def _worker_byte(worker: int, change: int) -> bytes:
    return struct.pack(_FLOCK, change, os.SEEK_SET, _WORKER_BYTES + worker, 1, 0)


def _slot(at: int, length: int) -> Slot:
    lock, unlock = (
        struct.pack(_FLOCK, kind, os.SEEK_SET, at * WORD, length * WORD, 0)
        for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK)
    )
    return Slot(at, lock, unlock)


_HEADER: Final = _slot(0, HEADER_WORDS)
WHOLE: Final = _slot(0, _WORKER_BYTES // WORD)  # the header and every slot there can be


def _opened(path: Path) -> tuple[int, bool]:
    """Open the file, made and begun where there is none; whether it was begun now.

    A file of another version is moved aside: the ledger knows the spend, and loads it again.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            begun = _begun(descriptor, path)
            if begun is not None:
                return descriptor, begun
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _begun(descriptor: int, path: Path) -> bool | None:
    """Whether the file was begun now; None: another one was put in its place."""
    _lock(descriptor, _HEADER.lock)
    try:
        here = os.fstat(descriptor)
        if not _same_file(path, here):
            return None
        if here.st_size < _HEADER_BYTES or os.pread(descriptor, WORD, 0) == bytes(WORD):
            _enlarge(descriptor, GROWTH)
            words = struct.pack("<3q", VERSION, SLOT_WORDS, 0)
            os.pwrite(descriptor, words, _AT_VERSION * WORD)
            os.pwrite(descriptor, struct.pack("<q", _MAGIC), _AT_MAGIC * WORD)
            return True
        head = struct.unpack("<4q", os.pread(descriptor, 4 * WORD, 0))
        whole = here.st_size >= _HEADER_BYTES + head[_AT_USED] * _SLOT_BYTES
        if head[: _AT_SIZE + 1] == (_MAGIC, VERSION, SLOT_WORDS) and whole:
            return False
        path.replace(path.with_name(f"{path.name}.old"))
        return None
    finally:
        _lock(descriptor, _HEADER.unlock)


def _lock(descriptor: int, change: bytes) -> None:
    if _OFD is not None:
        fcntl.fcntl(descriptor, _OFD, change)
    else:  # macOS: the whole file, by open file as well
        release = struct.unpack(_FLOCK, change)[0] == fcntl.F_UNLCK
        fcntl.flock(descriptor, fcntl.LOCK_UN if release else fcntl.LOCK_EX)


def _same_file(path: Path, here: os.stat_result) -> bool:
    """Whether the file still has its path, after waiting for the lock."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _enlarge(descriptor: int, slots: int) -> None:
    """Give the file room for so many slots.

    Real room: writing into a hole of a mapped file on a full disk would kill the process.
    """
    _enlarge_to(descriptor, _HEADER_BYTES + slots * _SLOT_BYTES)


def _enlarge_to(descriptor: int, size: int) -> None:
    have = os.fstat(descriptor).st_size
    if size <= have:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, have, size - have)
    else:
        os.ftruncate(descriptor, size)


def _mapped(descriptor: int) -> tuple[mmap.mmap, memoryview[int]]:
    size = os.fstat(descriptor).st_size
    size -= (size - _HEADER_BYTES) % _SLOT_BYTES
    mapped = mmap.mmap(descriptor, size)
    return mapped, memoryview(mapped).cast("q")
