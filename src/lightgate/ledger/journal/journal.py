"""Append-only files of notes: what a worker leaves behind, whatever becomes of it.

A frame is a length, a checksum and one note in msgpack, padded to eight bytes. The file is mapped:
a note is copied into the page cache, then its head is stored as one word, so a killed process loses
nothing that it wrote, no note is ever seen half, and no system call is made. Blocks are taken from
the disk ahead of the notes, so that a full disk shows as an error and not as a signal, and so that
what is under way when the disk gets full can still be written down. The writer
holds a lock on its file for as long as it lives: who can take that lock knows that the writer is
dead. All files of one process life share a name: `<worker>-<id>.lgj`, and after a rotation
`<worker>-<id>.<part>.lgj`. A file that was deleted or replaced while its writer lived is written
anew under the same name and with the same offsets, so that no note of it is shipped twice or never.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import sys
from typing import TYPE_CHECKING, Final, Self
from zlib import crc32

import msgspec

from lightgate.clock.ids import Ids
from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError
from lightgate.ledger.journal.notes import VERSION, Note, Opened
from lightgate.whole_file import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SUFFIX: Final = ".lgj"
ROTATE_BYTES: Final = 64 * 1024 * 1024
GROW_BYTES: Final = 256 * 1024  # taken from the disk at a time
SPARE_BYTES: Final = 2 * 1024 * 1024  # ahead of the notes: about two thousand exchanges
_UNBORN: Final = ".new"  # ends the name of a file that is not found yet
_HEAD: Final = struct.Struct("<II")  # payload bytes, and their crc32, which starts from the length
HEAD_BYTES: Final = _HEAD.size
_LITTLE: Final = sys.byteorder == "little"
_ALIGN: Final = 8  # a head is stored as one aligned word
_DAMAGED: Final = "The journal was cut off or written over."
_ROUNDED: Final = HEAD_BYTES + _ALIGN - 1  # added to a payload's length, before ...
_WORDS: Final = -_ALIGN  # ... this leaves whole words of it
_PADDINGS: Final = tuple(bytes(size) for size in range(_ALIGN))
_BLOCK: Final = 1024 * 1024  # read at once


class JournalFailed(LightgateError):  # noqa: N818 - names the event
    """A note could not be kept; nothing of it is in the journal. `full`: for want of room."""

    status = 503
    label = "journal"
    full = False

    @classmethod
    def of(cls, what: str, error: OSError) -> Self:
        """Say what could not be done, and why."""
        failure = cls(f"{what}: {error.strerror}.")
        failure.full = error.errno in NO_ROOM
        return failure


class JournalDamaged(JournalFailed):
    """The file was cut off or written over: what was in it has to be written into another one."""


class Journal:
    """The journal of one process life; not for several threads.

    `short`: the disk is full, and less than half of the spare room is left, which is for what is
    under way. A journal that begins on a full disk has no file yet. `regain` tries again.
    `lost`: the file is not at its path any more and could not be written anew; a kill would take
    its notes with it.
    """

    def __init__(
        self,
        folder: Path,
        worker: int,
        *,
        now: Callable[[], int] = SYSTEM.wall_ns,
        rotate_bytes: int = ROTATE_BYTES,
    ) -> None:
        self._folder = folder
        self._worker = worker
        self._now = now
        self._rotate_bytes = rotate_bytes
        self._encode = msgspec.msgpack.Encoder().encode
        self._part = 0
        self.life = f"{worker}-{Ids().new()}"
        self._file: _Mapped | None = None
        self._closed = False
        self.lost = False
        for unborn in folder.glob(f"{worker}-*{_UNBORN}"):
            unborn.unlink(missing_ok=True)  # of an earlier life, which was killed as it made it
        try:
            self._open()
        except JournalFailed as failure:
            if not failure.full:
                raise
            self.short = True

    @property
    def path(self) -> Path:
        """The file that is written now."""
        part = f".{self._part:06d}" if self._part else ""
        return self._folder / f"{self.life}{part}{SUFFIX}"

    @property
    def tight(self) -> bool:
        """Whether the disk gave less than was asked for when it was last asked."""
        return self._file is None or self._file.tight

    @property
    def size(self) -> int:
        """Bytes of the notes in that file; what follows is room for more."""
        return 0 if self._file is None else self._file.size

    def write(self, record: Note) -> bytes:
        """Append one note, which outlives this process then; returns it as it was packed."""
        file = self._file
        if file is None:
            raise JournalFailed("The journal is closed." if self._closed else "The disk is full.")
        payload = self._encode(record)
        if file.size >= self._rotate_bytes:
            self._rotate()
            file = self._file or file
        try:
            file.append(payload)
        except OSError as error:
            raise JournalFailed.of("The journal cannot be written", error) from None
        self.short = file.short
        return payload

    def regain(self) -> bool:
        """Ask the disk for room once more; whether there is enough now."""
        if self.lost:
            return False  # room in a file that nobody finds is none
        try:
            if self._file is None and not self._closed:
                self._open()
            elif self._file is not None:
                self._file.grow(self._file.size)
        except (OSError, JournalFailed):
            return False
        self.short = self._file is None or self._file.short
        return not self.short

    def keep_in_place(self) -> bool:
        """Write the file anew if it was deleted or replaced; whether it had to be.

        The notes come from the file that is still open. JournalFailed where there can be no new one
        now: then the open one is written on.
        """
        before = self._file
        if before is not None and before.damaged:
            raise JournalDamaged(_DAMAGED)
        if before is None or before.lies_at(self.path):
            self.lost = False
            return False
        self.lost = True
        self._make(lambda file: file.copy(before))
        before.close()
        self.lost = False
        return True

    def begin_anew(self) -> None:
        """Go on in a new file beside one that was damaged; JournalFailed where none can be made."""
        before, self._part = self._file, self._part + 1
        try:
            self._open()
        except BaseException:
            self._part -= 1
            raise
        if before is not None:
            before.close()

    def close(self) -> None:
        """Let go of the file; the shipper may then finish it. JournalFailed where it is lost."""
        self._closed = True
        try:
            with contextlib.suppress(JournalDamaged):
                self.keep_in_place()
        finally:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _rotate(self) -> None:
        """Go on in a new file; in the old one where the disk has no room for another.

        A file that was deleted is first written anew: nobody else has its notes. One that was
        damaged stays: the note that follows says so.
        """
        try:
            self.keep_in_place()
        except JournalFailed:
            return
        before, self._part = self._file, self._part + 1
        try:
            self._open()
        except BaseException as error:
            self._part -= 1
            if isinstance(error, JournalFailed) and error.full:
                return
            raise
        # Only now: a life without a locked file is a dead one.
        if before is not None:
            before.close()

    def _open(self) -> None:
        """Begin a file with the note that says which process writes it."""
        opened = self._encode(Opened(VERSION, self._worker, os.getpid(), self._now()))
        self._make(lambda file: file.append(opened))

    def _make(self, fill: Callable[[_Mapped], None]) -> None:
        """Make a file that is locked and has its first notes before anybody can find it."""
        unborn = self.path.with_suffix(_UNBORN)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(unborn, flags, 0o600)
        except OSError as error:
            raise JournalFailed.of(f"No journal can be made in {self._folder}", error) from None
        file = _Mapped(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fill(file)
            unborn.rename(self.path)
        except BaseException as error:
            file.close()
            unborn.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise JournalFailed.of(f"No journal can be made in {self._folder}", error) from None
            raise
        self._file = file
        self.short = file.short


class _Mapped:
    """A file that grows ahead of what is written into it; `size` is the end of the last frame.

    `tight`: the disk gave less than was asked for; `short`: and half of the spare is used up.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Bytes that the disk has given; a frame that ends behind `_ahead` makes the file grow.
        self._room = self._ahead = self.size = 0
        self._map: mmap.mmap | None = None
        self._words = memoryview(b"")  # the same bytes, to store a head at once
        self._last: tuple[int, int]  # where the last head stands, and what it is; once there is one

    @property
    def damaged(self) -> bool:
        """Whether the file was cut off or written over: its words must not be touched then."""
        if self._map is None:
            return False
        if os.lseek(self._descriptor, 0, os.SEEK_END) < self._room:
            return True
        return bool(self.size) and self._words[self._last[0]] != self._last[1]

    def append(self, payload: bytes) -> None:
        """Copy a frame in, its head last; OSError when the disk gives no room.

        JournalDamaged where the file was cut off or written over.
        """
        start, length = self.size, len(payload)
        end = start + (length + _ROUNDED & _WORDS)
        if end > self._ahead:
            if self.damaged:
                raise JournalDamaged(_DAMAGED)
            self.grow(end)
        mapped = self._map
        if mapped is None:
            raise OSError(errno.EBADF, "the file is closed")
        # What `damaged` asks, without a call: every note passes here.
        cut_off = os.lseek(self._descriptor, 0, os.SEEK_END) < self._room
        if cut_off or (start and self._words[self._last[0]] != self._last[1]):
            raise JournalDamaged(_DAMAGED)
        first = start + HEAD_BYTES
        mapped[first : first + length] = payload
        # The head as one number, whose bytes are those of _HEAD.
        head = crc32(payload, length) << 32 | length
        if not _LITTLE:
            head = _swapped(head)
        self._words[start // _ALIGN] = head
        self._last = start // _ALIGN, head
        self.size = end

    def copy(self, other: _Mapped) -> None:
        """Take over all frames of another file, at the same offsets; OSError without the room."""
        self.grow(other.size)
        words = other.size // _ALIGN
        self._words[:words] = other._words[:words]
        self._last = other._last
        self.size = other.size

    def lies_at(self, path: Path) -> bool:
        """Whether this file is the one at a path."""
        own = os.fstat(self._descriptor)
        try:
            found = os.stat(path)  # noqa: PTH116 - once a second
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    def close(self) -> None:
        """Cut off what was not used, and let go."""
        self._release()
        with contextlib.suppress(OSError):  # zeros at the end mean the same
            os.ftruncate(self._descriptor, self.size)
        os.close(self._descriptor)

    def grow(self, end: int) -> None:
        """Have room up to here and the spare behind it; OSError where not even the former is."""
        if self.damaged:
            raise OSError(errno.EIO, "it was cut off or written over")
        before, wanted = self._room, -(-(end + SPARE_BYTES) // GROW_BYTES) * GROW_BYTES
        self._take(wanted)
        self._take(end)  # a disk may give a little where it does not give much
        if self._room < end:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._ahead = self._room - SPARE_BYTES
        self.tight = self._room < wanted
        self.short = self._room - end < SPARE_BYTES // 2
        if self._room != before:
            self._release()
            self._map = mmap.mmap(self._descriptor, self._room // _ALIGN * _ALIGN)
            self._words = memoryview(self._map).cast("Q")

    def _take(self, wanted: int) -> None:
        """Take blocks from the disk by writing zeros, as far as it gives them."""
        with contextlib.suppress(OSError):
            while self._room < wanted:
                zeros = bytes(min(wanted - self._room, GROW_BYTES))
                self._room += os.pwrite(self._descriptor, zeros, self._room)

    def _release(self) -> None:
        self._words.release()
        if self._map is not None:
            self._map.close()
            self._map = None


def _swapped(word: int) -> int:
    """The number whose bytes, on a machine that stores the highest first, are those of a head."""
    return int.from_bytes(word.to_bytes(HEAD_BYTES, "little"), "big")


class Frames:
    """Reads a file's notes from an offset; after the last one says what stopped it.

    `offset` is after the last whole note. `torn` when a frame begins there that the file does not
    hold whole, `damaged` when it does and the frame is not what was written: nothing behind such a
    frame is read, since where the next one begins is a guess. A head of zeros has not been written
    yet.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self.offset = offset
        self.torn = False
        self.damaged = False

    def __iter__(self) -> Iterator[tuple[Note, int]]:
        self.torn = self.damaged = False
        unpack, decode = _HEAD.unpack_from, _DECODER.decode
        with self._path.open("rb") as file:
            file.seek(self.offset)
            data, at, size = b"", 0, 0
            while True:
                start = end = at + HEAD_BYTES
                if start <= size:
                    length, crc = unpack(data, at)
                    if not length and not crc:
                        self.torn = data[at:] != bytes(size - at)
                        return
                    end = at + ((HEAD_BYTES + length + _ALIGN - 1) & -_ALIGN)
                if end > size:  # not whole yet
                    more = file.read(max(_BLOCK, end))
                    if not more:
                        self.torn = at < size
                        return
                    data = data[at:] + more
                    at, size = 0, len(data)
                    continue
                stop = start + length
                payload = data[start:stop]
                if crc32(payload, length) != crc or (
                    stop != end and data[stop:end] != _PADDINGS[end - stop]
                ):
                    self.damaged = True
                    return
                try:
                    note: Note = decode(payload)
                except (msgspec.MsgspecError, ValueError):
                    self.damaged = True
                    return
                self.offset += end - at
                at = end
                yield note, self.offset


def read_frames(path: Path, offset: int = 0) -> Iterator[tuple[Note, int]]:
    """Give every whole note from the offset, each with the offset behind it."""
    return iter(Frames(path, offset))


def alive(path: Path) -> bool:
    """Whether the writer of this file still holds it, or may write it anew: it is missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY)  # which no child inherits
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def journals(folder: Path, life: str = "") -> list[Path]:
    """The journal files in a folder, of one process life or all, each life's in their order."""
    # A first file has no part in its name: it is the shortest of its life.
    found = folder.glob(f"{life}*{SUFFIX}")
    return sorted(found, key=lambda path: (life_of(path), len(path.name), path.name))


def life_of(path: Path) -> str:
    """The process life that a file belongs to."""
    return path.name.partition(".")[0]


_DECODER: Final = msgspec.msgpack.Decoder(Note)
