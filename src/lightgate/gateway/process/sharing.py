"""What one worker has learned about targets, for the others and for the next life.

Each worker writes its form to a file of its own by rename and reads those of the others. A file
that is missing, old or broken teaches nothing, and stops nobody.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.route.form.forms import FormState
from lightgate.route.form.size import OFFSETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lightgate.route.form.forms import Forms

FOLDER: Final = "form"
SHARE_TICKS: Final = 1  # of the worker's ticker: seconds. Others know after two of them at most
logger = logging.getLogger(__name__)
_decode: Final = msgspec.json.Decoder(FormState).decode
_encode: Final = msgspec.json.Encoder().encode


class FormSharing:
    """The exchange of form between the workers of one machine."""

    def __init__(self, data: Path, worker: int, forms: Forms, now_ns: Callable[[], int]) -> None:
        self._folder = data / FOLDER
        self._own = self._folder / f"{worker}.json"
        self._forms = forms
        self._now_ns = now_ns
        self._seen: dict[Path, int] = {}  # file: its time of change
        self._written = b""

    def adopt(self, *, own: bool = False) -> int:
        """Take in what others have written since the last look; the number of files."""
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
                self._forms.adopt(state, self._now_ns())
                taken += 1
        return taken

    def share(self) -> None:
        """Write what is known here, if that has changed."""
        content = self.news()
        if content is not None:
            self.keep(content)

    def news(self) -> bytes | None:
        """What is known here, to be kept; None if that is what was kept last."""
        content = _encode(self._forms.export())
        return None if content == self._written else content

    def keep(self, content: bytes) -> None:
        """Write it down for the others; a disk may take its time, so not on the loop."""
        unborn = self._own.with_suffix(".new")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            unborn.write_bytes(content)
            os.replace(unborn, self._own)  # noqa: PTH105 - one call, no second look-up
        except OSError as error:
            logger.warning("what was learned is not shared: %s", error.strerror)
            return
        self._written = content
