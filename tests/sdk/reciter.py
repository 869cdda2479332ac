"""A provider of all dialects that says golden answers, and keeps what it was asked.

The model names the answer: parallel.gemini is tests/fixtures/translate/answers/parallel/gemini.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sdk.door import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWERS = Path(__file__).parents[1] / "fixtures" / "translate" / "answers"


class Reciter(NamedTuple):
    """Where it listens and what it heard, in order."""

    port: int
    heard: list[dict[str, Any]]

    def asked(self, word: str) -> dict[str, Any]:
        """The one body that has this word in it."""
        (found,) = [body for body in self.heard if f'"{word}"' in json.dumps(body)]
        return found


@contextlib.contextmanager
def reciting() -> Iterator[Reciter]:
    heard: list[dict[str, Any]] = []
    with opened(ANSWERS, heard) as port:
        yield Reciter(port, heard)
