"""Share the form of targets between the workers of one machine, and keep it for the next start.

Each worker writes its form to a file of its own by rename and reads the files of the others. A file
that is missing, of another version or broken is passed over.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.route.form.forms import FormState
from lightgate.route.form.size import OFFSETS
from lightgate.whole_file import put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lightgate.route.form.forms import Forms

FOLDER: Final = "form"
SHARE_TICKS: Final = 1  # seconds between two writings: others know after two of them at most
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
        for path in sorted(self._folder.glob("*.json")):
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
                self._forms.adopt(state, self._now_ns(), "" if path == self._own else path.stem)
                taken += 1
        return taken

    def share(self) -> None:
        """Write the own form, if it has changed."""
        content = self.news()
        if content is not None:
            self.keep(content)

    def news(self) -> bytes | None:
        """The own form as the file's content; None if the file has it already."""
        content = _encode(self._forms.export(self._now_ns()))
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
