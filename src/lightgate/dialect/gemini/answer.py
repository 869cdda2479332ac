"""Writes answers as Gemini's GenerateContentResponse, and assembles streams of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from lightgate.dialect.errors import word_of
from lightgate.dialect.kinds import REASONING, TOOL
from lightgate.dialect.neutral.events import CUT
from lightgate.dialect.neutral.folding import (
    ITEM,
    Grown,
    encoded,
    fold,
    joined,
    keep,
    object_of,
    placed,
    say,
    weight,
)
from lightgate.dialect.neutral.items import Writer, arguments_of
from lightgate.dialect.neutral.json_text import dicts_of, dumped, event
from lightgate.dialect.neutral.terms import ErrorTerms, terms
from lightgate.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.clock.tokens import Usage
    from lightgate.dialect.errors import Fault
    from lightgate.dialect.neutral.events import Likely, Logprob, Reason
    from lightgate.dialect.neutral.items import AnswerHead, Ending, Item
    from lightgate.dialect.neutral.json_text import Object

FINISHES: Final[dict[Reason, str]] = {
    "stop": "STOP",
    "sequence": "STOP",
    "length": "MAX_TOKENS",
    "context": "MAX_TOKENS",
    "tool": "STOP",
    "refusal": "SAFETY",
    "filter": "SAFETY",
}
ERROR_WORDS: Final = {  # by status; see word_of for others
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
MALFORMED: Final = "MALFORMED_FUNCTION_CALL"  # its own word for arguments that are no object
_SIGNED: Final = "thoughtSignature"
_TEXT: Final = frozenset({"text", "thought", _SIGNED})  # of a part that may go on with the last
_LISTS: Final = frozenset({"logprobsResult", "citationMetadata"})


class _Part(msgspec.Struct, omit_defaults=True, gc=False, rename="camel"):
    text: str | UnsetType = UNSET
    thought: bool | UnsetType = UNSET
    function_call: dict[str, Any] | UnsetType = UNSET
    thought_signature: str | UnsetType = UNSET


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part]
    role: str = "model"


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content
    finish_reason: str | UnsetType = UNSET
    logprobs_result: dict[str, Any] | UnsetType = UNSET
    index: int = 0


class _Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: tuple[_Candidate, ...]
    model_version: str
    response_id: str
    usage_metadata: dict[str, Any] | UnsetType = UNSET


class GeminiWriter(Writer):
    """Writes one answer; a signature goes with the part that follows the signed thoughts."""

    seals_text = True

    def __init__(self, head: AnswerHead) -> None:
        super().__init__(head)
        self._signature = ""
        self._malformed = False

    def piece(self, item: Item, text: str, logprobs: Sequence[Logprob]) -> None:
        """Write one piece; a call is written when it is whole."""
        if item.kind == TOOL:
            return
        if item.kind == REASONING:
            candidate = _Candidate(_Content([_Part(text=text, thought=True)]))
        else:
            candidate = _Candidate(_Content([self._signed(_Part(text=text))]))
        if logprobs:
            candidate.logprobs_result = _logprobs(logprobs)
        self._chunk(candidate)

    def sign(self, item: Item) -> None:
        """Keep a signature for the next part."""
        self._signature = item.signature

    def close(self, item: Item) -> None:
        """Write a call."""
        part = self._call(item) if item.kind == TOOL else None
        if part is not None:
            self._chunk(_Candidate(_Content([part])))

    def end(self, ending: Ending) -> None:
        """Write the reason and the usage; the end of the body is the marker."""
        candidate = _Candidate(_Content([self._signed(_Part(text=""))]), self._reason(ending))
        self._chunk(candidate, ending.usage)

    def fail(self, fault: Fault) -> None:
        """Write an error."""
        self.out.append(error_event(terms("gemini", fault)))

    def whole(self, items: list[Item], ending: Ending) -> bytes:
        """Write the answer as one chunk."""
        parts: list[_Part] = []
        entries: list[Logprob] = []
        for item in items:
            part = self._whole_part(item)
            if part is not None:
                parts.append(part)
            entries += item.logprobs
            self._signature = item.signature or self._signature
        if self._signature or not parts:
            parts.append(self._signed(_Part(text="")))
        candidate = _Candidate(_Content(parts), self._reason(ending))
        if entries:
            candidate.logprobs_result = _logprobs(entries)
        return dumped(self._made(candidate, ending.usage))

    def _whole_part(self, item: Item) -> _Part | None:
        if item.kind == TOOL:
            return self._call(item)
        if item.kind == REASONING:
            return _Part(text=item.text, thought=True) if item.texts else None
        return self._signed(_Part(text=item.text))

    def _call(self, item: Item) -> _Part | None:
        """Make a call's part; one whose arguments are no object cannot be written."""
        given = arguments_of(item)
        if given is None:
            self._malformed = True
            return None
        call = {"id": item.id, "name": item.name, "args": given}
        return self._signed(_Part(function_call=call))

    def _signed(self, part: _Part) -> _Part:
        if self._signature:
            part.thought_signature, self._signature = self._signature, ""
        return part

    def _reason(self, ending: Ending) -> str:
        malformed = self._malformed and ending.reason not in CUT
        return MALFORMED if malformed else FINISHES[ending.reason]

    def _chunk(self, candidate: _Candidate, usage: Usage | None = None) -> None:
        self.out.append(event(self._made(candidate, usage)))

    def _made(self, candidate: _Candidate, usage: Usage | None) -> _Chunk:
        used = UNSET if usage is None else usage_words(usage)
        return _Chunk((candidate,), self._head.model, self._head.id, used)


def _logprobs(entries: Sequence[Logprob]) -> dict[str, Any]:
    """Write log probabilities."""
    return {
        "chosenCandidates": [_likely(entry) for entry in entries],
        "topCandidates": [{"candidates": [_likely(t) for t in e.top_logprobs]} for e in entries],
    }


def _likely(entry: Logprob | Likely) -> dict[str, Any]:
    return {"token": entry.token, "logProbability": entry.logprob}


def usage_words(usage: Usage) -> dict[str, Any]:
    """Write usage metadata; there is no word for what was written to a cache."""
    tokens_in, tokens_out = usage.tokens_in or 0, usage.tokens_out or 0
    thoughts = min(usage.tokens_reasoning or 0, tokens_out)
    out = {
        "promptTokenCount": tokens_in,
        "candidatesTokenCount": tokens_out - thoughts,
        "totalTokenCount": tokens_in + tokens_out,
    }
    if thoughts:
        out["thoughtsTokenCount"] = thoughts
    if usage.tokens_cached:
        out["cachedContentTokenCount"] = usage.tokens_cached
    return out


def error_words(said: ErrorTerms) -> dict[str, Any]:
    """Write an error in this dialect's shape."""
    word = said.kind or word_of(ERROR_WORDS, said.status)
    error: dict[str, Any] = {"code": said.status, "message": said.message, "status": word}
    if said.details:
        error["details"] = msgspec.Raw(said.details.encode())
    return {"error": error}


def error_event(said: ErrorTerms) -> bytes:
    """Write the error that ends a stream."""
    return event(error_words(said))


class GeminiAssembler:
    """Assembles one answer: the facts of the last chunks, and the candidates by index."""

    __slots__ = ("_candidates", "_head", "size")

    def __init__(self) -> None:
        self._head: Object = {}
        self._candidates: dict[int, Object] = {}
        self.size = 0

    def event(self, name: bytes, data: bytes) -> None:  # noqa: ARG002 - these streams name none
        """Take one event."""
        chunk = object_of(data)
        if chunk is None:
            return
        for piece in dicts_of(chunk.get("candidates")):
            candidate, size = placed(self._candidates, piece)
            self.size += size + _take(candidate, piece)
        facts = {name: value for name, value in chunk.items() if name != "candidates"}
        self.size += keep(self._head, facts)

    def whole(self) -> bytes:
        """Return the GenerateContentResponse object."""
        if not self._candidates:
            raise Malformed("The stream had no candidate.")
        candidates = [joined(one) for _, one in sorted(self._candidates.items())]
        return encoded({"candidates": candidates, **self._head})


def _take(candidate: Object, piece: Object) -> int:
    size = 0
    content = piece.get("content")
    if isinstance(content, dict):
        held = candidate.setdefault("content", {"parts": Grown()})
        parts = held["parts"]
        size += sum(_fold_part(parts, part) for part in dicts_of(content.get("parts")))
        size += keep(held, {name: one for name, one in content.items() if name != "parts"})
    for name, value in piece.items():
        if name in _LISTS and isinstance(value, dict):
            size += fold(candidate, {name: value})
        elif name != "content":
            size += keep(candidate, {name: value})
    return size


def _fold_part(parts: list[Object], part: Object) -> int:
    """Go on with text of the same sort, which has one signature; all else stands alone."""
    text = part.get("text")
    if not isinstance(text, str) or not part.keys() <= _TEXT:
        parts.append(dict(part))
        return ITEM + sum(len(name) + weight(value) for name, value in part.items())
    last = parts[-1] if parts else None
    rest = {name: value for name, value in part.items() if name != "text"}
    if not text and not rest and last is not None:  # what a finish comes with
        return 0
    size = 0
    if last is None or not _goes_on(last, part):
        last, size = {}, ITEM
        parts.append(last)
    return size + say(last, "text", text) + keep(last, rest)


def _goes_on(last: Object, part: Object) -> bool:
    if not last.keys() <= _TEXT or last.get("thought") != part.get("thought"):
        return False
    return not (last.get(_SIGNED) and part.get(_SIGNED))
