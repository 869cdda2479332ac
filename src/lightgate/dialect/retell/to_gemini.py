"""Tells an answer as Gemini's GenerateContentResponse, whole or in chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from lightgate.dialect.kinds import REASONING, TOOL
from lightgate.dialect.retell import logprobs as likely
from lightgate.dialect.retell.finish import CUT, WRITE
from lightgate.dialect.retell.frame import dumped, event
from lightgate.dialect.retell.items import arguments_of
from lightgate.dialect.retell.refusals import error_event, status_of
from lightgate.dialect.retell.usage import write_gemini

if TYPE_CHECKING:
    from lightgate.clock.tokens import Usage
    from lightgate.dialect.fault import Fault
    from lightgate.dialect.retell.items import Ending, Head, Item
    from lightgate.dialect.retell.logprobs import Logprob

NAME: Final = "gemini"
MALFORMED: Final = "MALFORMED_FUNCTION_CALL"  # its own word for arguments that are no object


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


class GeminiWriter:
    """One answer; a signature goes with the part that follows the thoughts it vouches for."""

    keeps = False
    call_prefix = "call"

    def __init__(self, head: Head) -> None:
        self._head = head
        self._signature = ""
        self._malformed = False
        self.out: list[bytes] = []

    def start(self, first: Item | None, usage: Usage | None) -> None:
        """Say nothing: there is no opening."""

    def open(self, item: Item) -> None:
        """Say nothing: parts have no opening."""

    def piece(self, item: Item, text: str, logprobs: list[Logprob]) -> None:
        """Tell one piece; a call is told when it is whole."""
        if item.kind == TOOL:
            return
        if item.kind == REASONING:
            candidate = _Candidate(_Content([_Part(text=text, thought=True)]))
        else:
            candidate = _Candidate(_Content([self._signed(_Part(text=text))]))
        if logprobs:
            candidate.logprobs_result = likely.write_gemini(logprobs)
        self._chunk(candidate)

    def sign(self, item: Item) -> None:
        """Keep a signature for the next part."""
        self._signature = item.signature

    def close(self, item: Item) -> None:
        """Tell a call."""
        part = self._call(item) if item.kind == TOOL else None
        if part is not None:
            self._chunk(_Candidate(_Content([part])))

    def end(self, ending: Ending) -> None:
        """Tell the reason and the usage; the end of the body is the marker."""
        candidate = _Candidate(_Content([self._signed(_Part(text=""))]), self._reason(ending))
        self._chunk(candidate, ending.usage)

    def fail(self, fault: Fault) -> None:
        """Tell an error."""
        status = status_of(fault)
        self.out.append(error_event(NAME, status, message=fault.message, code=fault.code))

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
            candidate.logprobs_result = likely.write_gemini(entries)
        return dumped(self._made(candidate, ending.usage))

    def _whole_part(self, item: Item) -> _Part | None:
        if item.kind == TOOL:
            return self._call(item)
        if item.kind == REASONING:
            return _Part(text=item.text, thought=True) if item.texts else None
        return self._signed(_Part(text=item.text))

    def _call(self, item: Item) -> _Part | None:
        """Make a call's part; one whose arguments are no object cannot be told."""
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
        return MALFORMED if malformed else WRITE[NAME][ending.reason]

    def _chunk(self, candidate: _Candidate, usage: Usage | None = None) -> None:
        self.out.append(event(self._made(candidate, usage)))

    def _made(self, candidate: _Candidate, usage: Usage | None) -> _Chunk:
        used = UNSET if usage is None else write_gemini(usage)
        return _Chunk((candidate,), self._head.model, self._head.id, used)
