"""Share between the workers of one machine what they know of targets, and what they have in flight.

Form is kept for the next start: each worker writes its form to a file of its own by rename and
reads the files of the others. A file that is missing, of another version or broken is passed over.

Requests in flight are told fifty times a second, in a piece of memory that the supervisor makes and
every worker maps; each worker writes a row of its own and reads those of the others. A row that is
read while it is written has a wrong checksum: it is passed over until the next beat. No disk has a
part in this, and no request waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from lightgate.gateway.spend.shares import WORKERS
from lightgate.route.form.forms import PEER_NS, FormState
from lightgate.route.form.size import OFFSETS
from lightgate.whole_file import put

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from lightgate.route.form.forms import Forms

FOLDER: Final = "form"
SHARE_TICKS: Final = 1  # seconds between two writings: others know after two of them at most
BEAT_S: Final = 0.02  # older counts send requests into queues: decision 0052
IDLE_BEAT_S: Final = 0.2  # while no worker has anything in flight
SEARCH_NS: Final = 1_000_000_000  # between two looks at all rows, for workers that are new
ROW: Final = 4096
_HEAD: Final = struct.Struct("<qII")  # when, length, checksum
_ROOM: Final = ROW - _HEAD.size
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(dict[str, int]).decode
logger = logging.getLogger(__name__)
_decode: Final = msgspec.json.Decoder(FormState).decode
_encode: Final = msgspec.json.Encoder().encode


class FormSharing:
    """One worker's side of the sharing: its own file, and what it has read of the others."""

    def __init__(self, data: Path, worker: int, forms: Forms, now_ns: Callable[[], int]) -> None:
        self._folder = data / FOLDER
        self._own = self._folder / f"{worker}.json"
        self._forms = forms
        self._now_ns = now_ns
        self._seen: dict[Path, int] = {}  # time of change, by file
        self._written = b""
        self._failed = False

    def adopt(self, *, own: bool = False) -> int:
        """Take in the files that have changed since the last look; their number."""
        taken = 0
        try:
            found = sorted(self._folder.glob("*.json"))
        except OSError:  # no descriptor is left: clients have them all
            return 0
        for path in found:
            if path == self._own and not own:
                continue
            try:
                changed = path.stat().st_mtime_ns
                if self._seen.get(path) == changed:
                    continue
                state = _decode(path.read_bytes())
            except (OSError, msgspec.DecodeError):
                continue
            self._seen[path] = changed
            if all(len(known.sizes) == len(OFFSETS) for known in state.targets.values()):
                self._forms.adopt(state, self._now_ns())
                taken += 1
        return taken

    def share(self) -> None:
        """Write the own form, if it has changed."""
        content = self.news()
        if content is not None:
            self.keep(content)

    def news(self) -> bytes | None:
        """The own form as the file's content; None if the file has it already."""
        content = _encode(self._forms.export())
        return None if content == self._written else content

    def keep(self, content: bytes) -> None:
        """Write the own file; in a thread, since a disk may be slow."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            put(self._own, content)
        except OSError as error:
            if not self._failed:  # once, until it can be written again
                logger.warning(
                    "the form of targets cannot be written for other workers: %s", error.strerror
                )
            self._failed = True
            return
        self._failed = False
        self._written = content


class FlyingCounts:
    """One worker's row of the counts, and what it has read in those of the others."""

    def __init__(
        self, descriptor: int, worker: int, forms: Forms, now_ns: Callable[[], int]
    ) -> None:
        """Map the memory; OSError where the system does not let it be so large."""
        try:
            os.ftruncate(descriptor, WORKERS * ROW)  # a page is taken when it is written to
            self._map = mmap.mmap(descriptor, WORKERS * ROW)
        finally:
            os.close(descriptor)
        self._own = worker * ROW
        self._forms = forms
        self._now_ns = now_ns
        self._rows: dict[int, int] = {}  # by the place of a row: when it was written
        self._searched_ns: int | None = None

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Tell and hear until cancelled."""
        while True:
            await sleep(BEAT_S if self.beat() else IDLE_BEAT_S)

    def beat(self) -> bool:
        """Tell the others, and take in what they tell; whether anything is in flight anywhere."""
        busy = self._tell()
        known = bool(self._rows)
        told = self._hear()
        if told or known:  # or they are forgotten by now
            self._forms.beside(told, self._now_ns())
        return busy or any(counts for _, counts in told.values())

    def _tell(self) -> bool:
        forms = self._forms.by_target.items()
        flying = {name: form.in_flight for name, form in forms if form.in_flight}
        content = _pack(flying)
        while len(content) > _ROOM:  # hundreds of targets at once: the fullest ones tell most
            fullest = sorted(flying, key=flying.__getitem__, reverse=True)
            flying = {name: flying[name] for name in fullest[: len(fullest) // 2]}
            content = _pack(flying)
        head = _HEAD.pack(self._now_ns(), len(content), crc32(content))
        self._map[self._own : self._own + _HEAD.size + len(content)] = head + content
        return bool(flying)

    def _hear(self) -> dict[str, tuple[int, dict[str, int]]]:
        """Read the rows that were written since they were last read, by worker."""
        now_ns = self._now_ns()
        if self._searched_ns is None or now_ns - self._searched_ns >= SEARCH_NS:
            self._searched_ns = now_ns
            for place in range(0, WORKERS * ROW, ROW):
                at_ns = _HEAD.unpack_from(self._map, place)[0]
                if place == self._own or not at_ns or now_ns - at_ns >= PEER_NS:
                    self._rows.pop(place, None)
                else:
                    self._rows.setdefault(place, 0)
        told = {}
        for place, known_ns in self._rows.items():
            at_ns, length, checksum = _HEAD.unpack_from(self._map, place)
            if at_ns == known_ns or length > _ROOM:
                continue
            begin = place + _HEAD.size
            content = self._map[begin : begin + length]
            if crc32(content) != checksum:
                continue
            self._rows[place] = at_ns
            told[str(place // ROW)] = at_ns, _unpack(content)
        return told
