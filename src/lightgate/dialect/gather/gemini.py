"""Gathers a stream of Gemini's streamGenerateContent: every chunk is a small whole answer."""

from __future__ import annotations

from typing import Final

from lightgate.dialect.gather.folding import (
    PIECE,
    Object,
    encoded,
    fold,
    keep,
    objects,
    placed,
    read,
    say,
    told,
    weight,
)
from lightgate.errors import Malformed

_SIGNED: Final = "thoughtSignature"
_TEXT: Final = frozenset({"text", "thought", _SIGNED})  # of a part that may go on with the last
_LISTS: Final = frozenset({"logprobsResult", "citationMetadata"})


class GeminiGatherer:
    """The facts of the last chunks, and the candidates by index with all their parts."""

    __slots__ = ("_candidates", "_head", "size")

    def __init__(self) -> None:
        self._head: Object = {}
        self._candidates: dict[int, Object] = {}
        self.size = 0

    def event(self, name: bytes, data: bytes) -> None:  # noqa: ARG002 - these streams name none
        """Take one event."""
        chunk = read(data)
        if chunk is None:
            return
        for piece in objects(chunk.get("candidates")):
            candidate, size = placed(self._candidates, piece)
            self.size += size + _take(candidate, piece)
        facts = {name: value for name, value in chunk.items() if name != "candidates"}
        self.size += keep(self._head, facts)

    def whole(self) -> bytes:
        """The GenerateContentResponse object."""
        if not self._candidates:
            raise Malformed("The stream had no candidate.")
        candidates = [told(one) for _, one in sorted(self._candidates.items())]
        return encoded({"candidates": candidates, **self._head})


def _take(candidate: Object, piece: Object) -> int:
    size = 0
    content = piece.get("content")
    if isinstance(content, dict):
        held = candidate.setdefault("content", {"parts": []})
        parts = held["parts"]
        size += sum(_part(parts, part) for part in objects(content.get("parts")))
        size += keep(held, {name: one for name, one in content.items() if name != "parts"})
    for name, value in piece.items():
        if name in _LISTS and isinstance(value, dict):
            size += fold(candidate.setdefault(name, {}), value)
        elif name != "content":
            size += keep(candidate, {name: value})
    return size


def _part(parts: list[Object], part: Object) -> int:
    """Go on with text of the same sort, which has one signature; all else stands alone."""
    text = part.get("text")
    if not isinstance(text, str) or not part.keys() <= _TEXT:
        parts.append(dict(part))
        return PIECE + sum(len(name) + weight(value) for name, value in part.items())
    last = parts[-1] if parts else None
    rest = {name: value for name, value in part.items() if name != "text"}
    if not text and not rest and last is not None:  # what a finish comes with
        return 0
    if last is None or not _goes_on(last, part):
        last = {}
        parts.append(last)
    return say(last, "text", text) + keep(last, rest)


def _goes_on(last: Object, part: Object) -> bool:
    if not last.keys() <= _TEXT or last.get("thought") != part.get("thought"):
        return False
    return not (last.get(_SIGNED) and part.get(_SIGNED))
