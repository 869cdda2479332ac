"""A file on its way in: written to disk by a thread as it comes, hashed, and never in memory whole.

The door gives the bytes of the body here before the caller's key has been looked at: until `begin`
they are only held, and they are at most one read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, Final

from lightgate.errors import UsageError
from lightgate.gateway.batches.form_stream import FormStream
from lightgate.gateway.request.refusal import Refusal, Refusing, of_error
from lightgate.whole_file import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from pathlib import Path

FORM_BYTES: Final = 64 * 1024  # of a body beside its file
HELD_BYTES: Final = 1 << 20  # at which the client's bytes are stopped until the disk has caught up
WRITE_BYTES: Final = 256 * 1024  # that are written at a time, at least


def disk_refusal(error: OSError) -> Refusal:
    """What a client is told whose file the disk did not take."""
    full = error.errno in NO_ROOM
    said = "The disk is full." if full else f"The disk did not take it: {error.strerror}."
    return Refusal(
        status=507, message=f"{said} Nothing was kept.", code="disk_full", exhausted=True
    )


def _nothing() -> None:
    """Stop or start nothing."""


class Upload:
    """One file of a form, and the place on disk that it goes to."""

    def __init__(self, boundary: bytes, most: int, pool: Executor) -> None:
        self.limit = most + FORM_BYTES
        self.form = FormStream(boundary, self._take)
        self.size = 0  # of the file
        self._most = most
        self._pool = pool
        self._came = 0
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.path: Path | None = None  # once it may be written
        self._digest = hashlib.sha256()
        self._descriptor = -1
        self._saving: asyncio.Future[None] | None = None
        self._refusal: Refusal | None = None
        self._over = False  # nothing more is written
        self._stopped = False
        self._on_over: Callable[[], None] = _nothing
        self._pause: Callable[[], None] = _nothing
        self._resume: Callable[[], None] = _nothing

    @property
    def file_id(self) -> str:
        """The name under which it may be kept."""
        return "" if self.path is None else self.path.stem

    @property
    def begun(self) -> bool:
        """Whether the file has its place."""
        return self.path is not None

    def begin(self, path: Path, on_over: Callable[[], None]) -> None:
        """Let it be written: its caller may do that. `on_over` is called once, at its end."""
        self.path, self._on_over = path, on_over
        self._save()

    # The door's side

    def tell(self) -> int:
        """The bytes of the body that have come."""
        return self._came

    def attach(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Name what stops the client's bytes."""
        self._pause, self._resume = pause, resume

    def write(self, data: bytes, /) -> int:
        """Take a piece of the body; what is wrong with it is said at the end."""
        self._came += len(data)
        if self._refusal is None and not self._over:
            try:
                self.form.feed(data)
            except UsageError as error:
                self._refusal = of_error(error)
            self._save()
        return len(data)

    def drop(self) -> None:
        """Forget what has come."""
        self._over = True
        self._held.clear()
        if self._saving is None:
            self._forget()
        over, self._on_over = self._on_over, _nothing
        over()

    # The handler's side

    async def complete(self) -> str:
        """Wait until the disk has it all; its SHA-256 in hex. Refusing says what went wrong."""
        while self._saving is not None:
            await asyncio.wait({self._saving})
        await self._save_rest()
        self._over = True
        if self._refusal is None and not self.form.complete:
            self._refusal = of_error(UsageError("The form is cut off."))
        if self._refusal is None and self.form.filename is None:
            self._refusal = of_error(UsageError("The form has no field `file`."))
        if self._refusal is not None:
            self._forget()
            raise Refusing(self._refusal)
        if self._descriptor < 0:  # an empty file
            self._open()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._pool, os.fsync, self._descriptor)
        except OSError as error:
            self._forget()
            raise Refusing(disk_refusal(error)) from None
        self._close()
        return self._digest.hexdigest()

    async def _save_rest(self) -> None:
        self._save(all_of_it=True)
        if self._saving is not None:
            await asyncio.wait({self._saving})

    def _take(self, piece: bytes) -> None:
        """Take bytes of the file itself."""
        self.size += len(piece)
        if self.size > self._most:
            said = f"The file is larger than {self._most} bytes. Split it into several."
            self._refusal = Refusal(status=413, message=said, code="file_too_large")
            self._held.clear()
        elif piece:
            self._held.append(piece)
            self._held_bytes += len(piece)

    def _save(self, *, all_of_it: bool = False) -> None:
        """Hand what is held to a thread, unless one is at it or it is too little."""
        if self._held_bytes > HELD_BYTES and not self._stopped:
            self._stopped = True
            self._pause()
        enough = self._held_bytes >= WRITE_BYTES or all_of_it
        if self.path is None or self._saving is not None or not enough or not self._held:
            return
        pieces, self._held, self._held_bytes = self._held, [], 0
        loop = asyncio.get_running_loop()
        self._saving = loop.run_in_executor(self._pool, self._write, pieces)
        self._saving.add_done_callback(self._saved)

    def _write(self, pieces: list[bytes]) -> None:
        """Write pieces; in the thread."""
        if self._descriptor < 0:
            self._open()
        for piece in pieces:
            self._digest.update(piece)
            left = memoryview(piece)
            while left:
                left = left[os.write(self._descriptor, left) :]

    def _open(self) -> None:
        if self.path is None:
            raise RuntimeError("An upload is written once it has begun.")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, flags, 0o600)

    def _saved(self, done: asyncio.Future[None]) -> None:
        self._saving = None
        error = done.exception()
        if isinstance(error, OSError):
            self._refusal = disk_refusal(error)
            self._held.clear()
        elif error is not None:
            raise error
        if self._over:
            self._forget()
            return
        if self._stopped:
            self._stopped = False
            self._resume()
        self._save()

    def _forget(self) -> None:
        """Delete what was written."""
        self._close()
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
