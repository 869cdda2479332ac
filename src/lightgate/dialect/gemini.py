"""Gemini generateContent and streamGenerateContent: candidates of parts, the same in both."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lightgate.clock.tokens import Usage
from lightgate.dialect.fault import Fault, clean, error_of, malformed
from lightgate.dialect.kinds import AUDIO, REASONING, TEXT, TOOL
from lightgate.dialect.openai_fields import count
from lightgate.dialect.scanner import Grammar, Scanner, as_json, decoded

UNSPECIFIED: Final = "FINISH_REASON_UNSPECIFIED"


class _Call(msgspec.Struct, gc=False):
    name: Any = None
    args: Any = None


class _Media(msgspec.Struct, gc=False):
    data: Any = None


class _Code(msgspec.Struct, gc=False):
    code: Any = None


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: Any = None
    thought: Any = None
    function_call: _Call | None = None
    inline_data: _Media | None = None
    executable_code: _Code | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: _Content | None = None
    finish_reason: Any = None


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: Any = None


class _Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: Any = None
    prompt_feedback: _Feedback | None = None
    error: Any = None


_decoder: Final = msgspec.json.Decoder(_Chunk)
_list_decoder: Final = msgspec.json.Decoder(list[_Chunk])


def _event(scanner: Scanner, name: bytes, data: bytes) -> None:
    chunk = decoded(_decoder, data)
    if chunk is None:
        if data.strip():
            scanner.saw_error(malformed(data))
        return
    _chunk(scanner, chunk)
    if scanner.error is None and _says_nothing(chunk):
        found = malformed(data)
        if name == b"error" or found.code != "malformed":
            scanner.saw_error(found)


def _whole(scanner: Scanner, body: bytes) -> None:
    """Take a whole answer; without alt=sse a stream is one list of chunks."""
    if body.lstrip().startswith(b"["):
        chunks = decoded(_list_decoder, body) or []
    else:
        chunk = decoded(_decoder, body)
        chunks = [] if chunk is None else [chunk]
    if not chunks or all(_says_nothing(chunk) for chunk in chunks):
        scanner.saw_error(malformed(body))
    for chunk in chunks:
        _chunk(scanner, chunk)


def _says_nothing(chunk: _Chunk) -> bool:
    facts = (chunk.candidates, chunk.usage_metadata, chunk.prompt_feedback, chunk.error)
    return all(fact is None for fact in facts)


def _chunk(scanner: Scanner, chunk: _Chunk) -> None:
    if chunk.error is not None:
        scanner.saw_error(error_of(chunk.error))
    if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
        reason = clean(str(chunk.prompt_feedback.block_reason))
        scanner.saw_error(Fault("blocked", f"The provider blocked the prompt: {reason}."))
    for candidate in chunk.candidates or ():
        if candidate.content is not None:
            for part in candidate.content.parts or ():
                _part(scanner, part)
        if candidate.finish_reason != UNSPECIFIED:
            scanner.saw_finish(candidate.finish_reason)
    if chunk.usage_metadata is not None:
        scanner.saw_usage(_usage(chunk.usage_metadata))


def _part(scanner: Scanner, part: _Part) -> None:
    """Take one part; one with nothing but a thoughtSignature carries no token."""
    if part.text and isinstance(part.text, str):
        scanner.saw_token(REASONING if part.thought is True else TEXT, part.text)
    call = part.function_call
    if call is not None:
        name = call.name if isinstance(call.name, str) else ""
        scanner.saw_token(TOOL, name + (as_json(call.args) if call.args else ""))
    if part.executable_code is not None and isinstance(part.executable_code.code, str):
        scanner.saw_token(TOOL, part.executable_code.code)
    if part.inline_data is not None and part.inline_data.data:
        scanner.saw_token(AUDIO, "")


def _usage(value: Any) -> Usage | None:
    """Read usage; candidates and thoughts are counted apart, and so are the results of tools."""
    if not isinstance(value, dict) or not value:
        return None
    thoughts = count(value.get("thoughtsTokenCount"))
    return Usage(
        tokens_in=_sum(
            count(value.get("promptTokenCount")), count(value.get("toolUsePromptTokenCount"))
        ),
        tokens_out=_sum(count(value.get("candidatesTokenCount")), thoughts),
        tokens_reasoning=thoughts,
        tokens_cached=count(value.get("cachedContentTokenCount")),
    )


def _sum(one: int | None, two: int | None) -> int | None:
    return None if one is None and two is None else (one or 0) + (two or 0)


GRAMMAR: Final = Grammar(event=_event, whole=_whole, eof_ends=True)
