"""Append-only files of notes: what a worker leaves behind, whatever becomes of it.

A frame is a length, a checksum and one note in msgpack; one `os.write` appends it, so a killed
process loses nothing that it wrote. The writer holds a lock on its file for as long as it lives:
who can take that lock knows that the writer is dead. All files of one process life share a name:
`<worker>-<id>.lgj`, and after a rotation `<worker>-<id>.<part>.lgj`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.clock.ids import Ids
from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError
from lightgate.ledger.note import VERSION, Note, Opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SUFFIX: Final = ".lgj"
ROTATE_BYTES: Final = 64 * 1024 * 1024
# Payload bytes and their crc32, which starts from the length: a zeroed page is no frame.
_HEAD: Final = struct.Struct("<II")
_BLOCK: Final = 1024 * 1024  # read at once


class JournalFailed(LightgateError):  # noqa: N818 - names the event
    """A note could not be kept; nothing of it is in the journal."""

    status = 503
    label = "journal"


class Journal:
    """The journal of one process life; not for several threads."""

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
        self._size = 0
        self._clean = True  # the file ends with a whole frame
        self.life = f"{worker}-{Ids().new()}"
        self._descriptor: int | None = None
        self._open()

    @property
    def path(self) -> Path:
        """The file that is written now."""
        part = f".{self._part:06d}" if self._part else ""
        return self._folder / f"{self.life}{part}{SUFFIX}"

    def write(self, record: Note) -> None:
        """Append one note; when it returns, the note outlives this process."""
        payload = self._encode(record)
        length = len(payload)
        frame = _HEAD.pack(length, zlib.crc32(payload, length)) + payload
        if self._size >= self._rotate_bytes or not self._clean:
            self._rotate()
        self._append(frame)

    def close(self) -> None:
        """Let go of the file; the shipper may then finish it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, frame: bytes) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            raise JournalFailed("The journal is closed.")
        try:
            written = os.write(descriptor, frame)
        except OSError as error:
            raise JournalFailed(f"The journal cannot be written: {error.strerror}.") from None
        if written != len(frame):
            self._undo(descriptor)
            raise JournalFailed("The journal cannot be written: the disk is full.")
        self._size += written

    def _undo(self, descriptor: int) -> None:
        """Take the part of a frame back, or never write behind it."""
        try:
            os.ftruncate(descriptor, self._size)
        except OSError:
            self._clean = False

    def _rotate(self) -> None:
        before, self._part = self._descriptor, self._part + 1
        try:
            self._open()
        except BaseException:
            self._part -= 1
            raise
        # Only now: a life without a locked file is a dead one.
        if before is not None:
            os.close(before)

    def _open(self) -> None:
        """Make a file that is locked and has its first note before anybody can find it."""
        unborn = self.path.with_suffix(".new")
        opened = self._encode(Opened(VERSION, self._worker, os.getpid(), self._now()))
        length = len(opened)
        frame = _HEAD.pack(length, zlib.crc32(opened, length)) + opened
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = -1
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(unborn, flags, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_whole(descriptor, frame)
            unborn.rename(self.path)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
                unborn.unlink(missing_ok=True)
            raise JournalFailed(
                f"No journal can be made in {self._folder}: {error.strerror}.",
                hint="Free some space, or name another data folder.",
            ) from None
        self._descriptor, self._size, self._clean = descriptor, len(frame), True


class Frames:
    """Reads a file's notes from an offset; after the last one says what stopped it.

    `offset` is after the last whole note. `torn` when a frame begins there that the file does not
    hold whole, `damaged` when it does and the frame is not what was written: nothing behind such a
    frame is read, since where the next one begins is a guess.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self.offset = offset
        self.torn = False
        self.damaged = False

    def __iter__(self) -> Iterator[tuple[Note, int]]:
        self.torn = self.damaged = False
        with self._path.open("rb") as file:
            file.seek(self.offset)
            data, at, size = b"", 0, 0
            while True:
                start = end = at + _HEAD.size
                if start <= size:
                    length, crc = _HEAD.unpack_from(data, at)
                    end = start + length
                if end > size:  # not whole yet
                    more = file.read(max(_BLOCK, end - size))
                    if not more:
                        self.torn = at < size
                        return
                    data = data[at:] + more
                    at, size = 0, len(data)
                    continue
                payload = data[start:end]
                note = _note(payload) if zlib.crc32(payload, length) == crc else None
                if note is None:
                    self.damaged = True
                    return
                self.offset += end - at
                at = end
                yield note, self.offset


def read_frames(path: Path, offset: int = 0) -> Iterator[tuple[Note, int]]:
    """Give every whole note from the offset, each with the offset behind it."""
    return iter(Frames(path, offset))


def alive(path: Path) -> bool:
    """Whether the writer of this file still holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
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


def _write_whole(descriptor: int, frame: bytes) -> None:
    if os.write(descriptor, frame) != len(frame):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _note(payload: bytes) -> Note | None:
    try:
        note: Note = _DECODER.decode(payload)
    except (msgspec.MsgspecError, ValueError):
        return None
    return note


_DECODER: Final = msgspec.msgpack.Decoder(Note)
